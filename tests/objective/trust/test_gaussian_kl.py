"""Flow-DPPO: a mask by the exact divergence of a transition."""

from __future__ import annotations

from dataclasses import replace

import torch
from tests.objective.small import close, gradient, member_ratios

from groupwise.objective.trust import GaussianKl
from groupwise.statistics import finish


def test_only_what_moves_on_beyond_the_threshold_is_left_out() -> None:
    rows = [1.5, 0.5, 1.5, 0.5]
    decisions = member_ratios(rows, rows, advantage=[2.0, -2.0])
    divergence = torch.tensor([[0.1, 0.1, 0.01, 0.01]] * 2, dtype=torch.float64)
    decisions = replace(decisions, old_divergence=divergence)
    surrogate = GaussianKl(threshold=0.1)(decisions.log_ratio, decisions)
    values = [[0.0, 1.0, 3.0, 1.0], [-3.0, 0.0, -3.0, -1.0]]
    close(surrogate.value, values)
    close(gradient(surrogate.value, decisions), values)
    assert surrogate.alive.tolist() == [[False, True, True, True], [True, False, True, True]]
    assert finish(surrogate.statistics)["clip_ratio/region_mean"] == 0.25
