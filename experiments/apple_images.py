"""APPLE and its rivals on images: digits, Fashion-MNIST, MNIST, CIFAR-10 or MedMNIST.

Luo, Wu, *Adapt to Adaptation: Learning Personalization for Cross-Silo Federated Learning*,
IJCAI 2022, arXiv 2110.08394.

  python experiments/apple_images.py --output_dir=runs/apple

makes the table of all nine methods (BMCTA beside the value at the round that validation data
choose) and their learning curves. --study=downloads,relations,labels makes the table over M,
the trajectories, heat maps and rank correlations of the directed relationships, and the
picture of who holds which classes. digits comes with scikit-learn and needs nothing;
fashion_mnist is Debian's package dataset-fashion-mnist or the files in --data_dir, which the
others need or their packages' caches. CIFAR-10 is resized to 28 × 28, as the authors do. The
paper's setting on MNIST, and the shorter one whose numbers are in the documentation, the
second time with all methods:

  python experiments/apple_images.py --preset=paper --data_dir=… --output_dir=runs/mnist
  python experiments/apple_images.py --preset=acceptance --study=methods,downloads,relations
    --data_dir=… --output_dir=runs/acceptance
  python experiments/apple_images.py --preset=acceptance --rounds=20 --num_seeds=1
    --method=local,fed_avg,fed_prox,apfl,fed_amp,fed_fomo,apple --data_dir=… --output_dir=…

Runs that are finished are not repeated, and studies share them.
"""

import dataclasses
import functools
import pathlib
import shlex
import sys

import environment  # isort: skip  # noqa: F401

import apple_data
import apple_methods
import apple_relations
import apple_studies
import common
from absl import flags
from apple_setting import Setting

from tffpers import runtime

FLAGS = flags.FLAGS
flags.adopt_module_key_flags(common)

PAPER = {
  'dataset': 'mnist',
  'rounds': 160,
  'epochs': 5,
  'batch_size': 256,
  'client_learning_rate': 0.01,
  'momentum': 0.9,
  'clip_norm': 0.0,
  'dr_learning_rate': 0.001,
  'validation_share': 0.15,
  'evaluate_every': 1,
  'fine_tune_epochs': 5,
  'num_seeds': 1,
  'train_share': 1.0,
  'test_share': 1.0,
  'method': list(apple_methods.RUNS),
  'downloads': ['11', '7', '5', '2', '1'],
}
PRESETS = {
  'quick': {
    **PAPER,
    'dataset': 'digits',
    'rounds': 30,
    'batch_size': 20,
  },
  'paper': PAPER,
  'acceptance': {
    **PAPER,
    'rounds': 60,
    'evaluate_every': 2,
    'num_seeds': 3,
    'train_share': 0.2,
    'method': ['fed_avg', 'apple'],
    'downloads': ['11', '5', '1'],
  },
}
STUDIES = {
  'methods': 'the runs of --method',
  'downloads': 'APPLE for each M of --downloads',
  'relations': 'what becomes of p_ij, and of ‖P − P_0‖ for each μ of --mus',
  'labels': 'who holds which classes; nothing is trained',
}


def _names(name: str, default: list[str] | None, known: list[str], help_text: str) -> None:
  """A list flag that takes some of the known names."""
  flags.DEFINE_list(name, default, help_text)
  flags.register_validator(
    name,
    lambda given: given is None or set(given) <= set(known),
    f'must be some of {",".join(known)}',
  )


def _numbers(name: str, default: list[str] | None, low: int, help_text: str) -> None:
  """A list flag that takes numbers not below the lowest one."""

  def good(given: list[str] | None) -> bool:
    try:
      return given is None or all(float(text) >= low for text in given)
    except ValueError:
      return False

  flags.DEFINE_list(name, default, help_text)
  flags.register_validator(name, good, f'must be numbers ≥ {low}')


common.define_presets(PRESETS, 'quick')
_names('study', ['methods'], list(STUDIES), 'Which: ' + '; '.join(map(': '.join, STUDIES.items())))
_names('method', None, list(apple_methods.RUNS), 'Runs of the methods study.')
flags.DEFINE_enum('dataset', None, apple_data.NAMES, 'Which images.')
flags.DEFINE_string('medmnist_name', 'organmnist_axial', 'Which set of MedMNIST.')
flags.DEFINE_enum(
  'partition',
  'practical',
  list(apple_data.PARTITIONS),
  'Of every class 80 % at one client and 10 % at another; or two classes at each client.',
)
flags.DEFINE_integer('num_clients', 12, 'Number of clients N.', lower_bound=2)
flags.DEFINE_integer('num_seeds', None, 'Seeds, counted up from --seed.', lower_bound=1)
for part in ('train', 'test'):
  flags.DEFINE_float(
    f'{part}_share', None, f'Share of every class of the {part} images to use.', 0.001, 1.0
  )
flags.DEFINE_float(
  'momentum', None, 'Of every local step, also of p_i; fresh each round.', 0.0, 0.999
)
flags.DEFINE_float('dr_learning_rate', None, 'APPLE: η2 of p_i.', lower_bound=0)
flags.DEFINE_float('mu', 0.2, 'APPLE: μ, with the factor ½ in the objective.', lower_bound=0)
flags.DEFINE_enum('schedule', 'cosine', ['cosine', 'exponential'], 'APPLE: how λ falls.')
flags.DEFINE_float('schedule_ratio', 0.1, 'APPLE: L / R; λ = 0 from round L on.', lower_bound=0)
flags.DEFINE_integer('max_downloads', 11, 'APPLE, FedFomo: M.', lower_bound=1)
flags.DEFINE_enum('priority', 'abs', ['abs', 'signed'], 'APPLE: what M are drawn by.')
flags.DEFINE_float('prox_mu', 0.01, 'FedProx: μ.', lower_bound=0)
flags.DEFINE_integer(
  'fine_tune_epochs', None, 'FedAvg, FedProx: passes of fine-tuning.', lower_bound=1
)
# Neither paper gives these for its networks; they are choices.
flags.DEFINE_float('amp_mu', 0.1, 'HeurFedAMP: μ = λ / α_k.', lower_bound=0)
flags.DEFINE_float('amp_sigma', 10.0, 'HeurFedAMP: σ.', lower_bound=0)
flags.DEFINE_float('amp_self_weight', 0.5, 'HeurFedAMP: ξ_ii.', 0.0, 1.0)
_numbers('downloads', None, 1, 'Values of M of the downloads study.')
_numbers('mus', ['0', '1', '10', '100'], 0, 'Values of μ of the relations study.')


def setting() -> Setting:
  """What the flags say."""
  arrays = apple_data.read(FLAGS.dataset, FLAGS.data_dir, FLAGS.medmnist_name)

  @functools.lru_cache(maxsize=1)
  def data(seed: int) -> apple_data.Clients:
    kept = apple_data.stratified(arrays, FLAGS.train_share, FLAGS.test_share, seed)
    return apple_data.clients(
      kept, FLAGS.partition, FLAGS.num_clients, FLAGS.validation_share, seed
    )

  values = apple_methods.Values(
    **{field.name: FLAGS[field.name].value for field in dataclasses.fields(apple_methods.Values)}
  )
  shown = ('dataset', 'partition', 'num_clients', 'validation_share', 'train_share', 'test_share')
  described = {**{name: FLAGS[name].value for name in shown}, **dataclasses.asdict(values)}
  seeds = range(FLAGS.seed, FLAGS.seed + FLAGS.num_seeds)
  return Setting(
    folder=pathlib.Path(FLAGS.output_dir),
    values=values,
    data=data,
    model_fn=apple_data.network(arrays),
    runs=FLAGS.method,
    seeds=seeds,
    evaluate_every=FLAGS.evaluate_every,
    description=(
      f'Seeds {", ".join(map(str, seeds))}; evaluated every {FLAGS.evaluate_every} rounds; '
      f'{", ".join(f"{name}={value}" for name, value in described.items())}. '
      f'Command: {shlex.join(["python", *sys.argv])}'
    ),
    dataset=FLAGS.dataset,
    progress=FLAGS.progress,
  )


def main() -> None:
  """Loads, runs and reports."""
  if FLAGS.output_dir is None:
    sys.exit('--output_dir says where tables, figures and runs go.')
  if FLAGS.clients_per_round is not None:
    sys.exit('--clients_per_round is for other scripts: here all clients take part every round.')
  common.apply_preset(PRESETS, FLAGS.preset)
  runtime.use(FLAGS.runtime)
  given = setting()
  given.folder.mkdir(parents=True, exist_ok=True)
  for study in FLAGS.study:
    if study == 'methods':
      apple_studies.methods(given)
    elif study == 'downloads':
      apple_studies.downloads(given, [int(number) for number in FLAGS.downloads])
    elif study == 'relations':
      apple_relations.relations(given, sorted(float(mu) for mu in FLAGS.mus))
    else:
      apple_studies.labels(given)


if __name__ == '__main__':
  common.run(main)
