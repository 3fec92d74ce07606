"""Ready-made networks."""

from tffpers.keras.models.char_lstm import char_lstm
from tffpers.keras.models.cnn import cnn
from tffpers.keras.models.mlp import mlp

__all__ = ['char_lstm', 'cnn', 'mlp']
