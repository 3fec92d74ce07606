"""Ready-made networks."""

from tffpers.keras.models.char_lstm import char_lstm
from tffpers.keras.models.cnn import cnn
from tffpers.keras.models.linear_base import linear_base
from tffpers.keras.models.mlp import mlp
from tffpers.keras.models.mobilenet import mobilenet
from tffpers.keras.models.resnet import resnet

__all__ = ['char_lstm', 'cnn', 'linear_base', 'mlp', 'mobilenet', 'resnet']
