"""The parts that VIRTUAL tells apart in a Bayesian Keras model.

θ, the shared Bayesian weights, have a posterior at the server. φ, the Bayesian weights of
private paths, and the gates g ≥ 0 exist only on clients; a shared-only network has none.
"""

import dataclasses
import functools
from typing import Any

import tensorflow as tf

from tffpers import gaussians, modelling, seeds
from tffpers import keras as tffpers_keras
from tffpers.gaussians import Natural


@dataclasses.dataclass(frozen=True)
class Network:
  """A bound model's variables, sorted.

  Attributes:
    bound: The model.
    shared: θ, one `GaussianWeight` each.
    private: φ, one `GaussianWeight` each.
    gates: g, one variable per layer with two paths.
  """

  bound: modelling.BoundModel
  shared: list[Any]
  private: list[Any]
  gates: list[tf.Variable]

  @property
  def gaussian(self) -> list[Any]:
    """θ and φ."""
    return self.shared + self.private

  @property
  def trained(self) -> list[tf.Variable]:
    """All that a client trains: means, then ln σ, then gates."""
    return [w.loc for w in self.gaussian] + [w.log_scale for w in self.gaussian] + self.gates

  @property
  def client_only(self) -> list[tf.Variable]:
    """All that a client trains and the server never has: φ and gates."""
    return [v for w in self.private for v in w.variables] + self.gates

  def posterior(self) -> list[Natural]:
    """The posterior of θ as the variables have it."""
    return [weight.natural() for weight in self.shared]

  def assign_posterior(self, posterior: list[Natural]) -> None:
    """Sets θ's means and scales, rounded to the variables' float32."""
    for weight, s in zip(self.shared, posterior, strict=True):
      weight.set_natural(s)

  def assign_moments(self, loc: list[tf.Tensor], log_scale: list[tf.Tensor]) -> None:
    """Sets θ's means and ln σ."""
    for weight, m, ls in zip(self.shared, loc, log_scale, strict=True):
      weight.loc.assign(m)
      weight.log_scale.assign(ls)

  def read_moments(self) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """θ's means and ln σ."""
    return (
      [w.loc.read_value() for w in self.shared],
      [w.log_scale.read_value() for w in self.shared],
    )

  def assign_client_only(self, values: list[tf.Tensor]) -> None:
    """Sets φ and gates."""
    for variable, value in zip(self.client_only, values, strict=True):
      variable.assign(value)

  def close_gates(self) -> None:
    """Sets all gates to 0: what is left is the pure shared network."""
    for gate in self.gates:
      gate.assign(tf.zeros_like(gate))

  def initial_moments(self, start: str) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """Means and ln σ of s⁰: the layers' own (`informed`) or the prior's."""
    if start == 'informed':
      initial = self.bound.initial_value
      return [initial(w.loc) for w in self.shared], [initial(w.log_scale) for w in self.shared]
    return (
      [tf.broadcast_to(w.prior.loc, w.shape) for w in self.shared],
      [tf.broadcast_to(tf.math.log(w.prior.scale), w.shape) for w in self.shared],
    )

  def initial_posterior(self, start: str) -> list[Natural]:
    """s⁰."""
    loc, log_scale = self.initial_moments(start)
    return [
      gaussians.from_moments(m, tf.exp(tf.cast(ls, tf.float64)))
      for m, ls in zip(loc, log_scale, strict=True)
    ]

  def layer_groups(self) -> list[list[int]]:
    """Positions in `shared` of each layer's weights, layer by layer."""
    groups: dict[int, list[int]] = {}
    for i, weight in enumerate(self.shared):
      groups.setdefault(weight.owner, []).append(i)
    return list(groups.values())


def network(bound: modelling.BoundModel) -> Network:
  """Sorts the variables of a bound model."""
  model = bound.model
  return Network(
    bound,
    tffpers_keras.shared_gaussian_weights(model),
    tffpers_keras.private_gaussian_weights(model),
    tffpers_keras.gates(model),
  )


def prior(weight: Any) -> Natural:
  """p of one weight, element by element."""
  loc, scale = (tf.broadcast_to(t, weight.shape) for t in (weight.prior.loc, weight.prior.scale))
  return gaussians.from_moments(loc, scale)


def predictor(model: tf.keras.Model, seed: tf.Tensor, samples: int) -> Any:
  """`(x, batch number) -> logits` at the posterior mean, or of averaged probabilities.

  Args:
    model: The model, its variables set.
    seed: int32[2] of this evaluation.
    samples: Weight samples; 0 for the posterior mean.
  """
  return functools.partial(_predict, model, seed, samples)


def check_model(spec: modelling.ModelSpec) -> None:
  """Raises ValueError if VIRTUAL cannot train the model."""
  with tf.Graph().as_default():
    model = modelling.build_model(spec.model_fn, spec.element_spec)
    known = {id(gate) for gate in tffpers_keras.gates(model)}
    extra = [v for v in tffpers_keras.deterministic_weights(model) if id(v) not in known]
    if extra:
      raise ValueError(
        'VIRTUAL shares a posterior over all weights, so every trainable weight must be Bayesian. '
        f'Received: deterministic trainable weights {[v.name for v in extra]}'
      )
    fixed = [v for v in model.non_trainable_variables if v.dtype.is_floating]
    if fixed:
      raise ValueError(
        'VIRTUAL has no place for variables that are not trained by gradients (frozen layers, '
        'batch-norm statistics, constants). '
        f'Received: non-trainable variables {[v.name for v in fixed]}'
      )
    weighted = [
      layer.name
      for layer in model._flatten_layers()
      if getattr(layer, 'kl_weight', None) is not None
    ]
    if weighted:
      raise ValueError(
        'VIRTUAL adds the divergence from the cavity itself: leave kl_weight at None. '
        f'Received: layers with a kl_weight {weighted}'
      )


def check_logits(spec: modelling.ModelSpec, evaluation_samples: int) -> None:
  """Raises ValueError where averaging class probabilities over weight samples makes no sense."""
  if not evaluation_samples:
    return
  classes = spec.prediction_shape[-1] if spec.prediction_shape else None
  config = spec.loss_fn.get_config() if isinstance(spec.loss_fn, tf.keras.losses.Loss) else {}
  if classes == 1 or config.get('from_logits') is False:
    raise ValueError(
      'evaluation_samples averages class probabilities of a model that returns logits; use 0, the '
      f'posterior mean. Received: evaluation_samples={evaluation_samples}, predictions of shape '
      f'{spec.prediction_shape}, loss {config or spec.loss_fn!r}'
    )


def _predict(model: tf.keras.Model, seed: tf.Tensor, samples: int, x: Any, index: tf.Tensor) -> Any:
  seed = seeds.fold(seed, index)
  if not samples:
    with seeds.keras_randomness(seed, sample=False):
      return model(x, training=False)
  log_probabilities = []
  for k in range(samples):
    with seeds.keras_randomness(seeds.fold(seed, k), sample=True):
      log_probabilities.append(tf.nn.log_softmax(model(x, training=False)))
  # Normalised log-probabilities are logits of the averaged predictive distribution.
  return tf.reduce_logsumexp(log_probabilities, 0) - tf.math.log(float(samples))
