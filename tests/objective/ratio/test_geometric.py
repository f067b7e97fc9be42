"""GSPO's ratio: the geometric mean over a member's decisions."""

from __future__ import annotations

from tests.objective.small import close, gradient, member_ratios

from groupwise.objective.ratio.geometric import Geometric


def test_geometric_mean_shares_its_gradient() -> None:
    # sqrt(4 * 1) = 2; each of the two decisions carries 2 * (2 / 2) over both copies.
    given = member_ratios([4.0, None, 1.0], [None, None, None])
    level = given.masked(Geometric()(given.log_ratio, given).exp(), fill=1.0)
    close(level, [[2.0, 1.0, 2.0], [1.0, 1.0, 1.0]])
    close(gradient(level, given), [[2.0, 0.0, 2.0], [0.0, 0.0, 0.0]])


def test_token_gradient_is_each_decisions_own() -> None:
    given = member_ratios([4.0, 1.0])
    level = Geometric(gradient="token")(given.log_ratio, given).exp()
    close(level, [[2.0, 2.0]])
    close(gradient(level[:, :1].expand(1, 2) * 0 + level * level.new_tensor([[1.0, 0.0]]), given), [[2.0, 0.0]])
