"""Innovation 2.6: a width by the sign of the advantage; with the minimum, an alias of clip."""

from __future__ import annotations

import pytest
from tests.objective.small import close, gradient, member_ratios

from groupwise.objective.trust import AsymmetricClip, Clip
from groupwise.statistics import finish


def test_width_goes_with_the_sign() -> None:
    decisions = member_ratios([1.2, 1.5, 0.5], [1.2, 1.5, 0.5], advantage=[1.0, -1.0])
    surrogate = AsymmetricClip(eps_pos=0.3, eps_neg=0.1)(decisions.log_ratio, decisions)
    close(surrogate.value, [[1.2, 1.3, 0.5], [-1.2, -1.5, -0.9]])
    close(gradient(surrogate.value, decisions), [[1.2, 0.0, 0.5], [-1.2, -1.5, 0.0]])
    numbers = finish(surrogate.statistics)
    assert (numbers["asymmetric/pos_advantage_ratio"], numbers["asymmetric/neg_advantage_ratio"]) == (0.5, 0.5)


@pytest.mark.parametrize("advantage", [-1.5, 0.0, 2.0])
def test_is_clip_with_low_eps_neg_and_high_eps_pos(advantage: float) -> None:
    decisions = member_ratios([0.01, 0.85, 0.95, 1.0, 1.2, 1.31, 40.0], advantage=advantage)
    mine, clip = (
        region(decisions.log_ratio, decisions)
        for region in (AsymmetricClip(eps_pos=0.3, eps_neg=0.1), Clip(low=0.1, high=0.3))
    )
    close(mine.value, clip.value.tolist())
    close(gradient(mine.value, decisions), gradient(clip.value, decisions))
    assert mine.alive.equal(clip.alive)
