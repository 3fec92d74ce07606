"""Figure 3: S and MT over rounds, and what is claimed of them."""

import math
from collections.abc import Sequence
from typing import Any

import study_measures as measures
import study_reports
import study_tuning
from study_setting import Setting

from tffpers import simulation

METHODS = ('fed_avg', 'fed_prox', 'virtual', 'virtual_hierarchical')


def curves(setting: Setting, *, methods: Sequence[str] = METHODS) -> None:
  """Runs the methods, evaluated after every round, and looks at the claims."""
  results = {
    name: setting.run('curves', name, setting.methods[name](), evaluate_every=1) for name in methods
  }
  note = (
    'Figure 3: test accuracy over rounds, evaluated after every round. Gap: S − MT; lag: rounds '
    'from S to MT first reaching the same accuracy, mean over ten levels, beside K/C, the mean '
    'number of rounds between a client’s turns; deviation: of the change of accuracy from round '
    'to round over the last half; max: of the best round on test data (optimistic).'
  )
  caption = setting.caption(note)
  rows = [{'method': name, **claims(setting, result)} for name, result in results.items()]
  study_reports.write_table(setting.folder, 'curves', rows, caption)
  panels = {
    f'test accuracy, {model}': {
      name: (
        measures.column(result.history, 'round'),
        measures.column(result.history, column),
      )
      for name, result in results.items()
    }
    for model, column in measures.ACCURACY.items()
  }
  study_reports.draw(setting.folder, 'curves', panels, caption, xlabel='round')


def claims(setting: Setting, result: simulation.Result) -> dict[str, Any]:
  """Accuracies, gap, lag and deviations of one run."""
  s, mt = (measures.column(result.history, column) for column in measures.ACCURACY.values())
  reached = study_tuning.accuracies(result)
  deviations = measures.roughness(s), measures.roughness(mt)
  return {
    **reached,
    'gap_last': reached['S_last'] - reached['MT_last'],
    'gap_max': reached['S_max'] - reached['MT_max'],
    'lag_rounds': measures.lag(result.history),
    'K/C': len(setting.train) / setting.clients_per_round,
    'deviation_S': deviations[0],
    'deviation_MT': deviations[1],
    'deviation_S/MT': deviations[0] / deviations[1] if deviations[1] > 0 else math.nan,
  }
