from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from groupwise.runs import Run
from groupwise_look.report.results import Variant, results


def run(seed: int, before: Any, after: Any, *, ended: bool = True, **summary: Any) -> Run:
    table = {
        "metric": "greedy/right",
        "before": before,
        "after": after,
        "seconds": {"update": 3.0, "setup": 1.0},
        **summary,
    }
    rows = [
        {"step": 0, "eval/greedy/right": before, "step_time": 1.5},
        {"step": 5, "eval/greedy/right": after, "step_time": 1.5},
    ]
    return Run(
        Path(f"run-{seed}"), {"seed": seed}, [], table if ended else None, rows, "finished" if ended else "training", []
    )


def test_differences_are_of_runs_of_the_same_seed() -> None:
    first = Variant("a", (run(0, 0.1, 0.5), run(1, 0.2, 0.7)))
    second = Variant("b", (run(1, 0.2, 0.9), run(2, 0.0, 0.4)))
    first_result, second_result = results([first, second])
    assert first_result.differences == ()
    assert second_result.differences == pytest.approx((0.2,))
    assert first_result.gains == pytest.approx((0.4, 0.5))
    assert (first_result.mean("after"), first_result.deviation("after")) == pytest.approx((0.6, 0.02**0.5))
    assert second_result.deviation("differences") is None


def test_a_run_that_has_not_ended_counts_as_far_as_it_came() -> None:
    (row,) = results([Variant("a", (run(0, 0.1, 0.5), run(1, 0.2, 0.3, ended=False)))])
    assert row.after == (0.5, 0.3)
    assert row.before == (0.1, 0.2)
    assert row.seconds == (4.0, 3.0)
    assert row.states == ("finished", "training")


@pytest.mark.parametrize(("train", "metric"), [({}, "greedy/right"), ({"metric": "greedy/long"}, "greedy/long")])
def test_a_run_alone_that_has_not_ended_is_measured_as_it_will_be(train: dict[str, Any], metric: str) -> None:
    """Its page said that no evaluation had reported a metric, above their curves."""
    rows = [{"step": step, "eval/greedy/right": step / 10, "eval/greedy/long": 1.0} for step in (0, 5)]
    (row,) = results([Variant("a", (Run(Path("run"), {"train": train}, [], None, rows, "training", []),))])
    assert row.metric == metric
    assert (row.before, row.after) == (((0.0,), (0.5,)) if not train else ((1.0,), (1.0,)))


def test_a_score_that_a_summary_lacks_is_left_out() -> None:
    (row,) = results([Variant("a", (run(0, None, "good", baseline=None), run(1, 0.5, None, seconds=7)))])
    assert row.after == ()
    assert row.before == (0.5,)
    assert row.controls == ()
    assert (row.mean("after"), row.gains) == (None, ())


def test_other_metrics_are_not_subtracted() -> None:
    _, psnr_result = results([Variant("a", (run(0, 0.0, 1.0),)), Variant("b", (run(0, 0.0, 20.0, metric="psnr"),))])
    assert psnr_result.metric == "psnr"
    assert psnr_result.differences == ()
