"""Flags that the scripts of adaptive expert models share, and how they run their studies."""

import dataclasses
import functools
import pathlib
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import common
import experts_data
import experts_measures
import experts_methods
import experts_search
import experts_studies
from absl import flags
from experts_setting import Setting

from tffpers import runtime

FLAGS = flags.FLAGS
flags.adopt_module_key_flags(common)

STUDIES = {
  'methods': 'table of all methods, and their distribution over clients',
  'fractions': 'every method for each p of --fractions (label skew)',
  'models': 'every method for each J of --models',
  'epsilon': 'every method for each ε of --epsilons, of which only the last depends on it',
  'choices': 'which client picks which model in which round, also for the lowest, middle and '
  'highest of --fractions (label skew)',
  'rotations': 'whether clients end on the model of their rotation (rotated images)',
  'starts': 'on how many of --num_starts random and balanced starts they do (rotated images)',
  'search': 'hyper-parameters by validation data in four stages of --trials; see the log',
}
_LISTS = ('filters', 'hidden')


def _list(name: str, known: Sequence[str] | None, default: list[str] | None, text: str) -> None:
  flags.DEFINE_list(name, default, text)
  if known is not None:
    flags.register_validator(
      name,
      lambda given: given is None or set(given) <= set(known),
      f'must be some of {",".join(known)}',
    )


_list('study', list(STUDIES), ['methods'], 'Which: ' + '; '.join(map(': '.join, STUDIES.items())))
_list(
  'method',
  list(experts_methods.METHODS),
  list(experts_methods.METHODS),
  'What is compared; a name with a comma in quotes: --method=\'IFCA,"mixture, ε = 0"\'.',
)
_list('fractions', None, ['.2', '.4', '.6', '.8', '1'], 'Values of p of fractions and choices.')
_list('models', None, ['1', '2', '3', '4', '5', '6'], 'Values of J of the models study.')
_list('epsilons', None, ['.1', '.25', '.5', '1'], 'Values of ε of the epsilon study.')
flags.DEFINE_integer('trials', 10, 'Trials in each stage of the search study.', lower_bound=1)
flags.DEFINE_integer('num_starts', 10, 'Starts of the starts study.', lower_bound=1)
flags.DEFINE_integer('num_seeds', None, 'Seeds, counted up from --seed.', lower_bound=1)
flags.DEFINE_integer('num_clients', None, 'Number of clients K.', lower_bound=2)
flags.DEFINE_integer('num_train', None, 'Training rows per client.', lower_bound=2)
flags.DEFINE_integer('num_test', None, 'Test rows per client.', lower_bound=1)
flags.DEFINE_float('client_fraction', None, 'C: ⌈C·K⌉ clients take part in a round.', 1e-6, 1.0)
flags.DEFINE_integer('num_models', None, 'Number of cluster models J.', lower_bound=1)
flags.DEFINE_float('epsilon', None, 'ε of the ε-greedy run.', 0.0, 1.0)
flags.DEFINE_enum('initial_models', None, ['random', 'balanced'], 'How the J models begin.')
flags.DEFINE_integer('check_every', 1, 'Rounds between checks of cluster models.', lower_bound=1)
flags.DEFINE_integer(
  'model_patience', 0, 'Checks after which a cluster model stops; 0 never stops.', lower_bound=0
)
flags.DEFINE_integer('personal_epochs', None, 'Most passes of the second phase.', lower_bound=1)
flags.DEFINE_integer(
  'patience', None, 'Passes of the second phase without progress that end it.', lower_bound=1
)
flags.DEFINE_bool('train_experts', None, 'Train copies of the experts with the gate.')
for part in ('cluster', 'local', 'gate'):
  if part != 'cluster':
    flags.DEFINE_float(
      f'{part}_learning_rate', None, f'AdamW’s rate, {part} network.', lower_bound=0
    )
  flags.DEFINE_float(f'{part}_decay', None, f'Weight decay, {part} network.', lower_bound=0)
  flags.DEFINE_list(f'{part}_filters', None, f'Channels of the {part} network’s convolutions.')
  flags.DEFINE_list(f'{part}_hidden', None, f'Units of the {part} network’s hidden layers.')
  flags.DEFINE_float(f'{part}_dropout', None, f'Dropout of the {part} network.', 0.0, 0.99)


def values() -> experts_methods.Values:
  """Hyper-parameters as the flags say."""
  fields = {field.name for field in dataclasses.fields(experts_methods.Values)}
  given: dict[str, Any] = {name: FLAGS[name].value for name in fields}
  for name in fields:
    if name.rpartition('_')[2] in _LISTS:
      given[name] = experts_methods.widths(given[name])
  return experts_methods.Values(**given)


def dealing() -> dict[str, Any]:
  """Arguments of the functions of `experts_data` that deal arrays."""
  return {
    'num_clients': FLAGS.num_clients,
    'num_train': FLAGS.num_train,
    'num_test': FLAGS.num_test,
    'validation_share': FLAGS.validation_share,
  }


def setting(
  deal: experts_data.Deal, fraction: float | None, num_classes: int, preset: Mapping[str, object]
) -> Setting:
  """What the flags say.

  Args:
    deal: Gives the clients' data.
    fraction: p; None where it plays no part.
    num_classes: Number of classes.
    preset: For the names of flags that captions show.
  """
  seeds = range(FLAGS.seed, FLAGS.seed + FLAGS.num_seeds)
  shown = {name: FLAGS[name].value for name in preset if name != 'num_seeds'}
  return Setting(
    folder=pathlib.Path(FLAGS.output_dir),
    values=values(),
    deal=functools.lru_cache(maxsize=1)(deal),
    fraction=fraction,
    num_classes=num_classes,
    client_fraction=FLAGS.client_fraction,
    methods=[method for method in experts_methods.METHODS if method in FLAGS.method],
    seeds=seeds,
    evaluate_every=FLAGS.evaluate_every,
    description=(
      f'Seeds {", ".join(map(str, seeds))}; validation_share={FLAGS.validation_share}, '
      f'{", ".join(f"{name}={value}" for name, value in shown.items())}. '
      f'Command: {shlex.join(["python", *sys.argv])}'
    ),
    dataset=FLAGS.dataset,
    progress=FLAGS.progress,
  )


def start(presets: Mapping[str, Mapping[str, object]]) -> Mapping[str, object]:
  """Checks and sets flags; returns the preset."""
  if FLAGS.output_dir is None:
    sys.exit('--output_dir says where tables, figures and runs go.')
  if FLAGS.clients_per_round is not None:
    sys.exit('--clients_per_round is for other scripts: here --client_fraction says how many.')
  if not FLAGS.validation_share:
    sys.exit('The second phase stops and IFCA chooses by validation data: --validation_share > 0.')
  common.apply_preset(presets, FLAGS.preset)
  runtime.use(FLAGS.runtime)
  return presets[FLAGS.preset]


def run_studies(given: Setting) -> None:
  """Runs the studies of --study.

  Raises:
    SystemExit: A study does not fit the data.
  """
  given.folder.mkdir(parents=True, exist_ok=True)
  grouped = bool(given.deal(given.fraction, given.seeds[0]).groups)
  fractions = [] if given.fraction is None else [float(text) for text in FLAGS.fractions]
  for study in FLAGS.study:
    if study == 'methods':
      experts_studies.methods(given)
    elif study == 'fractions' and fractions:
      experts_studies.sweep(given, study, 'fraction', 'p', fractions)
    elif study == 'models':
      numbers = [int(text) for text in FLAGS.models]
      experts_studies.sweep(given, study, 'num_models', 'J', numbers)
    elif study == 'epsilon':
      values_of = [float(text) for text in FLAGS.epsilons]
      experts_studies.sweep(given, study, 'epsilon', 'ε', values_of)
    elif study == 'search':
      experts_search.search(given, FLAGS.trials)
    elif study == 'choices':
      experts_studies.choices(given, experts_measures.ends_and_middle(fractions) or [None])
    elif study == 'rotations' and grouped:
      experts_studies.rotations(given)
    elif study == 'starts' and grouped:
      experts_studies.starts(given, FLAGS.num_starts)
    else:
      other = 'experts_cifar.py' if study == 'fractions' else 'experts_rotated.py'
      sys.exit(f'--study={study} is for another script, {other}. Received: --study={study}')
