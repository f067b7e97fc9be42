"""Ordered choices: probabilities of all of them, no repetition, ending early, fields against their definitions."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from groupwise.config import ConfigError
from groupwise_selection.policy.choices import NOTHING, STOP, Choices, draw_choices, scored_fields
from groupwise_selection.policy.config import Pointer
from groupwise_selection.policy.network import PointerNetwork, Pools


def pools(num: int = 1, size: int = 4, seed: int = 0, small: int | None = None) -> Pools:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.nn.functional.normalize(torch.randn(*shape, generator=generator, dtype=torch.float64), dim=-1)

    valid = torch.ones(num, size, dtype=torch.bool)
    if small is not None:
        valid[:, small:] = False
    return Pools(draw(num, 3), draw(num, size, 3), draw(num, size, 5), valid)


def network(stop: bool = False, moved: float = 0.3, **keys: Any) -> PointerNetwork:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = PointerNetwork(
            3, Pointer(width=8, num_heads=2, answer_size=5, dtype="float64", scale=2.0, **keys), stop=stop
        ).double()
        with torch.no_grad():
            for parameter in made.parameters():
                parameter += moved * torch.randn_like(parameter)
    return made


def forced(
    made: PointerNetwork, given: Pools, picks: list[list[int]], temperature: float = 1.0, **keys: Any
) -> Choices:
    heat = torch.full((len(picks),), temperature, dtype=torch.float64)
    encoded = made.encode(given).of(torch.zeros(len(picks), dtype=torch.long))
    return draw_choices(made, encoded, len(picks[0]), None, heat, force=torch.tensor(picks), **keys)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_the_probabilities_of_all_ordered_choices_sum_to_one(temperature: float) -> None:
    every = [list(picks) for picks in itertools.permutations(range(4), 3)]
    found = scored_fields(forced(network(), pools(), every, temperature), ())["log_prob"].sum(1).exp()
    assert len(every) == 24
    assert float(found.detach().sum()) == pytest.approx(1.0, abs=1e-12)
    assert float(found.detach().std()) > 1e-3


def test_with_an_end_the_probabilities_of_all_choices_up_to_three_sum_to_one() -> None:
    every = [
        [*picks, *([STOP] + [NOTHING] * 3)[: 3 - size]]
        for size in (1, 2, 3)
        for picks in itertools.permutations(range(4), size)
    ]
    found = scored_fields(forced(network(stop=True), pools(), every), ())["log_prob"].sum(1).exp()
    assert len(every) == 4 + 12 + 24
    assert float(found.detach().sum()) == pytest.approx(1.0, abs=1e-12)


def test_examples_that_fill_up_a_small_pool_are_never_chosen() -> None:
    every = [list(picks) for picks in itertools.permutations(range(3), 3)]
    padded = forced(network(), pools(size=5, small=3), every)
    assert float(scored_fields(padded, ())["log_prob"].sum(1).exp().sum()) == pytest.approx(1.0, abs=1e-12)
    plain = pools(size=5, small=3)
    cut = Pools(plain.query, plain.pool[:, :3], plain.answers[:, :3], plain.valid[:, :3])
    torch.testing.assert_close(
        scored_fields(forced(network(), cut, every), ())["log_prob"], scored_fields(padded, ())["log_prob"]
    )


def test_drawn_choices_repeat_no_example_and_score_the_same_again() -> None:
    made, members = network(), 200
    encoded = made.encode(pools(num=2)).of(torch.arange(2).repeat_interleave(members // 2))
    uniform = torch.rand(members, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    heat = torch.full((members,), 0.7, dtype=torch.float64)
    drawn = draw_choices(made, encoded, 4, uniform, heat)
    assert all(sorted(row) == [0, 1, 2, 3] for row in drawn.picks.tolist())
    again = draw_choices(made, encoded, 4, None, heat, force=drawn.picks)
    torch.testing.assert_close(
        scored_fields(again, ())["log_prob"], scored_fields(drawn, ())["log_prob"], rtol=0, atol=0
    )


def test_draws_follow_the_probabilities() -> None:
    made = network()
    encoded = made.encode(pools()).of(torch.zeros(4000, dtype=torch.long))
    uniform = torch.rand(4000, 1, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    drawn = draw_choices(made, encoded, 1, uniform, torch.ones(4000, dtype=torch.float64))
    share = torch.bincount(drawn.picks[:, 0], minlength=4) / 4000
    torch.testing.assert_close(share.double(), drawn.log_probs[0, 0].exp().detach(), atol=0.03, rtol=0)


def test_nothing_follows_the_end() -> None:
    made = network(stop=True)
    encoded = made.encode(pools()).of(torch.zeros(50, dtype=torch.long))
    uniform = torch.rand(50, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    drawn = draw_choices(made, encoded, 4, uniform, torch.full((50,), 50.0, dtype=torch.float64))
    ended = (drawn.picks == STOP).any(1)
    assert ended.any()
    assert (drawn.picks[:, 0] >= 0).all(), "at least one pick comes first"
    for picks, mask in zip(drawn.picks.tolist(), drawn.mask.tolist(), strict=True):
        end = picks.index(STOP) if STOP in picks else 3
        assert mask == [place <= end for place in range(4)]
        assert picks[end + 1 :] == [NOTHING] * (3 - end)


def test_fields_are_what_they_are_called() -> None:
    made, other = network(), network(moved=0.5)
    picks = [[2, 0], [1, 3]]
    found = forced(made, pools(), picks)
    reference = forced(other, pools(), picks).log_probs.detach()
    fields = scored_fields(found, {"entropy", "score_norm", "exact_divergence"}, reference)
    for row, place in itertools.product(range(2), range(2)):
        logits = found.log_probs[row, place].detach().clone().requires_grad_()
        live = [index for index in range(4) if index not in picks[row][:place]]
        own = logits[live].log_softmax(0)
        p, q = own.exp(), reference[row, place][live].log_softmax(0)
        assert float(fields["entropy"][row, place]) == pytest.approx(float(-(p * own).sum()), abs=1e-12)
        assert float(fields["exact_divergence"][row, place]) == pytest.approx(float((p * (own - q)).sum()), abs=1e-12)
        own[live.index(picks[row][place])].backward()
        assert logits.grad is not None
        assert float(fields["score_norm"][row, place]) == pytest.approx(float(logits.grad.norm()), abs=1e-12)
    same = scored_fields(found, {"exact_divergence"}, found.log_probs.detach())["exact_divergence"]
    assert float(same.detach().abs().max()) < 1e-12


@pytest.mark.parametrize("uniform", [None, torch.full((1, 2), 0.5, dtype=torch.float64)])
def test_a_policy_that_is_not_finite_is_named(uniform: Tensor | None) -> None:
    """Its log-probs would be 0, as those of examples that cannot be chosen."""
    made, given = network(), pools()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.fill_(float("nan"))
    with pytest.raises(ConfigError, match="model: the policy gives NaN"):
        draw_choices(made, made.encode(given), 2, uniform, torch.ones(1, dtype=torch.float64))
