"""The pessimistic clip by hand."""

from __future__ import annotations

import torch
from tests.objective.small import close, gradient, member_ratios

from groupwise.objective.decisions import clip_shares, clipped
from groupwise.objective.trust import DualClip
from groupwise.statistics import finish


def test_only_the_pessimistic_side_is_held() -> None:
    decisions = member_ratios([1.5, 0.5], [1.5, 0.5], [1.5, 0.5], advantage=[1.0, -2.0, 0.0])
    value, too_low, too_high = clipped(decisions.log_ratio, decisions, low=0.1, high=0.3)
    close(value, [[1.3, 0.5], [-3.0, -1.8], [0.0, 0.0]])
    close(gradient(value, decisions), [[0.0, 0.5], [-3.0, 0.0], [0.0, 0.0]])
    assert too_low.tolist() == [[False, False], [False, True], [False, False]]
    assert too_high.tolist() == [[True, False], [False, False], [False, False]]


def test_each_side_has_its_own_width() -> None:
    # Between the two widths: 0.8 lies below 1 - 0.1 and not below 1 - 0.3, 1.2 lies above neither 1 + 0.3.
    decisions = member_ratios([1.2, 1.4, 0.8], [1.2, 0.8, 0.95], [1.2, 0.5, None], advantage=[1.0, -1.0, -1.0])
    value, too_low, too_high = clipped(decisions.log_ratio, decisions, low=0.1, high=0.3)
    close(decisions.masked(value), [[1.2, 1.3, 0.8], [-1.2, -0.9, -0.95], [-1.2, -0.9, 0.0]])
    close(gradient(value, decisions), [[1.2, 0.0, 0.8], [-1.2, 0.0, -0.95], [-1.2, 0.0, 0.0]])
    shares = {"clip_ratio/low_mean": 2 / 8, "clip_ratio/high_mean": 1 / 8, "clip_ratio/region_mean": 3 / 8}
    assert finish(clip_shares(too_low, too_high, decisions)) == shares


def test_an_edge_belongs_to_the_region() -> None:
    # At the edge, which fp64 holds exactly, and next to it on either side: what torch makes of PPO's formula, as TRL
    # and verl have it.
    for edge, sign in ((1.25, 1.0), (0.75, -1.0)):
        decisions, again = (
            member_ratios([edge - 1e-15 * sign, edge, edge + 1e-15 * sign], advantage=[2.0 * sign], old=0.0)
            for _ in range(2)
        )
        ratio = again.log_ratio.exp()
        assert ratio[0, 1] == edge
        value, too_low, too_high = clipped(decisions.log_ratio, decisions, low=0.25, high=0.25)
        ppo = torch.min(ratio * 2.0 * sign, torch.clamp(ratio, 0.75, 1.25) * 2.0 * sign)
        assert torch.equal(value, ppo)
        assert (slopes := gradient(value, decisions)) == gradient(ppo, again)
        assert [slope != 0 for slope in slopes[0]] == [True, True, False]
        assert (too_low | too_high).tolist() == [[False, False, True]]


def test_the_edge_of_a_dual_clip_belongs_to_the_region() -> None:
    decisions = member_ratios([4.0, 4.0 + 4e-15], advantage=[-1.0], old=0.0)
    surrogate = DualClip(bound=4.0)(decisions.log_ratio, decisions)
    assert surrogate.alive.tolist() == [[True, False]]
    close(gradient(surrogate.value, decisions), [[-4.0, 0.0]])
