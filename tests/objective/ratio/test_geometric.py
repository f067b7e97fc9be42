"""GSPO's ratio: the geometric mean over a member's decisions."""

from __future__ import annotations

from tests.objective.small import close, gradient, member_ratios

from groupwise.objective.ratio import Geometric


def test_geometric_mean_shares_its_gradient() -> None:
    # sqrt(4 * 1) = 2; each of the two decisions carries 2 * (2 / 2) over both copies.
    decisions = member_ratios([4.0, None, 1.0], [None, None, None])
    level = decisions.masked(Geometric()(decisions.log_ratio, decisions).exp(), fill=1.0)
    close(level, [[2.0, 1.0, 2.0], [1.0, 1.0, 1.0]])
    close(gradient(level, decisions), [[2.0, 0.0, 2.0], [0.0, 0.0, 0.0]])


def test_token_gradient_is_each_decisions_own() -> None:
    decisions = member_ratios([4.0, 1.0])
    level = Geometric(gradient="token")(decisions.log_ratio, decisions).exp()
    close(level, [[2.0, 2.0]])
    close(gradient(level[:, :1].expand(1, 2) * 0 + level * level.new_tensor([[1.0, 0.0]]), decisions), [[2.0, 0.0]])
