"""Applies the layer harness to every Bayesian layer."""

import json
import os
import pathlib
import subprocess
import sys
import warnings

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tffpers.keras as bayes
from tests.keras.layers.harness import BATCH, CASES, compute_dtype, policy
from tffpers.keras.backend import keras

ROOT = pathlib.Path(__file__).parents[3]
TARGETS = np.linspace(-1.0, 1.0, BATCH, dtype=np.float32)[:, np.newaxis]
SEED = tf.constant([5, 6])

every_layer = pytest.mark.parametrize('case', CASES, ids=lambda case: case.name)


@pytest.fixture(autouse=True)
def same_initial_weights():
  keras.utils.set_random_seed(0)


def bayesian_layers(model):
  return [
    layer for layer in model._flatten_layers() if isinstance(layer, bayes.layers.BayesianLayer)
  ]


def fit(model, inputs, epochs=2, jit_compile=False, batch_size=BATCH):
  model.compile(keras.optimizers.SGD(0.05), 'mse', jit_compile=jit_compile)
  return model.fit(
    inputs, TARGETS[: len(inputs)], batch_size, epochs, verbose=0, shuffle=False
  ).history['loss']


@every_layer
def test_is_a_layer_of_the_users_keras_and_has_the_stated_shape(case):
  layer = case.make()
  assert isinstance(layer, tf.keras.layers.Layer)
  for training in (False, True):
    outputs = layer(case.tensor(), training=training)
    assert outputs.shape == case.output_shape
  assert layer.compute_output_shape(case.inputs.shape) == case.output_shape


@every_layer
def test_config_is_plain_json_and_round_trips(case):
  arguments = {
    'prior': 0.5,
    'initial_scale': 0.1,
    'kl_weight': 0.25,
    'seed': 3,
    'sample_at_inference': True,
  }
  (layer,) = bayesian_layers(case.make(**arguments))
  config = layer.get_config()
  assert json.loads(json.dumps(config)) == config
  assert arguments.items() <= config.items()
  assert type(layer).from_config(config).get_config() == config


@every_layer
@pytest.mark.parametrize('name', ['float32', 'mixed_bfloat16', 'mixed_float16', 'float64'])
def test_dtypes_follow_the_policy_and_gradients_are_finite(case, name):
  with policy(name):
    layer = case.make(kl_weight=0.1)
    with tf.GradientTape() as tape:
      outputs = layer(case.tensor(), training=True)
      loss = tf.reduce_sum(tf.cast(outputs, tf.float32)) + tf.cast(sum(layer.losses), tf.float32)
    gradients = tape.gradient(loss, layer.trainable_variables)
    assert outputs.dtype == compute_dtype()
    divergence = bayes.kl_divergence(layer)
  wanted = tf.float64 if name == 'float64' else tf.float32
  assert divergence.dtype == wanted
  assert all(tf.as_dtype(variable.dtype) == wanted for variable in layer.trainable_variables)
  assert all(np.isfinite(tf.convert_to_tensor(gradient)).all() for gradient in gradients)


@every_layer
def test_every_variable_gets_a_gradient_on_every_call(case):
  layer = case.built()
  for _ in range(2):
    with tf.GradientTape() as tape:
      loss = tf.reduce_sum(tf.square(layer(case.tensor(), training=True)))
    for variable, gradient in zip(
      layer.trainable_variables,
      tape.gradient(loss, layer.trainable_variables),
      strict=True,
    ):
      assert gradient is not None, variable.name
      assert np.any(tf.convert_to_tensor(gradient).numpy() != 0), variable.name


@every_layer
def test_changing_the_scale_changes_a_sample_and_not_the_mean(case):
  layer = case.built()

  def outputs(sample):
    with bayes.noise.scope(SEED, sample=sample):
      return layer(case.tensor()).numpy()

  sample, mean = outputs(True), outputs(False)
  for weight in bayes.gaussian_weights(layer):
    weight.log_scale.assign(tf.zeros(weight.shape))
  assert np.abs(outputs(True) - sample).max() > 1e-3
  np.testing.assert_array_equal(outputs(False), mean)


@every_layer
def test_noise_is_a_function_of_the_scopes_seed(case):
  layer = case.built()

  def outputs(seed):
    with bayes.noise.scope(tf.constant(seed)):
      return layer(case.tensor(), training=True).numpy()

  np.testing.assert_array_equal(outputs([1, 2]), outputs([1, 2]))
  assert np.any(outputs([1, 2]) != outputs([1, 3]))


@every_layer
def test_noise_outside_a_scope_differs_by_call_and_repeats_with_the_layers_seed(case):
  def two_outputs(seed):
    layer = case.built(seed=seed)
    for weight in bayes.gaussian_weights(layer):
      weight.loc.assign(tf.zeros(weight.shape))
    call = tf.function(lambda: layer(case.tensor(), training=True))
    return call().numpy(), call().numpy()

  first, second = two_outputs(7)
  assert np.any(first != second)
  np.testing.assert_array_equal(two_outputs(7), (first, second))
  assert np.any(two_outputs(8)[0] != first)


@every_layer
def test_predictions_repeat_unless_sampling_is_asked_for(case):
  model = case.model(initial_scale=0.5)
  np.testing.assert_array_equal(
    model.predict(case.inputs, verbose=0), model.predict(case.inputs, verbose=0)
  )
  sampling = case.built(sample_at_inference=True)
  assert np.any(sampling(case.tensor()).numpy() != sampling(case.tensor()).numpy())


@every_layer
def test_monte_carlo_outputs_spread_and_repeat(case):
  layer = case.built(initial_scale=0.1)

  @tf.function
  def samples(seed):
    def one(number):
      with bayes.noise.scope(tf.stack([seed, number])):
        return layer(case.tensor(), training=True)

    return tf.map_fn(one, tf.range(50), fn_output_signature=tf.float32)

  drawn = samples(tf.constant(1)).numpy()
  assert drawn.std(axis=0).min() > 0
  np.testing.assert_array_equal(drawn, samples(tf.constant(1)))
  np.testing.assert_allclose(drawn.mean(axis=0), layer(case.tensor()), atol=0.25)


@every_layer
def test_divergence_is_equal_in_eager_function_and_dataset_reduce(case):
  layer = case.built(kl_weight=0.25)
  expected = sum(
    tf.reduce_sum(tfp.distributions.kl_divergence(weight.posterior, weight.prior))
    for weight in bayes.gaussian_weights(layer)
  )

  def both():
    layer(case.tensor(), training=True)
    layer(case.tensor(), training=True)  # A second call must not add the loss again.
    return tf.stack([bayes.kl_divergence(layer), 4.0 * sum(layer.losses)])

  reduced = tf.function(
    lambda: tf.data.Dataset.range(3).reduce(tf.zeros(2), lambda total, _: total + both())
  )
  for value in (both(), tf.function(both)(), reduced() / 3.0):
    np.testing.assert_allclose(value, [expected, expected], rtol=1e-5)
  (owner,) = bayesian_layers(layer)
  np.testing.assert_allclose(owner.kl_divergence(), expected, rtol=1e-5)


@every_layer
@pytest.mark.parametrize('jit_compile', [False, True])
def test_fits_with_and_without_xla(case, jit_compile):
  model = case.model(kl_weight=0.01)
  losses = fit(model, case.inputs, epochs=4, jit_compile=jit_compile)
  assert np.isfinite(losses).all()
  assert losses[-1] < losses[0]


@every_layer
def test_trains_with_batches_of_4_3_and_0_rows(case):
  model = case.model()
  for rows in (4, 3):
    assert np.isfinite(fit(model, case.inputs[:rows], epochs=1)).all()
  with tf.GradientTape() as tape:
    loss = tf.reduce_sum(model(case.tensor(0), training=True))
  gradients = tape.gradient(loss, model.trainable_variables)
  assert all(np.all(tf.convert_to_tensor(gradient) == 0.0) for gradient in gradients)


@every_layer
def test_padding_on_either_side_changes_nothing(case):
  if not case.recurrent:
    pytest.skip('takes no mask')
  layer = case.built()
  plain = layer(case.tensor()).numpy()
  for left, right in ((0, 3), (10, 0), (2, 1)):
    padded = np.pad(case.inputs, ((0, 0), (left, right), (0, 0)), constant_values=9.0)
    mask = np.zeros(padded.shape[:2], bool)
    mask[:, left : left + case.inputs.shape[1]] = True
    outputs = layer(tf.constant(padded), mask=tf.constant(mask)).numpy()
    if outputs.ndim == 3:
      outputs = outputs[:, left : left + case.inputs.shape[1]]
    np.testing.assert_allclose(outputs, plain, atol=1e-6)


@every_layer
def test_a_fully_padded_row_gives_zeros_and_leaves_others_alone(case):
  if not case.recurrent:
    pytest.skip('takes no mask')
  layer = case.built()
  mask = np.ones(case.inputs.shape[:2], bool)
  mask[1] = False
  outputs = layer(case.tensor(), mask=tf.constant(mask)).numpy()
  np.testing.assert_array_equal(outputs[1], 0.0)
  np.testing.assert_allclose(outputs[[0, 2, 3]], layer(case.tensor()).numpy()[[0, 2, 3]], atol=1e-6)


@every_layer
@pytest.mark.parametrize(
  ('argument', 'values'),
  [
    ('kl_weight', (0.0, 1.0)),
    ('initial_scale', (1e-6, 0.5)),
    ('prior', (0.1, 10.0)),
    ('seed', (1, 2)),
  ],
)
def test_every_argument_acts_on_training(case, argument, values):
  def trained(value):
    keras.utils.set_random_seed(1)
    model = case.model(**({'kl_weight': 0.1, 'seed': 3} | {argument: value}))
    with tf.GradientTape() as tape:
      loss = tf.reduce_mean(tf.square(model(case.tensor(), training=True))) + sum(model.losses)
    weight = bayes.gaussian_weights(model)[0]
    return [tf.convert_to_tensor(g).numpy() for g in tape.gradient(loss, weight.variables)]

  small, big = trained(values[0]), trained(values[1])
  assert any(np.any(a != b) for a, b in zip(small, big, strict=True))


@every_layer
@pytest.mark.parametrize(
  ('arguments', 'error'),
  [
    ({'kl_weight': -1.0}, ValueError),
    ({'kl_weight': float('nan')}, ValueError),
    ({'initial_scale': 0.0}, ValueError),
    ({'prior': -1.0}, ValueError),
    ({'prior': 'no such prior'}, ValueError),
    ({'prior': tfp.distributions.Normal(0.0, 1.0)}, TypeError),
    ({'no_such_argument': 1}, (TypeError, ValueError)),
  ],
)
def test_wrong_arguments_are_refused(case, arguments, error):
  with pytest.raises(error, match='Received|no_such_argument'):
    case.make(**arguments)


_LOAD = """
import json, sys
import numpy as np
import tensorflow as tf
import tffpers.keras
from tffpers.keras.backend import keras

folder = sys.argv[1]
for name in json.load(open(f"{folder}/names.json")):
  data = np.load(f"{folder}/{name}.npz")
  rebuilt = keras.models.model_from_json(open(f"{folder}/{name}.json").read())
  rebuilt.load_weights(f"{folder}/{name}.weights.h5")
  stored = [keras.models.load_model(f"{folder}/{name}.{ext}") for ext in ("keras", "h5")]
  for model in (*stored, rebuilt):
    np.testing.assert_allclose(model(data["inputs"]), data["outputs"], atol=1e-6)
    np.testing.assert_allclose(
      tffpers.keras.kl_divergence(model), data["divergence"], rtol=1e-6
    )
    with tf.GradientTape() as tape:
      loss = tf.reduce_sum(model(data["inputs"], training=True)) + sum(model.losses)
    assert None not in tape.gradient(loss, model.trainable_variables)
print("loaded")
"""


def test_every_layer_loads_in_a_new_process_without_custom_objects(tmp_path):
  names = [case.name for case in CASES]
  (tmp_path / 'names.json').write_text(json.dumps(names))
  for case in CASES:
    model = case.model(prior=0.5, kl_weight=0.1, initial_scale=0.1)
    model.compile('sgd', 'mean_squared_error')
    model.fit(case.inputs, TARGETS, verbose=0)
    with warnings.catch_warnings():
      warnings.simplefilter('ignore', UserWarning)  # Keras calls .h5 a legacy format.
      for extension in ('keras', 'h5'):
        model.save(tmp_path / f'{case.name}.{extension}')
    model.save_weights(tmp_path / f'{case.name}.weights.h5')
    (tmp_path / f'{case.name}.json').write_text(model.to_json())
    np.savez(
      tmp_path / f'{case.name}.npz',
      inputs=case.inputs,
      outputs=model(case.tensor()),
      divergence=bayes.kl_divergence(model),
    )
  environment = os.environ | {'PYTHONPATH': str(ROOT), 'CUDA_VISIBLE_DEVICES': '-1'}
  done = subprocess.run(
    [sys.executable, '-c', _LOAD, str(tmp_path)],
    env=environment,
    capture_output=True,
    text=True,
    timeout=300,
    check=False,
  )
  assert done.stdout.strip().endswith('loaded'), done.stderr[-3000:]
