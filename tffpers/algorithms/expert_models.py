"""Settings, states and models of the second phase of adaptive expert models.

Isaksson et al., arXiv 2206.07832; `expert_mixture` trains them, `expert_evaluation` compares
them.
"""

import dataclasses
from typing import Any, NamedTuple

import tensorflow as tf

from tffpers import client_loop, modelling
from tffpers.algorithms import cluster_client, cluster_start, clusters, early_stopping
from tffpers.keras import mixing

ModelWeights = modelling.ModelWeights


@dataclasses.dataclass(frozen=True)
class Experts:
  """What the second phase is given.

  Attributes:
    clusters: Settings of the first phase.
    local: The own expert's `ModelSpec`.
    gate: The gate's `ModelSpec`.
    fine_tuning: How a copy of the best cluster model is trained.
    local_training: How the own expert is trained.
    gate_training: How the gate, and with it perhaps copies of the experts, are trained.
    train_experts: Whether they are.
    mix_unpicked: Whether models that no client ever picked take part.
    draw_local: The own expert's initial values from a seed.
    draw_gate: The gate's.
  """

  clusters: clusters.Clusters
  local: modelling.ModelSpec
  gate: modelling.ModelSpec
  fine_tuning: early_stopping.PersonalTraining
  local_training: early_stopping.PersonalTraining
  gate_training: early_stopping.PersonalTraining
  train_experts: bool
  mix_unpicked: bool
  draw_local: cluster_start.Draw = dataclasses.field(init=False)
  draw_gate: cluster_start.Draw = dataclasses.field(init=False)

  def __post_init__(self):
    object.__setattr__(self, 'draw_local', cluster_start.initial_weights(self.local))
    object.__setattr__(self, 'draw_gate', cluster_start.initial_weights(self.gate))


class Bound(NamedTuple):
  """Models in the current graph.

  Attributes:
    clusters: J copies of the cluster model; none where only initial values are drawn.
    seed: int32[2] for initial values; None if none are drawn.
    local: The own expert; None where only initial values are drawn.
    gate: The gate; likewise.
  """

  clusters: list[modelling.BoundModel]
  seed: tf.Tensor | None
  local: modelling.BoundModel | None
  gate: modelling.BoundModel | None

  @property
  def experts(self) -> list[modelling.BoundModel]:
    """The J cluster models and the own expert, in the gate's order."""
    assert self.local is not None
    return [*self.clusters, self.local]


class Personal(NamedTuple):
  """What a client holds after the second phase.

  Each tensor has a leading axis of length 1; before the second phase that is 0, so that
  states are small while clients only take part in rounds.

  Attributes:
    local: `ModelWeights` of its own expert.
    fine_tuned: `ModelWeights` of its best cluster model, trained on its data.
    gate: `ModelWeights` of its gate.
    experts: `ModelWeights` of each expert's copy in the mixture, in the gate's order; none
      where experts are not trained with the gate.
  """

  local: ModelWeights
  fine_tuned: ModelWeights
  gate: ModelWeights
  experts: list[ModelWeights]


class ExpertsClient(NamedTuple):
  """What a client keeps.

  Attributes:
    cluster: `ClusterClient`, its part in the first phase.
    personal: `Personal`; training a cluster model again empties it.
  """

  cluster: clusters.ClusterClient
  personal: Personal


class WholeModels(NamedTuple):
  """What a client downloads for the second phase and to be evaluated.

  Attributes:
    models: `ModelWeights` [J, …], those that have stopped as well; without integer counters.
    picked: bool[J], whether any client ever picked the model.
  """

  models: ModelWeights
  picked: tf.Tensor


def bind(settings: Experts, seed: tf.Tensor | None) -> Bound:
  """All models of a client in the current graph, or only a seed for initial values."""
  cluster = clusters.bind(settings.clusters, seed)
  if seed is not None:
    return Bound(*cluster, None, None)
  return Bound(*cluster, modelling.bind(settings.local), modelling.bind(settings.gate))


def nothing(settings: Experts) -> Personal:
  """A client's `Personal` before the second phase."""
  cluster, local = settings.clusters.spec.weights, settings.local.weights
  copies = [cluster] * settings.clusters.num_models + [local] if settings.train_experts else []
  return tf.nest.map_structure(_no_rows, Personal(local, cluster, settings.gate.weights, copies))


def _no_rows(spec: tf.TensorSpec) -> tf.Tensor:
  # A placeholder hides the length, which the type must leave open.
  empty = tf.zeros([0, *spec.shape], spec.dtype)
  return tf.compat.v1.placeholder_with_default(empty, [None, *spec.shape])


def emptied(personal: Personal) -> Personal:
  """Drops what a client holds."""
  return tf.nest.map_structure(lambda t: t[:0], personal)


def held(values: Any) -> Any:
  """Adds the axis of `Personal`."""
  return tf.nest.map_structure(lambda t: t[tf.newaxis], values)


def first(held: Any) -> Any:
  """Removes it; zeros where nothing is held."""
  return tf.nest.map_structure(
    lambda t: tf.concat([t, tf.zeros([1, *t.shape[1:]], t.dtype)], 0)[0], held
  )


def best_cluster(
  settings: Experts,
  bound: Bound,
  whole: WholeModels,
  own: ModelWeights,
  data: dict[str, Any],
) -> tf.Tensor:
  """Assigns the cluster models and finds the one with the lowest validation loss, int32.

  A client whose validation data give no number chooses by its training data. One that has
  neither picks by chance, always the same model, whoever asks.
  """
  return cluster_client.best_model(
    settings.clusters,
    bound.clusters,
    whole.models,
    own,
    data['validation'],
    tf.constant([0, 0]),
    otherwise=data['train'],
  )


def included(settings: Experts, whole: WholeModels) -> tf.Tensor:
  """Which experts take part, bool[J + 1]; the client's own always does."""
  picked = tf.logical_or(whole.picked, settings.mix_unpicked)
  return tf.concat([picked, [True]], 0)


@dataclasses.dataclass(frozen=True)
class Mixture:
  """Gate and experts as the model of a `BoundModel`.

  Its inputs are x and, where the experts do not change, what they predict for it.
  """

  gate: Any
  experts: list[Any]
  included: tf.Tensor

  def __call__(self, inputs: tuple[Any, Any], training: bool) -> tf.Tensor:
    x, predictions = inputs
    if self.experts:
      predictions = tf.stack([expert(x, training=training) for expert in self.experts], -2)
    return mix(self.gate(x, training=training), predictions, self.included)

  @property
  def losses(self) -> list[tf.Tensor]:
    """The models' own regularisers."""
    return [loss for model in (self.gate, *self.experts) for loss in model.losses]


def mix(gate_logits: tf.Tensor, predictions: tf.Tensor, included: tf.Tensor) -> tf.Tensor:
  """Log probabilities of the mixture of those experts that are included.

  Args:
    gate_logits: [b, experts], or one gate per target, [b, time, experts].
    predictions: Logits, [b, experts, classes] or [b, time, experts, classes].
    included: bool[experts].
  """
  logits = tf.cast(gate_logits, tf.float32)
  logits = tf.where(included, logits, -float('inf'))
  if predictions.shape.rank - logits.shape.rank == 2:
    logits = logits[:, tf.newaxis]
  return mixing.log_mixture(logits, tf.cast(predictions, tf.float32))


def predict_all(settings: Experts, bound: Bound, x: Any) -> tf.Tensor:
  """Logits of all experts in evaluation mode, [n, J + 1, classes] or [n, time, J + 1, classes]."""
  n = client_loop.num_rows({'x': x})
  *time, classes = settings.clusters.spec.prediction_shape or ()
  shape = [None, *time, len(bound.experts), classes]

  def step(start, count, found):
    batch = tf.nest.map_structure(lambda t: t[start : start + client_loop.EVALUATION_BATCH], x)
    logits = tf.stack([m.model(batch, training=False) for m in bound.experts], -2)
    found = found.write(count, tf.cast(logits, tf.float32))
    return start + client_loop.EVALUATION_BATCH, count + 1, found

  found = tf.TensorArray(tf.float32, 0, dynamic_size=True, infer_shape=False, element_shape=shape)
  _, _, found = tf.while_loop(
    lambda start, *_: start < n, step, (0, 0, found), parallel_iterations=1
  )
  return tf.ensure_shape(found.concat(), shape)
