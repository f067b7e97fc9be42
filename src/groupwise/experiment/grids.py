"""A grid: every variant of an experiment with every seed, run by worker processes, continued where it stopped.

    OUT/comparison.json                 what is compared
    OUT/comparison.lock                 held while the grid is laid out and runs
    OUT/<variant>/experiment.json       the variant's resolved configuration
    OUT/<variant>/seed-<n>/             a run folder
    OUT/warm-up-<hash>/                 a warm-up that variants share (`shared_warm_up.py`)
    OUT/<variant>/seed-<n>.log          what its process printed

A cell is finished when its run folder has a `summary.json`. One that was cut off is resumed from its checkpoint, or
begun again when it has none; one that failed is reported and the others go on.
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
from groupwise.processes import PARENT
from groupwise.runs import read_run
from groupwise.runs.find import is_run
from groupwise.runs.folder import RunFolder

Command = Sequence[str]

_RECORD = "comparison.json"
_LOCK = "comparison.lock"
_PATIENCE_SECONDS = 30.0


@final
@dataclass(frozen=True)
class Cell:
    """One variant with one seed.

    Args:
        variant: how the experiment is run.
        seed: of the run; equal seeds of two variants are a pair.
        folder: its run folder.
        start: the run folder from whose warm-up it starts, where the experiment's own first stages are left out.

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
        """Whether the run reached its end."""
        return RunFolder(self.folder).has_ended

    @property
    def place(self) -> str:
        """Its run folder inside the grid's."""
        return f"{self.folder.parent.name}/{self.folder.name}"

    @property
    def log(self) -> Path:
        """What its process prints."""
        return self.folder.with_suffix(".log")

    def command(self) -> Command:
        """The command that runs it, or continues it from a checkpoint."""
        # Without the working directory in front of every library, as the command `groupwise` has it.
        head = [sys.executable, "-P", "-m", "groupwise"]
        experiment = self.folder.parent / "experiment.json"
        if any(RunFolder(self.folder).checkpoints.glob("step-*")):
            return [*head, "resume", str(self.folder), *(["--run-code"] if self._as_laid_out(experiment) else [])]
        # What the comparison has laid out was asked about as it was read, perhaps on another machine.
        start = [] if self.start is None else [f"start={json.dumps(str(self.start))}"]
        return [
            *(*head, "train", str(experiment), *start),
            *("--seed", str(self.seed), "--out", str(self.folder), "--run-code"),
        ]

    def _as_laid_out(self, experiment: Path) -> bool:
        """Whether the run's configuration is the one that was laid out, and not another one that lay in its folder."""
        try:
            begun = read_json(RunFolder(self.folder).config)
            laid_out = {**read_json(experiment), "seed": self.seed}
            # A grid may have begun with one variant, which had no warm-up to share then.
            return begun in (laid_out, {**laid_out, "start": None if self.start is None else str(self.start)})
        except ConfigError:
            return False


@final
@dataclass(frozen=True)
class Outcome:
    """How a cell ended.

    Args:
        cell: which.
        error: the last lines its process printed when it failed, otherwise empty.
        skipped: it was finished before.

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
    """Writes what a grid is and returns its cells, seed by seed, so that every variant has a result early. To be called
    within `alone`.

    Args:
        out: the folder of the grid, new or one of the same grid; more seeds and more variants may join an old one.
        experiment: its name, for people.
        configurations: each variant's resolved configuration.
        seeds: of the runs.

    Returns:
        the cells, seed by seed.

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
        written = out / variant.folder / "experiment.json"
        if written.is_file():
            changed = difference(read_json(written), configuration)
            if changed:
                keys = ", ".join(
                    f"{key} ({before!r} there, {after!r} now)" for key, (before, after) in list(changed.items())[:5]
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


def _refuse_other(out: Path) -> None:
    """A folder that holds something, and neither a grid nor one that is being laid out."""
    if not out.exists():
        return
    names = {path.name for path in out.iterdir()} if out.is_dir() else {out.name}
    if names and not names & {_RECORD, _LOCK}:
        raise ConfigError(f"{out} exists and is not a comparison; give another folder with --out")


@contextmanager
def alone(out: Path) -> Iterator[None]:
    """Within the block no other process lays out or runs the grid of this folder. The system gives it back with the
    process, however that ends.

    Args:
        out: the folder of a grid; made where it does not exist.

    Raises:
        ConfigError: another process runs it, it holds something else, or it cannot be written.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp()) / "grid"
        >>> with alone(folder), alone(folder):  # doctest: +ELLIPSIS
        ...     print("never reached")
        Traceback (most recent call last):
        groupwise.config.errors.ConfigError: ...: another `groupwise compare` runs this grid now; wait for it or end it, or give another folder with --out
    """  # noqa: E501
    _refuse_other(out)
    try:
        out.mkdir(parents=True, exist_ok=True)
        # Open for writing: file systems of clusters lock no file that is only read. It stays where it is, as another
        # process may wait to open it.
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


def by_need(cells: Sequence[Cell]) -> tuple[list[Outcome], list[Cell]]:
    """Outcomes of the cells that were finished before, and the cells that are still to run.

    Args:
        cells: of a grid.

    Example:
        >>> by_need([])
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
    """Runs what is not finished and yields every cell's outcome as it ends.

    Args:
        cells: what to run.
        workers: processes at a time; each computes with one thread unless `OMP_NUM_THREADS` says otherwise.
        command: what runs a cell.

    Yields:
        one outcome a cell, as it ends; those that were finished before come first.

    Example:
        >>> list(run_grid([], workers=1))
        []
    """
    finished, waiting = by_need(cells)
    yield from finished
    pool = ThreadPoolExecutor(max_workers=workers)
    running = _Processes()
    try:
        futures = [pool.submit(_run, cell, command, running) for cell in waiting]
        for future in as_completed(futures):
            yield future.result()
    finally:
        # Reached early when the caller is interrupted: what runs stops (it can be resumed), and nothing new begins.
        pool.shutdown(wait=False, cancel_futures=True)
        running.stop()
        pool.shutdown(wait=True)


class _Processes:
    """The processes that run now. Once stopped, none starts any more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stopped = False
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, arguments: Command, log: BinaryIO) -> subprocess.Popen[bytes] | None:
        # What is left of a comparison that was killed must not go on in folders that the next one resumes.
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
    """Whether no process trains in a folder; one whose parent died may need a moment to end."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while is_run(folder) and read_run(folder).state == "training":
        if time.monotonic() > until:
            return False
        time.sleep(0.2)
    return True


def run_cell(cell: Cell, command: Callable[[Cell], Command] = Cell.command) -> Outcome:
    """Runs one cell in a process of its own, and waits for it.

    Args:
        cell: which.
        command: what runs it.

    Returns:
        how it ended; nothing is raised, so that one cell never ends the others.
    """
    return _run(cell, command, _Processes())


def _run(cell: Cell, command: Callable[[Cell], Command], running: _Processes) -> Outcome:
    try:
        arguments = command(cell)
        if "resume" not in arguments and cell.folder.is_dir():
            # Cut off before its first checkpoint: nothing in it can be continued.
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
