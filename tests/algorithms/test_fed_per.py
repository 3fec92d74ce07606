"""FedPer against numbers worked by hand and against the methods it turns into (P1 to P8)."""

import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
import toy

from tffpers import keras as tk
from tffpers import seeds
from tffpers.algorithms import build_fed_avg, build_fed_per, build_local

SIZES = [10, 7, 5]
ROUNDS = [[0, 1], [2, 0], [1, 2]]
EVERYTHING = tk.named(lambda path: True)
LINEAR_SPEC = (tf.TensorSpec([1], tf.float32), tf.TensorSpec([1], tf.float32))


def with_statistics() -> tf.keras.Model:
  """Batch norm in base and head, and dropout."""
  layers = tf.keras.layers
  return tf.keras.Sequential(
    [
      layers.InputLayer([toy.NUM_FEATURES]),
      layers.Dense(4, activation='tanh'),
      layers.BatchNormalization(),
      layers.Dropout(0.3),
      layers.Dense(3, activation='tanh'),
      layers.BatchNormalization(),
      layers.Dense(toy.NUM_CLASSES),
    ]
  )


@functools.cache
def fed_per(k=1, model_fn=toy.plain_model, **overrides):
  return build_fed_per(model_fn=model_fn, partition=tk.last_blocks(k), **toy.settings(**overrides))


@functools.cache
def everything_personal(model_fn=toy.plain_model, **overrides):
  return build_fed_per(model_fn=model_fn, partition=EVERYTHING, **toy.settings(**overrides))


def head(client):
  return client.weights.trainable[2:]


def base(client):
  return client.weights.trainable[:2]


def differ(a, b):
  pairs = zip(tf.nest.flatten(a), tf.nest.flatten(b), strict=True)
  return any(np.any(np.asarray(x) != np.asarray(y)) for x, y in pairs)


@pytest.mark.parametrize('model_fn', [toy.plain_model, with_statistics])
def test_p1_nothing_personal_equals_fed_avg_bit_for_bit(model_fn):
  ours = toy.run(fed_per(0, model_fn), SIZES, ROUNDS)
  theirs = toy.run(build_fed_avg(model_fn=model_fn, **toy.settings()), SIZES, ROUNDS)
  for a, b in zip(ours, theirs, strict=True):
    toy.assert_equal(a, b)


def centralised(model_fn, weights, client_id, n, rounds):
  """What `local training` means, by FedAvg of this client alone."""
  process = build_fed_avg(model_fn=model_fn, **toy.settings())
  server, clients = toy.start(process, SIZES)
  server = server._replace(model=server.model._replace(weights=weights))
  state = clients[client_id]
  for r in rounds:
    data = [toy.train_data(client_id, n, r)]
    server, (state,), _, _ = process.next(server, [state], data)
  return state


@pytest.mark.parametrize('model_fn', [toy.plain_model, with_statistics])
def test_p1_everything_personal_equals_local_training_and_the_server_is_constant(model_fn):
  process = everything_personal(model_fn)
  first, initial = toy.start(process, SIZES)
  server, clients, _, _ = toy.run(process, SIZES, ROUNDS)
  toy.assert_equal(server.model, first.model)
  assert tf.nest.flatten(server.model.weights) == []
  for i, n in enumerate(SIZES):
    rounds = [r for r, chosen in enumerate(ROUNDS) if i in chosen]
    alone = centralised(model_fn, initial[i].weights, i, n, rounds)
    # FedAvg forms w + (w_k − w), which rounds.
    toy.assert_close(clients[i], alone, rtol=1e-5, atol=1e-6)


def test_e8_local_equals_everything_personal_bit_for_bit():
  ours = toy.run(build_local(model_fn=toy.plain_model, **toy.settings()), SIZES, ROUNDS)
  theirs = toy.run(everything_personal(), SIZES, ROUNDS)
  for a, b in zip(ours, theirs, strict=True):
    toy.assert_equal(a, b)


@pytest.mark.parametrize('k', [0, 1])
def test_p2_one_client_equals_centralised_sgd(k):
  process = fed_per(k)
  server, clients = toy.start(process, [10])
  weights = clients[0].weights
  x, y = (tf.constant(v) for v in toy.examples(0, 10).values())
  model = toy.plain_model()
  model.set_weights(weights.trainable)
  loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
  for r in range(2):
    server, clients, _, _ = process.next(server, clients, [toy.train_data(0, 10, r)])
    shuffle = seeds.fold(tf.constant(seeds.derive(1, 'train', r, '0')), 0)
    for epoch in range(2):
      order = tf.random.experimental.stateless_shuffle(
        tf.range(10), seeds.fold(shuffle, epoch), alg='philox'
      )
      for rows in (order[0:4], order[4:8], order[8:10]):
        with tf.GradientTape() as tape:
          value = loss(tf.gather(y, rows), model(tf.gather(x, rows), training=True))
        for v, g in zip(
          model.trainable_variables, tape.gradient(value, model.trainable_variables), strict=True
        ):
          v.assign_sub(0.1 * g)
  toy.assert_close(clients[0].weights.trainable, model.get_weights(), rtol=1e-5, atol=1e-6)


def three_weights() -> tf.keras.Model:
  """b·x, then h·(b·x) + c: one weight in the base, two in the head."""
  layers = tf.keras.layers
  return tf.keras.Sequential(
    [layers.InputLayer([1]), layers.Dense(1, use_bias=False), layers.Dense(1)]
  )


@functools.cache
def linear(**overrides):
  return build_fed_per(
    model_fn=three_weights,
    partition=tk.last_blocks(1),
    **toy.settings(
      **{
        'loss_fn': lambda y, p: 0.5 * tf.reduce_sum(tf.square(p - y), -1),
        'metrics_fn': lambda: [],
        'element_spec': LINEAR_SPEC,
        'epochs': 1,
        'batch_size': 10,
        **overrides,
      }
    ),
  )


def linear_start(process, heads):
  """Base b = 1; heads as given."""
  server, clients = toy.start(process, [1] * len(heads))
  one = np.array([[1.0]], np.float32)
  server = server._replace(model=server.model._replace(
    weights=server.model.weights._replace(trainable=[one])))  # fmt: skip
  clients = [
    c._replace(
      weights=c.weights._replace(
        trainable=[one, np.array([[h]], np.float32), np.array([b], np.float32)]
      )
    )
    for c, (h, b) in zip(clients, heads, strict=True)
  ]
  return server, clients


def linear_data(x, y):
  column = lambda v: np.asarray(v, np.float32)[:, None]  # noqa: E731
  return {'train': {'x': column(x), 'y': column(y)}, 'seed': np.array([1, 2], np.int32)}


def test_p3_p6_a_round_worked_by_hand():
  """Base and head step from the same gradient; the base is averaged by examples."""
  process = linear()
  server, clients = linear_start(process, [(2.0, 0.0), (1.0, 1.0)])
  # Client a: x = 1, y = 0. Prediction 2, error 2: ∂b = 2·2 = 4, ∂h = 2·1 = 2, ∂c = 2.
  # Client b: three times x = 1, y = 3. Prediction 2, error −1: ∂b = −1, ∂h = −1, ∂c = −1.
  server, clients, _, metrics = process.next(
    server, clients, [linear_data([1], [0]), linear_data([1, 1, 1], [3, 3, 3])]
  )
  np.testing.assert_allclose(
    server.model.weights.trainable[0], [[(1 * 0.6 + 3 * 1.1) / 4]], rtol=1e-6
  )
  np.testing.assert_allclose(np.ravel(clients[0].weights.trainable[1]), [1.8], rtol=1e-6)
  np.testing.assert_allclose(clients[0].weights.trainable[2], [-0.2], rtol=1e-6)
  np.testing.assert_allclose(np.ravel(clients[1].weights.trainable[1]), [1.1], rtol=1e-6)
  np.testing.assert_allclose(clients[1].weights.trainable[2], [1.1], rtol=1e-6)
  assert [m['bytes_up'] for m in metrics] == [m['bytes_down'] for m in metrics] == [4, 4]


def test_p6_head_epochs_leave_the_base_as_it_was_received():
  process = fed_per(2, with_statistics, epochs=0, head_epochs=1)
  server, clients = toy.start(process, SIZES)
  after, new, _, (metrics, _) = process.next(
    server, clients[:2], [toy.train_data(i, SIZES[i]) for i in range(2)]
  )
  assert metrics['num_steps'] == 0
  toy.assert_equal(after.model.weights, server.model.weights)
  for i in range(2):
    own, start = new[i].weights, clients[i].weights
    # Base: dense kernel and bias, batch norm's scale and offset.
    toy.assert_equal(own.trainable[:4], start.trainable[:4])
    toy.assert_equal(own.non_trainable[:2], start.non_trainable[:2])
    assert differ(own.trainable[4:], start.trainable[4:])


def test_p6_head_epochs_are_worked_by_hand():
  process = linear(head_epochs=2, epochs=0)
  server, clients = linear_start(process, [(2.0, 0.0)])
  _, (new,), _, _ = process.next(server, clients, [linear_data([1], [0])])
  # Error 2: h = c: 1.8, −0.2. Error 1.6: 1.64, −0.36.
  values = np.concatenate([np.ravel(w) for w in new.weights.trainable])
  np.testing.assert_allclose(values, [1.0, 1.64, -0.36], rtol=1e-6)


def test_p4_a_clients_labels_leave_the_others_heads_as_they_are():
  process = fed_per()
  results = []
  for flip in (False, True):
    server, clients = toy.start(process, SIZES)
    data = [toy.train_data(i, SIZES[i]) for i in range(3)]
    if flip:
      data[1]['train']['y'] = 1 - data[1]['train']['y']
    results.append(process.next(server, clients, data))
  (server_a, a, _, _), (server_b, b, _, _) = results
  toy.assert_equal([head(a[0]), head(a[2])], [head(b[0]), head(b[2])])
  assert differ(head(a[1]), head(b[1])) and differ(server_a.model, server_b.model)


def test_p4_m3_huge_personal_weights_do_not_move_the_server_by_themselves():
  """With learning rate 0 the update is zero, whatever the head."""
  process = fed_per(optimizer=tff.learning.optimizers.build_sgdm(0.0))
  server, clients = toy.start(process, SIZES)
  huge = [w * 1e6 for w in clients[0].weights.trainable]
  changed = clients[0]._replace(weights=clients[0].weights._replace(trainable=huge))
  after, _, _, _ = process.next(server, [changed], [toy.train_data(0, 10)])
  toy.assert_equal(after.model.weights, server.model.weights)


def test_p5_a_head_is_what_its_client_left_and_heads_start_apart():
  process = fed_per()
  _, initial = toy.start(process, SIZES)
  assert differ(head(initial[0]), head(initial[1]))
  toy.assert_equal(base(initial[0]), base(initial[1]))
  _, early, _, _ = toy.run(process, SIZES, [[0, 1]])
  _, late, _, _ = toy.run(process, SIZES, [[0, 1], [1], [1]])
  toy.assert_equal(early[0], late[0])
  toy.assert_equal(late[2], initial[2])
  assert differ(head(early[1]), head(late[1]))


def test_heads_can_start_alike():
  process = fed_per(head_start='common')
  _, initial = toy.start(process, SIZES)
  toy.assert_equal(initial[0], initial[1])


def test_p7_client_is_the_new_base_with_the_old_head_and_after_is_the_last_training():
  process = fed_per()
  server, clients, _, _ = toy.run(process, SIZES, ROUNDS)
  (result,) = process.evaluate(server, clients[:1], [toy.held_out(0, 20)])
  x, y = toy.held_out(0, 20)['test'].values()
  model = toy.plain_model()
  loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
  for name, weights in (
    ('client', [*server.model.weights.trainable, *head(clients[0])]),
    ('after', clients[0].weights.trainable),
  ):
    model.set_weights(weights)
    np.testing.assert_allclose(result[name]['loss'], loss(y, model(x)), rtol=1e-5)
  assert process.evaluation_point == 'before'
  assert set(result) == {'client', 'after'}


def test_p8_statistics_of_the_base_are_averaged_and_those_of_the_head_are_not_sent():
  process = fed_per(2, with_statistics)
  server, clients, _, _ = toy.run(process, SIZES, [[0, 1]])
  assert len(server.model.weights.non_trainable) == 2
  mean = (10 * clients[0].weights.non_trainable[0] + 7 * clients[1].weights.non_trainable[0]) / 17
  np.testing.assert_allclose(server.model.weights.non_trainable[0], mean, rtol=1e-5, atol=1e-7)
  assert differ(clients[0].weights.non_trainable[2:], clients[1].weights.non_trainable[2:])


def test_m1_personal_statistics_stay_on_the_client():
  process = build_fed_per(
    model_fn=with_statistics,
    partition=tk.last_blocks(0, normalization='personal_statistics'),
    **toy.settings(),
  )
  server, clients, _, _ = toy.run(process, SIZES, [[0, 1]])
  assert server.model.weights.non_trainable == []
  assert differ(clients[0].weights.non_trainable, clients[1].weights.non_trainable)


@pytest.mark.parametrize(
  ('overrides', 'error', 'match'),
  [
    ({'head_epochs': -1}, ValueError, 'head_epochs=-1'),
    ({'head_epochs': 1, 'partition': tk.last_blocks(0)}, ValueError, 'head_epochs=1'),
    ({'head_start': 'zero'}, ValueError, "head_start='zero'"),
    ({'partition': 1}, TypeError, 'partition=1'),
    ({'partition': lambda model: model}, TypeError, 'Partition.*Received'),
    ({'partition': tk.last_blocks(9)}, ValueError, '9'),
    ({'partition': tk.tagged()}, ValueError, 'personal'),
  ],
)
def test_wrong_arguments_are_refused(overrides, error, match):
  arguments = {'model_fn': toy.plain_model, 'partition': tk.last_blocks(1), **toy.settings()}
  with pytest.raises(error, match=match):
    build_fed_per(**{**arguments, **overrides})
