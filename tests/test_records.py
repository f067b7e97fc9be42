"""The records that travel: shapes and values are checked where they enter."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from groupwise.records import Rollouts, Scored

MASK = torch.tensor([[True, True], [True, False]])
OLD = torch.tensor([[-1.0, -2.0], [-3.0, float("nan")]])


def rollouts(**changed: Any) -> Rollouts:
    return Rollouts(**({"group": torch.tensor([0, 0]), "mask": MASK, "old_log_prob": OLD} | changed))


def test_rewards_become_fp64_with_what_is_present() -> None:
    given = rollouts(
        rewards={"a": [1, None], "b": torch.tensor([1.0, 2.0]), "map": torch.tensor([[1.0, 2.0], [3.0, float("nan")]])}
    )
    assert given.rewards["a"].tolist() == [1.0, 0.0]
    assert given.reward_present["a"].tolist() == [True, False]
    assert given.rewards["b"].dtype == torch.float64
    assert given.rewards["map"].tolist() == [[1.0, 2.0], [3.0, 0.0]]
    assert given.reward_present["map"].tolist() == MASK.tolist()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"mask": MASK.int()}, r"Rollouts.mask must be a bool tensor \[B, T\].*mask.bool\(\)"),
        ({"mask": MASK[:, :0]}, r"Rollouts.mask has no decisions"),
        ({"group": torch.tensor([0])}, r"Rollouts.group must be an integer tensor \[B\] with B = 2"),
        ({"group": torch.tensor([0.0, 0.0])}, "Rollouts.group must be an integer tensor"),
        ({"old_log_prob": OLD[:, :1]}, r"Rollouts.old_log_prob must be a float tensor of the mask's shape \[2, 2\]"),
        (
            {"old_log_prob": torch.tensor([[-1.0, float("nan")], [-3.0, 0.0]])},
            r"Rollouts.old_log_prob\[0, 1\] is nan where the mask is true",
        ),
        (
            {"old_log_prob": torch.tensor([[-1.0, 0.5], [-3.0, 0.0]])},
            r"Rollouts.old_log_prob\[0, 1\] is 0.5, above zero.*density=True",
        ),
        ({"reference_log_prob": OLD[:1]}, "Rollouts.reference_log_prob must be a float tensor"),
        ({"truncated": torch.tensor([1, 0])}, r"Rollouts.truncated must be a bool tensor \[B\]"),
        ({"rewards": {"a": [1.0, float("nan")]}}, r"Rollouts.rewards\['a'\]\[1\] is nan; a reward is finite, or None"),
        ({"rewards": {"a": [1.0]}}, r"Rollouts.rewards\['a'\] must be \[B\] = \[2\]"),
        (
            {"rewards": {"a": [1.0, 1.0]}, "reward_weights": {"c": 1.0}},
            r"\['c'\], which are no rewards; rewards are \['a'\]",
        ),
        (
            {"auxiliary_count": {"supervised": torch.zeros(3)}},
            r"Rollouts.auxiliary_count\['supervised'\] must be \[B\]",
        ),
        ({"mask": MASK[0]}, r"Rollouts.mask must be a bool tensor \[B, T\].*one row a member"),
        ({"mask": MASK.tolist()}, r"Rollouts.mask must be a bool tensor \[B, T\], got list"),
        (
            {"old_log_prob": torch.tensor([[-1.0, float("-inf")], [-3.0, 0.0]])},
            r"Rollouts.old_log_prob\[0, 1\] is -inf where the mask is true",
        ),
        ({"rewards": [1.0, 0.0]}, r"Rollouts.rewards must be a dictionary by name, got list"),
        ({"rewards": {"a": 1.0}}, r"Rollouts.rewards\['a'\] is 1.0; give a number a member"),
        ({"rewards": {"a": ["b", 1.0]}}, r"Rollouts.rewards\['a'\]\[0\] is 'b' \(str\)"),
        (
            {"rewards": {"a": [1.0, 1.0]}, "reward_weights": {"a": "1"}},
            r"reward_weights\['a'\] is '1'; a weight is a finite number",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_named(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        rollouts(**changed)


def test_densities_may_exceed_one_and_step_sizes_zero() -> None:
    assert rollouts(old_log_prob=torch.full((2, 2), 3.0), density=True).density
    assert rollouts(step_size=torch.full((2, 2), 3.0)).step_size is not None


def test_scored_round_trip_and_filler() -> None:
    scored = Scored(
        torch.tensor([[1.0], [2.0]]),
        entropy=torch.tensor([[3.0], [4.0]]),
        auxiliary={"supervised": torch.tensor([5.0, 6.0])},
    )
    assert set(scored.tensors()) == {"log_prob", "entropy", "auxiliary.supervised"}
    some = scored.select(torch.tensor([1, -1]))
    assert some.log_prob.tolist() == [[2.0], [1.0]]
    assert some.auxiliary["supervised"].tolist() == [6.0, 5.0]
    assert some.score_norm is None


def test_what_was_recorded_is_constant() -> None:
    # The usual slip: the live log-prob itself as the old one. With its graph the ratio would have no gradient at all.
    live = torch.full((2, 2), -1.0, requires_grad=True)
    given = rollouts(old_log_prob=live, behaviour_log_prob=live, reference_log_prob=live)
    for name in ("old_log_prob", "behaviour_log_prob", "reference_log_prob"):
        assert not getattr(given, name).requires_grad
    assert live.requires_grad


def test_masked_values_may_be_anything() -> None:
    wild = torch.tensor([[-1.0, -2.0], [-3.0, float("inf")]])
    assert (
        rollouts(old_log_prob=wild, reference_log_prob=wild.abs() * torch.tensor([[-1.0, -1.0], [-1.0, 1.0]])).density
        is False
    )
