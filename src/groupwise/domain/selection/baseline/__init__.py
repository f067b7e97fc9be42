"""The baselines that a learned policy must beat: other ways to choose demonstrations, one a file. None of them is
trained; the settings of some are chosen by the validation queries.
"""

from __future__ import annotations

from groupwise.domain.selection.baseline.base import Baseline
from groupwise.domain.selection.baseline.dpp import Dpp
from groupwise.domain.selection.baseline.fixed import Fixed
from groupwise.domain.selection.baseline.mmr import Mmr
from groupwise.domain.selection.baseline.nearest import Nearest
from groupwise.domain.selection.baseline.oracle import Oracle
from groupwise.domain.selection.baseline.random import Random
from groupwise.domain.selection.baseline.zero_shot import ZeroShot

__all__ = ["Baseline", "Dpp", "Fixed", "Mmr", "Nearest", "Oracle", "Random", "ZeroShot"]
