"""What was sampled, for people: one record a member, with its rewards, its advantage and how far the policy has moved on it."""

from __future__ import annotations

from typing import Any

import torch

from groupwise.domain.protocol import Domain
from groupwise.train.collect import Collected
from groupwise.train.update import Updates


def rollout_records(domain: Domain, collected: Collected, updates: Updates, limit: int) -> list[dict[str, Any]]:
    """The first `limit` members of this process, whole groups as far as they fit.

    Each record holds what the domain says of the member (prompt, text, ...), `group`, `rewards` by name, `reward` (their weighted sum), `advantage`
    (mean over decisions), `num_decisions`, and `log_ratio` (mean over decisions at the last scoring, nats; 0 where every update was on-policy).
    """
    rows = torch.arange(min(limit, len(collected.samples)), device=collected.samples.mask.device)
    described = domain.describe(collected.samples, rows)
    totals = collected.table.total() if any(weight != 0 for weight in collected.table.weights.values()) else [None] * len(collected.samples)
    advantage = None if collected.batch is None else collected.batch.advantage.mean(1).tolist()
    records = []
    for row, record in zip(rows.tolist(), described, strict=True):
        records.append(
            {
                **record,
                "group": int(collected.place[row]),
                "rewards": {name: values[row] for name, values in collected.table.values.items()},
                "reward": totals[row],
                "advantage": None if advantage is None else advantage[row],
                "num_decisions": int(collected.samples.mask[row].sum()),
                "log_ratio": float(updates.log_ratio[row]),
            }
        )
    return records
