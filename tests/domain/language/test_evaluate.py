from __future__ import annotations

import pytest

from groupwise.domain.language.evaluate import Written, metrics, pass_at, records
from groupwise.domain.protocol import Prompt
from groupwise.reward import RewardTable


@pytest.fixture
def written():
    table = RewardTable(
        {"correct": [1.0, 0.0, 0.0, 0.0], "brief": [None, 0.5, None, 0.1], "judge": [1.0, 1.0, 0.0, 0.0]},
        {"correct": 1.0},
        judges=frozenset({"judge"}),
    )
    prompts = [Prompt("p", {"prompt": "a"}), Prompt("q", {"prompt": "b"})]
    return Written(prompts, 2, table, ["w", "x", "y", "z"], [1, 2, 3, 6], [False, False, False, True])


def test_means_by_hand(written):
    found = metrics("sampled", written, "correct")
    assert next(iter(found)) == "sampled/reward"
    # Sums with equal weights; a missing one adds nothing: 1, .5, 0, .1.
    assert found == pytest.approx(
        {
            "sampled/reward": 0.4,
            "sampled/correct": 0.25,
            "sampled/brief": 0.3,
            "sampled/judge": 0.5,
            "sampled/length": 3.0,
            "sampled/truncated": 0.25,
            "sampled/pass@1": 0.25,
            "sampled/pass@2": 0.5,
        }
    )


def test_pass_at_by_counting_pairs():
    # 5 completions, 2 pass: of the 10 pairs, 3 hold none of them.
    assert pass_at(2, 5, 2) == pytest.approx(0.7)
    assert pass_at(3, 3, 1) == 1.0


def test_records_hold_every_score_and_the_first_texts(written):
    found = records("sampled", written, num_texts=1)
    assert [(record["key"], record["sample"]) for record in found] == [("p", 0), ("p", 1), ("q", 0), ("q", 1)]
    assert [record["rewards"]["correct"] for record in found] == [1.0, 0.0, 0.0, 0.0]
    assert [record.get("text") for record in found] == ["w", "x", None, None]
    assert found[3]["num_tokens"] == 6
