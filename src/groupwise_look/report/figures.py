"""The figures of source 000's paper support: variance reduction, comparison of beta, stability, gains. PDF with letters
as letters, and PNG.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from groupwise.config import ConfigError, flatten
from groupwise.runs import EvaluatedOn, read_lines
from groupwise_look.report.axes import downsample_curve
from groupwise_look.report.results import Variant, results

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_INCHES = 6.75
"""Width of a figure across two columns of a paper."""
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
    """Writes every figure for which the runs have numbers, as PDF and as PNG.

    Args:
        folder: created where it does not exist; figures of the same names are replaced.

    Returns:
        the files, and a sentence on each figure that could not be drawn.

    Raises:
        ConfigError: the folder cannot be written.
    """
    makers: dict[str, Callable[[Sequence[Variant]], Figure | str]] = {
        "variance_reduction": variance_reduction,
        "beta_comparison": beta_comparison,
        "stability": stability,
        "gains": gains,
    }
    paths, left_out = [], []
    with _style():
        for name, maker in makers.items():
            figure = maker(variants)
            if isinstance(figure, str):
                left_out.append(f"{name}: {figure}")
                continue
            for suffix in (".pdf", ".png"):
                path = folder / f"{name}{suffix}"
                try:
                    folder.mkdir(parents=True, exist_ok=True)
                    # Without a date the same runs give the same file.
                    figure.savefig(
                        path, bbox_inches="tight", metadata={"CreationDate": None} if suffix == ".pdf" else None
                    )
                except OSError as error:
                    raise ConfigError(
                        f"{path} cannot be written ({error.strerror}); give another place with --out"
                    ) from None
                paths.append(path)
    return paths, left_out


def write_curves(path: Path) -> Path:
    """Draws source 003's three curves of a run into `curves.png`.

    Args:
        path: the folder of the run.

    Returns:
        the file.

    Raises:
        ConfigError: it cannot be written.
    """
    file = path / "curves.png"
    with _style():
        figure = curves(read_lines(path / "metrics.jsonl").rows)
        try:
            figure.savefig(file, bbox_inches="tight")
        except OSError as error:
            raise ConfigError(f"{file} cannot be written ({error.strerror})") from None
    return file


def curves(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Draws the mean raw reward, the mean normalised reward and the total loss over steps.

    Args:
        rows: of `metrics.jsonl`.
    """
    named = (("reward", "Raw reward"), ("advantages_mean", "Normalised reward"), ("loss", "Total loss"))
    figure, panels = _panels(len(named))
    for axes, (name, title) in zip(panels, named, strict=True):
        points = [(row["step"], row[name]) for row in rows if name in row]
        axes.plot([step for step, _ in points], [value for _, value in points], color=COLOURS[0])
        _label_axes(axes, title, "step", "mean", legend=False)
    return figure


def variance_reduction(variants: Sequence[Variant]) -> Figure | str:
    """Draws the variance of ratios before and after smoothing, and the share by which it fell (innovation 2.1).

    Args:
        variants: only those that smooth their ratios are drawn.

    Returns:
        a figure, or the reason why there is none.
    """
    smoothed = "ema/smoothed_weights_variance"
    smoothing = [(place, variant) for place, variant in enumerate(variants) if variant.series(smoothed)]
    if not smoothing:
        return "no run smoothed its ratios; train one with method=ema"
    figure, (left, right) = _panels(2)
    for place, variant in smoothing:
        _curve(left, variant, "ema/raw_weights_variance", place, label=f"{variant.name}: raw", dashed=True)
        _curve(left, variant, smoothed, place, label=f"{variant.name}: smoothed")
        _curve(right, variant, "ema/variance_reduction_ratio", place, label=variant.name)
    if all(value > 0 for line in left.get_lines() for value in line.get_ydata()):
        left.set_yscale("log")
    _label_axes(left, "Variance of the ratios", "step", "variance over decisions")
    _label_axes(right, "Variance reduction", "step", "share of the variance taken away")
    return figure


def beta_comparison(variants: Sequence[Variant]) -> Figure | str:
    """Draws the variance reduction and the score over the smoothing's beta, each seed as a point.

    Args:
        variants: only those that smooth their ratios are drawn.

    Returns:
        a figure, or the reason why there is none.
    """
    by_beta, reduction = {}, "ema/variance_reduction_ratio"
    for variant in variants:
        settings = flatten(variant.runs[0].config)
        beta = settings.get("smoothing.beta")
        # A warm-up has the settings and smooths nothing.
        if isinstance(beta, int | float) and variant.series(reduction):
            by_beta.setdefault(float(beta), []).append(variant)
    if len(by_beta) < 2:
        return (
            f"these runs have {len(by_beta)} values of smoothing.beta; compare some with --vary method=ema --vary"
            " smoothing.beta=0.5,0.7,0.9"
        )
    figure, (left, right) = _panels(2)
    betas = sorted(by_beta)
    metric = next((result.metric for beta in betas for result in results(by_beta[beta]) if result.metric), None)
    reductions = {
        beta: [mean(values) for variant in by_beta[beta] for _, values in variant.series(reduction)] for beta in betas
    }
    scores = {beta: [value for result in results(by_beta[beta]) for value in result.after] for beta in betas}
    for axes, values in ((left, reductions), (right, scores)):
        drawn = [beta for beta in betas if values[beta]]
        means = [mean(values[beta]) for beta in drawn]
        points = [(beta, value) for beta in drawn for value in values[beta]]
        axes.plot(drawn, means, color=COLOURS[0], marker="o", markersize=4, label="mean")
        axes.scatter(*zip(*points), s=9, color=COLOURS[0], alpha=0.45, label="each seed") if points else None
    _label_axes(left, "Variance reduction", "smoothing.beta", "share, mean over steps")
    _label_axes(
        right, _capital(_evaluated_on(variants).of("score")) + " at the end", "smoothing.beta", metric or "score"
    )
    return figure


def stability(variants: Sequence[Variant]) -> Figure | str:
    """Draws reward, score, gradient norm and the spread of ratios over steps, with the range of the seeds.

    Returns:
        a figure, or the reason why there is none.
    """
    metric = next((variant.metric for variant in variants if variant.metric), None)
    candidates = [
        ("reward", "Reward", "mean reward"),
        (f"eval/{metric}", _capital(_evaluated_on(variants).of("score")), metric or ""),
        ("grad_norm", "Gradient norm", "norm before clipping"),
        ("effective_sample_size", "Effective sample size", "share of decisions"),
        ("kl", "Divergence from the reference", "nats a decision"),
        ("groups/flat", "Flat groups", "share of groups"),
    ]
    panel_contents = [panel for panel in candidates if any(_varies(variant, panel[0]) for variant in variants)][:4]
    if not panel_contents:
        return "the runs have no curves"
    figure, panels = _panels(len(panel_contents))
    for axes, (name, title, unit) in zip(panels, panel_contents, strict=True):
        for place, variant in enumerate(variants):
            _curve(axes, variant, name, place, label=variant.name)
        if name == "grad_norm" and all(value > 0 for line in axes.get_lines() for value in line.get_ydata()):
            axes.set_yscale("log")
        _label_axes(axes, title, "step", unit, legend=axes is panels[0] and len(variants) > 1)
    return figure


def gains(variants: Sequence[Variant]) -> Figure | str:
    """Draws the score before and after training, variant by variant, each seed as a point.

    Returns:
        a figure, or the reason why there is none.
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
    axes.set_yticks(range(len(rows)), [_legend_name(result.name) for result in reversed(rows)])
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(
        f"{_evaluated_on(variants).of(rows[0].metric or 'score')}: bar and number the mean after training, points the"
        " seeds, line before"
        + "".join(
            f", {line} control {_legend_name(control.name)}"
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


def _curve(axes: Axes, variant: Variant, name: str, variant_index: int, *, label: str, dashed: bool = False) -> None:
    curve = downsample_curve(variant.series(name), _MOST_POINTS)
    if curve is None:
        return
    colour = COLOURS[variant_index % len(COLOURS)]
    style = "--" if dashed or variant_index >= len(COLOURS) else "-"
    axes.plot(curve["step"], curve["mean"], color=colour, linestyle=style, label=_legend_name(label))
    if "run_low" in curve:
        axes.fill_between(curve["step"], curve["run_low"], curve["run_high"], color=colour, alpha=0.15, linewidth=0)


def _label_axes(axes: Axes, title: str, x_label: str, y_label: str, *, legend: bool = True) -> None:
    axes.set_title(title)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    if legend and axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False)


def _legend_name(text: str) -> str:
    """Returns a variant's name for a legend, its middle left out where it is long.

    Dollar signs are escaped, since matplotlib takes them for the beginning of mathematics; a long name would leave no
    width for the panel.
    """
    short = text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME // 2]}…{text[-_LONGEST_NAME // 2 + 1 :]}"
    return " ".join(short.split()).replace("$", r"\$")
