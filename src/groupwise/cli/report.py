"""`groupwise report`: one page about one run or several, figures and tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from groupwise.report import Variant
    from groupwise.report.tables import Judged


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Run folders, finished or not, or the folder of a comparison."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="The page.", show_default="report.html in the folder named, or here where there are several"),
    ] = None,
    figures: Annotated[
        bool,
        typer.Option(
            "--figures", help="Write figures beside the page: variance reduction, beta, stability, gains (PDF and PNG)."
        ),
    ] = False,
    table: Annotated[
        bool,
        typer.Option("--table", help="Write the table of results beside the page (Markdown and LaTeX), and print it."),
    ] = False,
    groups: Annotated[int, typer.Option(min=1, max=10**6, help="Groups of a run that the page holds at most.")] = 300,
    serve: Annotated[
        bool,
        typer.Option(
            "--serve", help="Serve the page to this machine and keep it up to date, until Ctrl-C; writes no file."
        ),
    ] = False,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port of --serve.", show_default="any that is free")
    ] = None,
) -> None:
    """Make one HTML page about runs: curves, findings, and the groups with their members. It opens from disk, without a
    network.

    Runs that differ by their seed alone are drawn as one variant, with their spread.
    """
    from groupwise.config import ConfigError

    if serve:
        for option, is_set in (("--out", out is not None), ("--figures", figures), ("--table", table)):
            if is_set:
                raise ConfigError(
                    f"--serve and {option} exclude each other: a served page is not written; leave one out"
                )
        _serve(runs, port or 0, groups)
        return
    if port is not None:
        raise ConfigError(f"--port {port}: nothing is served without --serve; add --serve, or leave --port out")
    _write(runs, out or (runs[0] if len(runs) == 1 else Path()) / "report.html", figures, table, groups)


def _write(runs: list[Path], out: Path, figures: bool, table: bool, groups: int) -> None:
    """Writes the page, with the figures and the table that are asked for beside it."""
    from rich.text import Text

    from groupwise.cli.output import console
    from groupwise.report import group_runs, write_figures, write_page, write_tables
    from groupwise.runs import find_runs, read_run

    say = console()
    read_runs = [read_run(folder) for folder in find_runs(runs)]
    for run in read_runs:
        for remark in run.remarks:
            say.print(Text(f"{run.path}: {remark}"))
    page = write_page(read_runs, out, most_groups=groups)
    say.print(
        Text(
            f"{len(read_runs)} run{'s' if len(read_runs) > 1 else ''}: {page} ({page.stat().st_size / 1e6:.1f} MB);"
            " open it in a browser"
        )
    )
    variants = group_runs(read_runs)
    if figures:
        written, left_out = write_figures(variants, out.parent / "figures")
        for line in [f"figure: {path}" for path in written if path.suffix == ".pdf"] + [
            f"no figure {reason}" for reason in left_out
        ]:
            say.print(Text(line))
    if table:
        markdown, latex = write_tables(variants, out.parent, _judged(variants))
        say.print(Text(markdown.read_text(encoding="utf-8")))
        say.print(Text(f"table: {markdown} and {latex}"))


def _judged(variants: list[Variant]) -> dict[str, Judged]:
    """Returns the differences from the first variant as `groupwise compare` judges them; none where that has no
    finished run.
    """
    from groupwise.experiment.comparison import compare
    from groupwise.experiment.grids import Cell
    from groupwise.experiment.variants import Variant as Changes
    from groupwise.report.tables import Judged

    comparison = compare(
        [
            Cell(Changes((variant.name,)), run.seed, run.path)
            for variant in variants
            for run in variant.runs
            if run.seed is not None
        ]
    )
    if comparison is None or comparison.rows[0].variant != variants[0].name:
        return {}
    return {
        row.variant: Judged(row.difference.low, row.difference.high, row.p_value, row.distinguishable)
        for row in comparison.rows
        if row.difference is not None
    }


def _serve(runs: list[Path], port: int, groups: int) -> None:
    """Serves the page until the process is interrupted."""
    from contextlib import suppress

    from rich.text import Text

    from groupwise.cli.output import console
    from groupwise.report.serve import HOST, LivePage, serve

    with serve(LivePage(runs, most_groups=groups), port) as server:
        address = f"http://{HOST}:{server.server_port}/"
        console().print(Text(f"{address} follows the runs; open it in a browser on this machine, Ctrl-C ends it"))
        with suppress(KeyboardInterrupt):
            server.serve_forever()
