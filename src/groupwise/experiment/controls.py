"""Gains of runs over their controls: paired differences, of one run or of several with different seeds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from groupwise.config import read_json
from groupwise.experiment.bounds import difference_bounds, score_bounds
from groupwise.experiment.held_out import HeldOut, evaluations, read_summary
from groupwise.experiment.statistics import Estimate, Scores, paired_difference
from groupwise.processes import is_first_process
from groupwise.runs import reward_weights, split_metric
from groupwise.runs.folder import RunFolder

Gains = dict[str, dict[str, Estimate]]
"""control -> metric of the evaluation -> the run's score minus the control's."""


def gains(runs: Mapping[int, Path]) -> Gains:
    """Estimates the gains of runs over their controls, prompt by prompt of the evaluation: of the deciding metric, and
    of every reward and judge that was recorded with it.

    Run and control begin at the same weights and are evaluated on the same prompts, so the influence of both cancels.
    The interval of a single run covers the choice of prompts only; that of several runs covers the seeds as well.

    Args:
        runs: seed -> run folder.

    Returns:
        estimates of `run - control`. Left out are controls that have not ended, metrics that run or control lacks, and
        differences that are 0 on every prompt, except that of the deciding metric.

    Example:
        >>> gains({0: Path("nowhere")})
        {}
    """
    names = dict.fromkeys(name for run in runs.values() for name in RunFolder(run).ended_controls)
    gains_by_control: Gains = {}
    for name in names:
        sides: dict[str, tuple[dict[int, Mapping[str, float]], dict[int, Mapping[str, float]]]] = {}
        for seed, run in runs.items():
            folder = RunFolder(run)
            if not (folder.has_ended and folder.control(name).has_ended):
                continue
            run_scores, control_scores = _scores(run, run), _scores(run, folder.control(name).path)
            for metric in run_scores.keys() & control_scores.keys():
                # A metric that is no mean over prompts has a single score, from which no interval can be computed.
                if len(run_scores[metric].keys() & control_scores[metric].keys()) > 1:
                    run_sides, control_sides = sides.setdefault(metric, ({}, {}))
                    run_sides[seed], control_sides[seed] = run_scores[metric], control_scores[metric]
        config = next((read_json(folder.config) for folder in map(RunFolder, runs.values()) if folder.is_run), {})
        first_metric = next((str(read_summary(run)["metric"]) for run in runs.values() if RunFolder(run).has_ended), "")
        ordered_metrics = sorted(sides, key=lambda metric: (metric != first_metric, metric))
        estimates = {metric: _difference(config, metric, *sides[metric]) for metric in ordered_metrics}
        gains_by_control[name] = {
            metric: estimate for metric, estimate in estimates.items() if metric == first_metric or not estimate.is_zero
        }
    return {name: estimates for name, estimates in gains_by_control.items() if estimates}


def _difference(config: Mapping[str, Any], metric: str, run: Scores, control: Scores) -> Estimate:
    bounds = score_bounds(
        config, metric, [score for side in (run, control) for scores in side.values() for score in scores.values()]
    )
    return paired_difference(run, control).within(difference_bounds(bounds))


def describe_gains(estimates: Mapping[str, Estimate], prompts: str) -> str:
    """Describes the differences between a run and a control in words.

    Args:
        estimates: metric -> the run's score minus the control's.
        prompts: a word for the evaluation's prompts, `EvaluatedOn.prompts`.

    Example:
        >>> from groupwise.experiment.spread import Spread
        >>> describe_gains(
        ...     {"restored/read": Estimate(0.1, 0.08, 0.12, Spread(0.0, 0.0001, 1, 597))}, "held-out prompts"
        ... )
        'above it by restored/read +0.1 [+0.08, +0.12]; 95 % over 597 held-out prompts'
    """
    first_estimate = next(iter(estimates.values()))
    differing = {metric: estimate for metric, estimate in estimates.items() if not estimate.is_zero}
    seeds = f"{first_estimate.num_seeds} seeds and " if first_estimate.num_seeds > 1 else ""
    sample = f"{seeds}{first_estimate.spread.num_prompts} {prompts}"
    sentences = [f"the same by {metric} on each of {sample}" for metric in estimates if metric not in differing]
    if differing:
        differences = ", ".join(
            f"{metric} {estimate.mean:+.3g} [{estimate.low:+.3g}, {estimate.high:+.3g}]"
            for metric, estimate in differing.items()
        )
        sentences.append(f"above it by {differences}; 95 % over {sample}")
    return "; ".join(sentences)


def write_gains(run: Path) -> dict[str, Any]:
    """Writes a run's gains over its controls into its `summary.json`, under `controls`, and returns the summary.

    Args:
        run: the folder of a run that has ended.
    """
    from groupwise.training.run.run_folder import write_json

    summary = read_summary(run)
    gains_by_control = gains({int(summary["seed"]): run})
    if gains_by_control:
        intervals = {
            name: {metric: [estimate.mean, estimate.low, estimate.high] for metric, estimate in estimates.items()}
            for name, estimates in gains_by_control.items()
        }
        summary = {**summary, "controls": intervals}
    if gains_by_control and is_first_process():
        write_json(RunFolder(run).summary, summary)
    return summary


def _scores(run: Path, folder: Path) -> dict[str, dict[str, float]]:
    """Returns metric -> prompt -> score, at the end of a run or of one of its controls."""
    summary = read_summary(folder)
    deciding_metric, step = summary.get("metric"), summary.get("steps")
    if deciding_metric is None or step is None:
        return {}
    records = evaluations(folder).get(step, [])
    mode, _ = split_metric(deciding_metric, records)
    names = dict.fromkeys(
        name for record in records if record.get("mode") == mode for name in record.get("rewards", {})
    )
    weights = reward_weights(read_json(RunFolder(run).config))
    metrics = dict.fromkeys([deciding_metric, *(f"{mode}/{name}" for name in names)])
    return {
        name: HeldOut(name, step, records, summary["after"] if name == deciding_metric else None).scores(weights)
        for name in metrics
    }
