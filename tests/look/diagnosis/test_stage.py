"""What a rule is given of a stage's rows."""

from __future__ import annotations

from groupwise_look.diagnosis import Stage


def stage(count: int, **metrics: float) -> Stage:
    made = Stage("grpo", {"objective": {"trust": {"low": 0.1}}})
    for step in range(1, count + 1):
        made.add({"step": step, "stage": "grpo", "reward": float(step), **metrics})
    return made


def test_first_last_before_and_ends() -> None:
    rows = stage(10)
    first, last, before = rows.first("reward", 3), rows.last("reward", 3), rows.before("reward", 3, skip=3)
    assert first is not None
    assert last is not None
    assert before is not None
    assert (list(first.values), list(last.values), list(before.values)) == ([1, 2, 3], [8, 9, 10], [5, 6, 7])
    assert rows.ends("reward", 5) is not None
    assert rows.ends("reward", 6) is None
    assert rows.last("kl", 1) is None


def test_a_metric_that_has_stopped_is_not_the_newest() -> None:
    rows = stage(3, kl=1.0)
    for step in range(4, 20):
        rows.add({"step": step, "reward": 0.0})
    assert rows.last("kl", 3) is None
    assert rows.first("kl", 3) is not None


def test_broken_rows_are_no_values() -> None:
    rows = stage(2)
    rows.add({"step": 3, "reward": None, "kl": float("nan"), "entropy": "high"})
    rows.add({"step": None, "reward": 4.0})
    reward = rows.first("reward", 3)
    assert reward is not None
    assert reward.values == [1, 2, 4]
    assert rows.count("kl") == rows.count("entropy") == 0


def test_a_row_of_an_evaluation_alone_counts_no_step() -> None:
    rows = stage(2)
    rows.add({"step": 2, "stage": "grpo", "eval/accuracy": 0.5})
    assert rows.num_steps == 2


def test_settings_by_dotted_key() -> None:
    assert stage(1).setting("trust.low") == 0.1
    assert stage(1).setting("trust.low.deeper") is None


def test_rewards_by_their_weight() -> None:
    rows = stage(1, **{"rewards/right/weight": 1.0, "rewards/judge/weight": 0.0})
    assert (rows.rewards(weighted=True), rows.rewards(weighted=False)) == (["right"], ["judge"])


def test_settings_that_are_no_table_set_nothing() -> None:
    for stages in (3, "grpo", [None, {"name": "grpo", "set": 7}], {"name": "grpo"}, None):
        assert Stage("grpo", {"stages": stages, "objective": {"trust": {"low": 0.2}}}).setting("trust.low") == 0.2


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
