"""Gradient from the decisions of the highest entropy alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tests.objective.small import close, member_ratios

from groupwise.objective import Objective
from groupwise.objective.credit import TopEntropy
from groupwise.objective.decisions import Decisions
from groupwise.statistics import finish

ENTROPY = torch.tensor([[0.4, 0.1, 0.0], [0.3, 0.2, 0.5]], dtype=torch.float64)


def decisions(entropy: torch.Tensor = ENTROPY) -> Decisions:
    return replace(member_ratios([1.0, 1.0, None], [1.0, 1.0, 1.0]), entropy=entropy)


@pytest.mark.parametrize(
    ("share", "expected"), [(1.0, 5), (0.8, 4), (0.5, 3), (0.49, 2), (0.25, 2), (0.2, 1), (1e-9, 1)]
)
def test_the_number_is_that_of_a_quantile(share: float, expected: int) -> None:
    weight = TopEntropy(share=share)(decisions())
    assert int(weight.sum()) == expected
    valid = ENTROPY[decisions().mask]
    bound = torch.quantile(valid, 1 - share)
    assert torch.equal(weight > 0, decisions().mask & (bound <= ENTROPY))


def test_ties_for_the_last_place_train() -> None:
    tied = torch.tensor([[0.4, 0.4, 0.0], [0.4, 0.1, 0.1]], dtype=torch.float64)
    given = decisions(tied)
    weight = TopEntropy(share=0.2)(given)
    close(weight, [[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    assert finish(TopEntropy().measure(weight, given)) == {"top_entropy/trained_mean": 0.6}


def test_the_objective_asks_for_entropies() -> None:
    objective = Objective.preset("dapo", **{"credit.top_entropy.share": 0.2})
    assert objective.requires == {"log_prob", "entropy"}
    assert objective.scope == "batch"
