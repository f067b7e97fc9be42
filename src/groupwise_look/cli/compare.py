"""`groupwise compare`: variants of an experiment with several seeds each, and their differences."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from groupwise.cli.arguments import ExperimentName, Model, Overrides, RunCode, load
from groupwise.cli.output import console, counted, print_text, table
from groupwise.config import ConfigError

if TYPE_CHECKING:
    from groupwise.experiment import Experiment
    from groupwise_look.compare.comparison import Comparison, Row
    from groupwise_look.compare.grids import Cell, Outcome, Variant


Vary = Annotated[
    list[str] | None,
    typer.Option(
        help="key=a,b: one variant a value; several --vary make every combination.", show_default="the experiment's own"
    ),
]
Seeds = Annotated[
    int | None,
    typer.Option(
        min=1, max=10_000, help="How many seeds each variant is run with.", show_default="the experiment's, or 3"
    ),
]
FirstSeed = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=2**63 - 1,
        help="The first of these seeds; the others follow it: 7 and --seeds 3 run 7, 8, 9.",
        show_default="the experiment's, or 0",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the comparison; the same one again continues it.", show_default="runs/compare-EXPERIMENT"
    ),
]
Workers = Annotated[
    int,
    typer.Option(min=1, max=1024, help="Runs at a time, one thread each."),
]
Controls = Annotated[bool, typer.Option(help="Train the experiment's controls in every run as well.")]


def compare(
    experiment: ExperimentName,
    overrides: Overrides = None,
    vary: Vary = None,
    seeds: Seeds = None,
    first_seed: FirstSeed = None,
    model: Model = None,
    out: Out = None,
    workers: Workers = 1,
    controls: Controls = False,
    run_code: RunCode = False,
) -> None:
    """Run every variant with every seed, in processes of their own, and say what can be distinguished: a table, and a
    page to open.

    Called again it continues where it stopped. The first variant is what the others are compared with. A run that fails
    is reported; the others go on.
    """
    from groupwise.experiment.schema import ComparisonConfig
    from groupwise.extras import require
    from groupwise_look.compare.comparison import compare as read_comparison
    from groupwise_look.compare.comparison import save
    from groupwise_look.compare.grids import grid_lock, lay_out, run_grid, variants
    from groupwise_look.compare.page import write_page

    require("report", "groupwise compare")
    changes = list(overrides or ())
    _refuse_seed(changes)
    loaded = load(experiment, changes, model=model, run_code=run_code)
    _refuse_objects(experiment, loaded)
    shipped = loaded.comparison or ComparisonConfig(vary=[])
    lowest_seed = shipped.first_seed if first_seed is None else first_seed
    all_seeds = range(lowest_seed, lowest_seed + (seeds or shipped.seeds))
    experiments = {
        variant: load(experiment, [*changes, *variant.overrides], model=model, run_code=run_code)
        for variant in variants(vary or shipped.vary)
    }
    configurations = _configurations(experiments, controls)
    name = next(iter(configurations.values()))["name"]
    folder = out or Path("runs") / f"compare-{name}"
    with grid_lock(folder):
        cells = lay_out(folder, name, configurations, all_seeds)
        for line in _announced(len(experiments), all_seeds, f"in {folder}, {workers} at a time"):
            print_text(line)
        failed = _run(cells, run_grid(cells, workers=workers))
    comparison = read_comparison(cells, shipped.show, failed, name, metrics=shipped.metrics)
    if comparison is not None:
        _show(comparison)
        for line in _beside_controls(cells):
            print_text(line)
        command = _again(experiment, overrides, vary, all_seeds, folder)
        page = write_page(comparison, folder, command=command, num_cells=len(cells))
        print_text(f"Written to {save(comparison, folder)} and {page}")
    if failed:
        logs = f"their logs lie in {folder}. The same command runs them again."
        print_text(f"{len(failed)} of {len(cells)} runs failed; {logs}")
        raise typer.Exit(1)


def _announced(num_variants: int, seeds: range, where: str) -> list[str]:
    """Reports what will run, and whether the table could call any difference real."""
    from groupwise_look.compare.statistics import fewest_seeds

    first = f" from {seeds.start}" if seeds.start else ""
    size = f"{counted(num_variants, 'variant')} x {counted(len(seeds), 'seed')}{first}"
    lines = [f"{size} = {counted(num_variants * len(seeds), 'run')} {where}"]
    fewest = fewest_seeds(num_variants - 1)
    if num_variants > 1 and len(seeds) < fewest:
        lines.append(
            f"With {num_variants} variants no difference is called real with fewer than {fewest} seeds (--seeds)"
        )
    return lines


def _refuse_seed(overrides: Sequence[str]) -> None:
    """Refuses a seed, which every variant is given."""
    for item in overrides:
        if item.partition("=")[0].strip() == "seed":
            raise ConfigError(
                f"{item!r} has no effect: a comparison runs every variant with the same seeds; write --first-seed N for"
                " the first and --seeds N for how many"
            )


def _refuse_objects(name: str, experiment: Experiment) -> None:
    if experiment.objects:
        named = ", ".join(map(str, experiment.objects.values()))[:300]
        raise ConfigError(
            f"{name}: it names Python objects that no file describes ({named}), and a comparison trains in processes of"
            " its own; put functions into a module, rows into a file and a model into a folder, and name those"
        )


def _configurations(experiments: Mapping[Variant, Experiment], controls: bool) -> dict[Variant, dict[str, Any]]:
    """Returns the configuration that the runs of each variant have; refuses two that are the same."""
    from groupwise.experiment.runner import check_start

    configurations: dict[Variant, dict[str, Any]] = {}
    for variant, experiment in experiments.items():
        check_start(experiment)
        table = experiment.table()
        # One process writes to the terminal; the seed belongs to the cell.
        configuration = {**table, "seed": 0, "track": {**table["track"], "console": "none"}}
        if not controls:
            configuration["controls"] = {}
        for earlier, other in configurations.items():
            if other == configuration:
                both = f"{earlier.name!r} and {variant.name!r}"
                raise ConfigError(f"--vary: {both} are the same run; leave one of them out")
        configurations[variant] = configuration
    return configurations


def _run(cells: Sequence[Cell], outcomes: Iterator[Outcome]) -> dict[Path, str]:
    """Trains every cell, and prints a line for each that ends; returns the errors of those that failed, by folder."""
    failed = {}
    try:
        for number, outcome in enumerate(outcomes, start=1):
            cell = f"{outcome.cell.variant.name}, seed {outcome.cell.seed}"
            print_text(f"[{number}/{len(cells)}] {cell}: {_ended(outcome)}")
            if outcome.error:
                failed[outcome.cell.folder] = outcome.error
    except KeyboardInterrupt:
        finished = f"{sum(cell.finished for cell in cells)} of {len(cells)} runs are finished"
        print_text(f"Ended early, {finished}. The same command goes on where it stopped.")
        raise
    return failed


def _again(
    experiment: str, overrides: Sequence[str] | None, vary: Sequence[str] | None, seeds: range, folder: Path
) -> str:
    """Returns the command that makes this comparison, and continues it."""
    items = ["groupwise", "compare", experiment, *(overrides or ())]
    for item in vary or ():
        items += ["--vary", item]
    first_seed = ["--first-seed", str(seeds.start)] if seeds.start else []
    return shlex.join([*items, *first_seed, "--seeds", str(len(seeds)), "--out", str(folder)])


def _beside_controls(cells: Sequence[Cell]) -> list[str]:
    """Reports how much every variant gained over the controls that were trained in its runs."""
    from groupwise.runs import EvaluatedOn
    from groupwise_look.compare.comparison import describe_gains, gains

    lines = []
    for variant in dict.fromkeys(cell.variant for cell in cells):
        runs = {cell.seed: cell.folder for cell in cells if cell.variant == variant and cell.finished}
        control_gains, prompts = gains(runs), EvaluatedOn.together(map(EvaluatedOn.read_folder, runs.values())).prompts
        lines += [
            f"{variant.name}, beside control {name}: {describe_gains(estimates, prompts)}."
            for name, estimates in control_gains.items()
        ]
    return lines


def _ended(outcome: Outcome) -> str:
    if outcome.error:
        return f"failed, {outcome.error}"
    if outcome.skipped:
        return f"was finished, {_score(outcome.cell)}"
    return _score(outcome.cell)


def _score(cell: Cell) -> str:
    from groupwise.experiment.loaded_run import read_summary
    from groupwise_look.compare.page import number

    try:
        summary = read_summary(cell.folder)
    except ConfigError as error:
        return str(error)
    return f"{summary.get('metric')} {number(summary.get('before'))} -> {number(summary.get('after'))}"


def _show(comparison: Comparison) -> None:
    from groupwise_look.compare.page import number

    for what, places in comparison.noticed.items():
        print_text(f"{what} ({places})")
    heads = ["before", "after", "95 % interval", "difference", "95 % interval ", "p, corrected"]
    heads += ["gain per second", "seconds", "seeds"]
    metric_title = comparison.evaluated_on.of(comparison.metric)
    better = ", the smaller the better" if comparison.goal == "min" else ""
    title = f"{metric_title[:1].upper()}{metric_title[1:]}{better}"
    console().print(table(["variant", *heads], [_cells(row) for row in comparison.rows], title=title, numbers=heads))
    if names := list(comparison.rows[0].end):
        rows = [
            [row.variant, *(f"{number(row.start.get(name))} -> {number(row.end.get(name))}" for name in names)]
            for row in comparison.rows
        ]
        title = "Beside it, before -> after, means over seeds"
        console().print(table(["variant", *names], rows, title=title, numbers=names))
    if any(row.training for row in comparison.rows):
        rows = [[row.variant, name, f"{value:.4g}"] for row in comparison.rows for name, value in row.training.items()]
        title = "Metrics of training, means over steps and seeds"
        console().print(table(["variant", "metric", "mean"], rows, title=title, numbers=["mean"]))
    for row in comparison.rows:
        print_text(f"{row.variant}: {row.verdict}.")
    for place, why in comparison.missing.items():
        reason, *output = why.splitlines()
        print_text(f"{place} is not in the table: {reason}{f' ({output[-1]})' if output else ''}")
    baseline = comparison.rows[0]
    print_text(
        f"\nDifferences are from {baseline.variant!r}, seed by seed and prompt by prompt. * told from none at 5 %"
        " with all comparisons counted; an interval is that of its difference alone. Gains and seconds are of"
        " training: sampling, rewards, scoring, updates."
    )
    for what, names in comparison.shared:
        print_text(f"Runs of one seed share with {baseline.variant!r}: {what} ({names}).")


def _cells(row: Row) -> list[str]:
    from groupwise_look.compare.page import chance, interval, number

    star = "*" if row.distinguishable else ""
    difference = "" if row.difference is None else f"{row.difference.mean:+.3f}{star}"
    tested = "" if row.p_value is None else chance(row.p_value)
    per_second = "" if row.per_second is None else f"{row.per_second.mean:+.3g}"
    scores = [number(row.before), f"{row.after.mean:.3f}", interval(row.after), difference, interval(row.difference)]
    return [row.variant, *scores, tested, per_second, f"{row.training_seconds:.1f}", str(len(row.seeds))]
