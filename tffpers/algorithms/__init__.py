"""One builder per algorithm; each returns a `tffpers.process.PersonalizedProcess`.

Importing this package makes `in_process` TFF's runtime where none has been chosen.
"""

from tffpers import requirements, runtime

requirements.check()
runtime.use_by_default('in_process')

from tffpers.algorithms.adaptive_experts import build_adaptive_experts
from tffpers.algorithms.apfl import build_apfl
from tffpers.algorithms.apple import build_apple
from tffpers.algorithms.fed_amp import build_fed_amp
from tffpers.algorithms.fed_avg import build_fed_avg
from tffpers.algorithms.fed_fomo import build_fed_fomo
from tffpers.algorithms.fed_per import build_fed_per
from tffpers.algorithms.fed_prox import build_fed_prox
from tffpers.algorithms.fed_recon import build_fed_recon
from tffpers.algorithms.ifca import build_ifca
from tffpers.algorithms.local import build_local
from tffpers.algorithms.virtual import build_virtual

__all__ = [
  'build_adaptive_experts',
  'build_apfl',
  'build_apple',
  'build_fed_amp',
  'build_fed_avg',
  'build_fed_fomo',
  'build_fed_per',
  'build_fed_prox',
  'build_fed_recon',
  'build_ifca',
  'build_local',
  'build_virtual',
]
