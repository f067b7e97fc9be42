"""The mask of bad members that the policy has left."""

from __future__ import annotations

import math

import torch
from tests.objective.small import close, member_ratios, recorded

from groupwise.objective import Objective
from groupwise.objective.credit import Credit, OffPolicyMask, TemporalDecay
from groupwise.statistics import finish

FAR = math.exp(-0.6)


def test_only_bad_members_far_below_are_dropped() -> None:
    given = member_ratios([FAR, FAR], [FAR, FAR], [FAR, 1.0], [1 / FAR, 1 / FAR], advantage=[-1.0, 1.0, -1.0, -1.0])
    mask = OffPolicyMask(threshold=0.5)
    weight = mask(given)
    close(weight, [[0.0, 0.0], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0]])
    assert finish(mask.measure(weight, given)) == {"off_policy_mask/dropped_mean": 0.25}


def test_the_mean_goes_over_valid_decisions_and_the_bound_itself_trains() -> None:
    given = member_ratios([FAR, None, 1.0], [FAR, None, None], advantage=-1.0)
    close(OffPolicyMask(threshold=0.31)(given), [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    unmoved = member_ratios([1.0, 1.0], advantage=-1.0)
    close(OffPolicyMask(threshold=0.0)(unmoved), [[1.0, 1.0]])


def test_what_really_sampled_is_compared_with() -> None:
    given = member_ratios([1.0, 1.0], advantage=-1.0)
    close(OffPolicyMask()(given), [[1.0, 1.0]])
    away = recorded(given, behaviour_log_prob=torch.full((1, 2), -0.3, dtype=torch.float64))
    close(OffPolicyMask()(away), [[0.0, 0.0]])


def test_a_mask_stands_behind_the_mean_of_one() -> None:
    given = member_ratios([FAR, FAR], [1.0, 1.0], advantage=[-1.0, -1.0])
    chain = Credit(temporal_decay=TemporalDecay(gamma=0.5), off_policy_mask=OffPolicyMask())
    close(chain(given), [[0.0, 0.0], [4 / 3, 2 / 3]])


def test_a_mask_goes_with_regions_of_whole_members() -> None:
    for name in ("gmpo", "gspo"):
        objective = Objective.preset(name, **{"credit.off_policy_mask.threshold": 0.2})
        assert objective.scope == "member"
