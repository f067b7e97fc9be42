"""`groupwise resume`: a run goes on from its newest checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from groupwise.cli.arguments import RunCode
from groupwise.runs.folder import RunFolder

HAS_ENDED = "This run has ended: nothing is left to do."


def resume(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder that `groupwise train` made.")],
    run_code: RunCode = False,
) -> None:
    """Continue a run that was cut off; it ends with the same weights and metrics as if it had not been."""
    from groupwise.cli.ending import ending
    from groupwise.cli.errors import interrupted_status
    from groupwise.cli.output import say
    from groupwise.cli.run_folder import run_config
    from groupwise.experiment.from_python import resume as go_on

    run_config(run)
    had_ended = RunFolder(run).has_ended
    result = go_on(run, run_code=run_code)
    if had_ended:
        say(HAS_ENDED)
    ending(run, (result.before_step, result.after_step))
    if result.interrupted:
        raise typer.Exit(interrupted_status(result.signal))
