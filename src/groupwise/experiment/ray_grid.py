"""The same grid on a Ray cluster: every cell is a task, and a cell whose worker or machine dies is run again, from its
checkpoint.

Run folders are written where the command stands, so the folder of the grid must be one that every machine of the
cluster sees under the same path; a task that does not find the grid there fails with that sentence.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, final

from groupwise.config import ConfigError
from groupwise.experiment.grids import Cell, Command, Outcome, by_need, run_cell

RETRIES = 5
"""How often a cell is begun again after its worker has died."""


@final
class RayGrid:
    """A connection to a cluster on which cells run.

    Args:
        address: of a running cluster (`auto`, `host:port`, `ray://host:port`); unset takes `RAY_ADDRESS`, or starts one
            on this machine.
        num_workers: cells at a time on a cluster that is started here.
        gpus: GPUs that a run is given, or a part of one.
        options: further arguments of `ray.init`.

    Raises:
        ConfigError: Ray is not installed, or the cluster cannot be reached.
    """

    def __init__(self, address: str | None = None, *, num_workers: int = 1, gpus: float = 0.0, **options: Any) -> None:
        self._ray = ray = _import_ray()
        self._gpus = gpus
        self._own = not ray.is_initialized()
        if not self._own:
            return
        # A cluster of our own needs no page, and its store holds a few lines a cell. One that runs already has its own.
        local = {"num_cpus": num_workers, "include_dashboard": False, "object_store_memory": 80 * 2**20}
        settings = {
            "logging_level": logging.WARNING,
            "log_to_driver": False,
            **({"address": address} if address else {}),
            **options,
        }
        try:
            if address or _address_is_set():
                ray.init(**settings)
            else:
                ray.init(address="local", **{**local, **settings})
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            where = address or "RAY_ADDRESS"
            raise ConfigError(
                f"no Ray cluster at {where!r} ({error}); give --address HOST:PORT of one, or leave it out to start one"
                " here"
            ) from error

    def run(
        self, cells: Sequence[Cell], *, limit: int | None = None, command: Callable[[Cell], Command] = Cell.command
    ) -> Iterator[Outcome]:
        """Runs what is not finished and yields every cell's outcome as it ends.

        Args:
            cells: what to run.
            limit: cells at a time; unset, as many as the cluster takes.
            command: what runs a cell.

        Yields:
            one outcome a cell; those that were finished before come first.
        """
        finished, waiting = by_need(cells)
        yield from finished
        task = self._ray.remote(_task).options(num_cpus=1, num_gpus=self._gpus, max_retries=RETRIES)
        running: dict[Any, Cell] = {}
        try:
            while waiting or running:
                while waiting and (limit is None or len(running) < limit):
                    cell = waiting.pop(0)
                    running[task.remote(_absolute(cell), command, str(Path.cwd()))] = cell
                (done, *_), _ = self._ray.wait(list(running), num_returns=1)
                cell = running.pop(done)
                try:
                    yield Outcome(cell, error=self._ray.get(done))
                # One cell that cannot be run is reported like one that fails; the others go on.
                except self._ray.exceptions.RayError as error:
                    yield Outcome(cell, error=f"Ray gave it up: {error}")
        finally:
            for each in running:
                self._ray.cancel(each, force=True)

    def close(self) -> None:
        """Leaves the cluster; one that was started here ends."""
        if self._own:
            self._ray.shutdown()


def _task(cell: Cell, command: Callable[[Cell], Command], here: str) -> str:
    """What a worker does for a cell; returns its error."""
    # Files that an experiment names are named from where the command was given.
    if Path(here).is_dir():
        os.chdir(here)
    if not cell.folder.parent.is_dir():
        return (
            f"{cell.folder.parent} is not there on the machine of this worker; give --out a folder that all machines of"
            " the cluster see under the same path"
        )
    # The first attempt's worker may have died after the run's end.
    return "" if cell.finished else run_cell(cell, command).error


def _absolute(cell: Cell) -> Cell:
    start = None if cell.start is None else Path(cell.start).resolve()
    return Cell(cell.variant, cell.seed, Path(cell.folder).resolve(), start)


def _address_is_set() -> bool:
    return bool(os.environ.get("RAY_ADDRESS"))


def _import_ray() -> Any:
    # A task without a GPU of its own sees those of its machine, as runs without Ray do; and nothing is reported to
    # anybody.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise ConfigError("--on ray needs Ray, which is not installed; write pip install ray, or --on local") from error
    return ray
