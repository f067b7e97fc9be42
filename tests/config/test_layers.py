"""Layers: later wins, and a changed kind starts its table anew."""

from __future__ import annotations

from groupwise.config import merge


def test_tables_merge_key_by_key_and_leave_their_sources_alone():
    base = {"train": {"num_steps": 5, "stop": ["a"]}, "seed": 0}
    over = {"train": {"stop": ["b"]}}
    assert merge(base, over) == {"train": {"num_steps": 5, "stop": ["b"]}, "seed": 0}
    assert base == {"train": {"num_steps": 5, "stop": ["a"]}, "seed": 0}
    assert over == {"train": {"stop": ["b"]}}
    merge(base, {})["train"]["stop"].append("c")
    merge(base, over)["train"]["stop"].append("c")
    assert (base["train"]["stop"], over["train"]["stop"]) == (["a"], ["b"])


def test_a_changed_kind_drops_the_keys_of_the_old_one_and_keeps_those_beside_it():
    base = {"objective": {"trust": {"kind": "clip", "low": 0.2, "high": 0.3}}}
    assert merge(base, {"objective": {"trust": {"sigma": 0.5, "kind": "gaussian"}}}) == {
        "objective": {"trust": {"sigma": 0.5, "kind": "gaussian"}}
    }


def test_the_same_kind_again_keeps_what_was_set():
    assert merge({"trust": {"kind": "clip", "low": 0.1}}, {"trust": {"kind": "clip", "high": 0.3}}) == {
        "trust": {"kind": "clip", "low": 0.1, "high": 0.3}
    }


def test_a_number_may_become_a_table_and_a_table_a_number():
    assert merge({"lr": 0.1}, {"lr": {"kind": "linear"}}) == {"lr": {"kind": "linear"}}
    assert merge({"lr": {"kind": "linear"}}, {"lr": 0.1}) == {"lr": 0.1}


def test_none_takes_a_table_back_and_is_a_value_elsewhere():
    assert merge({"credit": {"decay": {"gamma": 0.9}}, "limit": 3}, {"credit": {"decay": None}, "limit": None}) == {
        "credit": {},
        "limit": None,
    }
