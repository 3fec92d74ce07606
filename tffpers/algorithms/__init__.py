"""One builder per algorithm; each returns a `tffpers.process.PersonalizedProcess`."""

from tffpers import requirements

requirements.check()

from tffpers.algorithms.fed_avg import build_fed_avg  # noqa: E402
from tffpers.algorithms.virtual import build_virtual  # noqa: E402

__all__ = ['build_fed_avg', 'build_virtual']
