"""Training on each client alone: the baseline without federation ("local only", "separate").

It is FedPer with everything personal, so it has the same splits, steps and seeds as the
methods it is compared with. Nothing that was learned is sent.
"""

import dataclasses
from typing import Any

from tffpers import keras as tffpers_keras
from tffpers import process as process_lib
from tffpers.algorithms import fed_per


def build_local(**arguments: Any) -> process_lib.PersonalizedProcess:
  """Builds local training as a `PersonalizedProcess`.

  A client trains in the rounds it is sampled for, so that methods that sample alike give
  each client the same number of local passes.

  Args:
    **arguments: As for `build_fed_per`, without `partition`.

  Returns:
    The process, as `build_fed_per` returns it; its server state never changes but for the
    number of the round.
  """
  process = fed_per.build_fed_per(
    partition=tffpers_keras.named(lambda path: True), head_epochs=0, **arguments
  )
  return dataclasses.replace(
    process, hyper_parameters={**process.hyper_parameters, 'algorithm': 'local'}
  )
