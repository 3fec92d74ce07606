"""A mean-field Gaussian posterior over one weight of a layer.

Parametrised by mean μ (`loc`) and ln σ (`log_scale`). KL(N(μ, σ²) ‖ N(m, s²)) is a
function of μ plus a function of ln σ, so two weight regularizers carry it exactly.
"""

import contextlib
import math
import threading
from collections.abc import Callable, Iterator

import tensorflow as tf
from tensorflow_probability import distributions as tfd

from tffpers import gaussians
from tffpers.keras import noise
from tffpers.keras.backend import NO_AUTOCAST, keras
from tffpers.keras.layers.priors import check_prior

MIN_SCALE = 1e-8
MAX_SCALE = 1e4


class _Memo(threading.local):
  def __init__(self):
    self.scales: dict[tuple[int, int], tf.Tensor] | None = None


_memo = _Memo()


@contextlib.contextmanager
def scales_remembered() -> Iterator[None]:
  """Lets `GaussianWeight.last_scale` give what a layer computed inside the block.

  The exponential is the dearest of a training step's element-wise operations, and a
  step needs σ in the layer and again in the divergence. Layers themselves compute σ at
  each use, so that gradients are right however they are taken.

  >>> from tffpers.keras import layers
  >>> layer = layers.BayesianDense(2)
  >>> layer.build([None, 3])
  >>> with scales_remembered():
  ...   computed = layer.kernel.scale
  ...   assert layer.kernel.last_scale is computed
  """
  outer, _memo.scales = _memo.scales, {}
  try:
    yield
  finally:
    _memo.scales = outer


@tf.custom_gradient
def clip_log_scale(log_scale: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
  """`log_scale` limited to [ln 1e-8, ln 1e4]; the gradient passes unchanged.

  A hard clip would have no gradient outside the range and a parameter that once
  left it would stay there.
  """
  clipped = tf.clip_by_value(log_scale, math.log(MIN_SCALE), math.log(MAX_SCALE))
  return clipped, lambda upstream: upstream


class GaussianWeight:
  """Posterior N(loc, scale²), element by element, over one weight of a layer.

  Its variables belong to the layer. They are float32 under every policy except
  float64, whose weights are float64. `scale` is exp(log_scale) kept within
  [1e-8, 1e4]; outside that range gradients still pass.

  Attributes:
    name: Name of the weight in its layer, such as "kernel".
    path: `<layer name>/<name>`, for people: names need not be unique.
    owner: The same for all weights of one layer object and no other.
    shape: Shape of the weight.
    loc: Variable of means μ.
    log_scale: Variable of ln σ, same shape and dtype.
  """

  def __init__(
    self,
    layer: keras.layers.Layer,
    name: str,
    shape: tuple[int, ...],
    *,
    initializer: Callable[..., tf.Tensor],
    initial_scale: float,
    prior: float | Callable[[tuple[int, ...], tf.DType], tfd.Normal],
    kl_weight: float | None,
  ):
    """Adds the two variables to `layer`; see `BayesianLayer` for the arguments."""
    self.name = name
    self.path = f'{layer.name}/{name}'
    self.owner = id(layer)
    self.shape = tuple(int(size) for size in shape)
    self._dtype = tf.float64 if layer.variable_dtype == 'float64' else tf.float32
    self._prior = prior
    check_prior(self.prior, self.path, self.shape, self._dtype)
    self.loc = self._add(layer, 'loc', initializer, kl_weight, _kl_of_loc)
    start = keras.initializers.Constant(math.log(initial_scale))
    self.log_scale = self._add(layer, 'log_scale', start, kl_weight, _kl_of_log_scale)

  def _add(self, layer, suffix, initializer, kl_weight, divergence) -> tf.Variable:
    regularizer = None if kl_weight is None else _KL(self, divergence, kl_weight)
    return layer.add_weight(
      name=f'{self.name}_{suffix}',
      shape=self.shape,
      dtype=self._dtype.name,
      initializer=initializer,
      regularizer=regularizer,
      trainable=True,
      **NO_AUTOCAST,
    )

  @property
  def variables(self) -> tuple[tf.Variable, tf.Variable]:
    """`(loc, log_scale)`."""
    return self.loc, self.log_scale

  @property
  def scale(self) -> tf.Tensor:
    """Standard deviations σ, in [1e-8, 1e4]."""
    scale = tf.exp(self._clipped())
    if _memo.scales is not None:
      _memo.scales[self._place] = scale
    return scale

  @property
  def last_scale(self) -> tf.Tensor:
    """Value of the scale used last in a block of `scales_remembered`; else computed anew.

    Not for differentiating. The weight must not have been assigned since.
    """
    found = (_memo.scales or {}).get(self._place)
    return self.scale if found is None else found

  @property
  def _place(self) -> tuple[int, int]:
    # A tensor of a loop's or branch's body cannot be used outside it.
    return id(self), id(tf.compat.v1.get_default_graph())

  @property
  def posterior(self) -> tfd.Normal:
    """N(loc, scale²)."""
    return tfd.Normal(tf.convert_to_tensor(self.loc), self.scale)

  @property
  def prior(self) -> tfd.Normal:
    """The prior, broadcastable to the weight's shape."""
    if callable(self._prior):
      return self._prior(self.shape, self._dtype)
    return tfd.Normal(tf.zeros([], self._dtype), tf.constant(self._prior, self._dtype))

  def mean(self, dtype: tf.DType) -> tf.Tensor:
    """Means as a tensor of `dtype`."""
    return tf.cast(tf.convert_to_tensor(self.loc), dtype)

  def variance(self, dtype: tf.DType) -> tf.Tensor:
    """Variances σ² as a tensor of `dtype`."""
    return tf.cast(tf.square(self.scale), dtype)

  def perturbation(self, seed: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """σ·ε with ε a function of `seed` [2]: a sample of the weight minus its mean."""
    return tf.cast(self.scale * noise.normal(self.shape, seed, self._dtype), dtype)

  def sample(self, seed: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """μ + σ·ε with ε a function of `seed` [2], formed in the variables' dtype."""
    drawn = self.loc + self.scale * noise.normal(self.shape, seed, self._dtype)
    return tf.cast(drawn, dtype)

  def natural(self, dtype: tf.DType = tf.float64) -> gaussians.Natural:
    """Natural parameters of the posterior, computed in `dtype`."""
    log_scale = tf.cast(self._clipped(), dtype)
    return gaussians.from_moments(tf.convert_to_tensor(self.loc), tf.exp(log_scale), dtype)

  def set_natural(self, natural: gaussians.Natural) -> None:
    """Assigns the posterior; its σ is kept within [1e-8, 1e4] when used.

    Raises:
      tf.errors.InvalidArgumentError: A precision that is not positive.
    """
    tf.debugging.assert_positive(
      natural.lam, f'{self.path}: a posterior needs positive precisions λ.'
    )
    self.loc.assign(tf.cast(natural.gamma / natural.lam, self._dtype))
    self.log_scale.assign(tf.cast(-0.5 * tf.math.log(natural.lam), self._dtype))

  def kl_divergence(self) -> tf.Tensor:
    """KL(posterior ‖ prior) in nats, summed over elements; a scalar of the variables' dtype."""
    prior = self.prior
    return _kl_of_loc(self.loc, prior) + _kl_of_log_scale(self.log_scale, prior)

  def _clipped(self) -> tf.Tensor:
    return clip_log_scale(tf.convert_to_tensor(self.log_scale))


class _KL(keras.regularizers.Regularizer):
  """kl_weight times one variable's part of the divergence."""

  def __init__(self, weight: GaussianWeight, divergence: Callable, kl_weight: float):
    self._weight, self._divergence, self._kl_weight = weight, divergence, kl_weight

  def __call__(self, variable) -> tf.Tensor:
    return self._kl_weight * self._divergence(variable, self._weight.prior)


def _kl_of_loc(loc: tf.Variable, prior: tfd.Normal) -> tf.Tensor:
  """½ Σ ((μ − m)/s)²."""
  return 0.5 * tf.reduce_sum(tf.square((tf.convert_to_tensor(loc) - prior.loc) / prior.scale))


def _kl_of_log_scale(log_scale: tf.Variable, prior: tfd.Normal) -> tf.Tensor:
  """Σ ½(r² − 1) − ln r with r = σ/s."""
  log_ratio = clip_log_scale(tf.convert_to_tensor(log_scale)) - tf.math.log(prior.scale)
  return tf.reduce_sum(_divergence_of_ratio(log_ratio))


@tf.custom_gradient
def _divergence_of_ratio(log_ratio: tf.Tensor):
  """½(r² − 1) − ln r, whose derivative for ln r is r² − 1: one exponential for both."""
  excess = tf.math.expm1(2.0 * log_ratio)
  return 0.5 * excess - log_ratio, lambda upstream: upstream * excess
