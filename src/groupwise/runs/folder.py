"""The names of a run's files and folders, which every reader and writer of a run takes from here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import final

from groupwise.config import ConfigError


@final
@dataclass(frozen=True)
class RunFolder:
    """The paths of one run.

    Args:
        path: the run folder.

    Example:
        >>> RunFolder(Path("runs/a")).metrics.as_posix()
        'runs/a/metrics.jsonl'
    """

    path: Path

    @property
    def is_run(self) -> bool:
        """True once a run has begun here: a run writes its configuration first."""
        return self.config.is_file()

    @property
    def has_ended(self) -> bool:
        """True once the run has reached its end."""
        return self.summary.is_file()

    def control(self, name: str) -> RunFolder:
        """Returns the run folder of a control."""
        return RunFolder(self.controls / name)

    @property
    def config(self) -> Path:
        """`config.json`, the resolved configuration."""
        return self.path / "config.json"

    @property
    def environment(self) -> Path:
        """`environment.json`, one entry a start."""
        return self.path / "environment.json"

    @property
    def metrics(self) -> Path:
        """`metrics.jsonl`, one row a step."""
        return self.path / "metrics.jsonl"

    @property
    def summary(self) -> Path:
        """`summary.json`, which a run has once it has ended."""
        return self.path / "summary.json"

    @property
    def rollouts(self) -> Path:
        """The folder of sampled members."""
        return self.path / "rollouts"

    @property
    def tables(self) -> Path:
        """The folder of the tables that a domain makes at the end."""
        return self.path / "tables"

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return self.path / "checkpoints"

    @property
    def warm_up(self) -> Path:
        """The folder of the state after the leading stages that sample nothing, where another run may start."""
        return self.path / "warm_up"

    @property
    def controls(self) -> Path:
        """The folder of the controls' run folders."""
        return self.path / "controls"

    @property
    def ended_controls(self) -> list[str]:
        """The names of the controls that have ended, sorted."""
        return sorted(path.parent.name for path in self.controls.glob(f"*/{self.summary.name}"))

    @property
    def models(self) -> Path:
        """The folder of the models of single steps."""
        return self.path / "models"

    @property
    def model(self) -> Path:
        """The folder of the final model."""
        return self.path / "model"

    @property
    def best(self) -> Path:
        """The folder of the model with the best score of an evaluation."""
        return self.path / "best"

    def model_at(self, step: int) -> Path:
        """Returns the folder of a step's model."""
        return self.models / f"step-{step}"

    def rollouts_at(self, step: int) -> Path:
        """Returns the file of the members that were sampled in a step."""
        return self.rollouts / f"step-{step}.jsonl"

    def evaluation_at(self, step: int) -> Path:
        """Returns the file of the records of the evaluation after a step."""
        return self.rollouts / f"evaluation-{step}.jsonl"


def run_to_start_from(start: str) -> RunFolder:
    """Returns the folder of the run that another run starts from.

    Args:
        start: the value of the experiment's key `start`.

    Raises:
        ConfigError: the folder holds no run.

    Example:
        >>> run_to_start_from("nowhere")
        Traceback (most recent call last):
        groupwise.config.errors.ConfigError: start = 'nowhere': no run is there (no config.json); give the folder of a run that did a warm-up
    """  # noqa: E501
    folder = RunFolder(Path(start))
    inside = next((run for run in map(RunFolder, folder.path.parents) if run.is_run), None)
    if not folder.is_run and inside is not None:
        raise ConfigError(
            f"start = {start!r}: it lies in the run {inside.path}, and a start is the end of a run's warm-up: write"
            f" start = '{inside.path}'; `groupwise resume {inside.path}` goes on from its newest checkpoint, and"
            " --model takes a trained model (model, best or models/step-N of a run)"
        )
    if not folder.is_run:
        raise ConfigError(
            f"start = {start!r}: no run is there (no config.json); give the folder of a run that did a warm-up"
        )
    return folder
