"""What a rule is given of a stage's rows."""

from __future__ import annotations

from groupwise_look.diagnosis import Stage


def stage(count: int, **metrics: float) -> Stage:
    made = Stage("grpo", {"objective": {"trust": {"low": 0.1}}})
    for step in range(1, count + 1):
        made.add({"step": step, "stage": "grpo", "reward": float(step), **metrics})
    return made


def test_broken_rows_are_no_values() -> None:
    rows = stage(2)
    rows.add({"step": 3, "reward": None, "kl": float("nan"), "entropy": "high"})
    rows.add({"step": None, "reward": 4.0})
    reward = rows.first("reward", 3)
    assert reward is not None
    assert reward.values == [1, 2, 4]
    assert rows.count("kl") == rows.count("entropy") == 0


def test_a_stage_that_changes_a_kind_has_none_of_the_old_keys() -> None:
    settings = {
        "objective": {"trust": {"kind": "clip", "low": 0.2}},
        "stages": [{"name": "b", "set": {"objective": {"trust": {"kind": "gaussian"}}}}],
    }
    assert Stage("b", settings).setting("trust.low") is None
    assert Stage("b", settings).setting("trust.kind") == "gaussian"
    assert Stage("a", settings).setting("trust.low") == 0.2


def test_what_a_stage_measures_where_it_begins_takes_the_place_of_what_the_one_before_measured() -> None:
    before, after = Stage("one"), Stage("two")
    before.add({"step": 4, "eval/x": 28.0, "eval/y": 1.0})
    after.follow(before)
    after.add({"step": 4, "eval/x": 0.5})
    after.add({"step": 6, "eval/x": 0.6, "eval/y": 2.0})
    assert [(seen.metric, list(seen.steps), list(seen.values)) for seen in after.evaluated] == [
        ("eval/x", [4, 6], [0.5, 0.6]),
        ("eval/y", [4, 6], [1.0, 2.0]),
    ]
