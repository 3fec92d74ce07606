"""VIRTUAL's variants: weighting, starts, pruning, and the hierarchical network."""

import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
import toy

from tffpers import factors, gaussians, seeds
from tffpers import keras as tk
from tffpers.algorithms import build_virtual
from tffpers.algorithms.virtual_settings import prior_shares
from tffpers.gaussians import Natural

SIZES = [10, 6, 4]
STILL = tff.learning.optimizers.build_sgdm(0.0)


def hierarchical_model():
  return tk.hierarchical(
    [
      tf.keras.Input((toy.NUM_FEATURES,)),
      tk.layers.BayesianDense(4, activation='tanh'),
      tk.layers.BayesianDense(toy.NUM_CLASSES),
    ]
  )


@functools.cache
def process(model_fn=toy.bayesian_model, **overrides):
  return build_virtual(
    model_fn=model_fn, client_num_examples=SIZES, **toy.settings(**{'beta': 0.1, **overrides})
  )


def assert_product_of_factors(server, clients):
  for i, s in enumerate(server.model.posterior):
    for field in Natural._fields:
      parts = [getattr(c.factor[i], field) for c in clients]
      size = np.maximum(np.sum(np.abs(parts), 0), 1e-300)
      assert np.max(np.abs(getattr(s, field) - np.sum(parts, 0)) / size) < 1e-9


def test_v8_shares_of_the_prior_sum_to_one():
  assert prior_shares(SIZES, 'equal') == (1 / 3, 1 / 3, 1 / 3)
  assert prior_shares(dict(zip('abc', SIZES, strict=True)), 'by_size') == (0.5, 0.3, 0.2)


def test_v8_weighting_by_size_gives_each_factor_its_share():
  built = process(factor_weighting='by_size', start='prior')
  server, clients = toy.start(built, SIZES)
  for client, share in zip(clients, (0.5, 0.3, 0.2), strict=True):
    np.testing.assert_allclose(client.factor[0].lam, share, rtol=1e-12)
    assert client.share == share
  assert_product_of_factors(server, clients)
  server, clients, _, _ = toy.run(built, SIZES, [[0, 1], [2, 0]])
  assert_product_of_factors(server, clients)


def test_v8_equal_sizes_weigh_like_equal_factors():
  runs = [
    toy.run(
      build_virtual(
        model_fn=toy.bayesian_model,
        client_num_examples=[5, 5],
        **toy.settings(factor_weighting=weighting),
      ),
      [5, 5],
      [[0, 1]],
    )
    for weighting in ('equal', 'by_size')
  ]
  toy.assert_equal(runs[0][0].model, runs[1][0].model)


@pytest.mark.parametrize(
  ('sizes', 'weighting', 'words'),
  [
    ([], 'equal', 'at least one client'),
    ([0, 0], 'by_size', 'at least one example'),
    ([1, 2], 'by_age', "factor_weighting='by_age'"),
  ],
)
def test_v8_what_cannot_be_weighed_is_refused(sizes, weighting, words):
  with pytest.raises(ValueError, match=words):
    prior_shares(sizes, weighting)


def test_own_start_begins_where_the_client_ended_and_factor_takes_the_difference():
  server, clients, _, _ = toy.run(process(client_start='own'), SIZES, [[0, 1], [1, 2]])
  still = process(client_start='own', optimizer=STILL, damping=1.0)
  _, (after,), _, _ = still.next(server, clients[:1], [toy.train_data(0, 10)])
  toy.assert_equal(after.loc, clients[0].loc)
  # q = the client's own posterior, so λ(s_i) grows by λ(q) − λ(s), d = 1.
  for s, old, new, log_scale in zip(
    server.model.posterior, clients[0].factor, after.factor, clients[0].log_scale, strict=True
  ):
    own = np.exp(-2.0 * log_scale.astype(np.float64))
    np.testing.assert_allclose(new.lam - old.lam, own - s.lam, rtol=1e-3, atol=1e-3)


def test_own_start_of_a_client_that_never_trained_is_the_servers():
  server, clients, _, _ = toy.run(process(), SIZES, [[0, 1]])
  data = [toy.train_data(2, 4)]
  runs = [
    process(client_start=start).next(server, clients[2:], data) for start in ('own', 'server')
  ]
  toy.assert_equal(runs[0][1], runs[1][1])


@pytest.mark.parametrize('overrides', [{'client_start': 'own'}, {'prune_percentile': 75.0}])
def test_v1_holds_for_the_variants(overrides):
  server, clients, _, _ = toy.run(process(**overrides), SIZES, [[0, 1], [1, 2], [0, 2]])
  assert_product_of_factors(server, clients)


def test_fed_avg_init_gives_every_client_the_same_cavity():
  server, clients, _, _ = toy.run(process(fed_avg_init=True), SIZES, [[0, 1]])
  still = process(fed_avg_init=True, optimizer=STILL)
  _, after, _, metrics = still.next(
    server, clients, [toy.train_data(i, n) for i, n in enumerate(SIZES)]
  )
  kls = [m['kl'] for m in metrics]
  np.testing.assert_allclose(kls, kls[0], rtol=1e-6)
  for client in after:
    for factor, s in zip(client.factor, server.model.posterior, strict=True):
      np.testing.assert_allclose(factor.lam, s.lam / 3, rtol=1e-12)


def test_v10_percentile_zero_is_dense_bit_for_bit():
  dense = toy.run(process(), SIZES, [[0, 1], [2, 0]])
  zero = toy.run(process(prune_percentile=0.0), SIZES, [[0, 1], [2, 0]])
  toy.assert_equal(dense, zero)
  # 3·4 + 4 + 4·2 + 2 weights: two float32 each up, two float64 and two scalars down.
  assert dense[3][0]['bytes_up'] == 8 * 26
  assert dense[3][0]['bytes_down'] == 16 * 26 + 4 + 8


def test_v10_pruning_keeps_the_entries_with_the_most_signal():
  tensors = functools.partial(tf.constant, dtype=tf.float64)
  delta = Natural(tensors([1.0, -8.0, 3.0, 0.5]), tensors([5.0, 6.0, 7.0, 8.0]))
  # Ratios 1/1, 8/2, 3/1 and ½/1; their median is 2.
  (sparse,), kept = factors.prune([delta], [tensors([1.0, 4.0, 1.0, 1.0])], 50.0)
  np.testing.assert_array_equal(sparse.gamma, [0.0, -8.0, 3.0, 0.0])
  np.testing.assert_array_equal(sparse.lam, [0.0, 6.0, 7.0, 0.0])
  assert kept == 2


def test_v10_only_hidden_layers_are_pruned_and_the_payload_is_counted():
  built = process(prune_percentile=75.0)
  server, clients = toy.start(built, SIZES)
  _, (client,), _, (metrics,) = built.next(server, clients[:1], [toy.train_data(0, 10)])
  changed = [np.count_nonzero(a.lam != b.lam) for a, b in
             zip(client.factor, clients[0].factor, strict=True)]  # fmt: skip
  assert changed[0] + changed[1] == 4
  assert changed[2:] == [8, 2]
  assert metrics['bytes_up'] == 4 * 12 + 10 * 8
  _, _, _, (empty,) = built.next(server, clients[:1], [toy.train_data(0, 0)])
  assert empty['bytes_up'] == 10 * 8


def test_hierarchical_server_is_the_pure_shared_network():
  built = process(hierarchical_model)
  server, clients, _, _ = toy.run(built, SIZES, [[0, 1]])
  assert_product_of_factors(server, clients)
  data = toy.held_out(0, 30)
  (result,) = built.evaluate(server, clients[:1], [data])
  model = toy.bayesian_model()
  for weight, s in zip(tk.gaussian_weights(model), server.model.posterior, strict=True):
    weight.loc.assign(np.float32(s.gamma / s.lam))
  loss = toy.settings()['loss_fn'](data['test']['y'], model(data['test']['x']))
  np.testing.assert_allclose(result['server']['loss'], loss, rtol=1e-5)
  assert result['client']['loss'] != result['server']['loss']


def test_hierarchical_trains_private_path_and_gates_and_keeps_gates_non_negative():
  built = process(hierarchical_model, epochs=10)
  server, clients, _, _ = toy.run(built, SIZES, [[0, 1]] * 2)
  assert all(np.any(a != b) for a, b in
             zip(clients[0].client_only, clients[2].client_only, strict=True))  # fmt: skip
  gates = clients[0].client_only[-2:]
  assert [g.shape for g in gates] == [(4,), (2,)]
  assert all(np.all(g >= 0) for g in gates)
  _, initial = toy.start(built, SIZES)
  toy.assert_equal(clients[2].client_only, initial[2].client_only)
  toy.assert_equal(initial[0].client_only, initial[1].client_only)


def test_v14_private_path_and_gates_do_not_reach_the_server():
  """With a learning rate of 0 the update is held fixed while φ and gates change."""
  built = process(hierarchical_model, optimizer=STILL)
  server, clients, _, _ = toy.run(process(hierarchical_model), SIZES, [[0, 1]])
  altered = [c._replace(client_only=[2.0 * v + 1.0 for v in c.client_only]) for c in clients[:2]]
  data = [toy.train_data(i, SIZES[i]) for i in range(2)]
  one, other = built.next(server, clients[:2], data), built.next(server, altered, data)
  toy.assert_equal((one[0], one[2]), (other[0], other[2]))
  assert one[3][0]['loss'] != other[3][0]['loss']


def test_hierarchical_divergence_counts_shared_and_private_once():
  """At round start KL_1 is that of the cavity and KL_2 that of the layers from their prior."""
  built = process(hierarchical_model, optimizer=STILL)
  server, clients = toy.start(built, SIZES)
  _, _, _, (metrics,) = built.next(server, clients[:1], [toy.train_data(0, 10)])
  expected = 0.0
  for s, factor in zip(server.model.posterior, clients[0].factor, strict=True):
    s, factor = (Natural(*map(tf.constant, f)) for f in (s, factor))
    unit = gaussians.from_moments(tf.zeros_like(s.lam), tf.ones_like(s.lam))
    cavity = gaussians.ratio(gaussians.product(s, gaussians.power(unit, 1 / 3)), factor)
    expected += gaussians.kl_divergence(s, cavity)
  private = clients[0].client_only[:-2]
  for loc, log_scale in zip(private[::2], private[1::2], strict=True):
    q = gaussians.from_moments(tf.constant(loc), tf.exp(tf.constant(log_scale)))
    unit = gaussians.from_moments(tf.zeros_like(q.lam), tf.ones_like(q.lam))
    expected += gaussians.kl_divergence(q, unit)
  np.testing.assert_allclose(metrics['kl'], expected, rtol=1e-5)


def test_private_start_does_not_depend_on_the_client_but_its_noise_does():
  built = process(hierarchical_model)
  server, clients = toy.start(built, SIZES)
  data = [
    {'train': toy.examples(0, 10), 'seed': seeds.derive(1, 'train', 0, str(i))} for i in range(2)
  ]
  _, (a, b), _, _ = built.next(server, [clients[0]] * 2, data)
  assert any(np.any(x != y) for x, y in zip(a.client_only, b.client_only, strict=True))


@pytest.mark.parametrize(
  ('argument', 'value'),
  [('client_start', 'elsewhere'), ('prune_percentile', 100.0), ('prune_percentile', -1.0),
   ('fed_avg_init', 'yes')],
)  # fmt: skip
def test_variant_out_of_range_is_refused_by_name(argument, value):
  with pytest.raises(ValueError, match=f'{argument} must be .*Received: {argument}='):
    process.__wrapped__(**{argument: value})
