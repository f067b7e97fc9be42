"""A prepared batch: some of its members for one step."""

from __future__ import annotations

import torch
from tests.laws import build, prepared, world


def test_select_takes_every_field_of_the_members() -> None:
    objective = build(correction={"kind": "truncate"}, divergence={"kind": "k3"})
    assert objective is not None
    batch, rows = prepared(objective, world()), torch.tensor([6, 0])
    some = batch.select(rows)
    assert len(batch) == 7
    assert len(some) == 2
    for name in ("advantage", "admitted", "prompt"):
        torch.testing.assert_close(getattr(some, name), getattr(batch, name)[rows], equal_nan=True)
    torch.testing.assert_close(some.acted.old_log_prob, batch.acted.old_log_prob[rows], equal_nan=True)
    assert some.auxiliary_count["supervised"].tolist() == [0.0, 0.0]
    assert some.state == batch.state


def test_an_update_on_a_part_divides_by_what_the_part_holds() -> None:
    objective = build(aggregation={"kind": "token_mean"})
    assert objective is not None
    batch = prepared(objective, world())
    plan = objective.plan(batch.select(torch.tensor([0, 5])))
    assert float(plan.weight.sum()) == 1.0
    assert float(plan.weight[1, 2]) == 1 / 6
