"""What runs gained over their controls, read from folders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from groupwise_look.compare.comparison import describe_gains, gains, write_gains


def finish(folder: Path, read: dict[str, float], judge: dict[str, float], score_after: float) -> None:
    (folder / "rollouts").mkdir(parents=True)
    records = [{"key": key, "mode": "restored", "rewards": {"read": read[key], "judge": judge[key]}} for key in read]
    (folder / "rollouts" / "evaluation-4.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (folder / "summary.json").write_text(
        json.dumps({"metric": "restored/read", "after": score_after, "steps": 4, "seed": 0})
    )


def run_folder(folder: Path, gain: float) -> Path:
    base = {"a": 0.0, "b": 1.0, "c": 0.5}
    finish(folder, {key: value + gain for key, value in base.items()}, base, 0.5 + gain)
    (folder / "config.json").write_text(
        json.dumps({"domain": {"rewards": {"read": {"weight": 1.0}, "judge": {"role": "judge"}}}})
    )
    finish(folder / "controls" / "more", base, dict(reversed([("a", 0.5), ("b", 1.0), ("c", 0.0)])), 0.5)
    return folder


def test_differences_are_taken_prompt_by_prompt_the_deciding_metric_first(tmp_path: Path) -> None:
    estimates = gains({0: run_folder(tmp_path / "run", 0.25)})["more"]
    assert list(estimates) == ["restored/read", "restored/judge"]
    assert (
        estimates["restored/read"].mean,
        estimates["restored/read"].low,
        estimates["restored/read"].high,
    ) == pytest.approx((0.25, 0.25, 0.25))
    # -0.5, 0 and 0.5: nothing on the mean, something in between.
    judge = estimates["restored/judge"]
    assert judge.mean == 0.0
    assert judge.low < -0.2
    assert judge.high > 0.2


def test_several_seeds_are_one_estimate(tmp_path: Path) -> None:
    estimate = gains({seed: run_folder(tmp_path / str(seed), gain) for seed, gain in enumerate((0.1, 0.2, 0.3))})[
        "more"
    ]["restored/read"]
    assert (estimate.mean, estimate.num_seeds) == (pytest.approx(0.2), 3)
    # t of two degrees of freedom (4.303) times 0.1 / sqrt(3).
    assert estimate.high - estimate.mean == pytest.approx(4.303 * 0.1 / 3**0.5, rel=0.25)
    assert describe_gains({"restored/read": estimate}, "held-out prompts").endswith(
        "95 % over 3 seeds and 3 held-out prompts"
    )


def test_a_control_that_does_as_well_is_said_to(tmp_path: Path) -> None:
    estimates = gains({0: run_folder(tmp_path / "run", 0.0)})["more"]
    assert (estimates["restored/read"].mean, estimates["restored/read"].low, estimates["restored/read"].high) == (
        0.0,
        0.0,
        0.0,
    )
    sentence = describe_gains(estimates, "training prompts")
    assert sentence.startswith(
        "the same by restored/read on each of 3 training prompts; above it by restored/judge +0 ["
    )


def test_the_summary_keeps_them(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run", 0.25)
    summary = write_gains(run)
    assert json.loads((run / "summary.json").read_text()) == summary
    assert summary["controls"]["more"]["restored/read"] == pytest.approx([0.25, 0.25, 0.25])


def test_without_controls_nothing_is_written(tmp_path: Path) -> None:
    finish(tmp_path, {"a": 1.0}, {"a": 1.0}, 1.0)
    (tmp_path / "config.json").write_text("{}")
    summary = (tmp_path / "summary.json").read_text()
    assert "controls" not in write_gains(tmp_path)
    assert (tmp_path / "summary.json").read_text() == summary


def test_a_control_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run", 0.25)
    (run / "controls" / "more" / "summary.json").unlink()
    assert gains({0: run}) == {}
