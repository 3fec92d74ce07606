"""APPLE against numbers worked by hand and the numbered statements of its specification."""

import functools

import linear
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
import toy

from tffpers import datasets, runtime, seeds, simulation
from tffpers.algorithms import apple_client, build_apple, build_fed_avg, template
from tffpers.algorithms.apple_settings import Settings

CORES = np.array([[1, 0, 2], [0, 4, 0]], np.float32)
SGD = tff.learning.optimizers.build_sgdm


@functools.cache
def two(sizes=(1, 3), **overrides):
  """APPLE on the model of three weights."""
  defaults = {'dr_learning_rate': 0.01, 'mu': 2.0, 'rounds': 100}
  return build_apple(client_num_examples=sizes, **linear.settings(**{**defaults, **overrides}))


@functools.cache
def network(sizes=(10, 7, 5), **overrides):
  """APPLE on a network of 26 weights."""
  defaults = {'dr_learning_rate': 0.01, 'mu': 0.2, 'rounds': 10}
  settings = toy.settings(**{'model_fn': toy.plain_model, **defaults, **overrides})
  return build_apple(client_num_examples=sizes, **settings)


def start(process, cores=CORES):
  """Server and clients with the given cores."""
  server, clients = toy.start(process, [1] * len(cores))
  server = server._replace(model=server.model._replace(models=np.array(cores, np.float32)))
  return server, [
    c._replace(core=np.array(w, np.float32)) for c, w in zip(clients, cores, strict=True)
  ]


def shape_settings(**overrides):
  """Settings for the functions that need no model."""
  arguments = {
    'loss_fn': None, 'training': None, 'start': (0.2,) * 5, 'dr_learning_rate': 0.0, 'mu': 0.0,
    'rounds': 100, 'schedule': 'cosine', 'schedule_ratio': 0.1, 'schedule_epsilon': 1e-3,
    'max_downloads': 2, 'priority': 'abs', 'dr_momentum': 0.0, 'learning_rate_decay': 1.0,
  }  # fmt: skip
  return Settings(**{**arguments, **overrides})


def test_one_step_worked_by_hand():
  process = two()
  server, clients = start(process)
  # w^p = ¼ (1, 0, 2) + ¾ (0, 4, 0) = (0.25, 3, 0.5); x = (1, 1, 0): g = 3.25 (1, 1, 0).
  after, (client, _), _, _ = process.next(
    server, clients, [linear.data(([1, 1, 0], 0)), linear.data()]
  )
  # w^c ← w^c − 0.1 · ¼ · g.
  core = [1 - 0.08125, -0.08125, 2]
  np.testing.assert_allclose(client.core, core, rtol=1e-6)
  # ⟨g, w_1⟩ = 3.25, ⟨g, w_2⟩ = 13; κ = 0.01 · 1 · 2 = 0.02.
  relations = [(0.25 - 0.0325 + 0.02 * 0.25) / 1.02, (0.75 - 0.13 + 0.02 * 0.75) / 1.02]
  np.testing.assert_allclose(client.relations, relations, rtol=1e-6)
  np.testing.assert_array_equal(after.model.models, [client.core, CORES[1]])


def test_two_steps_with_momentum_worked_by_hand():
  process = two(mu=0.0, dr_momentum=0.5, epochs=2, optimizer=SGD(0.0))
  server, clients = start(process)
  _, (client,), _, metrics = process.next(server, clients[:1], [linear.data(([1, 1, 0], 0))])
  # Step 1: v = (3.25, 13), p = (0.2175, 0.62). w^p·x = 0.2175 + 4 · 0.62 = 2.6975.
  # Step 2: v = ½ (3.25, 13) + 2.6975 (1, 4) = (4.3225, 17.29).
  np.testing.assert_allclose(client.relations, [0.2175 - 0.043225, 0.62 - 0.1729], rtol=1e-6)
  assert metrics[0]['num_steps'] == 2
  np.testing.assert_allclose(metrics[0]['sum_of_relations'], np.sum(client.relations), rtol=1e-6)
  assert metrics[0]['own_relation'] == client.relations[0]


def test_two_steps_with_momentum_and_penalty_worked_by_hand():
  process = two(dr_momentum=0.5, epochs=2, optimizer=SGD(0.0))
  server, clients = start(process)
  _, (client,), _, _ = process.next(server, clients[:1], [linear.data(([1, 1, 0], 0))])
  # κ = 0.01 · 2 / (1 − ½) = 0.04. Step 1: p = (0.2175 + 0.01, 0.62 + 0.03) / 1.04 =
  # (0.21875, 0.625); w^p·x = 2.71875. Step 2: v = ½ (3.25, 13) + 2.71875 (1, 4).
  relations = np.array([0.21875, 0.625]) - 0.01 * np.array([4.34375, 17.375]) + [0.01, 0.03]
  np.testing.assert_allclose(client.relations, relations / 1.04, rtol=1e-6)


def test_two_steps_of_the_core_with_momentum_worked_by_hand():
  process = two(dr_learning_rate=0.0, epochs=2, optimizer=SGD(0.1, 0.5))
  server, clients = start(process)
  _, (client,), _, _ = process.next(server, clients[:1], [linear.data(([1, 1, 0], 0))])
  # Step 1: ¼ · 3.25 = 0.8125; w^p·x falls by ¼ · 0.1625 to 3.209375.
  # Step 2: ½ · 0.8125 + ¼ · 3.209375 = 1.20859375.
  change = 0.08125 + 0.120859375
  np.testing.assert_allclose(client.core, [1 - change, -change, 2], rtol=1e-6)


def test_momentum_of_both_steps_is_zero_at_the_start_of_a_round():
  """One step a round, so that it changes nothing."""
  runs = []
  for momentum in (0.0, 0.9):
    process = two(mu=0.0, dr_momentum=momentum, optimizer=SGD(0.1, momentum or None))
    server, clients = start(process)
    for _ in range(2):
      server, clients, _, _ = process.next(server, clients, [linear.data(([1, 1, 0], 0))] * 2)
    runs.append(clients)
  toy.assert_equal(*runs)


def test_momentum_and_penalty_rest_at_the_minimum_of_the_objective():
  process = two(
    dr_momentum=0.9, epochs=300, optimizer=SGD(0.0), schedule='exponential', schedule_epsilon=1
  )
  server, clients = start(process)
  _, (client,), _, _ = process.next(server, clients[:1], [linear.data(([1, 1, 0], 0))])
  # x·w = (1, 4) p: the gradient (1, 4) ((1, 4) p) + 2 (p − p_0) is 0.
  both = np.array([1.0, 4.0])
  minimum = np.linalg.solve(np.outer(both, both) + 2 * np.eye(2), [0.5, 1.5])
  np.testing.assert_allclose(client.relations, minimum, rtol=1e-5)


def test_a1_personalised_model_is_the_sum_of_cores_by_relations():
  process = two()
  server, clients = start(process)
  client = clients[0]._replace(relations=np.array([1.5, -0.25], np.float32))
  np.testing.assert_array_equal(
    linear.evaluated_weights(process, server, client), 1.5 * CORES[0] - 0.25 * CORES[1]
  )


def test_a1_trained_model_has_the_downloaded_cores_and_the_next_round_begins_with_the_new():
  process = two()
  server, clients = start(process)
  data = [linear.data(([1, 1, 0], 0)), linear.data(([0, 1, 1], 1))]
  after, clients, _, _ = process.next(server, clients, data)
  for i, client in enumerate(clients):
    own, other = client.relations[i], client.relations[1 - i]
    for name, frozen in (('client', CORES[1 - i]), ('before', after.model.models[1 - i])):
      np.testing.assert_allclose(
        linear.evaluated_weights(process, after, client, name),
        own * client.core + other * frozen,
        rtol=1e-6,
      )
    assert np.any(after.model.models[1 - i] != CORES[1 - i])


def forward(w, x):
  """`toy.plain_model` in float64."""
  hidden = np.tanh(x @ w[:12].reshape(3, 4) + w[12:16])
  return hidden @ w[16:24].reshape(4, 2) + w[24:]


def objective(cores, relations, data, start, weight):
  logits = forward(relations @ cores, data['x'].astype(np.float64))
  picked = logits[np.arange(len(logits)), data['y']]
  loss = np.mean(np.log(np.sum(np.exp(logits), -1)) - picked)
  return loss + weight / 2 * np.sum((relations - start) ** 2)


def slope(f, x, h=1e-5):
  """Central differences."""
  steps = h * np.eye(len(x))
  return np.array([(f(x + s) - f(x - s)) / (2 * h) for s in steps])


def test_a2_gradients_match_finite_differences_of_the_objective():
  mu, rate = 3.0, 0.01
  process = network(mu=mu, dr_learning_rate=rate, batch_size=100, epochs=1)
  server, clients = toy.start(process, [10, 7, 5])
  p = np.array([0.7, -0.4, 0.9])
  client = clients[1]._replace(relations=p.astype(np.float32))
  data = toy.train_data(1, 7)
  _, (after,), _, _ = process.next(server, [client], [data])
  cores, p0 = server.model.models.astype(np.float64), np.array([10, 7, 5]) / 22

  def by_core(core):
    return objective(np.stack([cores[0], core, cores[2]]), p, data['train'], p0, mu)

  def by_relations(relations):
    return objective(cores, relations, data['train'], p0, mu)

  np.testing.assert_allclose(
    (client.core - after.core) / 0.1, slope(by_core, cores[1]), rtol=2e-3, atol=2e-5
  )
  # The step's penalty is at its end: (p − p') / η2 = data part + λμ (p' − p_0).
  gradient = (p - after.relations) / rate + mu * (p - after.relations)
  np.testing.assert_allclose(gradient, slope(by_relations, p), rtol=1e-3, atol=1e-4)


def test_a3_own_core_stays_where_it_has_no_part():
  process = network()
  server, clients = toy.start(process, [10, 7, 5])
  client = clients[0]._replace(relations=np.array([0, 0.5, 0.5], np.float32))
  frozen = network(dr_learning_rate=0.0)
  after, (new,), _, _ = frozen.next(server, [client], [toy.train_data(0, 10)])
  toy.assert_equal((new.core, after.model.models), (client.core, server.model.models))


def test_a3_own_core_alone_is_local_training():
  process = network(dr_learning_rate=0.0)
  server, clients = toy.start(process, [10, 7, 5])
  client = clients[2]._replace(relations=np.array([0, 0, 1], np.float32))
  _, (new,), _, _ = process.next(server, [client], [toy.train_data(2, 5)])
  local = build_fed_avg(**toy.settings(model_fn=toy.plain_model))
  other, _ = toy.start(local, [5])
  weights = tf.nest.map_structure(
    np.asarray,
    other.model.weights._replace(trainable=split(client.core, other.model.weights.trainable)),
  )
  other = other._replace(model=other.model._replace(weights=weights))
  _, (trained,), _, _ = local.next(other, toy.start(local, [5])[1], [toy.train_data(2, 5)])
  toy.assert_equal(new.core, np.concatenate([w.ravel() for w in trained.weights.trainable]))


def split(vector, like):
  ends = np.cumsum([w.size for w in like])[:-1]
  return [v.reshape(w.shape) for v, w in zip(np.split(vector, ends), like, strict=True)]


@pytest.mark.parametrize('limit', [None, 1])
def test_a4_frozen_cores_are_bit_identical_after_training(limit):
  process = network(max_downloads=limit, mu=0.0, dr_learning_rate=0.1)
  server, clients = toy.start(process, [10, 7, 5])
  after, (new,), _, _ = process.next(server, clients[:1], [toy.train_data(0, 10)])
  toy.assert_equal(after.model.models[1:], server.model.models[1:])
  assert np.any(after.model.models[0] != server.model.models[0])
  if limit:
    toy.assert_equal(new.held.cores[1:], server.model.models[1:])


def test_a5_upload_is_the_own_core_and_of_one_models_size():
  process = network()
  server, clients = toy.start(process, [10, 7, 5])
  after, (new,), _, (metrics,) = process.next(server, clients[1:2], [toy.train_data(1, 7)])
  toy.assert_equal(after.model.models[1], new.core)
  personal = new.relations @ np.stack([server.model.models[0], new.core, server.model.models[2]])
  assert np.any(np.abs(personal - after.model.models[1]) > 1e-3)
  # 26 float32 weights, the place and the count.
  assert metrics['bytes_up'] == 26 * 4 + 4 + 4


@pytest.mark.parametrize('limit', [None, 1])
def test_a6_no_value_at_the_server_has_the_type_of_the_relations(limit):
  process = network(max_downloads=limit)
  kind = process.client_state_type.member.relations
  block = process.next.to_building_block()
  found = []

  def visit(node):
    signature = node.type_signature
    if isinstance(signature, tff.FederatedType) and signature.placement is tff.SERVER:
      found.append(tff.types.contains(signature.member, lambda t: t == kind))
    return node, False

  tff.framework.transform_postorder(block, visit)
  assert len(found) > 5
  assert not any(found)


def test_a7_order_of_clients_changes_no_bit():
  process = network(max_downloads=1)
  server, clients, _, _ = toy.run(process, [10, 7, 5], [[0, 1, 2], [0, 1, 2]])
  other, shuffled, _, _ = toy.run(process, [10, 7, 5], [[2, 0, 1], [1, 2, 0]])
  toy.assert_equal((server.model, clients), (other.model, shuffled))


def test_a8_at_the_start_every_client_has_the_weighted_mean_of_independent_cores():
  process = two(sizes=(1, 3))
  server, clients = toy.start(process, [1, 3])
  assert np.all(server.model.models[0] != server.model.models[1])
  for client in clients:
    assert np.sum(client.relations) == 1
    np.testing.assert_allclose(
      linear.evaluated_weights(process, server, client),
      (server.model.models[0] + 3 * server.model.models[1]) / 4,
      rtol=1e-6,
    )


def test_a9_frozen_relations_with_one_step_follow_fed_avg():
  sizes, rate = [10, 7, 5], 0.1
  shares = np.array(sizes) / 22
  full = {'batch_size': 100, 'epochs': 1}
  each = [network(mu=float('inf'), optimizer=SGD(rate / share), **full) for share in shares]
  server, clients = toy.start(each[0], sizes)
  fed_avg = build_fed_avg(**toy.settings(model_fn=toy.plain_model, **full))
  other, others = toy.start(fed_avg, sizes)
  mean = split((shares @ server.model.models).astype(np.float32), other.model.weights.trainable)
  weights = other.model.weights._replace(trainable=mean)
  other = other._replace(model=other.model._replace(weights=weights))
  for r in range(4):
    data = [toy.train_data(i, n, r) for i, n in enumerate(sizes)]
    # A rate of its own for each client: one process for each, all from the same server.
    done = [each[i].next(server, [clients[i]], [data[i]]) for i in range(3)]
    clients = [new for _, (new,), _, _ in done]
    cores = np.stack([after.model.models[i] for i, (after, *_) in enumerate(done)])
    server = done[0][0]._replace(model=server.model._replace(models=cores))
    other, others, _, _ = fed_avg.next(other, others, data)
    expected = np.concatenate([w.ravel() for w in other.model.weights.trainable])
    np.testing.assert_allclose(shares @ cores, expected, rtol=1e-4, atol=2e-6)
  for client in clients:
    np.testing.assert_allclose(client.relations, shares, rtol=1e-7)


@pytest.mark.parametrize('mu', [1e8, 1e39])
def test_a9_huge_mu_is_stable(mu):
  process = network(mu=mu, dr_learning_rate=1.0, dr_momentum=0.9)
  _, clients, _, _ = toy.run(process, [10, 7, 5], [[0, 1, 2]])
  for client in clients:
    np.testing.assert_allclose(client.relations, np.array([10, 7, 5]) / 22, atol=1e-6)


def opposed(sizes):
  """Clients on random x: the last one's targets are the others' with the sign turned."""
  random = np.random.default_rng(0)
  result = []
  for i, n in enumerate(sizes):
    x = random.normal(size=[n, 3])
    sign = -1 if i == len(sizes) - 1 else 1
    result.append(linear.data(*zip(x, sign * x @ [1.0, -2.0, 0.5], strict=True)))
  return result


def test_a10_a_harmful_client_gets_a_negative_relation():
  process = two(sizes=(20, 20, 20), mu=0.0, dr_learning_rate=0.02, epochs=3)
  server, clients = start(process, np.zeros([3, 3]))
  data = opposed([20, 20, 20])
  for _ in range(15):
    server, clients, _, _ = process.next(server, clients, data)
  for client in clients[:2]:
    assert client.relations[2] < -0.05
    assert np.all(client.relations[:2] > 0)
  assert np.sum(clients[2].relations[:2]) < -0.05


@pytest.mark.parametrize(('schedule', 'half'), [('cosine', 0.5), ('exponential', 1e-3**0.5)])
def test_a11_schedule_falls_from_one_to_zero_at_its_length(schedule, half):
  settings = shape_settings(schedule=schedule)
  values = [float(settings.strength(tf.constant(r))) for r in range(100)]
  assert values[0] == 1
  np.testing.assert_allclose(values[5], half, rtol=1e-5)
  assert np.all(np.diff(values) <= 0)
  assert values[9] > 0
  assert values[10:] == [0] * 90
  assert float(shape_settings(schedule_ratio=0).strength(tf.constant(0))) == 0


def test_a11_epsilon_is_where_the_exponential_ends():
  settings = shape_settings(schedule='exponential', schedule_epsilon=1e-2)
  np.testing.assert_allclose(settings.strength(tf.constant(5)), 0.1, rtol=1e-5)


def test_a11_a_round_uses_its_own_strength():
  """L = 1: the first round feels the penalty, the second does not."""
  process = two(rounds=10, mu=1e8)
  server, clients = start(process)
  data = [linear.data(([1, 1, 0], 0))]
  server, clients, _, _ = process.next(server, clients[:1], data)
  np.testing.assert_allclose(clients[0].relations, [0.25, 0.75], atol=1e-6)
  _, clients, _, _ = process.next(server, clients, data)
  assert clients[0].relations[1] < 0.7


def test_a12_larger_mu_stays_closer_to_the_start():
  start_, distances = np.array([10, 7, 5]) / 22, []
  for mu in (0.0, 1.0, 10.0, 100.0):
    process = network(mu=mu, dr_learning_rate=0.05, schedule_ratio=1.0)
    _, clients, _, _ = toy.run(process, [10, 7, 5], [[0, 1, 2]] * 3)
    distances.append(np.linalg.norm([c.relations - start_ for c in clients]))
  assert np.all(np.diff(distances) < 0)
  assert distances[-1] > 0


def holder(index, relations, held):
  """A client that holds cores."""
  core = held.cores[index]
  return apple_client.AppleClient(
    tf.constant(index), core, relations, [], held, tf.constant(False), tf.zeros_like(core)
  )


def requests(settings, index, seen, relations, count=1, finished=0):
  """Keys of `count` independent requests."""
  client = holder(
    index,
    tf.constant(relations, tf.float32),
    apple_client.Held(tf.zeros([5, 1]), tf.constant(seen)),
  )
  message = apple_client.Message(tf.constant(finished), ())

  @tf.function
  def draw(numbers):
    return tf.map_fn(
      lambda i: apple_client.request(settings, message, client, seeds.fold(linear.SEED, i)),
      numbers,
    )

  return draw(tf.range(count)).numpy()


@pytest.mark.parametrize('limit', [1, 2, 3])
def test_a13_requests_are_distinct_unseen_first_and_never_the_own_core(limit):
  settings = shape_settings(max_downloads=limit)
  seen = [True, False, True, True, False]
  keys = requests(settings, 2, seen, [9.0, 0.1, 0.0, 0.3, 0.1], 200)
  assert keys.shape == (200, limit)
  assert all(len(set(k)) == limit for k in keys.tolist())
  assert 2 not in keys
  assert np.all(np.isin(keys[:, :2], [1, 4]))
  if limit == 1:
    # A tie at random.
    assert 60 < np.sum(keys == 1) < 140


@pytest.mark.parametrize(
  ('priority', 'finished', 'base'),
  [('abs', 0, 1.5), ('abs', 10, 2.0), ('abs', 20, 4.0), ('signed', 20, 4.0)],
)
def test_a13_seen_cores_are_drawn_by_their_relation(priority, finished, base):
  settings = shape_settings(max_downloads=1, priority=priority)
  p = np.array([2.0, -1.0, 0.0, 0.4, 7.0])
  keys = requests(settings, 4, [True] * 5, p, 6000, finished)
  score = base ** (np.abs(p[:4]) if priority == 'abs' else p[:4])
  frequency = np.bincount(keys[:, 0], minlength=5) / 6000
  np.testing.assert_allclose(frequency, [*score / score.sum(), 0], atol=0.02)


def test_a13_all_others_equal_unlimited_bit_for_bit():
  runs = [
    toy.run(network(max_downloads=limit), [10, 7, 5], [[0, 1, 2]] * 2) for limit in (None, 2, 50)
  ]
  toy.assert_equal(runs[0], runs[1])
  toy.assert_equal(runs[0], runs[2])


def test_a13_mixing_downloads_of_all_others_equals_mixing_what_the_server_has():
  """What limited clients hold after asking for everybody, beside the broadcast."""
  settings = shape_settings()
  cores = tf.random.stateless_normal([5, 7], linear.SEED)
  held = apple_client.Held(tf.zeros([5, 7]), tf.zeros([5], tf.bool))
  keys = tf.constant([4, 0, 3, 2])
  held = apple_client.downloaded(held, keys, tf.gather(cores, keys))
  client = holder(1, tf.ones([5]), held)
  unlimited = shape_settings(max_downloads=None)
  toy.assert_equal(
    apple_client.mixture(settings, client, apple_client.Message(tf.constant(0), ())),
    apple_client.mixture(unlimited, client, apple_client.Message(tf.constant(0), cores)),
  )
  assert held.seen.numpy().tolist() == [True, False, True, True, True]


def test_a14_training_mixes_what_was_just_downloaded_and_what_is_held():
  process = two(sizes=(1, 1, 2), max_downloads=1, mu=0.0)
  server, clients = start(process, [CORES[0], CORES[1], [9, 9, 9]])
  held = apple_client.Held(np.float32([[0] * 3, [5] * 3, [0, 0, 2]]), np.array([True, False, True]))
  _, (client,), _, _ = process.next(
    server, [clients[0]._replace(held=held)], [linear.data(([1, 1, 0], 0))]
  )
  # w^p = ¼ (1, 0, 2) + ¼ (0, 4, 0) + ½ (0, 0, 2) = (0.25, 1, 1.5): g = 1.25 (1, 1, 0).
  np.testing.assert_allclose(client.core, [1 - 0.03125, -0.03125, 2], rtol=1e-6)
  np.testing.assert_allclose(client.relations, [0.25 - 0.0125, 0.25 - 0.05, 0.5], rtol=1e-6)
  np.testing.assert_array_equal(client.held.cores[1:], [CORES[1], [0, 0, 2]])


@pytest.mark.parametrize('name', ['in_process', 'native'])
def test_a14_a_core_that_is_not_downloaded_keeps_its_last_value(name):
  process = network(sizes=(10, 7, 5, 6), max_downloads=1)
  sizes = [10, 7, 5, 6]
  with runtime.running(name):
    server, clients = toy.start(process, sizes)
    held = [c.held.cores.copy() for c in clients]
    seen = np.zeros([4, 4], bool)
    for core, client in zip(server.model.models, clients, strict=True):
      toy.assert_equal(client.held.cores, server.model.models)
      toy.assert_equal(client.core, core)
    for r in range(4):
      before = server.model.models
      server, clients, _, _ = process.next(
        server, clients, [toy.train_data(i, n, r) for i, n in enumerate(sizes)]
      )
      for i, client in enumerate(clients):
        changed = [j for j in range(4) if np.any(client.held.cores[j] != held[i][j])]
        new = np.flatnonzero(client.held.seen & ~seen[i]).tolist()
        # In the first round a download is what the run's seed gave already.
        assert changed == ([] if r == 0 else changed[:1])
        assert len(new) == (1 if r < 3 else 0)
        assert i not in changed + new
        for j in changed:
          toy.assert_equal(client.held.cores[j], before[j])
        held[i], seen[i] = client.held.cores.copy(), client.held.seen


@pytest.mark.parametrize(('limit', 'down'), [(None, 2), (1, 1), (2, 2), (9, 2)])
def test_a15_traffic_is_one_model_up_and_the_downloads_down(limit, down):
  process = network(max_downloads=limit)
  _, _, _, metrics = toy.run(process, [10, 7, 5], [[0, 1, 2]])
  request = 4 if limit == 1 else 0
  for numbers in metrics:
    assert (numbers['models_up'], numbers['models_down']) == (1, down)
    assert numbers['bytes_up'] == 26 * 4 + 8 + request
    # All cores are broadcast where downloads are not limited; and the number of the round.
    received = down if request else 3
    assert numbers['bytes_down'] == received * 26 * 4 + 4


def test_a_decay_of_an_integer_1_is_none():
  results = []
  for decay in (1, 1.0):
    process = two(learning_rate_decay=decay)
    server, clients = start(process)
    results.append(process.next(server, clients, [linear.data(([1, 1, 0], 0))] * 2)[:2])
  toy.assert_equal(*results)


def test_rates_decay_with_the_rounds_finished():
  process = two(learning_rate_decay=0.5, schedule='exponential', schedule_epsilon=1)
  server, clients = start(process)
  server = server._replace(round=np.int32(2))
  _, (client,), _, _ = process.next(server, clients[:1], [linear.data(([1, 1, 0], 0))])
  np.testing.assert_allclose(client.core, [1 - 0.08125 / 4, -0.08125 / 4, 2], rtol=1e-6)
  # κ = 0.02 / 4 too.
  relations = np.array([0.25 - 0.0325 / 4, 0.75 - 0.13 / 4]) + 0.005 * np.array([0.25, 0.75])
  np.testing.assert_allclose(client.relations, relations / 1.005, rtol=1e-6)


def test_clip_norm_limits_both_steps():
  process = two(mu=0.0, clip_norm=2**0.5)
  server, clients = start(process)
  _, (client,), _, _ = process.next(server, clients[:1], [linear.data(([1, 1, 0], 0))])
  # g = (1, 1, 0).
  np.testing.assert_allclose(client.core, [1 - 0.025, -0.025, 2], rtol=1e-6)
  np.testing.assert_allclose(client.relations, [0.25 - 0.01, 0.75 - 0.04], rtol=1e-6)


def test_batch_norm_statistics_stay_on_their_client():
  def model():
    return tf.keras.Sequential(
      [
        tf.keras.layers.InputLayer([3]),
        tf.keras.layers.BatchNormalization(momentum=0.5),
        tf.keras.layers.Dense(1),
      ]
    )

  process = two(sizes=(2, 2), model_fn=model)
  server, clients = toy.start(process, [2, 2])
  data = [linear.data(([0, 0, 0], 0)), linear.data(([10, 10, 10], 0))]
  server, clients, _, _ = process.next(server, clients, data)
  server, (a, b), _, _ = process.next(server, clients, data)
  np.testing.assert_allclose(a.non_trainable[0], [0] * 3)
  np.testing.assert_allclose(b.non_trainable[0], [7.5] * 3)
  # γ, β, kernel and bias of both, nothing else.
  assert server.model.models.shape == (2, 3 + 3 + 3 + 1)
  # Where x is the moving mean, kernel · β + bias is left.
  (result,) = process.evaluate(
    server, [b], [{'test': linear.examples([[7.5] * 3], [0]), 'seed': linear.SEED}]
  )
  beta, kernel, bias = b.last[3:6], b.last[6:9], b.last[9]
  np.testing.assert_allclose(result['client']['output'], beta @ kernel + bias, rtol=1e-5)


@pytest.mark.parametrize('limit', [None, 1])
def test_model_of_float64_weights_trains_in_float64(limit):
  def model():
    return tf.keras.Sequential(
      [tf.keras.layers.InputLayer([3]), tf.keras.layers.Dense(2, dtype='float64')]
    )

  process = network(model_fn=model, max_downloads=limit, learning_rate_decay=0.5, dr_momentum=0.5)
  server, clients, totals, _ = toy.run(process, [10, 7, 5], [[0, 1, 2]] * 2)
  assert totals['num_nonfinite'] == 0
  assert server.model.models.dtype == clients[0].relations.dtype == np.float64
  assert np.all(clients[0].core != toy.start(process, [10])[1][0].core)


class Counting(tf.keras.layers.Layer):
  """x times a trained number; counts its training calls."""

  def build(self, input_shape):
    self.factor = self.add_weight('factor', shape=(), initializer='ones')
    self.calls = self.add_weight('calls', (), tf.int64, 'zeros', trainable=False)

  def call(self, inputs, training=False):
    if training:
      self.calls.assign_add(1)
    return self.factor * inputs


def test_scalar_weights_are_mixed_and_integer_variables_stay():
  def model():
    return tf.keras.Sequential(
      [tf.keras.layers.InputLayer([3]), Counting(), tf.keras.layers.Dense(2)]
    )

  process = network(model_fn=model, max_downloads=1)
  server, clients, _, _ = toy.run(process, [10, 7, 5], [[0, 1, 2], [0, 2]])
  # Two passes over batches of four.
  assert [int(c.non_trainable[0]) for c in clients] == [12, 4, 8]
  assert server.model.models.shape == (3, 1 + 6 + 2)
  assert np.all(server.model.models[:, 0] != 1)


def test_a_client_without_training_data_evaluates_the_weighted_mean():
  process = two()
  server, _ = start(process)
  (late,) = process.initialize_client(server, [template.ClientInfo(2, 0, linear.SEED)])
  np.testing.assert_allclose(
    linear.evaluated_weights(process, server, late), [0.25, 3, 0.5], rtol=1e-6
  )


@pytest.mark.parametrize('limit', [None, 1])
def test_simulation_resumes_bit_for_bit_and_gives_back_the_relations(limit, tmp_path):
  clients = {f'c{i}': tuple(toy.examples(i, 6).values()) for i in range(3)}
  data = datasets.FederatedDataset.from_arrays(clients)
  process = network(sizes=(6, 6, 6), max_downloads=limit, dr_momentum=0.9)
  run = functools.partial(
    simulation.run,
    process,
    data,
    clients_per_round=2,
    seed=1,
    test_data=data,
    progress=False,
  )
  whole = run(rounds=4)
  run(rounds=2, output_dir=tmp_path)
  resumed = run(rounds=4, output_dir=tmp_path, resume=True)
  states = [[r.client_state(key) for key in clients] for r in (whole, resumed)]
  toy.assert_equal(states[0], states[1])
  assert resumed.client_state('c1').relations.shape == (3,)
  accuracies = [r.history[-1]['clients_accuracy_mean'] for r in (whole, resumed)]
  assert accuracies[0] == accuracies[1] <= 1


@pytest.mark.parametrize(
  ('argument', 'value'),
  [
    ('mu', -1.0),
    ('mu', float('nan')),
    ('dr_learning_rate', -0.1),
    ('rounds', 0),
    ('rounds', True),
    ('schedule', 'linear'),
    ('schedule_ratio', -1.0),
    ('schedule_epsilon', 0.0),
    ('max_downloads', 0),
    ('priority', 'none'),
    ('dr_momentum', 1.0),
    ('learning_rate_decay', 0.0),
    ('client_num_examples', []),
    ('client_num_examples', [0, 0]),
  ],
)
def test_hyper_parameter_out_of_range_is_refused(argument, value):
  arguments = {'client_num_examples': [1, 1], 'rounds': 5, **linear.settings()}
  with pytest.raises(ValueError, match=f'{argument} must.*Received'):
    build_apple(**{**arguments, argument: value})
