"""The sampled members as records for people: one record a member, with its rewards, its advantage and the policy's
change on it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from groupwise.domain.base import Domain
from groupwise.domain.returned import checked_records
from groupwise.objective import Objective
from groupwise.objective.acted import Acted
from groupwise.objective.decisions import Decisions
from groupwise.training.step.collect import Collected
from groupwise.training.step.update import Updates


def rollout_records(
    domain: Domain, objective: Objective, collected: Collected, updates: Updates, limit: int
) -> list[dict[str, Any]]:
    """Returns records of the first `limit` members of this process, in whole groups as far as they fit.

    Each record holds the domain's description of the member (prompt, text, ...), `group`, `rewards` by name, `reward`
    (their weighted sum), `advantage` (mean over decisions), `num_decisions`, and `log_ratio` (mean over decisions at
    the last scoring, nats; 0 where every update was on-policy). `logged` holds what rewards logged of the member by
    `log_extra`.

    Where the domain gives a member's `tokens`, numbers of every token follow, `None` for a token that was no decision:
    `token_log_prob` (nats, when it was sampled), `token_log_ratio` (nats, at the last scoring; left out where all are
    0) and `token_credit` (advantage times credit; left out where it is the member's advantage everywhere).
    """
    rows = torch.arange(min(limit, len(collected.samples)), device=collected.samples.mask.device)
    described = checked_records(domain.describe(collected.samples, rows), len(rows))
    totals = (
        collected.table.total(objective.partial_rewards, collected.place.tolist())
        if any(weight != 0 for weight in collected.table.weights.values())
        else [None] * len(collected.samples)
    )
    advantage = None if collected.batch is None else collected.batch.advantage.mean(1).tolist()
    lengths = collected.samples.mask.sum(1)
    log_ratios = (updates.log_ratio.sum(1) / lengths.clamp(min=1)).tolist()
    fields = (
        decision_fields(objective, collected, updates, rows) if any("tokens" in record for record in described) else {}
    )
    records = []
    for row, record in zip(rows.tolist(), described, strict=True):
        member_record = {
            **record,
            "group": int(collected.place[row]),
            "rewards": {name: values[row] for name, values in collected.table.values.items()},
            "reward": totals[row],
            "advantage": None if advantage is None else advantage[row],
            "num_decisions": int(lengths[row]),
            "log_ratio": log_ratios[row],
        }
        if collected.table.extras:
            member_record["logged"] = {column: entries[row] for column, entries in collected.table.extras.items()}
        if "tokens" in record:
            member_record |= _token_fields(
                fields, row, len(record["tokens"]), collected.samples.mask[row], member_record["advantage"]
            )
        records.append(member_record)
    return records


def decision_fields(objective: Objective, collected: Collected, updates: Updates, rows: Tensor) -> dict[str, Tensor]:
    """Computes `[R, T]` numbers of every decision of some members: `token_log_prob`, `token_log_ratio`, and
    `token_credit` where the batch and its objective give it.

    Credit is computed at the policy that sampled, before the first update. Credit that compares decisions of the whole
    update, or reads what only a scoring gives (entropy), is left out.

    Args:
        collected: the rollouts of the step.
        updates: the optimiser steps of the step.
        rows: `[R]`, the places of the members.
    """
    samples, batch = collected.samples, collected.batch
    fields = {"token_log_prob": samples.old_log_prob[rows], "token_log_ratio": updates.log_ratio[rows]}
    score_norm = None if samples.recorded is None else samples.recorded.score_norm
    if batch is not None and _is_computable(objective, batch.acted, score_norm):
        log_prob = torch.where(samples.mask, samples.old_log_prob, 0.0)[rows]
        decisions = Decisions(
            replace(batch.acted.select(rows), old_log_prob=log_prob),
            log_prob,
            advantage=batch.advantage[rows].to(log_prob.dtype) * samples.mask[rows],
            score_norm=None if score_norm is None else score_norm[rows],
        )
        fields["token_credit"] = decisions.advantage * objective.credit(decisions)
    return fields


def _is_computable(objective: Objective, acted: Acted, score_norm: Tensor | None) -> bool:
    """Returns whether every link of the credit can be computed from what sampling recorded of some members."""
    recorded = {"score_norm": score_norm}
    return all(
        link.scope != "batch" and all(recorded.get(name, getattr(acted, name, None)) is not None for name in link.reads)
        for link in objective.credit.links()
    )


def _token_fields(
    fields: Mapping[str, Tensor], row: int, num_tokens: int, mask: Tensor, advantage: float | None
) -> dict[str, list[float | None]]:
    """Returns numbers of one member's tokens, rounded to three digits."""
    valid = mask[:num_tokens].tolist()
    numbers_by_name = {}
    for name, values in fields.items():
        token_values = values[row, :num_tokens].tolist()
        trivial = {"token_log_ratio": 0.0, "token_credit": advantage}.get(name)
        if trivial is None or any(
            abs(value - trivial) > 1e-6 for value, is_decision in zip(token_values, valid, strict=True) if is_decision
        ):
            numbers_by_name[name] = [
                float(f"{value:.3g}") if is_decision and math.isfinite(value) else None
                for value, is_decision in zip(token_values, valid, strict=True)
            ]
    return numbers_by_name
