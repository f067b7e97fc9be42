"""The smallest inputs the slot tests share: members written as lists of ratios, `None` where nothing was decided."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from groupwise.objective.batch import Acted, Grouped, Running
from groupwise.objective.decisions import Decisions, Deviation
from groupwise.statistics import Reduce, sum_over_one_process

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


# Rewards of a few groups as the advantages are given them.


def grouped(
    *groups: Sequence[float | None], reduce: Reduce = sum_over_one_process, lengths: Sequence[float] | None = None
) -> Grouped:
    """One list of rewards a group, `None` where missing; members of one decision if no lengths are given."""
    rewards = [reward for group in groups for reward in group]
    index = [i for i, group in enumerate(groups) for _ in group]
    value = torch.tensor([[0.0 if reward is None else reward] for reward in rewards], dtype=torch.float64)
    present = torch.tensor([[reward is not None] for reward in rewards])
    length = torch.ones_like(value) if lengths is None else torch.tensor(lengths, dtype=torch.float64)[:, None]
    alone_there = Grouped(value, present, torch.tensor(index), len(groups), length, reduce=reduce)
    return replace(alone_there, parts={"reward": alone_there}, weights={"reward": 1.0})


def advantages(kind: object, *groups: Sequence[float | None]) -> list[float]:
    """The advantages of these groups, member by member."""
    return kind(grouped(*groups), Running())[0][:, 0].tolist()  # type: ignore[operator]


# Four noised copies of a flow with six elements, drawn in fp64: what the tests of `matching` share.


@dataclass(frozen=True)
class Copies:
    """Predictions of the live and the old policy, samples and noise `[4, 6]`, times `[4]`."""

    live: Tensor
    old: Tensor
    clean: Tensor
    noise: Tensor
    time: Tensor

    def deviation(self, live: Tensor | None = None) -> Deviation:
        target = self.noise - self.clean
        return Deviation((self.live if live is None else live) - target, self.old - target, self.time, self.time)


def drawn(seed: int) -> Copies:
    generator = torch.Generator().manual_seed(seed)
    live, old, clean, noise = (torch.randn(4, 6, generator=generator, dtype=torch.float64) for _ in range(4))
    time = 0.05 + 0.9 * torch.rand(4, generator=generator, dtype=torch.float64)
    return Copies(live.requires_grad_(), old, clean, noise, time)
