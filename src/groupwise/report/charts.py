"""Which numbers a page draws, in which order, and under which words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from groupwise.report.controls import controls
from groupwise.report.groups import Recorded
from groupwise.report.thin import MOST_POINTS, thin_curve, thin_quantiles, tidy
from groupwise.report.variants import Variant
from groupwise.runs import EvaluatedOn

LEVELS = (0.01, 0.05, 0.5, 0.95, 0.99)
_RATIO = ("ratio/p1", "ratio/p5", "ratio/p50", "ratio/p95", "ratio/p99")


@final
@dataclass(frozen=True)
class Section:
    """Charts under one heading.

    Args:
        title: the heading.
        says: one sentence on how to read them.
        wanted: patterns of metric names with a title each, in order; `{}` in a title is what the pattern's group
            matched.
    """

    title: str
    says: str
    wanted: tuple[tuple[str, str], ...]


EVALUATED = "{}, evaluated"
"""The title of what an evaluation measured, before it is known whether that was trained on."""

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

_REPEATED = frozenset(("frac_reward_zero_std", "rewards_mean", "epoch", "step", *_RATIO))
"""Other names of what is drawn already."""


def sections(
    variants: Sequence[Variant], recorded: Sequence[Recorded]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """All charts of some variants, and the metrics that never change.

    Args:
        variants: at least one.
        recorded: what the rollouts of each variant hold, all its runs together.

    Returns:
        sections for the page, and `{"metric", "values"}` for each constant, one value a variant.
    """
    # Of many variants nobody reads single points, and the page stays small.
    most = max(30, min(MOST_POINTS, 8 * MOST_POINTS // len(variants)))
    names = list(dict.fromkeys(name for variant in variants for name in variant.metrics))
    deciding = next((f"eval/{variant.metric}" for variant in variants if variant.metric), None)
    left = dict.fromkeys(name for name in names if name not in _REPEATED)
    evaluated_on = EvaluatedOn.together(run.evaluated_on for variant in variants for run in variant.runs)
    constants: list[dict[str, Any]] = []
    found = []
    for section in (*SECTIONS, OTHER):
        charts = _distributions(section, variants, recorded, most)
        lines = []
        for pattern, title in section.wanted:
            for name in [name for name in left if re.fullmatch(pattern, name, re.DOTALL)]:
                del left[name]
                matched = re.fullmatch(pattern, name, re.DOTALL)
                assert matched is not None
                title = evaluated_on.of("{}") if title is EVALUATED else title
                words = title.format(*(group.replace("_", " ") for group in matched.groups()))
                words = words[:1].upper() + words[1:]
                chart = _line(name, words, variants, most)
                if chart is None:
                    continue
                if _constant(chart) and not name.startswith(("reward", "eval/", "loss", "groups/", "zero_gradient")):
                    constants.append({"metric": name, "values": _only_values(chart, len(variants))})
                else:
                    lines.append(chart)
        # What a summary calls the result stands beside the reward.
        lines.sort(key=lambda chart: 0 if chart["metric"] == "reward" else 1 if chart["metric"] == deciding else 2)
        if section.title == "Learning":
            for chart in lines:
                if chart["metric"] == deciding:
                    chart["title"] += " (decides)"
                    chart["marks"] = _controls(variants, deciding)
            charts = [*lines[:2], *charts, *lines[2:]]
        else:
            charts = [*charts, *lines]
        if charts:
            found.append({"title": section.title, "says": section.says, "charts": charts, "folded": section is OTHER})
    return found, constants


def stages(variants: Sequence[Variant]) -> list[dict[str, Any]]:
    """Where stages begin, as the first run of each variant has it: `{"step", "name", "variant"}`; a run of one stage
    has none to show.

    Args:
        variants: any.
    """
    found = []
    for place, variant in enumerate(variants):
        begun: dict[str, int] = {}
        for row in variant.runs[0].rows:
            if isinstance(name := row.get("stage"), str) and name not in begun:
                begun[name] = int(row["step"])
        if len(begun) > 1:
            found += [{"step": step, "name": name, "variant": place} for name, step in begun.items()]
    return found


def time_split(variants: Sequence[Variant]) -> list[dict[str, Any]]:
    """Wall seconds by part, the mean over a variant's runs; parts that take less than a thousandth are left out.

    Args:
        variants: any.
    """
    found = []
    for place, variant in enumerate(variants):
        totals: dict[str, list[float]] = {}
        for run in variant.runs:
            for part, seconds in _seconds(run.summary, run.rows).items():
                totals.setdefault(part, []).append(seconds)
        means = {part: sum(seconds) / len(variant.runs) for part, seconds in totals.items()}
        whole = sum(means.values())
        if whole > 0:
            parts = sorted(
                ((part, seconds) for part, seconds in means.items() if seconds > whole / 1000),
                key=lambda each: -each[1],
            )
            found.append(
                {"variant": place, "seconds": tidy(whole), "parts": [[part, tidy(seconds)] for part, seconds in parts]}
            )
    return found


def _seconds(summary: Mapping[str, Any] | None, rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    given = (summary or {}).get("seconds")
    if isinstance(given, Mapping):
        return {str(part): float(value) for part, value in given.items() if isinstance(value, int | float)}
    found: dict[str, float] = {}
    for row in rows:
        for name, value in row.items():
            if name.startswith("seconds/") and isinstance(value, int | float):
                found[name.removeprefix("seconds/")] = found.get(name.removeprefix("seconds/"), 0.0) + value
    return found


def _line(name: str, title: str, variants: Sequence[Variant], most: int) -> dict[str, Any] | None:
    series = []
    for place, variant in enumerate(variants):
        curve = thin_curve(variant.series(name), most)
        if curve is not None:
            series.append({"variant": place, **curve})
    return {"kind": "line", "metric": name, "title": title, "series": series} if series else None


def _distributions(
    section: Section, variants: Sequence[Variant], recorded: Sequence[Recorded], most: int
) -> list[dict[str, Any]]:
    if section.title == "Ratios and the trust region":
        return [
            _fan(
                "ratio/p*",
                "Ratios",
                "percentiles 1, 5, 50, 95, 99 over decisions",
                [_ratios(variant, most) for variant in variants],
            )
        ]
    source = {
        "Groups and advantages": ("advantage", "Advantages", "advantages"),
        "Learning": ("reward of members", "Rewards of members", "rewards"),
    }
    if section.title not in source:
        return []
    metric, title, field = source[section.title]
    fans = [thin_quantiles(getattr(each, field), LEVELS, most) for each in recorded]
    return [_fan(metric, title, "percentiles 1, 5, 50, 95, 99 over recorded members", fans)] if any(fans) else []


def _fan(metric: str, title: str, says: str, fans: Sequence[dict[str, Any] | None]) -> dict[str, Any]:
    return {
        "kind": "fan",
        "metric": metric,
        "title": title,
        "says": says,
        "series": [{"variant": place, **fan} for place, fan in enumerate(fans) if fan],
    }


def _ratios(variant: Variant, most: int) -> dict[str, Any] | None:
    """The outermost of the outer percentiles and the mean of the median, where steps or runs share a point."""
    curves = [thin_curve(variant.series(name), most) for name in _RATIO]
    if any(curve is None for curve in curves):
        return None
    pick = ("low", "low", "mean", "high", "high")
    outer = {"low": "run_low", "high": "run_high", "mean": "mean"}
    columns = [
        curve.get(side, curve.get(outer[side], curve["mean"]))
        for side, curve in zip(pick, curves, strict=True)
        if curve is not None
    ]
    length = min(map(len, columns))
    first = curves[0]
    assert first is not None
    return {"step": first["step"][:length], "quantiles": [column[:length] for column in columns]}


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
    """The scores of the controls, each by its name."""
    return [
        {"variant": place, "value": tidy(control.score), "name": control.name}
        for place, variant in enumerate(variants)
        for control in sorted(controls(variant.runs, metric), key=lambda control: control.score)
    ]
