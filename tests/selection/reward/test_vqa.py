"""The reward with its memory: what it refuses, modes by the number of examples, running scales and weights, and the way
into a checkpoint.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from groupwise.config import ConfigError, validate
from groupwise.reward import RewardError, Rewards, score
from groupwise_selection.reward import Vqa
from groupwise_selection.reward.vqa import OpenVqa

EXTREMES = {"kind": "hybrid", "alpha": 1.0, "scale": {"kind": "quantile", "low": 0.0, "high": 1.0}}
"""The information gain between the least and the greatest that was seen."""


def vqa(mode: str, **keys: Any) -> Vqa:
    return validate(Vqa, {"mode": {"kind": mode}, **keys})


def test_a_missing_column_is_named() -> None:
    with pytest.raises(
        RewardError, match=r"reward 'vqa' needs the column 'info', which the data lacks; columns: correct"
    ):
        score({"vqa": vqa("legacy")}, ["q"], ["7"], {"correct": [1]})


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("accuracy", None, "query 'is it red\\?' has no 'accuracy'"),
        ("accuracy", 1.2, "query 'is it red\\?': 'accuracy' is 1.2; allowed: 0 to 1"),
        ("accuracy", float("nan"), "'accuracy' is nan"),
        ("correct", 0.5, "'correct' is 0.5; allowed: 0 or 1"),
    ],
)
def test_a_missing_or_wrong_value_names_query_and_field(field: str, value: Any, message: str) -> None:
    columns = {"correct": [1.0, 1.0], "accuracy": [0.3, 0.3]}
    columns[field][1] = value
    with pytest.raises(RewardError, match=message):
        score({"vqa": vqa("hard_plus_soft")}, ["is it blue?", "is it red?"], ["7"] * 2, columns)


def test_modes_by_the_number_of_examples() -> None:
    reward = vqa("hard", per_shot={"1": {"kind": "soft"}, "2": {"kind": "legacy"}})
    assert reward.needs == ("correct", "accuracy", "info", "shots")
    columns = {"correct": [1, 1, 1], "accuracy": [0.3, None, None], "info": [None, 0.25, None], "shots": [1, 2, 3]}
    # Fields of other numbers of examples need not be measured.
    assert score({"vqa": reward}, ["q"] * 3, ["7"] * 3, columns).values["vqa"] == [0.3, 0.25, 1.0]
    with pytest.raises(ConfigError, match=r"per_shot\.-1"):
        vqa("hard", per_shot={"-1": {"kind": "soft"}})


def test_a_batch_is_rewarded_by_what_came_before_it() -> None:
    reward = {"vqa": validate(Vqa, {"mode": EXTREMES})}
    with Rewards(reward) as rewards:
        table = rewards.score(["q"] * 2, ["7"] * 2, {"info": [0.0, 0.4]})
        assert table.values["vqa"] == [0.0, 1.0]
        assert table.fields == {"vqa": {"info": [0.0, 0.4]}}
        found = rewards.follow({"vqa": [{"info": [0.0, 0.4]}, {"info": [0.2, 0.8]}]})
        assert found == pytest.approx(
            {"rewards/vqa/info_low": 0.0, "rewards/vqa/info_high": 0.8, "rewards/vqa/measured/info": 0.35}
        )
        assert rewards.score(["q"] * 2, ["7"] * 2, {"info": [0.0, 0.4]}).values["vqa"] == pytest.approx([0.0, 0.5])


def test_adaptive_weights_change_the_next_batch() -> None:
    reward = vqa("hard_plus_soft", adapt={"follow": "informative", "decay": 0.0})
    with Rewards({"vqa": reward}) as rewards:
        rewards.follow(
            {"vqa": [{"correct": [0.0, 0.0], "accuracy": [0.0, 0.3]}, {"correct": [0.0, 1.0], "accuracy": [0.3, 0.9]}]}
        )
        # Flat in half and in none of the groups: 1/2 and 1, scaled to a sum of 2.
        table = rewards.score(["q"], ["7"], {"correct": [1.0], "accuracy": [0.9]})
        assert table.values["vqa"] == pytest.approx([2 / 3 + 4 / 3 * 0.9])


def test_the_memory_goes_through_json_and_back() -> None:
    config = vqa("hybrid", per_shot={"1": {"kind": "hybrid_v2"}}, adapt={"follow": "spread"})
    first, second = OpenVqa(config), OpenVqa(config)
    assert first.memory() == {}
    group = {
        "info": [0.1, 0.5, 0.2, 0.3],
        "correct": [0.0, 1.0, 0.0, 1.0],
        "accuracy": [0.0, 1.0, 0.3, 0.6],
        "shots": [1.0, 1.0, 2.0, 2.0],
    }
    first.follow([group])
    second.recall(json.loads(json.dumps(first.memory())))
    columns = {name: [*values, values[0]] for name, values in group.items()}
    prompts, texts = ["q"] * 5, ["7"] * 5
    assert (
        first(prompts, texts, **columns).values
        == second(prompts, texts, **columns).values
        != OpenVqa(config)(prompts, texts, **columns).values
    )
    second.recall({})
    assert second.memory() == {}


def test_rules_of_different_numbers_of_examples_follow_their_own() -> None:
    opened = OpenVqa(validate(Vqa, {"mode": EXTREMES, "per_shot": {"1": EXTREMES}}))
    opened.follow([{"info": [0.0, 0.2, 0.0, 4.0], "shots": [1.0, 1.0, 2.0, 2.0]}])
    assert opened(["q"] * 2, ["7"] * 2, info=[0.1, 0.1], shots=[1, 2]).values == pytest.approx([0.5, 0.025])


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"adapt": {"follow": "spread"}}, "adapt has no effect: mode 'hard' has one part"),
        ({"isolation": "process"}, 'isolation = "process"'),
    ],
)
def test_settings_without_effect_are_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        vqa("hard", **keys)


def test_the_ends_of_what_it_can_give() -> None:
    assert vqa("hard_plus_soft_v2").ends == (0.0, 3.0)
    assert vqa("legacy").ends == (-1.0, 1.0)
    assert vqa("hybrid").ends == (0.0, 1.25)
    assert vqa("hard", per_shot={"1": {"kind": "legacy"}}).ends == (-1.0, 1.0)


@pytest.mark.parametrize(
    ("keys", "ends"),
    [
        ({"kind": "legacy"}, (-1.0, 1.0)),
        ({"kind": "legacy", "alpha": 2.0, "beta": 1.0}, (-2.0, 3.0)),
        ({"kind": "hard_plus_soft"}, (0.0, 2.0)),
        ({"kind": "hard_plus_soft", "hard_weight": 2.0, "soft_weight": -0.5}, (-0.5, 2.0)),
        ({"kind": "hard_plus_soft_v2"}, (0.0, 3.0)),
        ({"kind": "separated", "soft_weight": 0.5}, (0.0, 2.5)),
        ({"kind": "hybrid", "alpha": 0.25}, (0.0, 0.25 + 0.75 * 1.5)),
        ({"kind": "hybrid", "scale": {"kind": "x10"}}, (-5.0, 1.25)),  # a loss of 1 is -10 on the source's scale
        ({"kind": "hybrid_v2"}, (0.0, 2.0)),
        ({"kind": "hard"}, (0.0, 1.0)),
        ({"kind": "soft"}, (0.0, 1.0)),
        ({"kind": "expected"}, (0.0, 3.0)),
        ({"kind": "relevance"}, (0.0, 3.0)),  # being near earns only where the answer is wrong
        ({"kind": "relevance", "hard_weight": 0.0, "probability_weight": 0.0}, (0.0, 0.1)),
    ],
)
def test_the_ends_of_each_mode_are_reached_and_not_passed(keys: dict[str, Any], ends: tuple[float, float]) -> None:
    reward = validate(Vqa, {"mode": keys})
    assert reward.ends == pytest.approx(ends)
    fields = {"info": (-1.0, 0.0, 0.05, 1.0), "quality": (-1.0, 0.3, 1.0)}
    values = []
    for row in itertools.product(
        *(fields.get(field, (0.0, 1.0) if field == "correct" else (0.0, 0.4, 1.0)) for field in reward.needs)
    ):
        values += reward(
            ["q"], ["7"], **{field: [value] for field, value in zip(reward.needs, row, strict=True)}
        ).values
    assert (min(values), max(values)) == pytest.approx(ends)


def test_weights_that_follow_what_is_seen_stay_within_the_ends() -> None:
    reward = validate(Vqa, {"mode": {"kind": "hybrid"}, "adapt": {"follow": "informative", "decay": 0.0}})
    assert reward.ends == pytest.approx((0.0, 1.25))
    opened = OpenVqa(reward)
    opened.follow([{"info": [0.1, 0.3], "correct": [1.0, 1.0], "accuracy": [1.0, 1.0]}])
    assert opened(["q"], ["7"], info=[1.0], correct=[1.0], accuracy=[1.0]).values == pytest.approx([1.25])
