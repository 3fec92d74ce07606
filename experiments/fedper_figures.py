"""Which cases make up each figure of FedPer's paper, and the flags that scripts share."""

import functools
import pathlib
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import common
import fedper_methods
import tensorflow as tf
from absl import flags
from fedper_studies import Case, Setting, compare
from image_sets import subset

from tffpers import datasets, runtime
from tffpers import keras as tffpers_keras
from tffpers.datasets import partition

FLAGS = flags.FLAGS
for module in (common, fedper_methods):
  flags.adopt_module_key_flags(module)

STUDIES = {
  'heterogeneity': 'FedAvg and FedPer for each k of --classes (classes per client)',
  'layers': 'FedPer for each K_P of --layers',
  'linear': 'FedPer on its base and on a linear one',
  'fine_tuning': 'FedPer with and without a first pass on the head alone',
  'labels': 'every method where each client has names of its own for the classes',
}
flags.DEFINE_list(
  'study', ['heterogeneity'], 'Which: ' + '; '.join(map(': '.join, STUDIES.items()))
)
flags.register_validator(
  'study', lambda names: set(names) <= set(STUDIES), f'must be some of {",".join(STUDIES)}'
)
flags.DEFINE_list('classes', None, 'Classes per client of the heterogeneity study.')
flags.DEFINE_list('layers', ['1', '2', '3'], 'Values of K_P of the layers study.')
flags.DEFINE_integer('num_seeds', 1, 'Seeds, counted up from --seed.', lower_bound=1)
flags.DEFINE_integer('num_clients', 10, 'Number of clients N.', lower_bound=1)
flags.DEFINE_integer('num_train', None, 'Random training rows to use in all; default all.')
flags.DEFINE_integer('num_test', None, 'Random test rows to use in all; default all.')

Data = Callable[[int], tuple[datasets.FederatedDataset, datasets.FederatedDataset]]


def run(
  arrays: datasets.Arrays,
  model_fn: Callable[[], tf.keras.Model],
  *,
  num_classes: int,
  settings: Sequence[str],
) -> None:
  """Runs the studies of --study on a data set that a partitioner deals to clients.

  Args:
    arrays: The data.
    model_fn: Builds the network.
    num_classes: Number of classes.
    settings: Names of the flags whose values captions give.
  """
  classes = [int(k) for k in FLAGS.classes]
  mixed = _k_classes(arrays, num_classes, classes[0])
  renamed = functools.partial(own_names, arrays, num_classes)
  run_studies(
    model_fn,
    {f'k = {k}': _k_classes(arrays, num_classes, k) for k in classes},
    mixed=(f'k = {classes[0]}', mixed),
    renamed=renamed,
    settings=settings,
  )


def run_studies(
  model_fn: Callable[[], tf.keras.Model],
  by_panel: Mapping[str, Data],
  *,
  mixed: tuple[str, Data],
  renamed: Data | None,
  settings: Sequence[str],
) -> None:
  """Runs the studies of --study.

  Args:
    model_fn: Builds the network.
    by_panel: Data of the heterogeneity study by panel.
    mixed: Panel and data of the studies that vary the method.
    renamed: Data of the labels study; None where it makes no sense.
    settings: Names of the flags whose values captions give.
  """
  if FLAGS.output_dir is None:
    sys.exit('--output_dir says where tables, figures and runs go.')
  runtime.use(FLAGS.runtime)
  setting = _setting(settings)
  methods = fedper_methods.builders(mixed[1](FLAGS.seed)[0], model_fn)
  panel, data = mixed

  def cases(names: Sequence[str]) -> list[Case]:
    return [Case(panel, name, name, methods[name], data) for name in names]

  both = ('fed_avg', 'fed_per')
  for study in FLAGS.study:
    note = f'{STUDIES[study][0].upper()}{STUDIES[study][1:]}.'
    if study == 'heterogeneity':
      found = [
        Case(name, method, method, methods[method], its)
        for name, its in by_panel.items()
        for method in both
      ]
    elif study == 'layers':
      found = cases(['fed_avg']) + [
        Case(panel, f'K_P = {k}', 'fed_per', _with_layers(methods, int(k)), data)
        for k in FLAGS.layers
      ]
    elif study == 'linear':
      found = cases(['fed_per', 'fed_per_linear'])
    elif study == 'fine_tuning':
      found = cases(['fed_per', 'fed_per_head_first'])
    elif renamed is None:
      sys.exit('The labels study needs classes, which these data have not.')
    else:
      found = [Case('own labels', name, name, methods[name], renamed) for name in methods]
      found += [
        Case('common labels', name, name, methods[name], functools.partial(renamed, alike=True))
        for name in both
      ]
    compare(setting, study, note, found)


def _with_layers(methods: Mapping[str, Any], k: int) -> Any:
  return functools.partial(methods['fed_per'], partition=tffpers_keras.last_blocks(k))


def _setting(names: Sequence[str]) -> Setting:
  values = ', '.join(f'{name}={FLAGS[name].value}' for name in names)
  command = shlex.join(['python', *sys.argv])
  return Setting(
    folder=pathlib.Path(FLAGS.output_dir),
    rounds=FLAGS.rounds,
    clients_per_round=FLAGS.clients_per_round,
    evaluate_every=FLAGS.evaluate_every,
    seeds=range(FLAGS.seed, FLAGS.seed + FLAGS.num_seeds),
    caption=f'Seeds {FLAGS.num_seeds}, {values}. Command: {command}',
    dataset=FLAGS.dataset,
    progress=FLAGS.progress,
  )


def _k_classes(arrays: datasets.Arrays, num_classes: int, k: int) -> Data:
  def make(seed):
    plan = partition.k_classes(
      num_classes=num_classes, num_clients=FLAGS.num_clients, classes_per_client=k, seed=seed
    )
    return partition.federate(plan, *subset(arrays, FLAGS.num_train, FLAGS.num_test, seed))

  return make


def own_names(
  arrays: datasets.Arrays, num_classes: int, seed: int, *, alike: bool = False
) -> tuple[datasets.FederatedDataset, datasets.FederatedDataset]:
  """Random parts, in each of which the classes have other names unless all are alike."""
  plan = partition.equal_sizes(num_clients=FLAGS.num_clients, seed=seed)
  train, test = partition.federate(plan, *subset(arrays, FLAGS.num_train, FLAGS.num_test, seed))
  if alike:
    return train, test
  rename = functools.partial(partition.permute_labels, num_classes=num_classes, seed=seed)
  return rename(train), rename(test)
