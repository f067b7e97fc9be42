"""Recorded files written by hand to the source's format, and every trap they may hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from groupwise.config import ConfigError
from groupwise_selection.source.recorded import Candidate, Recorded

# Two queries, each with four examples; numbers name them in the whole data set.
POOLS = {"17": ["30", "31", "32", "33"], "18": ["40", "31", "32", "41"]}
BEAMS = {
    "17": {"id_list": [[31, 30, 17], [33, 31, 17]], "score_list": [0.046, 0.037]},
    "18": {"id_list": [[41, 40, 18], [32, 41, 18]], "score_list": [0.02, -0.01]},
}
POINTERS = {
    "_meta": {"vqa_model": "any"},
    "17": {
        "query": {"question": "is it red?"},
        "pointer_candidates": [
            {
                "pointer": [31, 30],
                "pointer_pos": [1, 0],
                "vqa_correct": 1,
                "vqa_acc_score": 0.9,
                "vqa_gt_prob": 0.6,
                "beam_score": 0.04,
                "vqa_rel_score": 1.0,
            },
            {"pointer": [33, 31], "pointer_pos": [3, 1], "vqa_correct": 0, "vqa_acc_score": 0.3, "logprob_score": 1.5},
            {"pointer": [30, 33], "vqa_correct": 0, "vqa_acc_score": 0.0, "eval_failed": True},
            {"pointer": [30, 33], "vqa_correct": 1, "vqa_acc_score": 0.5, "vqa_eval_mode": "fallback"},
        ],
    },
}


def read(folder: Path, tree: Any, *, most: int = 2, pools: Any = None, **keys: Any) -> Any:
    path = folder / "recorded.json"
    path.write_text(json.dumps(tree))
    return Recorded(path=str(path), **keys).read(POOLS if pools is None else pools, most)


def changed(tree: Any, *path: Any, value: Any) -> Any:
    tree = json.loads(json.dumps(tree))
    inner = tree
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return tree


def test_beams(tmp_path: Path) -> None:
    found = read(tmp_path, BEAMS)
    assert found.candidates["17"] == [
        Candidate((1, 0), {"quality": 0.046, "info": 0.046}),
        Candidate((3, 1), {"quality": 0.037, "info": 0.037}),
    ]
    assert [each.picks for each in found.candidates["18"]] == [(3, 0), (2, 3)]
    assert found.remarks == ()


def test_pointer_candidates(tmp_path: Path) -> None:
    found = read(tmp_path, POINTERS)
    first, second = found.candidates["17"]
    assert first == Candidate(
        (1, 0), {"correct": 1.0, "accuracy": 0.9, "probability": 0.6, "quality": 0.04, "relevance": 1.0, "info": 0.04}
    )
    # A log-prob is never above 0: its negative was recorded.
    assert second == Candidate((3, 1), {"correct": 0.0, "accuracy": 0.3, "quality": -1.5})
    assert len(found.remarks) == 1
    assert "2 candidates whose evaluation failed or fell back are left out" in found.remarks[0]


def test_a_log_prob_stays_what_it_is(tmp_path: Path) -> None:
    tree = changed(POINTERS, "17", "pointer_candidates", 1, "logprob_score", value=-1.5)
    assert read(tmp_path, tree).candidates["17"][1].fields["quality"] == -1.5


def test_ids_with_a_prefix(tmp_path: Path) -> None:
    pools = {f"vqa-{query}": [f"vqa-{each}" for each in pool] for query, pool in POOLS.items()}
    assert read(tmp_path, BEAMS, pools=pools, prefix="vqa-").candidates["vqa-17"][0].picks == (1, 0)
    with pytest.raises(
        ConfigError,
        match=r"no query of the data is in it \(data: vqa-17, vqa-18, \.\.\.; file: 17, 18, \.\.\.\); write prefix",
    ):
        read(tmp_path, BEAMS, pools=pools)


def test_unknown_queries_are_left_out_and_counted(tmp_path: Path) -> None:
    tree = BEAMS | {"99": {"id_list": [[1, 99]], "score_list": [0.0]}}
    found = read(tmp_path, tree)
    assert set(found.candidates) == {"17", "18"}
    assert "1 of 3 queries are none of the data's training queries" in found.remarks[0]


# Places against ids, and the direction of scores.


def test_places_are_read_where_that_is_written(tmp_path: Path) -> None:
    tree = {"17": {"id_list": [[1, 0, 17]], "score_list": [0.2]}}
    with pytest.raises(ConfigError, match=r'1 is no example of the query\'s pool; .*write ids = "local"'):
        read(tmp_path, tree)
    assert read(tmp_path, tree, ids="local").candidates["17"][0].picks == (1, 0)
    with pytest.raises(ConfigError, match=r'31 is no place of the query\'s pool; .*write ids = "global"'):
        read(tmp_path, BEAMS, ids="local")


def test_places_may_repeat_the_ids_and_those_of_other_pools_are_refused(tmp_path: Path) -> None:
    tree = changed(POINTERS, "17", "pointer_candidates", 0, "pointer_pos", value=[31, 30])
    assert read(tmp_path, tree).candidates["17"][0].picks == (1, 0)
    tree = changed(POINTERS, "17", "pointer_candidates", 0, "pointer_pos", value=[0, 1])
    with pytest.raises(ConfigError, match=r"pointer = \[31, 30\] and pointer_pos = \[0, 1\] are different choices"):
        read(tmp_path, tree)


def test_scores_that_do_not_fall_are_refused_until_it_is_said_what_they_are(tmp_path: Path) -> None:
    tree = changed(BEAMS, "17", "score_list", value=[1.0, 2.0])
    with pytest.raises(ConfigError, match=r'query \'17\': score_list = .* Write score = "lower", or "higher"'):
        read(tmp_path, tree)
    assert read(tmp_path, tree, score="higher").candidates["17"][1].fields["quality"] == 2.0
    assert read(tmp_path, tree, score="lower").candidates["17"][1].fields == {"quality": -2.0, "info": -2.0}


# Choices that are none.


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("17", "id_list", 0), [31, 30], r"id_list\[0\] = \[31, 30\] does not end with the query's own id"),
        (("17", "id_list", 0), [31, 31, 17], r"\[31, 31\] has an example twice"),
        (("18", "id_list", 1), [99, 41, 18], r"query '18': id_list\[1\]: 99 is no example of the query's pool"),
        (("17", "id_list", 0), [17, 31, 17], "the query itself is among its examples"),
        (("17", "id_list", 0), [31, 30, 32, 17], "has 3 examples, and a choice has 1 to domain.shots = 2"),
        (("17", "id_list", 0), ["31", 17], "must be a list of whole numbers"),
        (("17", "id_list"), [[31, 30, 17]], "id_list has 1 beams and score_list 2 scores"),
        (("17", "score_list", 1), None, r"query '17': score_list\[1\] is None; it must be a finite number"),
        (("17", "id_list"), None, r"query '17': id_list is None; it must be a list"),
        (("17", "id_list", 0), [17], r"has 0 examples"),
        (
            ("17",),
            {"pointer_candidates": {"pointer": [30]}},
            r"query '17': pointer_candidates is .*; it must be a list",
        ),
        (("17",), {"pointer_candidates": [None]}, r"query '17': pointer_candidates\[0\] is None; it must be a table"),
        (("17",), {"ids": []}, r"query '17' has \['ids'\]; allowed: id_list with score_list, or pointer_candidates"),
    ],
)
def test_a_choice_that_is_none_is_named(tmp_path: Path, path: tuple[Any, ...], value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(tmp_path, changed(BEAMS, *path, value=value))


def test_pointers_without_examples_or_without_any_left(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"pointer_candidates\[0\] has neither pointer nor pointer_pos"):
        read(tmp_path, {"17": {"pointer_candidates": [{"vqa_correct": 1}]}})
    with pytest.raises(ConfigError, match="no candidate is left, 1 had failed"):
        read(tmp_path, {"17": {"pointer_candidates": [{"pointer": [30], "eval_failed": True}]}})
    with pytest.raises(ConfigError, match=r"no such file"):
        Recorded(path=str(tmp_path / "nowhere.json")).read(POOLS, 2)
