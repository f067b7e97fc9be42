"""Advantage: the comparison of a reward inside its group, computed once per batch of rollouts, on whole groups, in
fp64.

A group whose rewards are all equal, or that holds fewer than two scorable members, gives exactly 0 under every
advantage with a group baseline.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from groupwise.objective.advantage.accepted import Accepted
from groupwise.objective.advantage.batch_std import BatchStd
from groupwise.objective.advantage.callable import CallableAdvantage
from groupwise.objective.advantage.centred import Centred
from groupwise.objective.advantage.constant import ConstantBaseline
from groupwise.objective.advantage.leave_one_out import LeaveOneOut
from groupwise.objective.advantage.length_weighted import LengthWeighted
from groupwise.objective.advantage.mean_scaled import MeanScaled
from groupwise.objective.advantage.per_prompt import PerPrompt
from groupwise.objective.advantage.per_reward import PerReward
from groupwise.objective.advantage.rank import Rank
from groupwise.objective.advantage.running_std import RunningStd
from groupwise.objective.advantage.whiten import Whiten
from groupwise.objective.advantage.win_rate import WinRate
from groupwise.objective.advantage.z_score import ZScore

__all__ = [
    "Accepted",
    "Advantage",
    "BatchStd",
    "CallableAdvantage",
    "Centred",
    "ConstantBaseline",
    "LeaveOneOut",
    "LengthWeighted",
    "MeanScaled",
    "PerPrompt",
    "PerReward",
    "Rank",
    "RunningStd",
    "Whiten",
    "WinRate",
    "ZScore",
]

Advantage = Annotated[
    ZScore
    | Centred
    | Rank
    | LeaveOneOut
    | BatchStd
    | RunningStd
    | Whiten
    | LengthWeighted
    | MeanScaled
    | PerReward
    | WinRate
    | PerPrompt
    | ConstantBaseline
    | Accepted
    | CallableAdvantage,
    Field(discriminator="kind"),
]
