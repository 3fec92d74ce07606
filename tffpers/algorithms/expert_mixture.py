"""The second phase of adaptive expert models: what a client does with all cluster models.

Isaksson, Listo Zec, Cöster, Gillblad, Girdzijauskas, *Adaptive Expert Models for
Personalization in Federated Learning*, arXiv 2206.07832.

A client trains an expert f_l of its own and a gate, and predicts with
ŷ(x) = g_l(x) f_l(x) + Σ_j g_j(x) f_j(x), f being class probabilities and g the gate's
softmax over J + 1 outputs, of which the last one is the client's own expert. With J = 1
that is the mixture of a local and a global model. Nothing is uploaded.
"""

from typing import Any

import tensorflow as tf

from tffpers import client_loop, modelling, seeds
from tffpers.algorithms import clusters, early_stopping, expert_models, fed_avg, template

ModelWeights = modelling.ModelWeights

# Purposes of a client's seed.
_FINE_TUNE, _LOCAL_INITIAL, _LOCAL, _GATE_INITIAL, _GATE = range(1, 6)


def personalize(
  settings: expert_models.Experts,
  bound: expert_models.Bound,
  whole: expert_models.WholeModels,
  client: expert_models.ExpertsClient,
  data: dict[str, Any],
) -> tuple[expert_models.ExpertsClient, dict[str, tf.Tensor]]:
  """Fine-tunes the best cluster model, trains the own expert, then the gate."""
  own, seed = client.cluster.weights, lambda purpose: seeds.fold(data['seed'], purpose)
  best = expert_models.best_cluster(settings, bound, whole, own, data)
  model = bound.clusters[0]
  model.assign(clusters.one_model(whole.models, best, own))
  tuned = _train_alone(settings.fine_tuning, settings.clusters.spec, model, data, seed(_FINE_TUNE))
  fine_tuned = model.read()
  model.assign(clusters.one_model(whole.models, tf.constant(0), own))

  assert bound.local is not None and bound.gate is not None
  bound.local.assign(settings.draw_local(seed(_LOCAL_INITIAL)))
  local = _train_alone(settings.local_training, settings.local, bound.local, data, seed(_LOCAL))
  local_weights = bound.local.read()

  bound.gate.assign(settings.draw_gate(seed(_GATE_INITIAL)))
  mixed = _train_gate(settings, bound, expert_models.included(settings, whole), data, seed(_GATE))
  copies = [expert.read() for expert in bound.experts] if settings.train_experts else []
  personal = expert_models.Personal(local_weights, fine_tuned, bound.gate.read(), copies)
  metrics = {
    'best': tf.one_hot(best, settings.clusters.num_models, dtype=tf.int32),
    'num_examples': client_loop.num_rows(data['train']),
    **template.traffic(
      models_up=0,
      models_down=settings.clusters.num_models,
      bytes_up=0,
      bytes_down=client_loop.num_bytes(whole),
    ),
  }
  for name, result in (('fine_tuned', tuned), ('local', local), ('mixture', mixed)):
    metrics.update({f'{name}_{field}': value for field, value in result._asdict().items()})
  return client._replace(personal=expert_models.held(personal)), metrics


def _train_alone(
  training: early_stopping.PersonalTraining,
  spec: modelling.ModelSpec,
  model: modelling.BoundModel,
  data: dict[str, Any],
  seed: tf.Tensor,
) -> early_stopping.Trained:
  """Trains one model on the client's data."""
  return early_stopping.train(
    training,
    data['train'],
    fed_avg.mean_loss_gradients(model, spec.loss_fn, model.read()),
    model.trainable,
    model.non_trainable,
    lambda: client_loop.evaluate_model(model.model, [], spec.loss_fn, data['validation'])['loss'],
    client_loop.num_rows(data['validation']) > 0,
    seed,
  )


def _train_gate(
  settings: expert_models.Experts,
  bound: expert_models.Bound,
  included_experts: tf.Tensor,
  data: dict[str, Any],
  seed: tf.Tensor,
) -> early_stopping.Trained:
  """Trains the gate, and copies of the experts if they are trained with it."""
  loss_fn, gate = settings.clusters.spec.loss_fn, bound.gate
  assert gate is not None
  moving = [gate, *(bound.experts if settings.train_experts else [])]
  experts = [model.model for model in moving[1:]]
  trainable = [v for model in moving for v in model.trainable]
  others = [v for model in moving for v in model.non_trainable]
  mixture = expert_models.Mixture(gate.model, experts, included_experts)
  train, validation = (
    _with_predictions(settings, bound, data[name]) for name in ('train', 'validation')
  )
  whole = modelling.BoundModel(mixture, trainable, others, ModelWeights([], []))
  return early_stopping.train(
    settings.gate_training,
    train,
    fed_avg.mean_loss_gradients(whole, loss_fn, ModelWeights([], [])),
    trainable,
    others,
    lambda: client_loop.evaluate_model(mixture, [], loss_fn, validation)['loss'],
    client_loop.num_rows(validation) > 0,
    seed,
  )


def _with_predictions(
  settings: expert_models.Experts, bound: expert_models.Bound, data: dict[str, Any]
) -> dict[str, Any]:
  """The data with what the experts predict for x, once and for all epochs.

  Experts that stay as they are are in evaluation mode: their predictions do not change.
  """
  known = () if settings.train_experts else expert_models.predict_all(settings, bound, data['x'])
  return {'x': (data['x'], known), 'y': data['y']}
