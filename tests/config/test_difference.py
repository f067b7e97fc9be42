"""Differences of configurations as dotted keys."""

from __future__ import annotations

from groupwise.config import difference


def test_changed_added_and_removed_keys():
    before = {"trust": {"kind": "clip", "low": 0.2}, "credit": {}, "seed": 0}
    after = {"trust": {"kind": "gaussian", "sigma": 0.3}, "credit": {"decay": {"gamma": 0.9}}, "seed": 0}
    assert difference(before, after) == {
        "trust.kind": ("clip", "gaussian"),
        "trust.low": (0.2, None),
        "trust.sigma": (None, 0.3),
        "credit.decay.gamma": (None, 0.9),
    }
    assert difference(after, after) == {}


def test_tables_in_lists_are_told_apart_by_their_place():
    before = {"stages": [{"name": "a", "num_steps": 3}, {"name": "b"}], "stop": ["x"]}
    after = {"stages": [{"name": "a", "num_steps": 4}], "stop": ["y"]}
    assert difference(before, after) == {
        "stages[0].num_steps": (3, 4),
        "stages[1].name": ("b", None),
        "stop": (["x"], ["y"]),
    }
