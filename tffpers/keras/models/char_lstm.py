"""Next-character network of VIRTUAL's text experiments (arXiv 1906.06268)."""

from typing import Any

from tffpers.keras.backend import keras
from tffpers.keras.layers import BayesianDense, BayesianEmbedding, BayesianLSTM
from tffpers.keras.layers.priors import Prior
from tffpers.keras.models.stack import stack


def char_lstm(
  *,
  vocabulary_size: int = 86,
  embedding_size: int = 8,
  lstm_units: int = 100,
  lstm_layers: int = 2,
  sequence_length: int = 80,
  bayesian: bool = True,
  hierarchical: bool = False,
  prior: Prior = 1.0,
  initial_scale: float = 0.02,
) -> keras.Model:
  """Character LSTM: embedding, LSTM layers, and a dense layer to logits.

  The network has no mask. Id 0 is padding and also an unknown character; padding is
  only on the right, where it cannot reach earlier outputs, and an unknown character
  inside a text must move the state like any other. Mask padded targets in the loss.

  Args:
    vocabulary_size: Number of characters, without id 0.
    embedding_size: Width of a character's vector.
    lstm_units: Width of each LSTM layer.
    lstm_layers: Number of LSTM layers.
    sequence_length: Characters in a sequence; the recurrence is unrolled.
    bayesian: Gaussian posteriors over every weight; False gives plain Keras layers.
    hierarchical: Shared and private paths, see `tffpers.keras.hierarchical`.
    prior: Prior of the Bayesian layers, see `BayesianLayer`.
    initial_scale: Initial σ of the Bayesian layers.

  Returns:
    A model from integer ids [batch, sequence_length] in [0, vocabulary_size] to logits
    [batch, sequence_length, vocabulary_size + 1].

  Raises:
    ValueError: `hierarchical` without `bayesian`.
  """
  classes = vocabulary_size + 1
  if bayesian:
    common: dict[str, Any] = {'prior': prior, 'initial_scale': initial_scale}
    embedding = BayesianEmbedding(classes, embedding_size, **common)
    recurrent = [
      BayesianLSTM(lstm_units, return_sequences=True, unroll=True, **common)
      for _ in range(lstm_layers)
    ]
    dense = BayesianDense(classes, estimator='reparameterization', **common)
  else:
    embedding = keras.layers.Embedding(classes, embedding_size)
    recurrent = [
      keras.layers.LSTM(lstm_units, return_sequences=True, unroll=True) for _ in range(lstm_layers)
    ]
    dense = keras.layers.Dense(classes)
  ids = keras.Input((sequence_length,), dtype='int32')
  return stack([ids, embedding, *recurrent, dense], bayesian=bayesian, hierarchical=hierarchical)
