from __future__ import annotations

from pathlib import Path
from typing import Any

from groupwise.runs import Run
from groupwise_look.report.results import differences, group_runs


def run(path: str | Path, **config: Any) -> Run:
    return Run(Path(path), config, [], None, [], "finished", [])


def names(*runs: Run) -> list[tuple[str, str]]:
    return [(variant.name, variant.seeds) for variant in group_runs(runs)]


def test_seeds_trackers_and_threads_make_no_variant() -> None:
    first_run = run("a", name="x", seed=1, track={"console": "none"}, train={"num_threads": 1, "num_steps": 3})
    second_run = run(
        "b",
        name="x",
        seed=0,
        track={"console": "auto"},
        train={"num_threads": 2, "num_steps": 3},
        description="other words",
    )
    assert names(first_run, second_run) == [("x", "0, 1")]


def test_a_method_is_named_without_the_objective_that_follows_from_it() -> None:
    grpo = run("a", name="x", method="grpo", objective={"name": "grpo", "trust": {"low": 0.2}})
    dapo = run("b", name="x", method="dapo", objective={"name": "dapo", "trust": {"low": 0.3}})
    assert [name for name, _ in names(grpo, dapo)] == ["grpo", "dapo"]
    edited = run("c", name="x", method="grpo", objective={"name": "grpo+edited", "trust": {"low": 0.4}})
    assert [name for name, _ in names(grpo, edited)] == ["trust.low=0.2", "trust.low=0.4"]
    assert [name for name, _ in names(dapo, grpo, edited)] == ["dapo", "grpo, trust.low=0.2", "grpo, trust.low=0.4"]


def test_many_differences_are_counted_and_equal_names_have_their_folders() -> None:
    first_run, second_run = (
        run(name, name="x", a=value, b=value, c=value, d=value, e=value) for name, value in (("p", 1), ("q", 2))
    )
    assert [name for name, _ in names(first_run, second_run)] == [
        "a=1, b=1, c=1 and 2 more",
        "a=2, b=2, c=2 and 2 more",
    ]
    assert [name for name, _ in names(run("p"), run("q"))] == ["p", "q"]
    assert [name for name, _ in names(run("p/run"), run("q/run"))] == ["run (p/run)", "run (q/run)"]


def test_the_runs_of_a_variant_of_a_comparison_are_one_variant(tmp_path: Path) -> None:
    (tmp_path / "comparison.json").write_text("{}")
    folders = [tmp_path / variant / f"seed-{seed}" for variant in ("method=grpo", "method=dapo") for seed in (0, 1)]
    runs = [
        run(folder, name="x", seed=place % 2, added_by_a_later_version=place) for place, folder in enumerate(folders)
    ]
    assert names(*runs) == [("method=grpo", "0, 1"), ("method=dapo", "0, 1")]


def test_differences_have_a_value_for_every_variant() -> None:
    variants = group_runs(
        [
            run("a", x=1, method="m", y={"z": [1]}),
            run("b", x=2, method="n", y={"z": [1]}),
            run("c", method="n", x=2, y={"z": [1], "w": 3}),
        ]
    )
    assert differences(variants) == {"method": ["m", "n", "n"], "x": [1, 2, 2], "y.w": [None, None, 3]}
