"""Flags that every experiment script has, and how a script runs and reports its methods."""

import os
import sys
from collections.abc import Callable, Mapping

import tensorflow as tf
from absl import app, flags

from tffpers import metrics, modelling, plots, process, runtime, simulation
from tffpers.datasets import FederatedDataset
from tffpers.keras import metrics as keras_metrics

FLAGS = flags.FLAGS

flags.DEFINE_integer('rounds', None, 'Rounds in all.', lower_bound=1)
flags.DEFINE_integer('clients_per_round', None, 'Clients C sampled in a round.', lower_bound=1)
flags.DEFINE_integer(
  'epochs', None, 'Local passes E over a client’s data in a round.', lower_bound=0
)
flags.DEFINE_integer('batch_size', None, 'Examples per local step.', lower_bound=1)
flags.DEFINE_float('client_learning_rate', None, 'The clients’ SGD learning rate.', lower_bound=0)
flags.DEFINE_float(
  'clip_norm', None, 'Largest global norm of a local gradient; 0 does not clip.', lower_bound=0
)
flags.DEFINE_integer('seed', 1, 'Seed of everything that is drawn.')
flags.DEFINE_string(
  'output_dir',
  None,
  'Folder for results: a subfolder per method, and none writes nothing; scripts with --study '
  'need it for their tables and figures, beside runs/.',
)
flags.DEFINE_string(
  'data_dir', None, 'Folder of the data set’s own files; see the script’s description.'
)
flags.DEFINE_enum('runtime', 'in_process', ['in_process', 'native'], 'Where TFF computations run.')
flags.DEFINE_integer(
  'evaluate_every', None, 'Rounds between evaluations of all clients.', lower_bound=1
)
flags.DEFINE_float(
  'validation_share',
  0.0,
  'Share of each client’s training data kept for validation: to choose settings or the round by.',
  lower_bound=0,
  upper_bound=0.9,
)
flags.DEFINE_bool(
  'resume', False, 'Continue the runs found in --output_dir; --study does so in any case.'
)
flags.DEFINE_bool('traceback', False, 'Show the traceback of an error.')
flags.DEFINE_bool('progress', True, 'Show a progress bar (--noprogress hides it).')


def run(main: Callable[[], None]) -> None:
  """Runs a script: a user's mistake or Ctrl-C ends it with a sentence, not with a traceback."""

  def checked(argv: list[str]) -> None:
    if argv[1:]:
      sys.exit(f'Unexpected arguments {argv[1:]}: flags begin with --; see --helpshort.')
    try:
      main()
    except FileExistsError as error:
      sys.exit(f'{error}\nOn the command line: --resume, or another --output_dir.')
    except (ValueError, OSError, simulation.StoreError) as error:
      if FLAGS.traceback:
        raise
      sys.exit(f'{type(error).__name__}: {error}\n(--traceback shows where.)')
    except KeyboardInterrupt:
      kept = (
        'finished rounds are kept: --resume continues' if FLAGS.output_dir else 'nothing was kept'
      )
      sys.exit(f'\nInterrupted; {kept}.')

  app.run(checked)


def classifier_metrics() -> list[modelling.Metric]:
  """Accuracy and how far the probabilities can be trusted."""
  return [
    tf.keras.metrics.SparseCategoricalAccuracy('accuracy'),
    keras_metrics.NegativeLogLikelihood('nll'),
    keras_metrics.ExpectedCalibrationError(name='ece'),
    keras_metrics.predictive_entropy,
  ]


def define_presets(presets: Mapping[str, Mapping[str, object]], default: str) -> None:
  """Defines --preset, whose help lists every value."""
  values = '; '.join(
    f'{name}: ' + ' '.join(f'{flag}={value}' for flag, value in preset.items())
    for name, preset in presets.items()
  )
  flags.DEFINE_enum(
    'preset',
    default,
    list(presets),
    f'Values for all flags that are not given. {values}',
    module_name=sys.argv[0],
  )


def apply_preset(presets: Mapping[str, Mapping[str, object]], name: str) -> None:
  """Sets what a preset says for flags that were not given, and prints those values."""
  for flag, value in presets[name].items():
    if not FLAGS[flag].present:
      FLAGS[flag].value = value
  chosen = ' '.join(f'--{flag}={FLAGS[flag].value}' for flag in presets[name])
  print(f'Preset {name!r}: {chosen}', flush=True)


def hold_out(
  train: FederatedDataset, *, contiguous: bool = False
) -> tuple[FederatedDataset, FederatedDataset | None]:
  """Training and validation data under --validation_share."""
  share = FLAGS.validation_share
  if not share:
    return train, None
  train, validation = train.split(1 - share, share, seed=FLAGS.seed, contiguous=contiguous)
  return train, validation


def run_methods(
  builders: Mapping[str, Callable[[], process.PersonalizedProcess]],
  train: FederatedDataset,
  test: FederatedDataset,
  validation: FederatedDataset | None,
  dataset: str,
) -> dict[str, simulation.Result]:
  """Runs each method on the same clients and seed and returns the results by method."""
  runtime.use(FLAGS.runtime)
  # All are built before the first runs: a mistake shows at once, not an hour later.
  processes = {method: build() for method, build in builders.items()}
  results = {}
  for method, built in processes.items():
    print(f'{method}: tracing its computations before the first round …', flush=True)
    results[method] = simulation.run(
      built,
      train,
      rounds=FLAGS.rounds,
      clients_per_round=FLAGS.clients_per_round,
      seed=FLAGS.seed,
      test_data=test,
      validation_data=validation,
      evaluate_every=FLAGS.evaluate_every,
      output_dir=_folder(method),
      resume=FLAGS.resume,
      progress=FLAGS.progress,
      method=method,
      dataset=dataset,
      config={flag.name: flag.value for flag in FLAGS.get_key_flags_for_module(sys.argv[0])},
    )
  return results


def report(results: Mapping[str, simulation.Result]) -> None:
  """Prints the table of the last evaluation and draws the methods in one picture each."""
  print('\n' + metrics.table({name: result.history for name, result in results.items()}))
  if FLAGS.output_dir is None:
    return
  curves, clients = (
    os.path.join(FLAGS.output_dir, f'{name}.png') for name in ('curves', 'clients')
  )
  plots.curves({name: result.history for name, result in results.items()}, curves)
  plots.clients(
    {name: plots.accuracies(result.clients.values()) for name, result in results.items()}, clients
  )
  print(
    f'\nResults are in {FLAGS.output_dir}: curves in {curves}, per-client accuracy in {clients}'
  )


def _folder(method: str) -> str | None:
  return FLAGS.output_dir and os.path.join(FLAGS.output_dir, method)
