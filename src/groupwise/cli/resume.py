"""`groupwise resume`: a run goes on from its newest checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def resume(run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder that `groupwise train` made.")]) -> None:
    """Continue a run that was cut off; it ends with the same weights and metrics as if it had not been."""
    from groupwise.cli.ending import ending
    from groupwise.cli.errors import interrupted_status
    from groupwise.cli.output import console
    from groupwise.cli.run_folder import run_config
    from groupwise.experiment.runner import resume as go_on

    run_config(run)
    if (run / "summary.json").is_file():
        console().print("This run has ended: nothing is left to do.")
    result = go_on(run)
    ending(run, (result.before_step, result.after_step))
    if result.interrupted:
        raise typer.Exit(interrupted_status(result.signal))
