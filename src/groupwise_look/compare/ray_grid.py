"""A grid on a Ray cluster: every cell is a task, and a cell whose worker or machine dies continues from its checkpoint.

Run folders are written below the folder of the grid, so every machine of the cluster must see that folder under the
same path; a task that does not find it fails with an error.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, final

from groupwise.config import ConfigError
from groupwise_look.compare.grids import Cell, Command, Outcome, run_cell, split_finished

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
        ConfigError: Ray is not installed, the cluster cannot be reached, or no machine of it has the GPUs.
    """

    def __init__(self, address: str | None = None, *, num_workers: int = 1, gpus: float = 0.0, **options: Any) -> None:
        self._ray = ray = _import_ray()
        self._gpus = gpus
        self._own = not ray.is_initialized()
        if self._own:
            target = address or os.environ.get("RAY_ADDRESS", "")
            # A cluster that is started here needs no dashboard and a small store, since a cell returns a few lines.
            local = {"num_cpus": num_workers, "include_dashboard": False, "object_store_memory": 80 * 2**20}
            settings = {
                "logging_level": logging.WARNING,
                "log_to_driver": False,
                **({} if target else local),
                **options,
            }
            try:
                ray.init(address=target or "local", **settings)
            except (ConnectionError, RuntimeError, ValueError, OSError) as error:
                raise ConfigError(
                    f"no Ray cluster at {target or 'local'!r} ({error}); give --address HOST:PORT of one, or leave it"
                    " out to start one here"
                ) from error
        # Ray would wait for such a machine for ever.
        if not any(node["Alive"] and node["Resources"].get("GPU", 0) >= gpus for node in ray.nodes()):
            self.close()
            raise ConfigError(
                f"no machine of the cluster has {gpus:g} GPU for a run; add one, or write a smaller --gpus-per-run"
            )

    def run(
        self, cells: Sequence[Cell], *, limit: int | None = None, command: Callable[[Cell], Command] = Cell.command
    ) -> Iterator[Outcome]:
        """Runs the unfinished cells of a grid and yields every cell's outcome as the cell ends.

        Args:
            limit: cells at a time; unset, as many as the cluster takes.
            command: returns the command that runs a cell.

        Yields:
            one outcome a cell; cells that were finished before come first.
        """
        finished, waiting = split_finished(cells)
        yield from finished
        task = self._ray.remote(_task).options(num_cpus=1, num_gpus=self._gpus, max_retries=RETRIES)
        running: dict[Any, Cell] = {}
        try:
            while waiting or running:
                while waiting and (limit is None or len(running) < limit):
                    cell = waiting.pop(0)
                    running[task.remote(_absolute(cell), command, str(Path.cwd()))] = cell
                ended, _ = self._ray.wait(list(running), num_returns=1)
                cell = running.pop(ended[0])
                try:
                    yield Outcome(cell, error=self._ray.get(ended[0]))
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
    return Cell(cell.variant, cell.seed, Path(cell.folder).resolve())


def _import_ray() -> Any:
    # A task that reserves no GPU still sees those of its machine, as runs without Ray do. Ray reports no usage.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise ConfigError("--on ray needs Ray, which is not installed; write pip install ray, or --on local") from error
    return ray
