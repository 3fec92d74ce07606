"""What every Bayesian layer must hold; `test_every_layer.py` applies it to each case.

A new layer joins by adding a `Case` to `CASES`.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from tffpers.keras import layers
from tffpers.keras.backend import keras
from tffpers.keras.layers.affine import ESTIMATORS

BATCH = 4


@dataclasses.dataclass(frozen=True)
class Case:
  """A layer, possibly wrapped, and inputs for it.

  Attributes:
    name: Identifies the case.
    make: `(**kwargs of BayesianLayer) -> layer` that maps inputs to outputs.
    inputs: Array [BATCH, ...].
    output_shape: Shape of the outputs.
    recurrent: Whether it takes a mask over axis 1.
  """

  name: str
  make: Callable[..., keras.layers.Layer]
  inputs: np.ndarray
  output_shape: tuple[int, ...]
  recurrent: bool = False

  def model(self, **kwargs) -> keras.Model:
    """A built model: the layer on an input of static shape, flattened to one number."""
    dtype = 'int32' if self.inputs.dtype.kind == 'i' else None
    inputs = keras.Input(self.inputs.shape[1:], dtype=dtype)
    outputs = keras.layers.Flatten()(self.make(**kwargs)(inputs))
    return keras.Model(inputs, keras.layers.Dense(1, dtype='float32')(outputs))

  def built(self, **kwargs) -> keras.layers.Layer:
    """The layer after one call."""
    layer = self.make(**kwargs)
    layer(self.tensor())
    return layer

  def tensor(self, rows: int = BATCH) -> tf.Tensor:
    """The first `rows` inputs, floats in the policy's compute dtype."""
    inputs = tf.constant(self.inputs[:rows])
    return inputs if inputs.dtype.is_integer else tf.cast(inputs, compute_dtype())


def compute_dtype() -> tf.DType:
  """Compute dtype of the global policy."""
  return tf.as_dtype(keras.layers.Layer().compute_dtype)


@contextlib.contextmanager
def policy(name: str) -> Iterator[None]:
  """Global Keras policy `name` inside the block, float32 after it."""
  keras.mixed_precision.set_global_policy(name)
  keras.backend.set_floatx('float64' if name == 'float64' else 'float32')
  try:
    yield
  finally:
    keras.mixed_precision.set_global_policy('float32')
    keras.backend.set_floatx('float32')


def _case(name, make, inputs, output_shape, recurrent=False) -> Case:
  return Case(name, make, inputs, output_shape, recurrent)


_RANDOM = np.random.default_rng(0)
_ROWS = _RANDOM.normal(size=(BATCH, 5)).astype(np.float32)
_STEPS = _RANDOM.normal(size=(BATCH, 6, 3)).astype(np.float32)
_IMAGES = np.random.default_rng(1).normal(size=(BATCH, 6, 5, 2)).astype(np.float32)
_IDS = _RANDOM.integers(0, 7, size=(BATCH, 6)).astype(np.int32)


def _dense(estimator: str) -> Callable[..., keras.layers.Layer]:
  return lambda **kwargs: layers.BayesianDense(3, 'tanh', estimator=estimator, **kwargs)


def _conv(estimator: str) -> Callable[..., keras.layers.Layer]:
  return lambda **kwargs: layers.BayesianConv2D(
    3, (2, 3), activation='tanh', estimator=estimator, **kwargs
  )


def _strided_conv(**kwargs) -> keras.layers.Layer:
  return layers.BayesianConv2D(3, 3, (2, 3), 'same', estimator='flipout', **kwargs)


CASES = [
  *(_case(f'dense_{estimator}', _dense(estimator), _ROWS, (BATCH, 3)) for estimator in ESTIMATORS),
  *(
    _case(f'conv_{estimator}', _conv(estimator), _IMAGES, (BATCH, 5, 3, 3))
    for estimator in ESTIMATORS
  ),
  _case('conv_strided_same', _strided_conv, _IMAGES, (BATCH, 3, 2, 3)),
  _case('dense_rank_3', _dense('local_reparameterization'), _STEPS, (BATCH, 6, 3)),
  _case('embedding', lambda **kw: layers.BayesianEmbedding(7, 3, **kw), _IDS, (BATCH, 6, 3)),
  _case('lstm', lambda **kw: layers.BayesianLSTM(3, **kw), _STEPS, (BATCH, 3), True),
  _case(
    'lstm_loop',
    lambda **kw: layers.BayesianLSTM(3, return_sequences=True, unroll=False, **kw),
    _STEPS,
    (BATCH, 6, 3),
    True,
  ),
  _case(
    'lstm_cell',
    lambda **kw: keras.layers.RNN(layers.BayesianLSTMCell(3, **kw)),
    _STEPS,
    (BATCH, 3),
    True,
  ),
]
