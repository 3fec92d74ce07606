"""Which model a client picks, function by function."""

import numpy as np
import pytest
import tensorflow as tf
import toy

from tffpers import inspection, modelling
from tffpers.algorithms import cluster_choice, cluster_start, cluster_vote

NUM_SEEDS = 4000


def picks(losses, active, epsilon):
  """How often no model and each model is picked, over many seeds."""
  seeds = tf.stack([tf.range(NUM_SEEDS), 7 + tf.zeros([NUM_SEEDS], tf.int32)], -1)
  losses, active = tf.constant(losses, tf.float32), tf.constant(active)
  pick = lambda seed: cluster_choice.choose(losses, active, epsilon, seed).model  # noqa: E731
  models = tf.function(lambda: tf.map_fn(pick, seeds))()
  return np.bincount(models.numpy() + 1, minlength=len(losses) + 1)


@pytest.mark.parametrize('epsilon', [0.0, 0.25, 1.0])
def test_b2_b3_best_has_1_minus_epsilon_plus_its_share_and_each_other_epsilon_over_active(epsilon):
  """χ² with three degrees of freedom; model 2 has stopped though its loss is the lowest."""
  counts = picks([0.5, 0.4, 0.1, 0.6, 0.9], [True, True, False, True, True], epsilon)
  expected = NUM_SEEDS * np.array(
    [epsilon / 4, 1 - epsilon + epsilon / 4, epsilon / 4, epsilon / 4]
  )
  observed = counts[[1, 2, 4, 5]]
  assert counts[0] == counts[3] == 0
  if epsilon == 0:
    assert observed[1] == NUM_SEEDS
  else:
    # The 99.9 % quantile of χ²(3) is 16.3.
    assert (np.square(observed - expected) / expected).sum() < 16.3


def test_nan_is_never_chosen_beside_a_number():
  assert picks([np.nan, 3.0, np.nan], [True] * 3, 0.0).tolist() == [0, 0, NUM_SEEDS, 0]
  assert picks([np.nan, np.inf], [True] * 2, 0.0).tolist() == [0, 0, NUM_SEEDS]


@pytest.mark.parametrize('loss', [0.5, np.nan, np.inf])
def test_equal_losses_are_decided_by_chance(loss):
  counts = picks([loss, loss], [True] * 2, 0.0)
  assert abs(counts[1] - NUM_SEEDS / 2) < 4 * np.sqrt(NUM_SEEDS / 4)


def test_without_an_active_model_nothing_is_picked():
  assert picks([0.1, 0.2], [False] * 2, 0.5).tolist() == [NUM_SEEDS, 0, 0]


@pytest.fixture(scope='module')
def spec():
  arguments = toy.settings()
  return inspection.inspect_model(
    toy.plain_model, arguments['loss_fn'], arguments['metrics_fn'], arguments['element_spec']
  )


def test_losses_in_one_pass_are_those_of_each_model_alone(spec):
  """More examples than one batch; the inactive model is not run."""
  data = tf.nest.map_structure(tf.constant, toy.examples(1, 301))
  models = []
  for j in range(3):
    model = toy.plain_model()
    models.append(modelling.BoundModel(model, model.trainable_variables, [], None))
    model.set_weights([np.full(v.shape, 0.3 * j - 0.2, np.float32) for v in model.variables])
  active = tf.constant([True, False, True])
  losses = tf.function(
    lambda: cluster_choice.mean_losses(spec.loss_fn, models, active, data), autograph=False
  )()
  alone = [spec.loss_fn(data['y'], m.model(data['x'])) for m in models]
  assert np.isnan(losses[1])
  np.testing.assert_allclose([losses[0], losses[2]], [alone[0], alone[2]], rtol=1e-5)


def test_initial_values_are_those_of_the_model_bound_with_the_seed(spec):
  draw = cluster_start.initial_weights(spec)
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    expected = session.run(tf.nest.flatten(modelling.bind(spec, tf.constant([3, 4])).initial))
  toy.assert_equal(tf.function(draw)(tf.constant([3, 4])), expected)


def test_b4_models_of_a_start_differ_and_the_first_is_that_of_a_single_model(spec):
  draw = cluster_start.initial_weights(spec)
  models = tf.function(lambda s: cluster_start.draw_models(draw, s, 3))(tf.constant([3, 4]))
  toy.assert_equal([t[0] for t in models.trainable], tf.function(draw)(tf.constant([3, 4])))
  kernel = models.trainable[0].numpy()
  assert all(np.any(kernel[i] != kernel[j]) for i, j in ((0, 1), (0, 2), (1, 2)))


def test_first_start_in_which_every_model_has_its_share_is_elected():
  votes = np.tile(np.array([20, 0, 0], np.float32), [cluster_vote.NUM_STARTS, 1])
  # Who is undecided counts among those of whom each model needs 35 %.
  votes[2], votes[3], votes[5], votes[7] = [6, 6, 8], [14, 6, 0], [7, 12, 1], [10, 10, 0]
  number, balanced = cluster_vote.elect(tf.constant(votes))
  assert (number, balanced) == (5, True)


def test_without_a_balanced_start_the_least_uneven_one_is_elected():
  votes = np.tile(np.array([20, 0, 0, 0], np.float32), [cluster_vote.NUM_STARTS, 1])
  votes[3], votes[9] = [10, 6, 4, 0], [18, 1, 1, 0]
  number, balanced = cluster_vote.elect(tf.constant(votes))
  assert (number, balanced) == (3, False)
  votes[4] = [10, 5, 5, 0]
  assert cluster_vote.elect(tf.constant(votes))[1]


def constant_models(*outputs):
  """Models that predict x times a number."""
  models = []
  for output in outputs:
    model = tf.keras.Sequential(
      [tf.keras.layers.Dense(1, use_bias=False, kernel_initializer='ones', input_shape=[1])]
    )
    model.set_weights([np.full([1, 1], output, np.float32)])
    models.append(modelling.BoundModel(model, model.trainable_variables, [], None))
  return models


def ballot(models, x, y):
  data = {'x': np.float32(x)[:, np.newaxis], 'y': np.float32(y)}
  data = tf.nest.map_structure(tf.constant, data)
  loss_fn = lambda y, prediction: tf.square(y - prediction[:, 0])  # noqa: E731
  return list(
    tf.function(lambda: cluster_vote.clearly_best(loss_fn, models, data), autograph=False)().numpy()
  )


def test_a_model_is_clearly_best_by_more_than_three_standard_errors():
  """Losses of predictions 0 and 1 on targets 0 and 1 differ by −1 or 1."""
  models, x = constant_models(0, 1), [1] * 40
  # 28 of 40 for the second: 16/40 = 0.40 < 3 · √((1 − 0.40²) / 39) = 0.4403.
  assert ballot(models, x, [1] * 28 + [0] * 12) == [0, 0, 1]
  # 29: 18/40 = 0.45 > 3 · √((1 − 0.45²) / 39) = 0.4290.
  assert ballot(models, x, [1] * 29 + [0] * 11) == [0, 1, 0]
  assert ballot(models, x, [0] * 40) == [1, 0, 0]


def test_no_model_is_clearly_best_of_equal_ones_on_one_example_or_without_a_number():
  assert ballot(constant_models(1, 1, 0), [1, 2], [1, 2]) == [0, 0, 0, 1]
  assert ballot(constant_models(0, 1), [1], [1]) == [0, 0, 1]
  assert ballot(constant_models(0, 1), [np.nan, 1], [1, 1]) == [0, 0, 0]
  # A loss that is a number is lower than one that is not.
  assert ballot(constant_models(np.nan, 1), [1, 1], [1, 2]) == [0, 1, 0]
  assert ballot(constant_models(np.inf, 0, 1), [1, 1], [1, 2]) == [0, 0, 0, 1]
  assert ballot(constant_models(0, 1), [], []) == [0, 0, 0]


def test_the_clearly_best_of_three_is_better_than_each_of_the_others():
  x = np.linspace(1, 2, 600)
  assert ballot(constant_models(2, 1, 0), x, x) == [0, 1, 0, 0]
