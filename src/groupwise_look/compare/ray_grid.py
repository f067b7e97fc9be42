"""A grid on a Ray cluster: every cell is a task, and a cell whose worker or machine dies goes on from its checkpoint.

Run folders are written below the folder of the grid, so every machine of the cluster must see that folder under the
same path; a task that does not find it fails and says so.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, final

from groupwise.config import ConfigError
from groupwise_look.compare.grids import Cell, Command, Outcome, run_cell, split_finished

# The check of a Ray cluster's address before Ray itself tries it, which takes minutes where nobody answers.

PATIENCE_SECONDS = 5.0
"""The longest wait for a connection, and again for an answer."""

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""The first bytes of a gRPC client: the preface of HTTP/2 and an empty frame of settings (RFC 9113, section 3.4)."""

_FRAME_HEAD = 9
_SETTINGS = 4


def check_address(address: str) -> None:
    """Refuses an address at which no gRPC server answers; a cluster of Ray is one.

    Args:
        address: `HOST:PORT` or `ray://HOST:PORT`; names that Ray resolves itself (`auto`, `local`) pass.

    Raises:
        ConfigError: nobody answers within ten seconds, or the address has no port.

    Example:
        >>> check_address("auto")
        >>> check_address("head")
        Traceback (most recent call last):
        groupwise.config.errors.ConfigError: no Ray cluster at 'head' (it has no port); give --address HOST:PORT of one, or leave it out to start one here
    """  # noqa: E501
    if address in ("auto", "local"):
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        raise unreachable(address, "it has no port")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE_SECONDS) as connection:
            connection.sendall(_PREFACE)
            head = connection.recv(_FRAME_HEAD, socket.MSG_WAITALL)
    except (OSError, OverflowError) as error:
        reason = f"no answer within {PATIENCE_SECONDS:g} s" if isinstance(error, TimeoutError) else str(error)
        raise unreachable(address, reason) from error
    if len(head) < _FRAME_HEAD or head[3] != _SETTINGS:
        raise unreachable(address, "what answers there is no Ray")


def unreachable(address: str, reason: object) -> ConfigError:
    """Returns the error about a cluster that cannot be reached.

    Args:
        reason: the cause, in a few words.
    """
    return ConfigError(
        f"no Ray cluster at {address!r} ({reason}); give --address HOST:PORT of one, or leave it out to start one here"
    )


LOOK_SECONDS = 5.0
"""Seconds between two looks at the machines."""
HEAD_SECONDS = 20.0
"""Seconds that the head may be silent. After 60 Ray ends the whole program."""
ROOM_SECONDS = 600.0
"""Seconds for which a grid waits for a machine that can take a run, on a cluster that may grow."""

_GOES_ON = "give the same command again, which goes on with the runs that are not finished"


@final
class RayWatch:
    """Says in one line that a machine has left, and ends a grid that waits for what does not come.

    Args:
        ray: the module, connected to a cluster.
        gpus: GPUs that a run needs beside one CPU.
        grows: whether machines may join; otherwise a grid does not wait for one.
        tell: called with each line.
        clock: seconds that only rise.
    """

    def __init__(
        self,
        ray: Any,
        *,
        gpus: float,
        grows: bool,
        tell: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ray, self._gpus, self._tell, self._clock = ray, gpus, tell, clock
        self._patience = ROOM_SECONDS if grows else 0.0
        self._alive: dict[str, str] = {}
        self._last_answer = clock()
        self._full_since: float | None = None
        # A client of `ray://` talks to the head through another process, and sees no address of it.
        self._head = "" if ray.util.client.ray.is_connected() else ray.get_runtime_context().gcs_address

    def look(self) -> None:
        """Looks at the machines once.

        Raises:
            ConfigError: the head does not answer any more, or no machine can take a run.
        """
        if not self._head_answers():
            return
        nodes = {node["NodeID"]: node for node in self._ray.nodes() if node["Alive"]}
        for identity, name in self._alive.items():
            if identity not in nodes:
                self._tell(
                    f"machine {name} has left the cluster; its runs begin again on another one, from their newest"
                    " checkpoints"
                )
        self._alive = {identity: f"{node['NodeManagerAddress']} ({identity[:8]})" for identity, node in nodes.items()}
        self._check_room([node["Resources"] for node in nodes.values()])

    def _head_answers(self) -> bool:
        """Returns whether the head answers; Ray's own questions to a dead one never return."""
        if self._head:
            try:
                check_address(self._head)
            except ConfigError as error:
                silent = self._clock() - self._last_answer
                if silent < HEAD_SECONDS:
                    return False
                raise ConfigError(
                    f"the head of the Ray cluster at {self._head} has not answered for {silent:.0f} s; start the"
                    f" cluster again and {_GOES_ON}"
                ) from error
        self._last_answer = self._clock()
        return True

    def _check_room(self, resources: list[dict[str, float]]) -> None:
        if any(room.get("CPU", 0) >= 1 and room.get("GPU", 0) >= self._gpus for room in resources):
            self._full_since = None
            return
        needs = "1 CPU" + (f" and {self._gpus:g} GPU" if self._gpus else "")
        if self._full_since is None:
            self._full_since = self._clock()
            if self._patience:
                self._tell(
                    f"no machine of the cluster has {needs} for a run; {self._patience / 60:g} minutes are waited for"
                    " one"
                )
        if self._clock() - self._full_since >= self._patience:
            raise ConfigError(
                f"no machine of the cluster has {needs} for a run ({len(resources)} machines are there); add one, or"
                f" write a smaller --gpus-per-run, and {_GOES_ON}"
            )


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
