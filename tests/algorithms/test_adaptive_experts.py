"""Adaptive expert models: both phases."""

import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
import toy

from tffpers import runtime
from tffpers.algorithms import build_adaptive_experts, build_fed_avg, build_ifca

SIZES = [10, 7, 5]
METHODS = ['client', 'ifca', 'fine_tuned', 'local', 'ensemble']


def dense(units):
  return tf.keras.Sequential([tf.keras.layers.InputLayer([3]), tf.keras.layers.Dense(units)])


def dropout_model():
  return tf.keras.Sequential(
    [
      tf.keras.layers.InputLayer([3]),
      tf.keras.layers.Dense(4, activation='tanh'),
      tf.keras.layers.Dropout(0.5),
      tf.keras.layers.Dense(2),
    ]
  )


@functools.cache
def adaptive(num_models=2, model_fn=toy.plain_model, **overrides):
  adamw = tff.learning.optimizers.build_adamw(0.05, weight_decay=0.01)
  return build_adaptive_experts(
    **{
      'model_fn': model_fn,
      'gate_model_fn': lambda: dense(num_models + 1),
      'num_models': num_models,
      'local_optimizer': adamw,
      'gate_optimizer': adamw,
      'personal_epochs': 6,
      'personal_patience': 2,
      **toy.settings(),
      **overrides,
    }
  )


def play(process, rounds, sizes=SIZES):
  """Rounds of all clients; returns states and the metrics of every round."""
  server, clients = toy.start(process, sizes)
  history = []
  for r in range(rounds):
    data = [toy.completed(process.next, i, toy.train_data(i, n, r)) for i, n in enumerate(sizes)]
    server, clients, metrics, client_metrics = process.next(server, clients, data)
    history.append((server, metrics, client_metrics))
  return server, clients, history


def evaluate(process, server, clients, test=None):
  data = []
  for i in range(len(clients)):
    held_out = toy.held_out(i, 9) if test is None else {**toy.held_out(i, 0), 'test': test(i)}
    data.append(toy.completed(process.evaluate, i, held_out))
  return process.evaluate(server, clients, data)


def personalize(process, server, clients, **changes):
  data = []
  for i in range(len(clients)):
    data.append(toy.completed(process.personalize, i, {**toy.train_data(i, SIZES[i]), **changes}))
  return process.personalize(server, clients, data)


@pytest.fixture(scope='module', params=[False, True], ids=['gate_only', 'train_experts'])
def personalized(request):
  """A process, its server, and its clients before and after the second phase."""
  runtime.use('in_process')
  process = adaptive(train_experts=request.param)
  server, clients, _ = play(process, 2)
  new, metrics = personalize(process, server, clients)
  return process, server, clients, new, metrics


def test_b1_one_model_is_fed_avg_bit_for_bit_whatever_epsilon():
  process = adaptive(num_models=1, epsilon=0.7)
  server, clients, _ = play(process, 2)
  reference = build_fed_avg(model_fn=toy.plain_model, **toy.settings())
  expected, expected_clients, _, _ = toy.run(reference, SIZES, [[0, 1, 2]] * 2)
  toy.assert_equal([t[0] for t in server.model.models.trainable], expected.model.weights.trainable)
  toy.assert_equal([c.cluster.weights for c in clients], [c.weights for c in expected_clients])


def test_b2_epsilon_0_is_ifca_bit_for_bit():
  server, _, history = play(adaptive(train_experts=False), 2)
  reference = build_ifca(model_fn=toy.plain_model, num_models=2, **toy.settings())
  expected, _, _, metrics = toy.run(reference, SIZES, [[0, 1, 2]] * 2)
  toy.assert_equal(server.model.models, expected.model.models)
  toy.assert_equal([m['picked'] for m in history[-1][2]], [m['picked'] for m in metrics])


def test_endless_patience_is_the_run_without_stopping_bit_for_bit():
  without, _, _ = play(adaptive(train_experts=False), 3)
  server, _, history = play(adaptive(patience=10**6, check_every=2), 3)
  toy.assert_equal(server.model.models, without.model.models)
  assert server.model.stopping.active.all()
  # Only the second round was a check; what it scored is what it had received.
  picked = history[1][0].model.stopping.waited == 0
  received = history[0][0].model.models.trainable[0]
  snapshot = server.model.stopping.snapshot.trainable[0]
  scored = np.isfinite(server.model.stopping.score)
  assert scored.any() and picked.all()
  np.testing.assert_array_equal(snapshot[scored], received[scored])


@pytest.fixture(scope='module')
def stopped():
  """A large rate makes models worse, so that they stop; all clients explore."""
  runtime.use('in_process')
  rate = tff.learning.optimizers.build_sgdm(20.0)
  process = adaptive(patience=1, epsilon=1.0, optimizer=rate, when_stopped='next_best')
  return process, *play(process, 12)


def test_b9_a_stopped_model_is_neither_sent_nor_tried_nor_trained(stopped):
  _, _, _, history = stopped
  size = 4 * (3 * 4 + 4 + 4 * 2 + 2)
  actives = [metrics['active'] for _, metrics, _ in history]
  assert actives[-1].sum() == 0, 'the run was to end'
  before = np.ones(2, int)
  whole = history[0][2][0]['bytes_down']
  for (_, _, client_metrics), active in zip(history, actives, strict=True):
    for metrics in client_metrics:
      assert metrics['bytes_down'] == whole - (2 - before.sum()) * size
      assert not np.any(metrics['picked'] * (1 - before))
      assert not np.any(metrics['best'] * (1 - before))
      assert (metrics['num_steps'] > 0) == bool(before.any())
    before = active


def test_b9_a_stopped_model_has_the_weights_of_its_best_snapshot_for_ever(stopped):
  _, server, _, history = stopped
  for j in range(2):
    (stop, *_) = [r for r, (_, metrics, _) in enumerate(history) if not metrics['active'][j]]
    at_stop = history[stop][0].model
    for weights, best, last in zip(
      at_stop.models.trainable,
      at_stop.stopping.snapshot.trainable,
      server.model.models.trainable,
      strict=True,
    ):
      np.testing.assert_array_equal(weights[j], best[j])
      np.testing.assert_array_equal(last[j], weights[j])


def test_when_all_have_stopped_rounds_change_nothing_and_the_second_phase_has_all(stopped):
  process, server, clients, _ = stopped
  data = [toy.completed(process.next, i, toy.train_data(i, 6, 99)) for i in range(3)]
  after, new, metrics, _ = process.next(server, clients, data)
  toy.assert_equal((after.model, new), (server.model, clients))
  assert metrics['num_active'] == 0
  assert process.finished(server)
  assert not process.finished(process.initialize(np.array([1, 2], np.int32)))
  _, personal = personalize(process, server, clients)
  assert [m['bytes_down'] for m in personal] == [2 * 4 * 26 + 2] * 3


def test_b5_validation_data_do_not_change_the_choice():
  process = adaptive(patience=10**6, check_every=2)
  server, clients = toy.start(process, SIZES)
  picks = []
  for validation in (toy.examples(200, 6), toy.examples(300, 11)):
    data = [
      {'train': toy.examples(i, n), 'validation': validation, 'seed': np.array([i, 3], np.int32)}
      for i, n in enumerate(SIZES)
    ]
    picks.append([m['picked'] for m in process.next(server, clients, data)[3]])
  toy.assert_equal(*picks)


def not_a_number(rows):
  """The examples with one NaN among the features."""
  x = rows['x'].copy()
  x[0, 0] = np.nan
  return {**rows, 'x': x}


@pytest.mark.parametrize('broken', ['train', 'validation'])
def test_a_model_stops_also_where_training_or_its_validation_loss_is_no_number(broken):
  """The score is that of the model as it was sent; the loss of one that has none is no better."""
  process = adaptive(num_models=1, patience=1)
  server, clients = toy.start(process, [10])
  for r in range(3):
    data = toy.completed(process.next, 0, toy.train_data(0, 10, r))
    if broken == 'train' or r > 0:
      data[broken] = not_a_number(data[broken])
    server, clients, metrics, _ = process.next(server, clients, [data])
  assert metrics['num_active'] == 0
  assert np.isfinite(server.model.stopping.score).all()
  assert all(np.isfinite(t).all() for t in server.model.models.trainable)


def test_a_client_whose_loss_becomes_no_number_does_not_make_its_model_look_better():
  process = adaptive(num_models=1, patience=9)
  server, clients, history = play(process, 1)
  before = history[0][0].model.stopping.score
  data = [toy.completed(process.next, i, toy.train_data(i, n, 1)) for i, n in enumerate(SIZES)]
  data[0]['validation'] = not_a_number(data[0]['validation'])
  server, *_ = process.next(server, clients, data)
  np.testing.assert_array_equal(server.model.stopping.score, before)
  assert server.model.stopping.waited.tolist() == [1]


def test_validation_data_without_a_number_count_as_none(personalized):
  process, server, clients, _, _ = personalized
  broken = not_a_number(toy.examples(200, 6))
  new, metrics = personalize(process, server, clients, validation=broken)
  none, expected = personalize(process, server, clients, validation=toy.examples(200, 0))
  toy.assert_equal((new, metrics), (none, expected))
  assert [m['local_num_epochs'] for m in metrics] == [6] * 3
  assert np.isnan([m['local_validation_loss'] for m in metrics]).all()


def test_a_client_without_data_has_one_best_model_whoever_asks(personalized):
  process, server, clients, _, _ = personalized
  nothing = {name: toy.examples(1, 0) for name in ('train', 'validation')}
  _, metrics = personalize(process, server, clients, **nothing)
  data = [
    toy.completed(process.evaluate, i, {**toy.held_out(i, 9), **nothing})
    for i in range(len(clients))
  ]
  results = process.evaluate(server, clients, data)
  for told, measured in zip(metrics, results, strict=True):
    assert told['best'].tolist() == [measured['ifca'][f'best_{j}'] for j in range(2)]


def test_losses_of_one_logit_for_yes_or_no_are_refused():
  binary = tf.keras.losses.BinaryCrossentropy(from_logits=True)
  with pytest.raises(ValueError, match='one logit for yes or no'):
    adaptive.__wrapped__(loss_fn=binary)
  with pytest.raises(ValueError, match='softmax of one is always 1'):
    adaptive.__wrapped__(
      model_fn=lambda: dense(1),
      loss_fn=lambda y, logits: tf.square(logits - tf.cast(y, tf.float32))[:, 0],
      element_spec=(tf.TensorSpec([3], tf.float32), tf.TensorSpec([1], tf.int32)),
    )


def test_client_whose_best_model_has_stopped_rests_if_told_to():
  process = adaptive(patience=1, when_stopped='rest')
  server, clients = toy.start(process, SIZES)
  stopping = server.model.stopping._replace(active=np.array([False, True]))
  server = server._replace(model=server.model._replace(stopping=stopping))
  clients = [
    c._replace(cluster=c.cluster._replace(best=np.int32(best)))
    for c, best in zip(clients, [0, 1, -1], strict=True)
  ]
  data = [toy.completed(process.next, i, toy.train_data(i, n)) for i, n in enumerate(SIZES)]
  _, new, _, metrics = process.next(server, clients, data)
  assert [m['picked'].tolist() for m in metrics] == [[0, 0], [0, 1], [0, 1]]
  toy.assert_equal(new[0], clients[0])


def test_before_the_second_phase_only_ifca_is_there(personalized):
  process, server, clients, _, _ = personalized
  for result in evaluate(process, server, clients):
    assert set(result) == set(METHODS)
    assert result['client']['loss'] == result['ifca']['loss'] > 0
    assert all(np.isnan(result[name]['loss']) for name in ('fine_tuned', 'local', 'ensemble'))


def test_after_it_all_methods_are_compared_on_the_same_data(personalized):
  process, server, _, new, _ = personalized
  for result in evaluate(process, server, new):
    assert {result[name]['num_examples'] for name in METHODS} == {9}
    losses = [result[name]['loss'] for name in METHODS]
    assert np.isfinite(losses).all()
    # Fine-tuning that does not help leaves IFCA's model.
    assert len({result[n]['loss'] for n in METHODS if n != 'fine_tuned'}) == len(METHODS) - 1


def test_b14_kept_weights_have_the_validation_loss_that_is_reported(personalized):
  process, server, _, new, metrics = personalized
  results = evaluate(process, server, new, test=lambda i: toy.examples(200 + i, 6))
  for result, reported in zip(results, metrics, strict=True):
    for model, name in (('client', 'mixture'), ('local', 'local'), ('fine_tuned', 'fine_tuned')):
      np.testing.assert_allclose(
        result[model]['loss'], reported[f'{name}_validation_loss'], rtol=1e-5
      )
      epochs, best = reported[f'{name}_num_epochs'], reported[f'{name}_best_epoch']
      assert epochs == 6 or epochs == best + 2
    # The weights at the start count, so fine-tuning is no worse than what it started from.
    assert result['fine_tuned']['loss'] <= result['ifca']['loss'] * (1 + 1e-6)


def test_b13_experts_are_copied_only_where_they_are_trained(personalized):
  process, server, clients, new, _ = personalized
  trains = process.hyper_parameters['train_experts']
  for before, after in zip(clients, new, strict=True):
    toy.assert_equal(after.cluster, before.cluster)
    assert len(after.personal.experts) == (3 if trains else 0)
    assert len(before.personal.local.trainable[0]) == 0
    assert len(after.personal.local.trainable[0]) == 1
  if trains:
    moved = [
      np.any(copy[0] != whole[j])
      for after in new
      for j, expert in enumerate(after.personal.experts[:2])
      for copy, whole in zip(expert.trainable, server.model.models.trainable, strict=True)
    ]
    assert any(moved)


def test_training_a_cluster_model_again_drops_the_second_phase(personalized):
  process, server, clients, new, _ = personalized
  data = [toy.completed(process.next, i, toy.train_data(i, n, 9)) for i, n in enumerate(SIZES)]
  toy.assert_equal(process.next(server, new, data)[1], process.next(server, clients, data)[1])


def test_b13_gate_alone_is_trained_on_experts_in_evaluation_mode():
  """With dropout in the experts, the reported loss is one that evaluation finds again."""
  process = adaptive(model_fn=dropout_model, personal_epochs=1)
  server, clients = toy.start(process, SIZES)
  new, metrics = personalize(process, server, clients)
  results = evaluate(process, server, new, test=lambda i: toy.examples(200 + i, 6))
  for result, reported in zip(results, metrics, strict=True):
    np.testing.assert_allclose(
      result['client']['loss'], reported['mixture_validation_loss'], rtol=1e-5
    )


def no_validation():
  return {'validation': {k: v[:0] for k, v in toy.examples(0, 1).items()}}


def test_b16_decoupled_decay_reaches_local_model_and_gate():
  """A loss without a gradient leaves w ← (1 − rate · decay) w, step by step."""

  def constant_loss(y, prediction):
    del y
    return 0.0 * tf.reduce_sum(prediction, -1)

  kept = []
  for decay in (0.0, 0.5):
    adamw = tff.learning.optimizers.build_adamw(0.1, weight_decay=decay)
    process = adaptive(
      model_fn=lambda: dense(2),
      loss_fn=constant_loss,
      local_optimizer=adamw,
      gate_optimizer=adamw,
      personal_epochs=2,
    )
    server, clients = toy.start(process, SIZES)
    new, (metrics, *_) = personalize(process, server, clients, **no_validation())
    # Ten examples in batches of four, twice; without validation data no pass is left out.
    assert metrics['local_num_steps'] == metrics['mixture_num_steps'] == 6
    assert np.isnan(metrics['local_validation_loss'])
    kept.append((new[0].personal.local.trainable[0], new[0].personal.gate.trainable[0]))
  for free, decayed in zip(*kept, strict=True):
    assert np.any(free != 0)
    np.testing.assert_allclose(decayed, free * 0.95**6, rtol=1e-4)


def test_unpicked_models_enter_the_mixture_only_if_they_may():
  """Without training all experts weigh the same, so the ensemble shows who is in it."""
  losses = []
  for mixes in (True, False):
    process = adaptive(mix_unpicked=mixes, personal_epochs=1)
    server, clients = toy.start(process, SIZES)
    server = server._replace(model=server.model._replace(picked=np.array([False, True])))
    new, _ = personalize(process, server, clients)
    kernel = [k.copy() for k in server.model.models.trainable]
    for k in kernel:
      k[0] = 3.0
    models = server.model.models._replace(trainable=kernel)
    other = server._replace(model=server.model._replace(models=models))
    losses.append(
      [evaluate(process, s, new)[0][name]['loss'] for s in (server, other) for name in METHODS]
    )
  same = np.equal(losses, np.roll(losses, len(METHODS), axis=1))[:, : len(METHODS)]
  at = METHODS.index
  assert not same[0, at('ensemble')] and not same[0, at('client')]
  assert same[1, at('ensemble')] and same[1, at('client')]


def test_experts_of_other_shapes_are_refused():
  with pytest.raises(ValueError, match=r'one logit per expert, shape \(3,\)'):
    adaptive(gate_model_fn=lambda: dense(2))
  with pytest.raises(ValueError, match='own expert must return'):
    adaptive(local_model_fn=lambda: dense(5))
  with pytest.raises(ValueError, match='without from_logits=True'):
    adaptive(loss_fn=tf.keras.losses.SparseCategoricalCrossentropy())


@pytest.mark.parametrize(
  ('argument', 'value'),
  [
    ('epsilon', 1.5),
    ('epsilon', float('nan')),
    ('patience', 0),
    ('when_stopped', 'stop'),
    ('personal_patience', 0),
    ('initial_models', 'equal'),
  ],
)
def test_wrong_argument_is_refused_by_name(argument, value):
  with pytest.raises(ValueError, match=f'Received: {argument}={value!r}'):
    adaptive(**{argument: value})
