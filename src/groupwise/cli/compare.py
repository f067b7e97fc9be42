"""`groupwise compare`: variants of an experiment with several seeds each, and what they differ by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from groupwise.cli.arguments import ExperimentName, Model, Overrides, RunCode

if TYPE_CHECKING:
    from groupwise.experiment.comparison import Comparison, Row
    from groupwise.experiment.grids import Cell, Outcome


def compare(
    experiment: ExperimentName,
    overrides: Overrides = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            help="key=a,b: one variant a value; several --vary make every combination.",
            show_default="the experiment's own",
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1, max=10_000, help="How many seeds each variant is run with.", show_default="the experiment's, or 3"
        ),
    ] = None,
    first_seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=2**63 - 1,
            help="The first of these seeds; the others follow it: 7 and --seeds 3 run 7, 8, 9.",
            show_default="the experiment's, or 0",
        ),
    ] = None,
    model: Model = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the comparison; the same one again continues it.", show_default="runs/compare-EXPERIMENT"
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, max=1024, help="Runs at a time, one thread each.", show_default="1, or all that a Ray cluster takes"
        ),
    ] = None,
    on: Annotated[
        Literal["local", "ray"], typer.Option(help="Processes of this machine, or tasks of a Ray cluster.")
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(help="Of a Ray cluster, with --on ray.", show_default="RAY_ADDRESS, or one started here"),
    ] = None,
    gpus_per_run: Annotated[
        float, typer.Option(min=0, max=1024, help="GPUs that Ray keeps for each run, or a part of one.")
    ] = 0.0,
    controls: Annotated[bool, typer.Option(help="Train the experiment's controls in every run as well.")] = False,
    run_code: RunCode = False,
) -> None:
    """Run every variant with every seed, in processes of their own, and say what can be told apart: a table, and a page
    to open.

    Called again it continues where it stopped. The first variant is what the others are compared with. A run that fails
    is reported; the others go on.
    """
    from rich.text import Text

    from groupwise.cli.arguments import load
    from groupwise.cli.output import console, counted
    from groupwise.config import ConfigError
    from groupwise.experiment.comparison import compare as read_comparison
    from groupwise.experiment.comparison import save
    from groupwise.experiment.grids import grid_lock, lay_out
    from groupwise.experiment.page import write_page
    from groupwise.experiment.shared_warm_up import share
    from groupwise.experiment.start import check_start
    from groupwise.experiment.variants import variants
    from groupwise.extras import require

    require("report", "groupwise compare")
    if on == "local" and (address is not None or gpus_per_run):
        raise ConfigError(
            f"{'--address' if address is not None else '--gpus-per-run'} says how a Ray cluster is used; write --on ray"
            " as well, or leave it out"
        )

    for item in overrides or ():
        if item.partition("=")[0].strip() == "seed":
            raise ConfigError(
                f"{item!r} has no effect: a comparison runs every variant with the same seeds; write --first-seed N for"
                " the first and --seeds N for how many"
            )
    out_ = console()
    loaded = load(experiment, list(overrides or ()), model=model, run_code=run_code)
    if loaded.objects:
        raise ConfigError(
            f"{experiment}: it names Python objects that no file describes"
            f" ({', '.join(map(str, loaded.objects.values()))[:300]}), and a comparison trains in processes of its own;"
            " put functions into a module, rows into a file and a model into a folder, and name those"
        )
    shipped = loaded.comparison
    grid_variants = variants(vary or (shipped.vary if shipped else []))
    num_seeds = seeds or (shipped.seeds if shipped else 3)
    lowest_seed = first_seed if first_seed is not None else shipped.first_seed if shipped else 0
    told_seeds = counted(num_seeds, "seed") + (f" from {lowest_seed}" if lowest_seed else "")
    configurations, experiments = {}, {}
    for variant in grid_variants:
        experiments[variant] = load(
            experiment, [*(overrides or ()), *variant.overrides], model=model, run_code=run_code
        )
        check_start(experiments[variant])
        table = experiments[variant].table()
        # One process writes to the terminal; the seed belongs to the cell.
        configuration = {
            **table,
            "seed": 0,
            "track": {**table["track"], "console": "none"},
            **({} if controls else {"controls": {}}),
        }
        if twin := next(
            (earlier for earlier, resolved in configurations.items() if resolved == configuration),
            None,
        ):
            raise ConfigError(f"--vary: {twin.name!r} and {variant.name!r} are the same run; leave one of them out")
        configurations[variant] = configuration
    name = next(iter(configurations.values()))["name"]
    folder = out or Path("runs") / f"compare-{name}"
    at_a_time = (
        f", {workers or 1} at a time" if on == "local" else f", {workers} at a time on Ray" if workers else " on Ray"
    )
    failed = {}
    with grid_lock(folder):
        cells = lay_out(folder, name, configurations, range(lowest_seed, lowest_seed + num_seeds))
        out_.print(
            Text(
                f"{counted(len(grid_variants), 'variant')} x {told_seeds} = {counted(len(cells), 'run')} in"
                f" {folder}{at_a_time}"
            )
        )
        try:
            warm_ups, cells = share(folder, experiments, cells)
            if warm_ups:
                out_.print(Text(f"First {counted(len(warm_ups), 'warm-up')} that the variants share, one a seed"))
            for outcome in _outcomes(warm_ups, on, workers, address, gpus_per_run):
                out_.print(Text(f"warm-up, seed {outcome.cell.seed}: {_ended(outcome)}"))
            for number, outcome in enumerate(_outcomes(cells, on, workers, address, gpus_per_run), start=1):
                out_.print(
                    Text(
                        f"[{number}/{len(cells)}] {outcome.cell.variant.name}, seed {outcome.cell.seed}:"
                        f" {_ended(outcome)}"
                    )
                )
                if outcome.error:
                    failed[outcome.cell.folder] = outcome.error
        except KeyboardInterrupt:
            out_.print(
                Text(
                    f"Ended early, {sum(cell.finished for cell in cells)} of {len(cells)} runs are finished. The same"
                    " command goes on where it stopped."
                )
            )
            raise
    comparison = read_comparison(cells, shipped.show if shipped else (), failed, name)
    if comparison is not None:
        _show(comparison)
        for line in _beside_controls(cells):
            out_.print(Text(line))
        page = write_page(
            comparison,
            folder,
            command=_again(experiment, overrides, vary, range(lowest_seed, lowest_seed + num_seeds), folder),
            num_cells=len(cells),
        )
        out_.print(Text(f"Written to {save(comparison, folder)} and {page}"))
    if failed:
        out_.print(
            Text(
                f"{len(failed)} of {len(cells)} runs failed; their logs lie in {folder}. The same command runs them"
                " again."
            )
        )
        raise typer.Exit(1)


def _outcomes(
    cells: Sequence[Cell], on: str, workers: int | None, address: str | None, gpus: float
) -> Iterator[Outcome]:
    from contextlib import closing

    if on == "local":
        from groupwise.experiment.grids import run_grid

        yield from run_grid(cells, workers=workers or 1)
        return
    from groupwise.experiment.ray_grid import RayGrid

    with closing(RayGrid(address, num_workers=workers or 1, gpus=gpus)) as grid:
        yield from grid.run(cells, limit=workers)


def _again(
    experiment: str, overrides: Sequence[str] | None, vary: Sequence[str] | None, seeds: range, folder: Path
) -> str:
    """Returns the command that makes this comparison, and continues it."""
    import shlex

    items = ["groupwise", "compare", experiment, *(overrides or ())]
    for item in vary or ():
        items += ["--vary", item]
    first_seed = ["--first-seed", str(seeds.start)] if seeds.start else []
    return shlex.join([*items, *first_seed, "--seeds", str(len(seeds)), "--out", str(folder)])


def _beside_controls(cells: Sequence[Cell]) -> list[str]:
    """Says how much every variant gained over the controls that were trained in its runs."""
    from groupwise.experiment.controls import describe_gains, gains
    from groupwise.runs import EvaluatedOn

    lines = []
    for variant in dict.fromkeys(cell.variant for cell in cells):
        control_gains = gains({cell.seed: cell.folder for cell in cells if cell.variant == variant and cell.finished})
        prompts = EvaluatedOn.together(
            EvaluatedOn.read_folder(cell.folder) for cell in cells if cell.variant == variant and cell.finished
        ).prompts
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
    from groupwise.config import ConfigError
    from groupwise.experiment.held_out import read_summary

    try:
        summary = read_summary(cell.folder)
    except ConfigError as error:
        return str(error)
    return f"{summary.get('metric')} {_number(summary.get('before'))} -> {_number(summary.get('after'))}"


def _show(comparison: Comparison) -> None:
    from rich.text import Text

    from groupwise.cli.output import console, table

    heads = [
        "before",
        "after",
        "95 % interval",
        "difference",
        "95 % interval ",
        "p, corrected",
        "gain per second",
        "seconds",
        "seeds",
    ]
    metric_title = comparison.evaluated_on.of(comparison.metric)
    title = f"{metric_title[:1].upper()}{metric_title[1:]}" + (
        ", the smaller the better" if comparison.goal == "min" else ""
    )
    console().print(table(["variant", *heads], [_cells(row) for row in comparison.rows], title=title, numbers=heads))
    if names := list(comparison.rows[0].end):
        metric_rows = [
            [row.variant, *(f"{_number(row.start.get(name))} -> {_number(row.end.get(name))}" for name in names)]
            for row in comparison.rows
        ]
        console().print(
            table(["variant", *names], metric_rows, title="Beside it, before -> after, means over seeds", numbers=names)
        )
    for row in comparison.rows:
        console().print(Text(f"{row.variant}: {row.verdict}."))
    for place, why in comparison.missing.items():
        reason, *output = why.splitlines()
        console().print(Text(f"{place} is not in the table: {reason}{f' ({output[-1]})' if output else ''}"))
    baseline = comparison.rows[0]
    console().print(
        Text(
            f"\nDifferences are from {baseline.variant!r}, seed by seed and prompt by prompt. * told from none at 5 %"
            " with all comparisons counted; an interval is that of its difference alone. Gains and seconds are of"
            " training: sampling, rewards, scoring, updates."
        )
    )
    for what, names in comparison.shared:
        console().print(Text(f"Runs of one seed share with {baseline.variant!r}: {what} ({names})."))


def _cells(row: Row) -> list[str]:
    from groupwise.experiment.page import chance, interval

    difference = (
        ["", ""]
        if row.difference is None
        else [f"{row.difference.mean:+.3f}{'*' if row.distinguishable else ''}", interval(row.difference)]
    )
    tested = "" if row.p_value is None else chance(row.p_value)
    per_second = "" if row.per_second is None else f"{row.per_second.mean:+.3g}"
    scores = [_number(row.before), f"{row.after.mean:.3f}", interval(row.after)]
    return [row.variant, *scores, *difference, tested, per_second, f"{row.training_seconds:.1f}", str(len(row.seeds))]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
