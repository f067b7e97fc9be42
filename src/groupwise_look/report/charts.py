"""The charts of a page: the metrics that it draws, their order and their titles."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from groupwise.runs import EvaluatedOn
from groupwise_look.report.axes import MOST_POINTS, downsample_curve, downsample_quantiles, round_significant
from groupwise_look.report.groups import Recorded
from groupwise_look.report.results import Variant, controls

LEVELS = (0.01, 0.05, 0.5, 0.95, 0.99)
_RATIO = ("ratio/p1", "ratio/p5", "ratio/p50", "ratio/p95", "ratio/p99")


@final
@dataclass(frozen=True)
class Section:
    """Charts under one heading.

    Args:
        title: heading of the section on the page.
        says: one sentence on how to read the charts.
        metric_titles: pairs of a pattern of metric names and a title, in order; `{}` in a title stands for the text
            that the pattern's group matched.
    """

    title: str
    says: str
    metric_titles: tuple[tuple[str, str], ...]


EVALUATED = "{}, evaluated"
"""The title of a metric of an evaluation; its first word is replaced where the runs state which prompts they
evaluate.
"""

SECTIONS = (
    Section(
        "Learning",
        "The reward while training, and the scores of the evaluations.",
        (
            (r"reward", "Reward"),
            (r"eval/(.+)", EVALUATED),
            (r"rewards/(.+)/mean", "Reward part: {}"),
            (r"logged/(.+)", "Logged by a reward: {}"),
            (r"reward_std", "Spread of rewards in a group"),
            (r"groups/(best|solved)", "Groups: {}"),
        ),
    ),
    Section(
        "Losses and divergences",
        "A policy loss near 0 on-policy is right: it is the gradient that counts, not its value.",
        (
            (r"loss", "Loss"),
            (r"loss_pg", "Policy loss"),
            (r"loss_kl", "Divergence term"),
            (r"loss_sup", "Supervised loss"),
            (r"loss_cons", "Consistency loss"),
            (r"loss_(.+)", "Loss: {}"),
            (r"kl", "Divergence from the reference"),
            (r"entropy", "Entropy"),
            (r"surprisal", "Surprisal of what was sampled"),
            (r"reference/distance", "Distance of weights from the reference"),
        ),
    ),
    Section(
        "Ratios and the trust region",
        "How far the policy moved on its own samples, and what the region cut off.",
        (
            (r"effective_sample_size", "Effective sample size"),
            (r"zero_gradient_fraction/(.+)", "Decisions without gradient: {} advantage"),
            (r"clip_ratio/(.+)_mean", "Beyond the region: {}"),
            (r"(?:\w+)/(.+variance\w*)", "{}"),
            (r"sampling/(.+)/mean", "Sampler against trainer: {}"),
        ),
    ),
    Section(
        "Groups and advantages",
        "A flat group, all of whose members earned the same, teaches nothing.",
        (
            (r"groups/flat", "Flat groups"),
            (r"groups/all_wrong", "Groups with every member wrong"),
            (r"groups/all_right", "Groups with every member right"),
            (r"groups/admitted", "Groups that train"),
            (r"advantages_std", "Standard deviation of advantages"),
            (r"rewards/(.+)/share", "Share in what is compared: {}"),
        ),
    ),
    Section(
        "Update",
        "What the optimiser did.",
        (
            (r"grad_norm", "Gradient norm before clipping"),
            (r"learning_rate", "Learning rate"),
            (r"updates/(.+)", "Updates {}"),
            (r"lambda_(.+)", "Weight of a term: {}"),
        ),
    ),
    Section(
        "Members",
        "How long they are, and how many a limit cut off.",
        (
            (r"completions/mean_length", "Mean length"),
            (r"completions/clipped_ratio", "Cut off by the limit"),
            (r"settings/(.+)", "Sampling setting: {}"),
        ),
    ),
    Section(
        "Time and memory",
        "Where the time of a step goes.",
        (
            (r"step_time", "Seconds a step"),
            (r"seconds/(.+)", "Seconds: {}"),
            (r"memory/(.+)", "Memory: {}"),
        ),
    ),
)
OTHER = Section(
    "Everything else",
    "Metrics of single methods, and those that repeat what stands above in another name.",
    ((r"(.+)", "{}"),),
)

MOST_FIRST = 6
FIRST = (
    "reward",
    "{decides}",
    "kl",
    "entropy",
    "groups/flat",
    "grad_norm",
    "completions/mean_length",
    "loss",
    "surprisal",
)
"""The metrics whose charts are shown first, as many as there are up to `MOST_FIRST`; all other charts are folded."""

_REPEATED = frozenset(("frac_reward_zero_std", "rewards_mean", "epoch", "step", *_RATIO))
"""Metrics that repeat another one under a second name, or that another chart contains."""


def sections(
    variants: Sequence[Variant], recorded: Sequence[Recorded]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Returns all charts of one or several variants, and the metrics that never change.

    Args:
        recorded: one record a variant, of the rollouts of all its runs together.

    Returns:
        sections for the page, and `{"metric", "values"}` for each constant, with one value a variant.
    """
    # Where many variants share a chart no reader sees single points: fewer points keep the page small.
    most_points = max(30, min(MOST_POINTS, 8 * MOST_POINTS // len(variants)))
    names = list(dict.fromkeys(name for variant in variants for name in variant.metrics))
    deciding = next((f"eval/{variant.metric}" for variant in variants if variant.metric), None)
    undrawn = dict.fromkeys(name for name in names if name not in _REPEATED)
    evaluated_on = EvaluatedOn.together(run.evaluated_on for variant in variants for run in variant.runs)
    constants: list[dict[str, Any]] = []
    page_sections = []
    for section in (*SECTIONS, OTHER):
        charts = _distributions(section, variants, recorded, most_points)
        lines = []
        for pattern, title in section.metric_titles:
            for name in [name for name in undrawn if re.fullmatch(pattern, name, re.DOTALL)]:
                del undrawn[name]
                matched = re.fullmatch(pattern, name, re.DOTALL)
                assert matched is not None
                title = evaluated_on.of("{}") if title is EVALUATED else title
                heading = title.format(*(group.replace("_", " ") for group in matched.groups()))
                heading = heading[:1].upper() + heading[1:]
                chart = _line(name, heading, variants, most_points)
                if chart is None:
                    continue
                if _constant(chart) and not name.startswith(("reward", "eval/", "loss", "groups/", "zero_gradient")):
                    constants.append({"metric": name, "values": _only_values(chart, len(variants))})
                else:
                    lines.append(chart)
        if section.title == "Learning":
            for chart in lines:
                if chart["metric"] == deciding:
                    chart["title"] += " (decides)"
                    chart["marks"] = _controls(variants, deciding)
        charts = [*charts, *lines]
        if charts:
            page_sections.append({"title": section.title, "says": section.says, "charts": charts})
    return _first(page_sections, deciding), constants


def _first(page_sections: list[dict[str, Any]], deciding: str | None) -> list[dict[str, Any]]:
    """Moves the charts that a reader looks at first out of their sections, to the top of the page."""
    charts = {chart["metric"]: chart for section in page_sections for chart in section["charts"]}
    chosen = [deciding if name == "{decides}" else name for name in FIRST]
    first = [charts[name] for name in chosen if name in charts][:MOST_FIRST]
    for section in page_sections:
        section |= {"charts": [chart for chart in section["charts"] if chart not in first], "folded": bool(first)}
    shown = {"title": "First", "says": SECTIONS[0].says, "charts": first, "folded": False}
    return [section for section in (shown, *page_sections) if section["charts"]]


def stages(variants: Sequence[Variant]) -> list[dict[str, Any]]:
    """Returns the first step of every stage, `{"step", "name", "variant", "folded"}`, read from the first run of each
    variant.

    A variant whose run has one stage adds nothing. Stages without rewards, such as a supervised warm-up, are folded
    beside stages with rewards.
    """
    stage_starts = []
    for variant_index, variant in enumerate(variants):
        first_steps: dict[str, int] = {}
        rewarded: set[str] = set()
        for row in variant.runs[0].rows:
            if not isinstance(name := row.get("stage"), str):
                continue
            first_steps.setdefault(name, int(row["step"]))
            if "reward" in row:
                rewarded.add(name)
        if len(first_steps) > 1:
            for name, step in first_steps.items():
                folded = bool(rewarded) and name not in rewarded
                stage_starts.append({"step": step, "name": name, "variant": variant_index, "folded": folded})
    return stage_starts


def time_split(variants: Sequence[Variant]) -> list[dict[str, Any]]:
    """Returns the wall seconds of each part of training, as means over a variant's runs.

    Parts that take less than a thousandth of the total are left out.
    """
    splits = []
    for variant_index, variant in enumerate(variants):
        totals: Counter[str] = Counter()
        for run in variant.runs:
            totals.update(_seconds(run.summary, run.rows))
        means = {part: seconds / len(variant.runs) for part, seconds in totals.most_common()}
        total_seconds = sum(means.values())
        if total_seconds > 0:
            parts = [[part, round_significant(mean)] for part, mean in means.items() if mean > total_seconds / 1000]
            splits.append({"variant": variant_index, "seconds": round_significant(total_seconds), "parts": parts})
    return splits


def _seconds(summary: Mapping[str, Any] | None, rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    summary_seconds = (summary or {}).get("seconds")
    if isinstance(summary_seconds, Mapping):
        return {str(part): float(value) for part, value in summary_seconds.items() if isinstance(value, int | float)}
    seconds_by_part: dict[str, float] = defaultdict(float)
    for row in rows:
        for name, value in row.items():
            if name.startswith("seconds/") and isinstance(value, int | float):
                seconds_by_part[name.removeprefix("seconds/")] += value
    return seconds_by_part


def _line(name: str, title: str, variants: Sequence[Variant], most_points: int) -> dict[str, Any] | None:
    curves = [downsample_curve(variant.series(name), most_points) for variant in variants]
    series = [{"variant": index, **curve} for index, curve in enumerate(curves) if curve is not None]
    return {"kind": "line", "metric": name, "title": title, "series": series} if series else None


def _distributions(
    section: Section, variants: Sequence[Variant], recorded: Sequence[Recorded], most_points: int
) -> list[dict[str, Any]]:
    if section.title == "Ratios and the trust region":
        says = "percentiles 1, 5, 50, 95, 99 over decisions"
        return [_fan("ratio/p*", "Ratios", says, [_ratios(variant, most_points) for variant in variants])]
    source = {
        "Groups and advantages": ("advantage", "Advantages", "advantages"),
        "Learning": ("reward of members", "Rewards of members", "rewards"),
    }
    if section.title not in source:
        return []
    metric, title, field = source[section.title]
    fans = [downsample_quantiles(getattr(rollouts, field), LEVELS, most_points) for rollouts in recorded]
    return [_fan(metric, title, "percentiles 1, 5, 50, 95, 99 over recorded members", fans)] if any(fans) else []


def _fan(metric: str, title: str, says: str, fans: Sequence[dict[str, Any] | None]) -> dict[str, Any]:
    return {
        "kind": "fan",
        "metric": metric,
        "title": title,
        "says": says,
        "series": [{"variant": variant_index, **fan} for variant_index, fan in enumerate(fans) if fan],
    }


def _ratios(variant: Variant, most_points: int) -> dict[str, Any] | None:
    """Returns the percentiles of the ratio over steps.

    Where steps or runs share a point, an outer percentile is the outermost of them and the median is their mean.
    """
    curves = [downsample_curve(variant.series(name), most_points) for name in _RATIO]
    if any(curve is None for curve in curves):
        return None
    sides = ("low", "low", "mean", "high", "high")
    outer = {"low": "run_low", "high": "run_high", "mean": "mean"}
    columns = [
        curve.get(side, curve.get(outer[side], curve["mean"]))
        for side, curve in zip(sides, curves, strict=True)
        if curve is not None
    ]
    length = min(map(len, columns))
    first_curve = curves[0]
    assert first_curve is not None
    return {"step": first_curve["step"][:length], "quantiles": [column[:length] for column in columns]}


def _constant(chart: Mapping[str, Any]) -> bool:
    return all(
        len(set(values)) <= 1
        for series in chart["series"]
        for name, values in series.items()
        if name in ("mean", "low", "high", "run_low", "run_high")
    ) and all("run_low" not in series or series["run_low"] == series["run_high"] for series in chart["series"])


def _only_values(chart: Mapping[str, Any], count: int) -> list[float | None]:
    values: list[float | None] = [None] * count
    for series in chart["series"]:
        values[series["variant"]] = series["mean"][0]
    return values


def _controls(variants: Sequence[Variant], metric: str | None) -> list[dict[str, Any]]:
    """Returns the score of every control with its name, the lowest first."""
    return [
        {"variant": variant_index, "value": round_significant(control.score), "name": control.name}
        for variant_index, variant in enumerate(variants)
        for control in sorted(controls(variant.runs, metric), key=lambda control: control.score)
    ]
