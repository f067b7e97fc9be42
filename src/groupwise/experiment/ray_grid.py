"""A grid on a Ray cluster: every cell is a task, and a cell whose worker or machine dies goes on from its checkpoint.

Run folders are written below the folder of the grid, so every machine of the cluster must see that folder under the
same path; a task that does not find it fails and says so.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, final

from groupwise.config import ConfigError
from groupwise.experiment.grids import Cell, Command, Outcome, run_cell, split_finished
from groupwise.experiment.ray_address import check_address, unreachable
from groupwise.experiment.ray_watch import LOOK_SECONDS, RayWatch

RETRIES = 5
"""The number of times that a cell is begun again after its worker has died."""


@final
class RayGrid:
    """A connection to a cluster on which cells run.

    Args:
        address: the address of a running cluster (`auto`, `host:port`, `ray://host:port`); unset takes `RAY_ADDRESS`,
            or starts a cluster on this machine.
        num_workers: cells at a time on a cluster that is started on this machine.
        gpus: GPUs for each run; a fraction shares a GPU.
        options: further arguments of `ray.init`.

    Raises:
        ConfigError: Ray is not installed, or the cluster cannot be reached.
    """

    def __init__(self, address: str | None = None, *, num_workers: int = 1, gpus: float = 0.0, **options: Any) -> None:
        self._ray = ray = _import_ray()
        self._gpus = gpus
        self._own, self._grows = not ray.is_initialized(), True
        if not self._own:
            return
        # A cluster that is started here needs no dashboard and a small store: a cell returns a few lines. A running
        # cluster has settings of its own.
        local = {"num_cpus": num_workers, "include_dashboard": False, "object_store_memory": 80 * 2**20}
        settings = {
            "logging_level": logging.WARNING,
            "log_to_driver": False,
            **({"address": address} if address else {}),
            **options,
        }
        target = address or os.environ.get("RAY_ADDRESS", "")
        self._grows = bool(target)
        if target:
            check_address(target)
        try:
            if target:
                ray.init(**settings)
            else:
                ray.init(address="local", **{**local, **settings})
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            raise unreachable(target or "local", error) from error
        _silence(ray)

    def run(
        self,
        cells: Sequence[Cell],
        *,
        limit: int | None = None,
        command: Callable[[Cell], Command] = Cell.command,
        tell: Callable[[str], None] = lambda line: print(line, file=sys.stderr),
    ) -> Iterator[Outcome]:
        """Runs the unfinished cells of a grid and yields every cell's outcome as the cell ends.

        Args:
            limit: cells at a time; unset, as many as the cluster takes.
            command: returns the command that runs a cell.
            tell: called with one line where a machine leaves the cluster, or none can take a run.

        Yields:
            one outcome a cell; cells that were finished before come first.

        Raises:
            ConfigError: the head of the cluster does not answer any more, or no machine can take a run.
        """
        finished, waiting = split_finished(cells)
        yield from finished
        task = self._ray.remote(_task).options(num_cpus=1, num_gpus=self._gpus, max_retries=RETRIES)
        running: dict[Any, Cell] = {}
        watch = RayWatch(self._ray, gpus=self._gpus, grows=self._grows, tell=tell)
        try:
            while waiting or running:
                while waiting and (limit is None or len(running) < limit):
                    cell = waiting.pop(0)
                    running[task.remote(_absolute(cell), command, str(Path.cwd()))] = cell
                watch.look()
                ended, _ = self._ray.wait(list(running), num_returns=1, timeout=LOOK_SECONDS)
                for task_reference in ended:
                    cell = running.pop(task_reference)
                    try:
                        yield Outcome(cell, error=self._ray.get(task_reference))
                    # A cell that Ray cannot run is reported like a cell that fails; the other cells go on.
                    except self._ray.exceptions.RayError as error:
                        yield Outcome(cell, error=f"Ray gave it up: {str(error).strip().splitlines()[0]}")
        finally:
            for task_reference in running:
                self._ray.cancel(task_reference, force=True)

    def close(self) -> None:
        """Leaves the cluster; a cluster that was started here ends."""
        if self._own:
            self._ray.shutdown()


def _task(cell: Cell, command: Callable[[Cell], Command], caller_directory: str) -> str:
    """Runs a cell on a worker and returns its error, which is empty where the cell finished."""
    # Relative paths in an experiment begin in the working directory of the user's command.
    if Path(caller_directory).is_dir():
        os.chdir(caller_directory)
    if not cell.folder.parent.is_dir():
        return (
            f"{cell.folder.parent} is not there on the machine of this worker; give --out a folder that all machines of"
            " the cluster see under the same path"
        )
    # The worker of an earlier attempt may have died after the end of the run.
    return "" if cell.finished else run_cell(cell, command).error


def _absolute(cell: Cell) -> Cell:
    start = None if cell.start is None else Path(cell.start).resolve()
    return Cell(cell.variant, cell.seed, Path(cell.folder).resolve(), start)


def _silence(ray: Any) -> None:
    """Keeps Ray from printing its servers' own logs where a machine dies; `RayWatch` says it in a line."""
    worker = sys.modules.get(f"{ray.__name__}._private.worker")
    if hasattr(worker, "print_to_stdstream"):
        setattr(worker, "print_to_stdstream", lambda *_, **__: None)  # noqa: B010


def _import_ray() -> Any:
    # A task that reserves no GPU still sees those of its machine, as runs without Ray do. Ray reports no usage.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise ConfigError("--on ray needs Ray, which is not installed; write pip install ray, or --on local") from error
    return ray
