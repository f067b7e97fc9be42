"""The verbs of `groupwise`, and what happens when one fails."""

from __future__ import annotations

import io
import sys
from typing import Annotated

import typer

from groupwise.cli.check import check
from groupwise.cli.compare import compare
from groupwise.cli.doctor import doctor
from groupwise.cli.errors import report as tell
from groupwise.cli.estimate import estimate
from groupwise.cli.evaluate import evaluate
from groupwise.cli.experiments import experiments
from groupwise.cli.export import export
from groupwise.cli.methods import methods
from groupwise.cli.report import report
from groupwise.cli.resume import resume
from groupwise.cli.sample import sample
from groupwise.cli.schema import schema
from groupwise.cli.train import train
from groupwise.cli.verb import Verb
from groupwise.cli.version import version
from groupwise.processes import end_with_parent

app = typer.Typer(
    name="groupwise",
    help="Group-relative policy optimisation for any stochastic policy. Start with: groupwise train language",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version as installed_version

        typer.echo(f"groupwise {installed_version('groupwise')}")
        raise typer.Exit


@app.callback()
def _options(
    asked: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version alone."),
    ] = False,
) -> None:
    pass


_PANELS = {
    "Train": (train, resume, check, estimate),
    "Look at results": (report, evaluate, sample, compare, doctor, export),
    "Look things up": (experiments, methods, schema, version),
}
for _panel, _verbs in _PANELS.items():
    for _verb in _verbs:
        app.command(rich_help_panel=_panel, cls=Verb)(_verb)


def main() -> None:
    """Runs the command line; exits with 2 for a user's error, 1 for a defect, 130 or 143 after Ctrl-C or SIGTERM."""
    end_with_parent()
    for stream in (sys.stdout, sys.stderr):
        # What a model writes, and how files are called, may hold what the terminal's encoding does not.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except Exception as error:
        sys.exit(tell(error))
