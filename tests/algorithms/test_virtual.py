"""The numbered statements of VIRTUAL's specification that need a process."""

import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
import toy

from tffpers import client_loop, factors, gaussians, inspection, modelling, seeds
from tffpers import keras as tk
from tffpers.algorithms import build_virtual, template, virtual, virtual_client
from tffpers.algorithms.virtual_settings import Settings
from tffpers.gaussians import Natural

SIZES = [10, 7, 1, 5]


@functools.cache
def process(num_clients=4, model=None, **overrides):
  return build_virtual(
    model_fn=functools.partial(toy.bayesian_model, **(dict(model) if model else {})),
    client_num_examples=[1] * num_clients,
    **toy.settings(**{'beta': 0.1, **overrides}),
  )


def sum_of_factors(clients):
  total = [Natural(0.0, 0.0) for _ in clients[0].factor]
  for client in clients:
    total = [gaussians.product(a, b) for a, b in zip(total, client.factor, strict=True)]
  return total


def assert_product_of_factors(server, clients):
  for i, (s, product) in enumerate(
    zip(server.model.posterior, sum_of_factors(clients), strict=True)
  ):
    for field, a, b in zip(Natural._fields, s, product, strict=True):
      size = sum(np.abs(getattr(c.factor[i], field)) for c in clients)
      assert np.max(np.abs(a - b) / np.maximum(size, 1e-300)) < 1e-9


@pytest.mark.parametrize(
  'overrides',
  [{}, {'damping': 1.0}, {'beta': 0.0}, {'start': 'prior'}, {'damping': 0.3, 'epochs': 3}],
)
def test_v1_server_is_the_product_of_all_factors(overrides):
  server, clients, _, _ = toy.run(process(**overrides), SIZES, [[0, 1], [1, 2, 0], [2]])
  assert_product_of_factors(server, clients)
  assert any(np.any(c.factor[0].gamma != clients[3].factor[0].gamma) for c in clients[:3])


def test_v2_factors_that_are_roots_of_the_prior_make_the_prior():
  model = (('prior', 0.7),)
  server, clients = toy.start(process(start='prior', model=model), SIZES)
  assert_product_of_factors(server, clients)
  for s in server.model.posterior:
    np.testing.assert_allclose(s.lam, 1 / 0.49, rtol=1e-6)
    np.testing.assert_array_equal(s.gamma, 0.0)


@pytest.mark.parametrize(
  ('overrides', 'sizes'),
  [
    ({'optimizer': tff.learning.optimizers.build_sgdm(0.0)}, SIZES),
    ({'epochs': 0}, SIZES),
    ({}, [0, 0, 0, 0]),
  ],
)
def test_v2_no_rate_no_epoch_or_no_data_changes_nothing(overrides, sizes):
  built = process(**overrides)
  server, clients = toy.start(built, sizes)
  after, new, metrics, _ = built.next(
    server, clients, [toy.train_data(i, n) for i, n in enumerate(sizes)]
  )
  toy.assert_equal(after.model, server.model)
  toy.assert_equal([c.factor for c in new], [c.factor for c in clients])
  assert metrics['back_scaling'] == 1.0


def plain_bayes_by_backprop(weights, model, data, seed, *, rate, epochs, batch_size):
  """Mean NLL + KL(q ‖ p)/N by autodiff and TFP, on an eager model; Blundell et al. 2015."""
  loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
  n, count = len(data['y']), 0
  for epoch in range(epochs):
    order = tf.random.experimental.stateless_shuffle(
      tf.range(n), seeds.fold(seeds.fold(seed, 0), epoch), alg='philox'
    ).numpy()
    for begin in range(0, n, batch_size):
      rows = order[begin : begin + batch_size]
      with tf.GradientTape() as tape:
        with tk.noise.scope(seeds.fold(seeds.fold(seed, 1), count)):
          nll = loss(data['y'][rows], model(data['x'][rows], training=True))
        objective = nll + tk.kl_divergence(model) / n
      variables = [v for w in weights for v in w.variables]
      for variable, gradient in zip(variables, tape.gradient(objective, variables), strict=True):
        variable.assign_sub(rate * gradient)
      count += 1


def test_v3_one_client_is_bayes_by_backprop():
  built = process(1, beta=1.0, scale_learning_rate_multiplier=1.0, max_log_scale_step=10.0)
  server, (client,) = toy.start(built, [10])
  data = toy.train_data(0, 10)
  model = toy.bayesian_model()
  weights = tk.gaussian_weights(model)
  for weight, s in zip(weights, server.model.posterior, strict=True):
    weight.set_natural(Natural(*map(tf.constant, s)))
  plain_bayes_by_backprop(
    weights, model, data['train'], tf.constant(data['seed']), rate=0.1, epochs=2, batch_size=4
  )
  server, (client,), _, _ = built.next(server, [client], [data])
  toy.assert_close(client.loc, [w.loc for w in weights], rtol=1e-4, atol=1e-6)
  toy.assert_close(client.log_scale, [w.log_scale for w in weights], rtol=1e-5)
  toy.assert_close(
    [gaussians.to_moments(Natural(*map(tf.constant, s)))[0] for s in server.model.posterior],
    client.loc,
    rtol=1e-5,
    atol=1e-6,
  )


def test_v3_the_only_client_has_the_prior_as_cavity():
  server, (client,) = toy.start(process(1), [10])
  prior = gaussians.from_moments(tf.zeros([3, 4]), tf.ones([3, 4]))
  cavity, held = factors.cavity(
    *(Natural(*map(tf.constant, f)) for f in (server.model.posterior[0], client.factor[0])),
    prior,
    1,
  )
  toy.assert_close(cavity, prior, atol=1e-12)
  assert held == 0


def test_v5_training_starts_at_the_server_whatever_the_factor():
  built = process(optimizer=tff.learning.optimizers.build_sgdm(0.0))
  server, clients, _, _ = toy.run(process(), SIZES, [[0, 1, 2]])
  strange = clients[0]._replace(
    factor=[Natural(f.gamma + 3.0, 0.5 * f.lam) for f in clients[0].factor]
  )
  _, (a, b), _, _ = built.next(server, [clients[0], strange], [toy.train_data(0, 10)] * 2)
  toy.assert_equal((a.loc, a.log_scale), (b.loc, b.log_scale))
  for loc, s in zip(a.loc, server.model.posterior, strict=True):
    np.testing.assert_allclose(loc, s.gamma / s.lam, rtol=1e-6, atol=1e-7)


def test_v5_beta_zero_ignores_the_cavity():
  built = process(beta=0.0)
  server, clients = toy.start(built, SIZES)
  strange = clients[0]._replace(
    factor=[Natural(f.gamma + 3.0, 0.5 * f.lam) for f in clients[0].factor]
  )
  _, (a, b), _, _ = built.next(server, [clients[0], strange], [toy.train_data(0, 10)] * 2)
  toy.assert_equal((a.loc, a.log_scale), (b.loc, b.log_scale))


def kl_at_start(built, server, client):
  _, _, _, metrics = built.next(server, [client], [toy.train_data(0, 10)])
  return float(metrics[0]['kl'])


def test_v6_divergence_at_round_start_is_that_from_the_cavity():
  frozen = {'optimizer': tff.learning.optimizers.build_sgdm(0.0)}
  server, clients, _, _ = toy.run(process(), SIZES, [[0, 1, 2]])
  expected = 0.0
  for s, factor in zip(server.model.posterior, clients[0].factor, strict=True):
    s, factor = (Natural(*map(tf.constant, f)) for f in (s, factor))
    root = gaussians.from_moments(tf.zeros_like(s.lam), tf.ones_like(s.lam))
    root = gaussians.power(root, 1 / len(SIZES))
    expected += gaussians.kl_divergence(s, gaussians.ratio(gaussians.product(s, root), factor))
  assert expected > 0.1
  np.testing.assert_allclose(
    kl_at_start(process(**frozen), server, clients[0]), expected, rtol=1e-4
  )


def test_v6_divergence_at_round_start_is_zero_for_a_root_of_the_prior():
  built = process(start='prior', optimizer=tff.learning.optimizers.build_sgdm(0.0))
  server, clients = toy.start(built, SIZES)
  assert abs(kl_at_start(built, server, clients[0])) < 1e-9


def test_v9_the_client_stores_exactly_what_it_sent():
  built = process()
  server, clients = toy.start(built, SIZES)
  new_server, (client,), _, _ = built.next(server, clients[:1], [toy.train_data(0, 10)])
  for s, s0, f, f0 in zip(
    new_server.model.posterior,
    server.model.posterior,
    client.factor,
    clients[0].factor,
    strict=True,
  ):
    sent = np.float64(np.float32(s.lam - s0.lam))
    np.testing.assert_allclose(s.lam - s0.lam, sent, rtol=1e-6)
    np.testing.assert_allclose(f.lam - f0.lam, s.lam - s0.lam, rtol=1e-9, atol=1e-9)


def test_v11_negative_total_precision_is_scaled_back_and_reported():
  tensors = functools.partial(tf.constant, dtype=tf.float64)
  server = virtual.VirtualServer([Natural(tensors([2.0, 1.0]), tensors([4.0, 10.0]))])
  deltas = [[Natural(tensors([1.0, 1.0]), tensors([-3.0, -2.0]))] for _ in range(2)]
  client = virtual_client.VirtualClient(
    [Natural(tensors([1.0, 0.5]), tensors([2.0, 5.0]))], [], [], [], tensors(0.5), tf.constant(1)
  )
  settings = Settings(
    loss_fn=None,
    training=None,
    shares=(0.5, 0.5),
    beta=1.0,
    damping=1.0,
    scale_learning_rate_multiplier=1.0,
    max_log_scale_step=1.0,
    start='prior',
    client_start='server',
    fed_avg_init=False,
    prune_percentile=0.0,
    evaluation_samples=0,
    aggregator_reduction='sum',
  )
  total = [gaussians.product(a, b) for a, b in zip(*deltas, strict=True)]
  new, rho, metrics = virtual.server_update(
    settings, server, total, template.RoundTotals(2, 2.0, 0)
  )
  # 4 − 6 < 0, so ρ = 0.9·4/6 = 0.6 and λ = 4 − 0.6·6, 10 − 0.6·4.
  np.testing.assert_allclose(rho, 0.6)
  np.testing.assert_allclose(new.posterior[0].lam, [0.4, 7.6])
  assert metrics['num_negative_precisions'] == 1
  factors = [
    virtual_client.finish_client(virtual_client.Pending(client, d), rho).factor[0] for d in deltas
  ]
  toy.assert_close(gaussians.product(*factors), new.posterior[0], rtol=1e-12)


def test_v11_damping_of_one_over_c_never_needs_scaling_back():
  # A factor far sharper than the prior and no curvature in the data: all want less precision.
  built = process(
    beta=1.0,
    optimizer=tff.learning.optimizers.build_sgdm(1e-4),
    epochs=20,
    scale_learning_rate_multiplier=3e3,
    max_log_scale_step=1.0,
  )
  server, clients = toy.start(built, SIZES)
  for r in range(3):
    server, clients, metrics, _ = built.next(
      server, clients, [toy.train_data(i, n, r) for i, n in enumerate(SIZES)]
    )
    assert metrics['num_negative_precisions'] == 0
    assert all(np.all(s.lam > 0) for s in server.model.posterior)
  assert np.median(server.model.posterior[0].lam) < 0.8 / 0.02**2


def test_cavity_stays_proper_where_a_factor_is_sharper_than_the_posterior():
  tensors = functools.partial(tf.constant, dtype=tf.float64)
  prior = Natural(tensors([0.0, 0.0]), tensors([1.0, 1.0]))
  cavity, held = factors.cavity(
    Natural(tensors([4.0, 4.0]), tensors([2.0, 2.0])),
    Natural(tensors([3.0, 3.0]), tensors([1.0, 4.0])),
    prior,
    0.5,
  )
  # First: 4 − 3 and ½ + 2 − 1. Second: only half of s_i is divided out, so λ̃ = λ_p/K.
  np.testing.assert_allclose(cavity.lam, [1.5, 0.5])
  np.testing.assert_allclose(cavity.gamma, [1.0, 4.0 - 0.5 * 3.0])
  assert held == 1


def squared_gap(y, prediction):
  del y
  return tf.square(prediction[:, 0] - prediction[:, 1])


def test_v12_server_evaluates_with_the_posterior_scale_once():
  layer = functools.partial(tk.layers.BayesianDense, use_bias=False)
  built = build_virtual(
    model_fn=lambda: tf.keras.Sequential([tf.keras.layers.InputLayer([1]), layer(2)]),
    client_num_examples=[1],
    **toy.settings(
      element_spec=(tf.TensorSpec([1], tf.float32), tf.TensorSpec([], tf.int32)),
      metrics_fn=lambda: [squared_gap],
      evaluation_samples=1,
    ),
  )
  server, clients = toy.start(built, [1])
  natural = Natural(np.zeros([1, 2]), np.full([1, 2], 25.0))
  server = server._replace(model=virtual.VirtualServer([natural]))
  n = 40_000
  (result,) = built.evaluate(
    server,
    clients,
    [
      {
        'test': {'x': np.ones([n, 1], np.float32), 'y': np.zeros([n], np.int32)},
        'seed': seeds.derive(1, 'evaluate'),
      }
    ],
  )
  # The gap of two independent N(0, 1/25) has variance 2/25; its square has relative spread √2.
  np.testing.assert_allclose(result['server']['squared_gap'], 2 / 25, rtol=5 * np.sqrt(2 / n))


@pytest.mark.parametrize(('n', 'share'), [(4, 1 / 4), (6, 1 / 6)])
def test_v13_divergence_counts_once_over_the_clients_own_examples(n, share):
  """One step on one batch of 8 or fewer: the change due to β is −η (KL gradient)/N_i."""
  eta = 0.01
  results = []
  for beta in (0.0, 1.0):
    built = process(
      beta=beta,
      epochs=1,
      batch_size=8,
      scale_learning_rate_multiplier=1.0,
      max_log_scale_step=10.0,
      optimizer=tff.learning.optimizers.build_sgdm(eta),
    )
    server, clients = toy.start(built, SIZES)
    _, (client, _), _, _ = built.next(
      server, clients[:2], [toy.train_data(0, n), toy.train_data(1, 7)]
    )
    results.append(client)
  without, with_kl = results
  for i, s in enumerate(server.model.posterior):
    # s_i = s^(1/4) and p = N(0, 1): λ̃ = ¼ + ¾λ and γ̃ = ¾γ.
    lam, gamma = 0.25 + 0.75 * s.lam, 0.75 * s.gamma
    by_loc = lam * (s.gamma / s.lam - gamma / lam)
    np.testing.assert_allclose(
      with_kl.loc[i] - without.loc[i], -eta * share * by_loc, rtol=1e-2, atol=3e-7
    )
    np.testing.assert_allclose(
      with_kl.log_scale[i] - without.log_scale[i],
      -eta * share * (lam / s.lam - 1.0),
      rtol=1e-2,
      atol=5e-7,
    )


def test_v13_objective_is_likelihood_plus_scaled_divergence():
  _, _, _, (metrics,) = toy.run(process(), SIZES, [[0]])
  np.testing.assert_allclose(
    metrics['objective'], metrics['loss'] + 0.1 * metrics['kl'] / SIZES[0], rtol=1e-5
  )


def test_v14_private_state_does_not_reach_the_server():
  """With β = 0 the update is held fixed; the client's factor and own model change."""
  built = process(beta=0.0)
  server, clients, _, _ = toy.run(built, SIZES, [[0, 1]])
  altered = [
    c._replace(
      factor=[Natural(5.0 - f.gamma, f.lam + 2.0) for f in c.factor],
      loc=[9.0 + loc for loc in c.loc],
      log_scale=[ls - 1.0 for ls in c.log_scale],
    )
    for c in clients[:2]
  ]
  data = [toy.train_data(i, SIZES[i], 2) for i in range(2)]
  one = built.next(server, clients[:2], data)
  other = built.next(server, altered, data)
  toy.assert_equal((one[0], one[2]), (other[0], other[2]))


def test_v16_mt_is_the_client_that_trained_and_s_is_the_server():
  built = process()
  server, clients, _, _ = toy.run(built, SIZES, [[0, 1], [1]])
  data = [toy.held_out(i, 20) for i in range(3)]
  results = built.evaluate(server, clients[:3], data)
  model = toy.bayesian_model()
  loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
  for result, client, d in zip(results, clients[:3], data, strict=True):
    for name, loc in (
      ('server', [s.gamma / s.lam for s in server.model.posterior]),
      ('client', client.loc),
    ):
      for weight, value in zip(tk.gaussian_weights(model), loc, strict=True):
        weight.loc.assign(np.float32(value))
      expected = loss(d['test']['y'], model(d['test']['x']))
      np.testing.assert_allclose(result[name]['loss'], expected, rtol=1e-5)
  initial = toy.start(built, SIZES)[1][2]
  toy.assert_equal(clients[2], initial)


def test_v16_seeded_sampling_evaluates_twice_to_the_same_numbers():
  built = process(evaluation_samples=3)
  server, clients = toy.start(built, SIZES)
  data = [toy.held_out(i, 20) for i in range(2)]
  first = built.evaluate(server, clients[:2], data)
  toy.assert_equal(first, built.evaluate(server, clients[:2], data))
  reseeded = [{**d, 'seed': d['seed'] + 1} for d in data]
  assert (
    first[0]['server']['loss'] != built.evaluate(server, clients[:2], reseeded)[0]['server']['loss']
  )


def test_scale_learns_and_is_reported():
  built = process(scale_learning_rate_multiplier=1000.0)
  server, _, _, _ = toy.run(built, SIZES, [[0, 1, 2, 3]] * 3)
  report = built.report(server)
  assert report['sigma_ratio_p95'] / report['sigma_ratio_p5'] > 1.05
  start = built.report(toy.start(built, SIZES)[0])
  np.testing.assert_allclose([start['sigma_ratio_p5'], start['sigma_ratio_p95']], 1.0, rtol=1e-6)
  np.testing.assert_allclose(start['sigma_p50'], 0.02, rtol=1e-6)


def test_averaging_factory_is_declared_and_then_restored_to_the_sum():
  summed = toy.run(process(), SIZES, [[0, 1, 2]])[0]
  averaged = toy.run(
    process(aggregator=tff.aggregators.UnweightedMeanFactory(), aggregator_reduction='mean'),
    SIZES,
    [[0, 1, 2]],
  )[0]
  # A factory other than the plain sum adds in float32.
  toy.assert_close(averaged.model, summed.model, rtol=1e-6, atol=1e-4)


@pytest.mark.parametrize(
  ('argument', 'value'),
  [
    ('damping', 0.0),
    ('damping', 1.5),
    ('damping', -0.1),
    ('beta', -1.0),
    ('beta', float('nan')),
    ('beta', float('inf')),
    ('scale_learning_rate_multiplier', -1.0),
    ('max_log_scale_step', 0.0),
    ('evaluation_samples', -1),
    ('start', 'nowhere'),
    ('aggregator_reduction', 'median'),
  ],
)
def test_hyper_parameter_out_of_range_is_refused_by_name(argument, value):
  with pytest.raises(ValueError, match=f'{argument} must be .*Received: {argument}='):
    build_virtual(
      model_fn=toy.bayesian_model, client_num_examples=[1], **toy.settings(**{argument: value})
    )


def test_deterministic_weights_are_refused_by_name():
  with pytest.raises(ValueError, match='deterministic trainable weights'):
    build_virtual(model_fn=toy.plain_model, client_num_examples=[1], **toy.settings())


def test_a_layers_own_divergence_is_refused():
  with pytest.raises(ValueError, match='kl_weight'):
    build_virtual(
      model_fn=functools.partial(toy.bayesian_model, kl_weight=0.1),
      client_num_examples=[1],
      **toy.settings(),
    )


def test_averaging_by_weight_is_refused():
  with pytest.raises(TypeError, match='unweighted'):
    build_virtual(
      model_fn=toy.bayesian_model,
      client_num_examples=[1],
      **toy.settings(aggregator=tff.aggregators.MeanFactory()),
    )


def test_initial_means_are_the_layers_own():
  """The informed start has fan-in scaled means, not zeros, and the layers' scale."""
  server, _ = toy.start(process(), SIZES)
  kernel = server.model.posterior[0]
  limit = np.sqrt(6 / 7)
  loc = kernel.gamma / kernel.lam
  assert np.all(np.abs(loc) <= limit)
  assert np.std(loc) > 0.2
  np.testing.assert_allclose(kernel.lam, 2500.0, rtol=1e-6)


def test_bound_model_has_no_value_for_a_strange_variable():
  with tf.Graph().as_default():
    bound = modelling.bind(
      inspection.inspect_model(
        toy.plain_model, toy.settings()['loss_fn'], lambda: [], toy.ELEMENT_SPEC
      ),
      tf.constant([1, 2]),
    )
    with pytest.raises(ValueError, match='no trainable variable'):
      bound.initial_value(tf.Variable(0.0, name='stranger'))
  assert client_loop.num_bytes([tf.zeros([2, 3]), tf.zeros([], tf.float64)]) == 32


def test_averaging_factory_that_is_not_declared_is_refused():
  with pytest.raises(ValueError, match="aggregator_reduction='mean'"):
    process.__wrapped__(aggregator=tff.aggregators.UnweightedMeanFactory())


def test_differential_privacy_without_noise_or_clipping_is_the_sum():
  factory = tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(0.0, 3, 1e9)
  private = toy.run(process(aggregator=factory, aggregator_reduction='mean'), SIZES, [[0, 1, 2]])[0]
  summed = toy.run(process(), SIZES, [[0, 1, 2]])[0]
  toy.assert_close(private.model, summed.model, rtol=1e-5, atol=1e-3)


def test_sequence_targets_count_one_by_one_for_plain_losses():
  """N_i is the number of targets, not of rows: else the divergence counts T-fold."""

  def model():
    return tf.keras.Sequential([tf.keras.layers.InputLayer([5, 2]), tk.layers.BayesianDense(3)])

  built = build_virtual(
    model_fn=model,
    client_num_examples=[4],
    **toy.settings(element_spec=(tf.TensorSpec([5, 2], tf.float32), tf.TensorSpec([5], tf.int32))),
  )
  server, clients = toy.start(built, [4])
  data = {'train': {'x': np.zeros([4, 5, 2], np.float32), 'y': np.zeros([4, 5], np.int32)}}
  _, _, _, (metrics,) = built.next(server, clients, [{**data, 'seed': np.array([1, 2], np.int32)}])
  assert metrics['num_targets'] == 20


@pytest.mark.parametrize(
  'layers',
  [
    [tf.keras.layers.Dense(4, trainable=False)],
    [tf.keras.layers.BatchNormalization(scale=False, center=False)],
    [tk.layers.BayesianDense(4, trainable=False)],
  ],
  ids=['frozen', 'batch_norm', 'frozen_bayesian'],
)
def test_variables_that_no_gradient_trains_are_refused_by_name(layers):
  configs = [(type(layer), layer.get_config() | {'name': 'odd'}) for layer in layers]

  def model():
    return tf.keras.Sequential(
      [
        tf.keras.layers.InputLayer([3]),
        *(kind.from_config(config) for kind, config in configs),
        tk.layers.BayesianDense(2),
      ]
    )

  with pytest.raises(ValueError, match='non-trainable variables'):
    build_virtual(model_fn=model, client_num_examples=[1], **toy.settings())


@pytest.mark.parametrize('activation', [None, 'softmax'])
def test_averaging_what_are_no_logits_is_refused(activation):
  units = 1 if activation is None else 2
  loss = (
    tf.keras.losses.MeanSquaredError()
    if activation is None
    else tf.keras.losses.SparseCategoricalCrossentropy()
  )
  y = tf.TensorSpec([1], tf.float32) if activation is None else tf.TensorSpec([], tf.int32)

  def model():
    return tf.keras.Sequential(
      [tf.keras.layers.InputLayer([3]), tk.layers.BayesianDense(units, activation)]
    )

  with pytest.raises(ValueError, match='evaluation_samples averages class probabilities'):
    build_virtual(
      model_fn=model,
      client_num_examples=[1],
      **toy.settings(
        loss_fn=loss,
        metrics_fn=list,
        element_spec=(tf.TensorSpec([3], tf.float32), y),
        evaluation_samples=2,
      ),
    )


def test_layers_of_one_name_are_told_apart_when_pruning():
  def block():
    return tf.keras.Sequential([tf.keras.Input((3,)), tk.layers.BayesianDense(3, name='d')])

  def model():
    inputs = tf.keras.Input((3,))
    hidden = block()(inputs)
    return tf.keras.Model(inputs, tk.layers.BayesianDense(2, name='d')(hidden))

  built = build_virtual(
    model_fn=model, client_num_examples=[8], **toy.settings(prune_percentile=50.0)
  )
  _, _, _, (metrics,) = toy.run(built, [8], [[0]])
  assert metrics['bytes_up'] == 6 * 12 + 8 * 8


@pytest.fixture
def floatx_float64():
  tf.keras.backend.set_floatx('float64')
  tf.keras.mixed_precision.set_global_policy('float64')
  yield
  tf.keras.backend.set_floatx('float32')
  tf.keras.mixed_precision.set_global_policy('float32')


def test_float64_models_train(floatx_float64):
  del floatx_float64
  x = tf.TensorSpec([3], tf.float64)
  built = build_virtual(
    model_fn=toy.bayesian_model,
    client_num_examples=[6],
    **toy.settings(element_spec=(x, tf.TensorSpec([], tf.int32))),
  )
  server, clients = toy.start(built, [6])
  data = toy.train_data(0, 6)
  data['train']['x'] = data['train']['x'].astype(np.float64)
  server, (client,), _, (metrics,) = built.next(server, clients, [data])
  assert client.loc[0].dtype == np.float64
  assert np.isfinite(metrics['loss'])
