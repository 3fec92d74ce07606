"""The methods that the paper on adaptive expert models compares, on one client's data."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tffpers import client_loop, modelling
from tffpers.algorithms import clusters, expert_models


def evaluate(
  settings: expert_models.Experts,
  bound: expert_models.Bound,
  metrics: list[tf.keras.metrics.Metric],
  whole: expert_models.WholeModels,
  client: expert_models.ExpertsClient,
  data: dict[str, Any],
) -> dict[str, dict[str, tf.Tensor]]:
  """All methods that the paper compares, on the client's test data."""
  own, personal = client.cluster.weights, client.personal
  best = expert_models.best_cluster(settings, bound, whole, own, data)
  test, loss_fn = data['test'], settings.clusters.spec.loss_fn
  personalized = tf.shape(tf.nest.flatten(personal.gate)[0])[0] > 0
  rows = tf.where(personalized, client_loop.num_rows(test), 0)
  # Before the second phase its models are missing, like those of a client without data.
  used = tf.nest.map_structure(lambda t: t[:rows], test)

  assert bound.local is not None and bound.gate is not None
  bound.local.assign(expert_models.first(personal.local))
  bound.gate.assign(expert_models.first(personal.gate))
  predicted = {
    'x': (used['x'], expert_models.predict_all(settings, bound, used['x'])),
    'y': used['y'],
  }
  present = expert_models.included(settings, whole)
  results = {
    'local': _measure(lambda x: x[1][..., -1, :], metrics, loss_fn, predicted),
    'ensemble': _measure(
      lambda x: expert_models.mix(tf.zeros_like(x[1][..., 0]), x[1], present),
      metrics,
      loss_fn,
      predicted,
    ),
  }
  if settings.train_experts:
    for expert, weights in zip(bound.experts, personal.experts, strict=True):
      expert.assign(expert_models.first(weights))
    predicted = {
      **predicted,
      'x': (used['x'], expert_models.predict_all(settings, bound, used['x'])),
    }
  mixture = expert_models.Mixture(bound.gate.model, [], present)
  mixed = _measure(lambda x: mixture(x, training=False), metrics, loss_fn, predicted)

  model = bound.clusters[0]
  for name, weights, examples in (
    ('fine_tuned', expert_models.first(personal.fine_tuned), used),
    ('ifca', clusters.one_model(whole.models, best, own), test),
  ):
    model.assign(weights)
    results[name] = _measure(lambda x: model.model(x, training=False), metrics, loss_fn, examples)
  results['client'] = client_loop.choose(personalized, mixed, results['ifca'])
  results['ifca'].update(clusters.named_best(best, settings.clusters.num_models))
  return results


def _measure(
  predict: Callable[[Any], tf.Tensor],
  metrics: list[tf.keras.metrics.Metric],
  loss_fn: modelling.LossFn,
  data: dict[str, Any],
) -> dict[str, tf.Tensor]:
  return client_loop.evaluate(lambda x, _: predict(x), metrics, loss_fn, data)
