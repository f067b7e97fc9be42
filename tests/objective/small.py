"""The smallest inputs the slot tests share: members written as lists of ratios, `None` where nothing was decided."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from groupwise.objective.batch import Acted
from groupwise.objective.decisions import Decisions

Row = Sequence[float | None]


def member_ratios(
    *rows: Row,
    advantage: float | Sequence[float] = 1.0,
    old: float = -1.0,
    score_norm: Tensor | None = None,
    dtype: torch.dtype = torch.float64,
) -> Decisions:
    """Decisions with these ratios, `lp_old = old`, one advantage for all or one a member, ids 0, 1, ...; `log_prob` is
    a leaf with gradient.
    """
    width = max(len(row) for row in rows)
    mask = torch.tensor([[t < len(row) and row[t] is not None for t in range(width)] for row in rows])
    log_prob = torch.zeros(len(rows), width, dtype=dtype)
    for b, row in enumerate(rows):
        for t, ratio in enumerate(row):
            if ratio is not None:
                log_prob[b, t] = old + math.log(ratio)
    advantages = [advantage] * len(rows) if isinstance(advantage, float) else list(advantage)
    old_log_prob = torch.where(mask, torch.full((), old, dtype=dtype), 0.0)
    return Decisions(
        Acted(mask, old_log_prob, member=torch.arange(len(rows))),
        log_prob.requires_grad_(),
        torch.where(mask, torch.tensor(advantages, dtype=dtype)[:, None], 0.0),
        score_norm=score_norm,
    )


def recorded(decisions: Decisions, **changed: Any) -> Decisions:
    """The same decisions with other fields of what was acted."""
    return replace(decisions, acted=replace(decisions.acted, **changed))


def gradient(value: Tensor, decisions: Decisions) -> list[list[float]]:
    """The gradient of the sum of the valid entries of `value` by `log_prob`."""
    total = decisions.masked(value).sum()
    if not total.requires_grad:
        return torch.zeros_like(decisions.log_prob).tolist()
    return torch.autograd.grad(total, decisions.log_prob)[0].tolist()


def close(actual: Tensor | Sequence[object], expected: object, within: float = 1e-12) -> None:
    """Equal to `within` in every entry."""
    actual = actual.detach() if isinstance(actual, Tensor) else torch.tensor(actual, dtype=torch.float64)
    torch.testing.assert_close(actual.double(), torch.tensor(expected, dtype=torch.float64), rtol=0, atol=within)
