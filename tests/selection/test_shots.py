"""Strategies for the number of examples: weighted prefixes, numbers drawn at random, modes by number, ending early at a
price.
"""

from __future__ import annotations

import pytest
import torch
from tests.selection.tiny import domain_of

from groupwise.config import ConfigError
from groupwise.domain.protocol import Samples
from groupwise.streams import Streams
from groupwise_selection.domain import SelectionDomain
from groupwise_selection.member_rewards import credited
from groupwise_selection.policy.choices import NOTHING


def sampled(domain: SelectionDomain, group_size: int = 3, step: int = 0, num: int = 5) -> Samples:
    return domain.sample(
        domain.prompts(range(num)),
        group_size,
        streams=Streams(0),
        step=step,
        settings={},
        requires=frozenset({"log_prob"}),
    )


def test_prefixes_count_by_their_weights() -> None:
    # d = 1/2, weights 1, 0, 3: G_3 = R_3; G_2 = (3/2 R_3) / (3/2); G_1 = (R_1 + 3/4 R_3) / (1 + 3/4).
    found = credited([1.0, 9.0, 0.5], 3, 3, 0.5, [1.0, 0.0, 3.0])
    assert found.tolist() == pytest.approx([(1 + 0.75 * 0.5) / 1.75, 0.5, 0.5])
    # All the weight on the last is the reward of the whole choice, for every pick.
    assert credited([1.0, 0.0, 0.25], 3, 3, 1.0, [0.0, 0.0, 1.0]).tolist() == [0.25] * 3
    # A weight on the first alone leaves later picks without a reward.
    assert credited([1.0, 0.5], 2, 2, 1.0, [1.0, 0.0]).tolist() == [1.0, 0.0]


def test_weights_belong_to_every_number_of_examples() -> None:
    with pytest.raises(ConfigError, match=r"prefix.weights = \[1.0\]: one weight for each of 1 to shots = 2 examples"):
        domain_of(prefix={"weights": [1.0]})
    with pytest.raises(ConfigError, match="not all 0"):
        domain_of(prefix={"weights": [0.0, 0.0]})
    with pytest.raises(ConfigError, match="random_shots has no effect with shots = 1"):
        domain_of(shots=1, random_shots=True)


def test_every_pick_is_rewarded_by_its_own_prefix_and_later_ones() -> None:
    domain = domain_of(prefix={"discount": 1.0})
    samples = sampled(domain)
    table = domain.reward(samples)
    for row, measured in enumerate(samples.payload["measured"]):
        first, second = (each.accuracy + each.expected for each in measured)
        assert table.maps["vqa"][row].tolist() == pytest.approx([(first + second) / 2, second])
        assert table.values["vqa"][row] == pytest.approx((first + second) / 2)


def test_the_number_of_examples_is_drawn_for_each_query_and_step() -> None:
    domain = domain_of(shots=3, random_shots=True)
    seen = set()
    for step in range(6):
        samples = sampled(domain, step=step)
        lengths = samples.mask.sum(1).view(5, 3)
        assert bool((lengths == lengths[:, :1]).all()), "a group compares choices of one size"
        seen |= set(lengths[:, 0].tolist())
        assert bool(((samples.payload["picks"] == NOTHING) == ~samples.mask).all())
        # Only what was shown is measured.
        assert [
            max(size for size, each in enumerate(row, 1) if each is not None) for row in samples.payload["measured"]
        ] == lengths.flatten().tolist()
        again = domain.score(samples, torch.arange(15), frozenset({"log_prob"})).log_prob.detach()
        assert torch.allclose(again.masked_fill(~samples.mask, 0.0), samples.old_log_prob, atol=1e-12)
    assert seen == {1, 2, 3}


def test_a_mode_for_each_number_of_examples() -> None:
    rewards = {"vqa": {"kind": "vqa", "mode": {"kind": "soft"}, "per_shot": {"1": {"kind": "legacy"}}}}
    domain = domain_of(random_shots=True, rewards=rewards)
    samples = sampled(domain)
    values = domain.reward(samples).values["vqa"]
    lengths = samples.mask.sum(1).tolist()
    assert set(lengths) == {1, 2}
    for value, size, measured in zip(values, lengths, samples.payload["measured"], strict=True):
        assert value == pytest.approx(measured[0].info if size == 1 else measured[1].accuracy)


def test_ending_early_saves_the_price_of_what_is_not_shown() -> None:
    rewards = {"vqa": {"kind": "vqa", "mode": {"kind": "soft"}}, "cost": {"kind": "shot_cost", "weight": 0.25}}
    domain = domain_of(shots=3, stop=True, rewards=rewards)
    samples = sampled(domain, group_size=8)
    shots = (samples.payload["picks"] >= 0).sum(1).tolist()
    assert len(set(shots)) > 1
    for total, size, measured in zip(domain.reward(samples).total(), shots, samples.payload["measured"], strict=True):
        assert total == pytest.approx(measured[size - 1].accuracy - 0.25 * size)


def test_what_examples_cost_moves_the_ends_by_which_groups_are_all_right() -> None:
    rewards = {"vqa": {"kind": "vqa", "mode": {"kind": "soft"}}, "cost": {"kind": "shot_cost", "weight": 0.25}}
    domain = domain_of(shots=3, stop=True, rewards=rewards)
    assert domain.reward(sampled(domain)).bounds == {"vqa": (0.0, 1.0), "cost": (-3.0, -1.0)}
