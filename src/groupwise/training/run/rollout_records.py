"""What was sampled, for people: one record a member, with its rewards, its advantage and how far the policy has moved
on it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from groupwise.domain.base import Domain
from groupwise.objective import Objective
from groupwise.objective.decisions import Decisions
from groupwise.training.step.collect import Collected
from groupwise.training.step.update import Updates


def rollout_records(
    domain: Domain, objective: Objective, collected: Collected, updates: Updates, limit: int
) -> list[dict[str, Any]]:
    """The first `limit` members of this process, whole groups as far as they fit.

    Each record holds what the domain says of the member (prompt, text, ...), `group`, `rewards` by name, `reward`
    (their weighted sum), `advantage` (mean over decisions), `num_decisions`, and `log_ratio` (mean over decisions at
    the last scoring, nats; 0 where every update was on-policy).

    Where the domain names a member's `tokens`, what is known of each follows, `None` for a token that was no decision:
    `token_log_prob` (nats, when it was sampled), `token_log_ratio` (nats, at the last scoring; left out where all are
    0) and `token_credit` (advantage times credit; left out where it is the member's advantage everywhere).
    """
    rows = torch.arange(min(limit, len(collected.samples)), device=collected.samples.mask.device)
    described = domain.describe(collected.samples, rows)
    totals = (
        collected.table.total()
        if any(weight != 0 for weight in collected.table.weights.values())
        else [None] * len(collected.samples)
    )
    advantage = None if collected.batch is None else collected.batch.advantage.mean(1).tolist()
    lengths = collected.samples.mask.sum(1)
    moved = (updates.log_ratio.sum(1) / lengths.clamp(min=1)).tolist()
    fields = (
        decision_fields(objective, collected, updates, rows) if any("tokens" in record for record in described) else {}
    )
    records = []
    for row, record in zip(rows.tolist(), described, strict=True):
        known = {
            **record,
            "group": int(collected.place[row]),
            "rewards": {name: values[row] for name, values in collected.table.values.items()},
            "reward": totals[row],
            "advantage": None if advantage is None else advantage[row],
            "num_decisions": int(lengths[row]),
            "log_ratio": moved[row],
        }
        if "tokens" in record:
            known |= _of_tokens(fields, row, len(record["tokens"]), collected.samples.mask[row], known["advantage"])
        records.append(known)
    return records


def decision_fields(objective: Objective, collected: Collected, updates: Updates, rows: Tensor) -> dict[str, Tensor]:
    """`[R, T]` numbers of every decision of some members: `token_log_prob`, `token_log_ratio`, and `token_credit` where
    it can be known.

    Credit is taken where the update began, at the policy that sampled.

    Args:
        objective: of the stage.
        collected: the step's members.
        updates: what was made of them.
        rows: which.
    """
    samples, batch = collected.samples, collected.batch
    fields = {"token_log_prob": samples.old_log_prob[rows], "token_log_ratio": updates.log_ratio[rows]}
    score_norm = None if samples.recorded is None else samples.recorded.score_norm
    if batch is not None and ("score_norm" not in objective.requires or score_norm is not None):
        log_prob = torch.where(samples.mask, samples.old_log_prob, 0.0)[rows]
        decisions = Decisions(
            replace(batch.acted.select(rows), old_log_prob=log_prob),
            log_prob,
            advantage=batch.advantage[rows].to(log_prob.dtype) * samples.mask[rows],
            score_norm=None if score_norm is None else score_norm[rows],
        )
        fields["token_credit"] = decisions.advantage * objective.credit(decisions)
    return fields


def _of_tokens(
    fields: Mapping[str, Tensor], row: int, num_tokens: int, mask: Tensor, advantage: float | None
) -> dict[str, list[float | None]]:
    """Numbers of one member's tokens, with as many digits as an eye can tell apart."""
    valid = mask[:num_tokens].tolist()
    found = {}
    for name, values in fields.items():
        own = values[row, :num_tokens].tolist()
        trivial = {"token_log_ratio": 0.0, "token_credit": advantage}.get(name)
        if trivial is None or any(
            abs(value - trivial) > 1e-6 for value, counts in zip(own, valid, strict=True) if counts
        ):
            found[name] = [
                float(f"{value:.3g}") if counts and math.isfinite(value) else None
                for value, counts in zip(own, valid, strict=True)
            ]
    return found
