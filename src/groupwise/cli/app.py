"""The verbs of `groupwise`, and what happens when one fails."""

import io
import sys
from typing import Annotated, Any, final

import typer
from typer.core import TyperCommand

from groupwise.cli.check import check
from groupwise.cli.estimate import estimate
from groupwise.cli.evaluate import evaluate
from groupwise.cli.experiments import experiments, schema
from groupwise.cli.export import export
from groupwise.cli.init import init
from groupwise.cli.methods import methods
from groupwise.cli.output import print_error
from groupwise.cli.sample import sample
from groupwise.cli.train import resume, train
from groupwise.plugins import absent, installed_points
from groupwise.processes import end_with_parent


@final
class Verb(TyperCommand):
    """A command; an option that it does not have is looked up among those of other systems' scripts."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses as typer does, and names the counterparts of other systems' options.

        Raises:
            ConfigError: options of another system; all of them are answered.
        """
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            # Compared by name, since typer ships its own copy of click in newer versions.
            if type(error).__name__ != "NoSuchOption":
                raise
            from groupwise.config import ConfigError, Problem
            from groupwise.experiment.counterparts import flags

            if not (counterparts := flags(given)):
                raise
        raise ConfigError([Problem("", answer) for answer in counterparts], source=f"groupwise {ctx.info_name}")


app = typer.Typer(
    name="groupwise",
    help=(
        "Group-relative policy optimisation for any stochastic policy. Start with: groupwise init my_task, or groupwise"
        " train language"
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def _print_versions(requested: bool) -> None:
    if requested:
        import platform
        from importlib.metadata import distributions

        installed = {distribution.name: distribution.version for distribution in distributions()}
        typer.echo(f"groupwise {installed['groupwise']}\npython {platform.python_version()} ({platform.platform()})")
        for name in ("torch", "transformers", "peft", "pydantic"):
            typer.echo(f"{name} {installed.get(name, 'is not installed')}")
        raise typer.Exit


@app.callback()
def _options(
    requested: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_print_versions, help="Print the installed versions."),
    ] = False,
) -> None:
    pass


def _installed_verbs() -> list[Any]:
    """Loads the commands that packages register as entry points `groupwise.verbs`. The command of a package that is
    not installed is one that raises an error.
    """

    def verb(point: Any) -> Any:
        if not (reason := absent(point)):
            return point.load()

        def missing() -> None:
            from groupwise.config import ConfigError

            raise ConfigError(f"groupwise {reason}")

        missing.__name__, missing.__doc__ = point.name, f"Not here: {reason}."
        return missing

    return [verb(point) for point in installed_points("groupwise.verbs")]


_PANELS = {
    "Train": (init, train, resume, check, estimate),
    "Look at results": (*_installed_verbs(), evaluate, sample, export),
    "Look things up": (experiments, methods, schema),
}
for _panel, _verbs in _PANELS.items():
    for _verb in _verbs:
        app.command(rich_help_panel=_panel, cls=Verb)(_verb)


def main() -> None:
    """Runs the command line; exits with 2 for a user's error, 1 for a defect, 130 or 143 after Ctrl-C or SIGTERM."""
    end_with_parent()
    for stream in (sys.stdout, sys.stderr):
        # Completions and file names may hold characters that the terminal cannot encode.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except Exception as error:
        sys.exit(print_error(error))
