"""The figures of source 000's paper support: variance reduction, comparison of beta, stability, gains. PDF with letters
as letters, and PNG.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from groupwise.config import ConfigError, flatten
from groupwise.report.results import results
from groupwise.report.thin import thin_curve
from groupwise.report.variants import Variant
from groupwise.runs import EvaluatedOn

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_INCHES = 6.75
"""Of a figure across two columns."""
COLOURS = ("#1f6feb", "#cf5b0f", "#16804a", "#8a3fc9", "#c2255c", "#0b7285", "#8a6100", "#5c677d")
_STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "grid.linewidth": 0.4,
    "grid.color": "#dfe3e8",
    "lines.linewidth": 1.2,
    "pdf.fonttype": 42,
    "savefig.dpi": 200,
}
_MOST_POINTS = 200
_LONGEST_NAME = 36


def write_figures(variants: Sequence[Variant], folder: Path) -> tuple[list[Path], list[str]]:
    """Every figure that the runs have numbers for, each as PDF and PNG.

    Args:
        variants: at least one.
        folder: made when it is not there; figures of the same names are replaced.

    Returns:
        the files, and a sentence for each figure that could not be made.

    Raises:
        ConfigError: the folder cannot be written.
    """
    makers: dict[str, Callable[[Sequence[Variant]], Figure | str]] = {
        "variance_reduction": variance_reduction,
        "beta_comparison": beta_comparison,
        "stability": stability,
        "gains": gains,
    }
    written, left_out = [], []
    with _style():
        for name, maker in makers.items():
            made = maker(variants)
            if isinstance(made, str):
                left_out.append(f"{name}: {made}")
                continue
            for suffix in (".pdf", ".png"):
                path = folder / f"{name}{suffix}"
                try:
                    folder.mkdir(parents=True, exist_ok=True)
                    # Without a date the same runs give the same file.
                    made.savefig(
                        path, bbox_inches="tight", metadata={"CreationDate": None} if suffix == ".pdf" else None
                    )
                except OSError as error:
                    raise ConfigError(
                        f"{path} cannot be written ({error.strerror}); give another place with --out"
                    ) from None
                written.append(path)
    return written, left_out


def variance_reduction(variants: Sequence[Variant]) -> Figure | str:
    """The variance of ratios before and after smoothing, and by which share it fell (innovation 2.1).

    Args:
        variants: those that smooth are drawn.

    Returns:
        a figure, or why there is none.
    """
    smoothing = [
        (place, variant) for place, variant in enumerate(variants) if variant.series("ema/smoothed_weights_variance")
    ]
    if not smoothing:
        return "no run smoothed its ratios; train one with method=ema"
    figure, (left, right) = _panels(2)
    for place, variant in smoothing:
        _curve(left, variant, "ema/raw_weights_variance", place, label=f"{variant.name}: raw", dashed=True)
        _curve(left, variant, "ema/smoothed_weights_variance", place, label=f"{variant.name}: smoothed")
        _curve(right, variant, "ema/variance_reduction_ratio", place, label=variant.name)
    if all(value > 0 for line in left.get_lines() for value in line.get_ydata()):
        left.set_yscale("log")
    _said(left, "Variance of the ratios", "step", "variance over decisions")
    _said(right, "Variance reduction", "step", "share of the variance taken away")
    return figure


def beta_comparison(variants: Sequence[Variant]) -> Figure | str:
    """Variance reduction and the score by the smoothing's beta.

    Args:
        variants: those that smooth are drawn, each seed as a point.

    Returns:
        a figure, or why there is none.
    """
    by_beta = {}
    for variant in variants:
        settings = flatten(variant.runs[0].config)
        beta = settings.get("objective.smoothing.beta")
        if isinstance(beta, int | float) and settings.get("objective.smoothing.kind") == "ema":
            by_beta.setdefault(float(beta), []).append(variant)
    if len(by_beta) < 2:
        return (
            f"these runs have {len(by_beta)} values of smoothing.beta; compare some with --vary method=ema --vary"
            " smoothing.beta=0.5,0.7,0.9"
        )
    figure, (left, right) = _panels(2)
    betas = sorted(by_beta)
    metric = next(
        (result.metric for result in results([each for own in by_beta.values() for each in own]) if result.metric), None
    )
    for axes, values in (
        (
            left,
            {
                beta: [mean(own) for each in by_beta[beta] for _, own in each.series("ema/variance_reduction_ratio")]
                for beta in betas
            },
        ),
        (right, {beta: [value for result in results(by_beta[beta]) for value in result.after] for beta in betas}),
    ):
        known = [beta for beta in betas if values[beta]]
        axes.plot(
            known, [mean(values[beta]) for beta in known], color=COLOURS[0], marker="o", markersize=4, label="mean"
        )
        axes.scatter(
            [beta for beta in known for _ in values[beta]],
            [value for beta in known for value in values[beta]],
            s=9,
            color=COLOURS[0],
            alpha=0.45,
            label="each seed",
        )
    _said(left, "Variance reduction", "smoothing.beta", "share, mean over steps")
    _said(right, _capital(_evaluated_on(variants).of("score")) + " at the end", "smoothing.beta", metric or "score")
    return figure


def stability(variants: Sequence[Variant]) -> Figure | str:
    """Reward, score, gradient norm and the spread of ratios over steps, with the seeds' spread.

    Args:
        variants: any.

    Returns:
        a figure, or why there is none.
    """
    metric = next((variant.metric for variant in variants if variant.metric), None)
    wanted = [
        ("reward", "Reward", "mean reward"),
        (f"eval/{metric}", _capital(_evaluated_on(variants).of("score")), metric or ""),
        ("grad_norm", "Gradient norm", "norm before clipping"),
        ("effective_sample_size", "Effective sample size", "share of decisions"),
        ("kl", "Divergence from the reference", "nats a decision"),
        ("groups/flat", "Flat groups", "share of groups"),
    ]
    there = [each for each in wanted if any(_varies(variant, each[0]) for variant in variants)][:4]
    if not there:
        return "the runs have no curves"
    figure, panels = _panels(len(there))
    for axes, (name, title, unit) in zip(panels, there, strict=True):
        for place, variant in enumerate(variants):
            _curve(axes, variant, name, place, label=variant.name)
        if name == "grad_norm" and all(value > 0 for line in axes.get_lines() for value in line.get_ydata()):
            axes.set_yscale("log")
        _said(axes, title, "step", unit, legend=axes is panels[0] and len(variants) > 1)
    return figure


def gains(variants: Sequence[Variant]) -> Figure | str:
    """The score before and after training, variant by variant, each seed as a point.

    Args:
        variants: any.

    Returns:
        a figure, or why there is none.
    """
    from matplotlib.figure import Figure

    rows = [result for result in results(variants) if result.after]
    if not rows:
        return "no run has a score of an evaluation"
    figure = Figure(figsize=(WIDTH_INCHES, 0.9 + 0.34 * len(rows)), layout="constrained")
    axes = figure.subplots()
    for place, result in enumerate(rows):
        height, colour = len(rows) - 1 - place, COLOURS[place % len(COLOURS)]
        axes.barh(height, mean(result.after), height=0.62, color=colour, alpha=0.25)
        axes.scatter(result.after, [height] * len(result.after), s=12, color=colour, zorder=3)
        if result.before:
            start = mean(result.before)
            axes.plot([start, start], [height - 0.31, height + 0.31], color="#1b1f24", linewidth=1)
        for control, style in zip(result.controls, cycle((":", "--", "-."))):
            level = control.score
            axes.plot([level, level], [height - 0.31, height + 0.31], color="#1b1f24", linewidth=1, linestyle=style)
        axes.text(1.01, height, f"{mean(result.after):.3g}", transform=axes.get_yaxis_transform(), va="center")
    axes.set_yticks(range(len(rows)), [_plain(result.name) for result in reversed(rows)])
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(
        f"{_evaluated_on(variants).of(rows[0].metric or 'score')}: bar and number the mean after training, points the"
        " seeds, line before"
        + "".join(
            f", {line} control {_plain(control.name)}"
            for control, line in zip(rows[0].controls, cycle(("dotted", "dashed", "dash-dotted")))
        )
    )
    return figure


def _evaluated_on(variants: Sequence[Variant]) -> EvaluatedOn:
    return EvaluatedOn.together(run.evaluated_on for variant in variants for run in variant.runs)


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


@contextmanager
def _style() -> Iterator[None]:
    import matplotlib

    with matplotlib.rc_context(_STYLE):
        yield


def _panels(number: int) -> tuple[Figure, list[Any]]:
    from matplotlib.figure import Figure

    rows = 1 if number < 3 else 2
    figure = Figure(figsize=(WIDTH_INCHES, 2.3 * rows), layout="constrained")
    panels = figure.subplots(rows, (number + rows - 1) // rows, squeeze=False).ravel().tolist()
    for axes in panels[number:]:
        axes.remove()
    return figure, panels[:number]


def _varies(variant: Variant, name: str) -> bool:
    return len({value for _, values in variant.series(name) for value in values}) > 1


def _curve(axes: Axes, variant: Variant, name: str, place: int, *, label: str, dashed: bool = False) -> None:
    curve = thin_curve(variant.series(name), _MOST_POINTS)
    if curve is None:
        return
    colour = COLOURS[place % len(COLOURS)]
    axes.plot(
        curve["step"],
        curve["mean"],
        color=colour,
        linestyle="--" if dashed or place >= len(COLOURS) else "-",
        label=_plain(label),
    )
    if "run_low" in curve:
        axes.fill_between(curve["step"], curve["run_low"], curve["run_high"], color=colour, alpha=0.15, linewidth=0)


def _said(axes: Axes, title: str, across: str, up: str, *, legend: bool = True) -> None:
    axes.set_title(title)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    if legend and axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False)


def _plain(text: str) -> str:
    """A name as it stands, its middle left out where it is long: a dollar sign would begin mathematics, and no panel
    would be left beside a long name.
    """
    short = text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME // 2]}…{text[-_LONGEST_NAME // 2 + 1 :]}"
    return " ".join(short.split()).replace("$", r"\$")
