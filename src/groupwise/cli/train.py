"""`groupwise train`: one run, from its experiment to what it has learned."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from groupwise.cli import arguments as argument
from groupwise.cli.arguments import load
from groupwise.cli.output import interrupted_status, print_text
from groupwise.cli.summary import print_summary
from groupwise.cli.trained import run_config
from groupwise.config import ConfigError
from groupwise.processes import check_launch, num_processes
from groupwise.runs.folder import RunFolder

if TYPE_CHECKING:
    from groupwise.training.run.launch import Result


def resume(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder that `groupwise train` made.")],
    run_code: argument.RunCode = False,
) -> None:
    """Continue a run that was cut off; it ends with the same weights and metrics as if it had not been."""
    from groupwise.experiment.from_python import resume as go_on

    run_config(run)
    had_ended = RunFolder(run).has_ended
    _finish(run, go_on(run, run_code=run_code), had_ended)


def train(
    experiment: argument.ExperimentOrPrompts = "prompts",
    overrides: argument.Overrides = None,
    model: argument.Model = None,
    prompts: argument.Prompts = None,
    rewards: argument.Rewards = None,
    minutes: argument.Minutes = None,
    out: Annotated[
        Path | None, typer.Option(help="Run folder, which must be new.", show_default="runs/EXPERIMENT-SEED-TIME")
    ] = None,
    seed: argument.Seed = None,
    threads: argument.Threads = None,
    controls: Annotated[
        bool, typer.Option(help="Train the experiment's controls as well, for the same time each.")
    ] = True,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on where the folder of --out holds this run already; begin it otherwise."),
    ] = False,
    run_code: argument.RunCode = False,
) -> None:
    """Train an experiment. Everything that can be wrong with it is reported before anything is computed."""

    check_launch()
    loaded = load(
        experiment,
        overrides,
        model=model,
        prompts=prompts,
        rewards=rewards,
        minutes=minutes,
        seed=seed,
        threads=threads,
        run_code=run_code,
    )
    from groupwise.experiment.runner import begin_or_resume, default_run_folder, run

    if out is None and resume:
        raise ConfigError(
            "--resume: no run folder was named, and each start would name a new one; write --out runs/NAME"
        )
    if out is None and num_processes() > 1:
        raise ConfigError("several processes need one run folder, and each would name its own; write --out runs/NAME")
    folder = out or default_run_folder(loaded)
    print_text(f"{loaded.name}: {loaded.description}" if loaded.description else loaded.name)
    print_text(f"method {loaded.objective.name}, seed {loaded.seed}, run folder {folder}")
    had_ended = resume and RunFolder(folder).has_ended
    _finish(folder, (begin_or_resume if resume else run)(loaded, folder, controls=controls), had_ended)


def _finish(folder: Path, result: "Result", had_ended: bool) -> None:
    """Prints the end of a run, and exits with the status of the signal that interrupted it."""

    if had_ended:
        print_text("This run has ended: nothing is left to do.")
    print_summary(folder, (result.before_step, result.after_step))
    if result.interrupted:
        raise typer.Exit(interrupted_status(result.signal))
