"""The entry point: arguments, folder and store of a run."""

import numbers
import os
import pathlib
from collections.abc import Sequence
from typing import Any

from tffpers import process as process_lib
from tffpers import runtime
from tffpers.simulation import border, codec, loop, reports, sampling, settings
from tffpers.simulation import population as population_lib
from tffpers.simulation import result as result_lib
from tffpers.simulation import store as store_lib

_STATE = 'state.sqlite'


def run(
  process: process_lib.PersonalizedProcess,
  train_data: border.Dataset,
  *,
  rounds: int,
  clients_per_round: int | None,
  seed: int,
  test_data: border.Dataset | None = None,
  validation_data: border.Dataset | None = None,
  evaluate_every: int = 1,
  personalize_every: int | None = None,
  output_dir: str | os.PathLike[str] | None = None,
  resume: bool = False,
  progress: bool = True,
  method: str | None = None,
  dataset: str | None = None,
  config: dict[str, Any] | None = None,
  sample_fn: sampling.SampleFn | None = None,
  on_client_error: str = 'raise',
  num_classes: int | None = None,
  client_history: Sequence[str] = (),
) -> result_lib.Result:
  """Runs a personalised federated process over many clients.

  Every draw depends on the run's seed, the round, the client's id and the purpose
  only. So the same call gives the same bits, in whatever order the clients are listed
  (where the algorithm uses no client index), interrupted and resumed or not.

  Args:
    process: The algorithm.
    train_data: Training data of each client, a `tffpers.datasets.FederatedDataset`.
      Clients have as their index their place in it.
    rounds: Rounds in all, ≥ 1; when a run is resumed those before count too. A process
      that says it is finished ends the run earlier.
    clients_per_round: Clients sampled uniformly without replacement in each round;
      None takes all, or as many as `sample_fn` gives.
    seed: The run's seed.
    test_data: Test data of each client. Clients that are not in `train_data` are
      evaluated too, with the state a new client starts with.
    validation_data: Data to choose the best round by, and of algorithms that need it.
    evaluate_every: All clients are evaluated every so many rounds, and after the last.
    personalize_every: Clients are evaluated after the process's `personalize` too, every
      so many rounds (of those that are evaluated), which gives the history its columns
      `personalized_…`, and after the last, for the summary and the table of clients;
      None does it after the last only. No state is changed by it.
    output_dir: Folder for `config.json`, `metrics.csv`, `clients.csv`, `summary.json`,
      `curves.png`, `clients.png`, `tensorboard/` and `state.sqlite`. None writes nothing.
    resume: Whether to continue a run found in `output_dir`; without one it starts.
    progress: Whether to show a progress bar on stderr.
    method: Name for reports; default the process's hyper-parameter `algorithm`.
    dataset: Name for reports.
    config: Further settings to record in `config.json`; not compared on resuming.
    sample_fn: From the round's number, counted from 1, to the ids of its clients, a
      function of that number only; for instance what
      `tff.simulation.build_uniform_sampling_fn` returns for a `random_seed`.
    on_client_error: `raise` ends the run if a client's data cannot be loaded or, on a
      runtime that says whose work failed, its training fails; `skip` leaves it out
      with its state as before.
    num_classes: If given, targets are checked to be classes below it.
    client_history: Names of training metrics, without `train_`, of which
      `Result.client_history` gives every client's value in every round.

  Returns:
    The `Result`.

  Raises:
    ValueError: An argument is out of range, or a run is resumed with other settings.
    TypeError: The data are not what the process takes.
    FileExistsError: `output_dir` holds a run and `resume` is False.
    ClientError: A client failed under `on_client_error='raise'`.
    StoreError: `state.sqlite` cannot be read or written; the last round is kept.
  """
  runtime.use_by_default('in_process')
  _check_arguments(
    rounds=rounds,
    evaluate_every=evaluate_every,
    personalize_every=personalize_every,
    seed=seed,
    clients_per_round=clients_per_round,
    on_client_error=on_client_error,
  )
  datasets = {'train': train_data, 'test': test_data, 'validation': validation_data}
  population = population_lib.Population(
    process,
    {name: data for name, data in datasets.items() if data is not None},
    seed,
    num_classes,
    skip_failures=on_client_error == 'skip',
  )
  described = settings.describe(
    population,
    method=method or process.hyper_parameters.get('algorithm'),
    dataset=dataset,
    rounds=rounds,
    clients_per_round=clients_per_round,
    evaluate_every=evaluate_every,
    personalize_every=personalize_every,
    sampler='uniform' if sample_fn is None else 'custom',
    on_client_error=on_client_error,
    num_classes=num_classes,
    client_history=list(client_history) or None,
    settings=config or {},
  )
  sample = (
    sampling.uniform(train_data.client_ids, clients_per_round, seed)
    if sample_fn is None
    else sampling.checked(sample_fn, train_data.client_ids, clients_per_round)
  )
  folder = None if output_dir is None else _prepared(pathlib.Path(output_dir), resume)
  store = store_lib.Store(
    folder and folder / _STATE, process.server_state_type, process.client_state_type
  )
  with store:
    kept = _known_metrics(process, client_history)
    return loop.Run(population, store, folder, described, sample, kept).finish(progress)


def _known_metrics(
  process: process_lib.PersonalizedProcess, names: Sequence[str]
) -> tuple[str, ...]:
  scalars = codec.missing_scalars(process.next.type_signature.result[3])
  known = sorted({name.split('/')[0] for name in scalars})
  if isinstance(names, str) or not set(names) <= set(known):
    raise ValueError(
      f'client_history must be a list of training metrics of the process, {known}. '
      f'Received: client_history={names!r}'
    )
  return tuple(names)


def _prepared(folder: pathlib.Path, resume: bool) -> pathlib.Path:
  """The folder, made if need be; refused where that would overwrite a run."""
  folder.mkdir(parents=True, exist_ok=True)
  found = [name for name in (_STATE, *reports.FILES) if (folder / name).exists()]
  if found and not resume:
    raise FileExistsError(
      'output_dir holds a run already: pass resume=True to continue it, or another output_dir. '
      f'Received: output_dir={str(folder)!r} with {found}'
    )
  if found and _STATE not in found:
    raise FileExistsError(
      f'output_dir holds files of a run but not its {_STATE}, so it cannot be resumed; nothing '
      f'was overwritten. Received: output_dir={str(folder)!r} with {found}'
    )
  return folder


def _check_arguments(
  *,
  rounds: int,
  evaluate_every: int,
  personalize_every: int | None,
  seed: int,
  clients_per_round: int | None,
  on_client_error: str,
) -> None:
  for name, value, low in (
    ('rounds', rounds, 1),
    ('evaluate_every', evaluate_every, 1),
    ('personalize_every', 1 if personalize_every is None else personalize_every, 1),
    ('seed', seed, None),
    ('clients_per_round', 1 if clients_per_round is None else clients_per_round, 1),
  ):
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not whole or (low is not None and value < low):
      bound = '' if low is None else f' ≥ {low}'
      raise ValueError(f'{name} must be an integer{bound}. Received: {name}={value!r}')
  if on_client_error not in ('raise', 'skip'):
    raise ValueError(
      f"on_client_error must be 'raise' or 'skip'. Received: on_client_error={on_client_error!r}"
    )
