"""What a run gained over its controls: differences pair by pair, of one run or of several with different seeds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from groupwise.config import read_json
from groupwise.experiment.bounds import difference_bounds, score_bounds
from groupwise.experiment.held_out import HeldOut, evaluations, read_summary
from groupwise.experiment.statistics import Estimate, Scores, paired_difference
from groupwise.processes import is_first_process
from groupwise.runs import reward_weights
from groupwise.runs.folder import RunFolder

Gains = dict[str, dict[str, Estimate]]
"""control -> metric of the evaluation -> how much the run exceeds it."""


def gains(runs: Mapping[int, Path]) -> Gains:
    """How much runs exceed their controls, prompt by prompt of the evaluation: the deciding metric, and every reward
    and judge recorded beside it.

    Run and control begin at the same weights and are measured on the same prompts, so what those share cancels. Of one
    run the interval speaks of prompts only; several runs speak of seeds as well.

    Args:
        runs: seed -> run folder.

    Returns:
        estimates of `run - control`; a control that has not ended and a metric that one side lacks are left out, and so
        is a difference that is 0 throughout, unless it is that of the deciding metric.

    Example:
        >>> gains({0: Path("nowhere")})
        {}
    """
    names = dict.fromkeys(name for run in runs.values() for name in RunFolder(run).ended_controls)
    found: Gains = {}
    for name in names:
        sides: dict[str, tuple[dict[int, Mapping[str, float]], dict[int, Mapping[str, float]]]] = {}
        for seed, run in runs.items():
            folder = RunFolder(run)
            if not (folder.has_ended and folder.control(name).has_ended):
                continue
            own, other = _scores(run, run), _scores(run, folder.control(name).path)
            for metric in own.keys() & other.keys():
                # A metric that is no mean over prompts has one score, and one score has no interval.
                if len(own[metric].keys() & other[metric].keys()) > 1:
                    first, second = sides.setdefault(metric, ({}, {}))
                    first[seed], second[seed] = own[metric], other[metric]
        config = next((read_json(folder.config) for folder in map(RunFolder, runs.values()) if folder.is_run), {})
        first_metric = next((str(read_summary(run)["metric"]) for run in runs.values() if RunFolder(run).has_ended), "")
        listed = sorted(sides, key=lambda metric: (metric != first_metric, metric))
        estimates = {metric: _difference(config, metric, *sides[metric]) for metric in listed}
        found[name] = {metric: each for metric, each in estimates.items() if metric == first_metric or not each.is_zero}
    return {name: estimates for name, estimates in found.items() if estimates}


def _difference(config: Mapping[str, Any], metric: str, run: Scores, control: Scores) -> Estimate:
    bounds = score_bounds(
        config, metric, [score for side in (run, control) for scores in side.values() for score in scores.values()]
    )
    return paired_difference(run, control).within(difference_bounds(bounds))


def told(estimates: Mapping[str, Estimate], prompts: str) -> str:
    """Differences in words.

    Args:
        estimates: metric -> how much the run exceeds a control.
        prompts: what the evaluation asks, `EvaluatedOn.prompts`.

    Example:
        >>> from groupwise.experiment.spread import Spread
        >>> told({"restored/read": Estimate(0.1, 0.08, 0.12, Spread(0.0, 0.0001, 1, 597))}, "held-out prompts")
        'above it by restored/read +0.1 [+0.08, +0.12]; 95 % over 597 held-out prompts'
    """
    first = next(iter(estimates.values()))
    apart = {metric: each for metric, each in estimates.items() if not each.is_zero}
    redrawn = f"{f'{first.num_seeds} seeds and ' if first.num_seeds > 1 else ''}{first.spread.num_prompts} {prompts}"
    said = [f"the same by {metric} on each of {redrawn}" for metric in estimates if metric not in apart]
    if apart:
        listed = ", ".join(
            f"{metric} {each.mean:+.3g} [{each.low:+.3g}, {each.high:+.3g}]" for metric, each in apart.items()
        )
        said.append(f"above it by {listed}; 95 % over {redrawn}")
    return "; ".join(said)


def note(run: Path) -> dict[str, Any]:
    """Writes what a run gained over its controls into its `summary.json`, under `controls`, and returns the summary.

    Args:
        run: the folder of a run that has ended.
    """
    from groupwise.training.run.run_folder import write_json

    summary = read_summary(run)
    found = gains({int(summary["seed"]): run})
    if found and is_first_process():
        listed = {
            name: {metric: [each.mean, each.low, each.high] for metric, each in estimates.items()}
            for name, estimates in found.items()
        }
        summary = {**summary, "controls": listed}
        write_json(RunFolder(run).summary, summary)
    return summary


def _scores(run: Path, folder: Path) -> dict[str, dict[str, float]]:
    """Metric -> prompt -> score, at the end of a run or of one of its controls."""
    summary = read_summary(folder)
    metric, step = summary.get("metric"), summary.get("steps")
    if metric is None or step is None:
        return {}
    records = evaluations(folder).get(step, [])
    mode = metric.partition("/")[0]
    names = dict.fromkeys(
        name for record in records if record.get("mode") == mode for name in record.get("rewards", {})
    )
    weights = reward_weights(read_json(RunFolder(run).config))
    metrics = dict.fromkeys([metric, *(f"{mode}/{name}" for name in names)])
    return {
        each: HeldOut(each, step, records, summary["after"] if each == metric else None).scores(weights)
        for each in metrics
    }
