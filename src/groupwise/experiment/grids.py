"""A grid: every variant of an experiment with every seed, run by worker processes, continued where it stopped.

    OUT/comparison.json                 the experiment's name, the variants and the seeds
    OUT/comparison.lock                 held while the grid is laid out and runs
    OUT/<variant>/experiment.json       the variant's resolved configuration
    OUT/<variant>/seed-<n>/             a run folder
    OUT/warm-up-<hash>/                 a warm-up that variants share (`shared_warm_up.py`)
    OUT/<variant>/seed-<n>.log          the output of the run's process

A cell is finished when its run folder has a `summary.json`. A cell that was cut off is resumed from its checkpoint, or
begun again where it has none. A cell that failed is reported, and the other cells go on.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, final

from groupwise import file_lock
from groupwise.config import ConfigError, difference, read_json
from groupwise.experiment.variants import Variant
from groupwise.processes import PARENT, num_processes
from groupwise.runs import read_run
from groupwise.runs.find import is_run
from groupwise.runs.folder import RunFolder
from groupwise.runs.version import require_known_version

Command = Sequence[str]

_RECORD = "comparison.json"
_LOCK = "comparison.lock"
_PATIENCE_SECONDS = 30.0


@final
@dataclass(frozen=True)
class Cell:
    """One variant with one seed.

    Args:
        variant: the changes to the experiment.
        seed: the run's seed; equal seeds of two variants are a pair.
        folder: the cell's run folder.
        start: the run folder of a shared warm-up, from which the cell starts in place of its own first stages; None
            where the cell has no shared warm-up.

    Example:
        >>> cell = Cell(Variant(("method=dapo",)), 0, Path("runs/grid/method=dapo/seed-0"))
        >>> cell.finished, cell.log.as_posix()
        (False, 'runs/grid/method=dapo/seed-0.log')
    """

    variant: Variant
    seed: int
    folder: Path
    start: Path | None = None

    @property
    def finished(self) -> bool:
        """True where the run reached its end."""
        return RunFolder(self.folder).has_ended

    @property
    def place(self) -> str:
        """The path of the run folder inside the grid's folder."""
        return f"{self.folder.parent.name}/{self.folder.name}"

    @property
    def log(self) -> Path:
        """The file that takes the output of the cell's process."""
        return self.folder.with_suffix(".log")

    def command(self) -> Command:
        """Returns the command that runs the cell, or continues it from a checkpoint."""
        # `-P` keeps the working directory out of the module search path, as the command `groupwise` does.
        head = [sys.executable, "-P", "-m", "groupwise"]
        experiment = self.folder.parent / "experiment.json"
        if any(RunFolder(self.folder).checkpoints.glob("step-*")):
            return [*head, "resume", str(self.folder), *(["--run-code"] if self._as_laid_out(experiment) else [])]
        # The comparison asked for consent when it read the experiment, perhaps on another machine.
        start = [] if self.start is None else [f"start={json.dumps(str(self.start))}"]
        return [
            *(*head, "train", str(experiment), *start),
            *("--seed", str(self.seed), "--out", str(self.folder), "--run-code"),
        ]

    def _as_laid_out(self, experiment: Path) -> bool:
        """Returns whether the run's configuration is the one that the grid wrote, and not another one in its folder."""
        try:
            recorded = read_json(RunFolder(self.folder).config)
            laid_out = {**read_json(experiment), "seed": self.seed}
            # A grid may have begun with a single variant, which had no warm-up to share then.
            return recorded in (laid_out, {**laid_out, "start": None if self.start is None else str(self.start)})
        except ConfigError:
            return False


@final
@dataclass(frozen=True)
class Outcome:
    """The end of a cell.

    Args:
        error: the last lines of the process's output where the cell failed, otherwise empty.
        skipped: whether the cell was finished before the grid began.

    Example:
        >>> Outcome(Cell(Variant(()), 0, Path("seed-0")), skipped=True).error
        ''
    """

    cell: Cell
    error: str = ""
    skipped: bool = False


def lay_out(
    out: Path, experiment: str, configurations: Mapping[Variant, Mapping[str, Any]], seeds: Sequence[int]
) -> list[Cell]:
    """Writes the files of a grid and returns its cells, ordered by seed so that every variant has a result early. The
    caller holds `grid_lock`.

    Args:
        out: the folder of the grid, which is new or holds the same grid; seeds and variants may be added to an old one.
        experiment: the experiment's name, recorded for people.
        configurations: each variant's resolved configuration.
        seeds: the seeds of the runs.

    Returns:
        the cells, ordered by seed and then by variant.

    Raises:
        ConfigError: `out` holds a variant of the same name with another configuration, or something else.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     cells = lay_out(Path(folder) / "grid", "language", {Variant(("seed=0",)): {"method": "grpo"}}, range(2))
        >>> [cell.seed for cell in cells]
        [0, 1]
    """
    _refuse_other(out)
    for variant, configuration in configurations.items():
        file = out / variant.folder / "experiment.json"
        if file.is_file():
            changed = difference(_of_runs(read_json(file)), _of_runs(configuration))
            if changed:
                for run in sorted(file.parent.glob("seed-*/")):
                    require_known_version(RunFolder(run))
                keys = ", ".join(
                    f"{key} ({recorded_value!r} there, {value!r} now)"
                    for key, (recorded_value, value) in list(changed.items())[:5]
                )
                raise ConfigError(
                    f"{out} holds {variant.name!r} with another configuration: {keys}; give another folder with --out"
                )
    try:
        for variant, configuration in configurations.items():
            (out / variant.folder).mkdir(parents=True, exist_ok=True)
            (out / variant.folder / "experiment.json").write_text(
                json.dumps(configuration, indent=2) + "\n", encoding="utf-8"
            )
        names = {variant.folder: list(variant.overrides) for variant in configurations}
        (out / _RECORD).write_text(
            json.dumps({"experiment": experiment, "variants": names, "seeds": list(seeds)}, indent=2) + "\n",
            encoding="utf-8",
        )
    except OSError as error:
        raise ConfigError(f"{out} cannot be written ({error.strerror}); give another folder with --out") from None
    return [Cell(variant, seed, out / variant.folder / f"seed-{seed}") for seed in seeds for variant in configurations]


def _of_runs(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a run depends on: neither how its grid is laid out and printed, nor what the experiment says of
    itself.
    """
    return {key: value for key, value in configuration.items() if key not in ("comparison", "description")}


def _refuse_other(out: Path) -> None:
    """Refuses a folder that has content and holds no grid."""
    if not out.exists():
        return
    names = {path.name for path in out.iterdir()} if out.is_dir() else {out.name}
    if names and not names & {_RECORD, _LOCK}:
        raise ConfigError(f"{out} exists and is not a comparison; give another folder with --out")


@contextmanager
def grid_lock(out: Path) -> Iterator[None]:
    """Locks a grid: within the block no other process lays it out or runs it. The operating system releases the lock
    when the process ends, in whatever way.

    Args:
        out: the folder of a grid; it is made where it does not exist.

    Raises:
        ConfigError: another process runs the grid, a launcher started several processes, or the folder holds no grid
            or cannot be written.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp()) / "grid"
        >>> with grid_lock(folder), grid_lock(folder):  # doctest: +ELLIPSIS
        ...     print("never reached")
        Traceback (most recent call last):
        groupwise.config.errors.ConfigError: ...: another `groupwise compare` runs this grid now; wait for it or end it, or give another folder with --out
    """  # noqa: E501
    if num_processes() > 1:
        raise ConfigError(
            f"WORLD_SIZE = {num_processes()}: a comparison starts processes of its own, one a run; start `groupwise"
            " compare` without torchrun, and spread its runs by --workers, or by --on ray"
        )
    _refuse_other(out)
    try:
        out.mkdir(parents=True, exist_ok=True)
        # The file is opened for writing, since file systems of clusters lock no file that is open for reading only. It
        # is never removed, since another process may be about to open it.
        file = (out / _LOCK).open("ab")
    except OSError as error:
        raise ConfigError(f"{out} cannot be written ({error.strerror}); give another folder with --out") from None
    with file:
        if not file_lock.take(file.fileno()):
            raise ConfigError(
                f"{out}: another `groupwise compare` runs this grid now; wait for it or end it, or give another folder"
                " with --out"
            )
        yield


def split_finished(cells: Sequence[Cell]) -> tuple[list[Outcome], list[Cell]]:
    """Splits the cells of a grid into outcomes of finished cells and the cells that are still to run.

    Example:
        >>> split_finished([])
        ([], [])
    """
    finished: list[Outcome] = []
    waiting: list[Cell] = []
    for cell in cells:
        if cell.finished:
            finished.append(Outcome(cell, skipped=True))
        else:
            waiting.append(cell)
    return finished, waiting


def run_grid(
    cells: Sequence[Cell], *, workers: int, command: Callable[[Cell], Command] = Cell.command
) -> Iterator[Outcome]:
    """Runs the unfinished cells of a grid and yields every cell's outcome as the cell ends.

    Args:
        workers: processes at a time; each computes with one thread unless `OMP_NUM_THREADS` says otherwise.
        command: returns the command that runs a cell.

    Yields:
        one outcome a cell, as it ends; cells that were finished before come first.

    Example:
        >>> list(run_grid([], workers=1))
        []
    """
    finished, waiting = split_finished(cells)
    yield from finished
    pool = ThreadPoolExecutor(max_workers=workers)
    running = _Processes()
    try:
        futures = [pool.submit(_run, cell, command, running) for cell in waiting]
        for future in as_completed(futures):
            yield future.result()
    finally:
        # An interrupted caller comes here early: running processes stop and can be resumed, and no further cell begins.
        pool.shutdown(wait=False, cancel_futures=True)
        running.stop()
        pool.shutdown(wait=True)


class _Processes:
    """The running processes of a grid. After `stop` no further process starts."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stopped = False
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, arguments: Command, log: BinaryIO) -> subprocess.Popen[bytes] | None:
        # Processes of a killed comparison must not go on in folders that the next comparison resumes, so that each of
        # them watches its parent.
        environment = (
            {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"} | os.environ | {PARENT: str(os.getpid())}
        )
        with self._lock:
            if self._stopped:
                return None
            process = subprocess.Popen(arguments, stdout=log, stderr=subprocess.STDOUT, env=environment)
            self._processes.append(process)
            return process

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            for process in self._processes:
                if process.poll() is None:
                    process.terminate()


def _is_free(folder: Path) -> bool:
    """Returns whether no process trains in a folder; waits for a process whose parent died, which may need a moment."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while is_run(folder) and read_run(folder).state == "training":
        if time.monotonic() > until:
            return False
        time.sleep(0.2)
    return True


def run_cell(cell: Cell, command: Callable[[Cell], Command] = Cell.command) -> Outcome:
    """Runs one cell in a process of its own, and waits for it.

    Args:
        command: returns the command that runs a cell.

    Returns:
        the outcome; a failure is returned and not raised, so that no cell ends the others.
    """
    return _run(cell, command, _Processes())


def _run(cell: Cell, command: Callable[[Cell], Command], running: _Processes) -> Outcome:
    try:
        arguments = command(cell)
        if "resume" not in arguments and cell.folder.is_dir():
            # The run was cut off before its first checkpoint, so it begins again in an empty folder.
            if not _is_free(cell.folder):
                return Outcome(cell, error="another process trains in its folder; wait for it or end it")
            shutil.rmtree(cell.folder)
        with cell.log.open("ab") as log:
            process = running.start(arguments, log)
            if process is None:
                return Outcome(cell, error="stopped before it began")
            status = process.wait()
    except OSError as error:
        return Outcome(cell, error=f"it could not be started: {error}")
    if status == 0 and cell.finished:
        return Outcome(cell)
    lines = cell.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return Outcome(cell, error="\n".join([f"exit status {status}; the whole output is in {cell.log}", *lines[-5:]]))
