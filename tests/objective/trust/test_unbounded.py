"""No trust region, as a ratio and as a score function."""

from __future__ import annotations

from tests.objective.small import close, gradient, member_ratios

from groupwise.objective.trust import Unbounded


def test_ratio_form_is_rho_times_advantage() -> None:
    decisions = member_ratios([4.0, 0.5], advantage=-2.0)
    surrogate = Unbounded()(decisions.log_ratio, decisions)
    close(surrogate.value, [[-8.0, -1.0]])
    close(gradient(surrogate.value, decisions), [[-8.0, -1.0]])
    assert surrogate.alive.all()


def test_log_prob_form_ignores_the_ratio() -> None:
    decisions = member_ratios([1.0, 1.0], advantage=-2.0, old=-3.0)
    surrogate = Unbounded(form="log_prob")(decisions.log_ratio * 5, decisions)
    close(surrogate.value, [[6.0, 6.0]])
    close(gradient(surrogate.value, decisions), [[-2.0, -2.0]])
