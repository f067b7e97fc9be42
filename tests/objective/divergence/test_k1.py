"""lp - lp_ref."""

from __future__ import annotations

import math

from tests.objective.small import close, gradient, member_ratios

from groupwise.objective.divergence import K1


def test_value_and_gradient() -> None:
    decisions = member_ratios([2.0, 1.0])
    penalty = K1()(decisions, decisions.log_prob.detach() - 0.5, None)
    close(penalty, [[0.5, 0.5]])
    close(gradient(penalty, decisions), [[1.0, 1.0]])


def test_against_the_policy_that_acted_it_is_the_divergence_from_that_policy() -> None:
    # lp_old - lp of samples of the old policy, whose mean is KL(old || pi); making it smaller makes what was sampled
    # likelier.
    decisions = member_ratios([0.5, 1.0])
    penalty = K1(against="behaviour")(decisions, decisions.acted.old_log_prob, None)
    close(penalty, [[math.log(2.0), 0.0]])
    close(gradient(penalty, decisions), [[-1.0, -1.0]])
