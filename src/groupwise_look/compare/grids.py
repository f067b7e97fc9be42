"""A grid: every variant of an experiment with every seed, run by worker processes, continued where it stopped.

    OUT/comparison.json                 the experiment's name, the variants and the seeds
    OUT/comparison.lock                 held while the grid is laid out and runs
    OUT/<variant>/experiment.json       the variant's resolved configuration
    OUT/<variant>/seed-<n>/             a run folder
    OUT/<variant>/seed-<n>.log          the output of the run's process

A cell is finished when its run folder has a `summary.json`. A cell that was cut off is resumed from its checkpoint, or
begun again where it has none. A cell that failed is reported, and the other cells go on.
"""

import hashlib
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, final

from pydantic import TypeAdapter, ValidationError

from groupwise import file_lock
from groupwise.config import ConfigError, difference, read_json
from groupwise.processes import PARENT, num_processes
from groupwise.runs import read_run, reward_weights
from groupwise.runs.folder import RunFolder, is_run, require_known_version

# The variants of a comparison: every combination of the values of its keys.


@final
@dataclass(frozen=True)
class Variant:
    """A set of changes with which a comparison runs an experiment.

    Args:
        overrides: the changes, `key=value` items.

    Example:
        >>> Variant(("method=dapo", "trust.high=0.3")).folder
        'method=dapo__trust.high=0.3'
    """

    overrides: tuple[str, ...]

    @property
    def name(self) -> str:
        """The variant's name in tables."""
        return " ".join(self.overrides) or "as it is"

    @property
    def folder(self) -> str:
        """The name of the variant's folder: the items where a path can hold them, and otherwise a similar text with a
        hash of the items.
        """
        items = "__".join(self.overrides) or "as-it-is"
        plain = re.sub(r"[^A-Za-z0-9._=+-]+", "_", items)
        if plain == items and len(items) <= 100:
            return items
        return f"{plain[:100].strip('_')}-{hashlib.sha256(items.encode()).hexdigest()[:6]}"


def variants(vary: Sequence[str]) -> list[Variant]:
    """Returns the product of `key=a,b,c` items, in their order; commas inside brackets or quotes do not separate.

    Args:
        vary: `key=a,b` items; without any, the only variant has no changes.

    Returns:
        every combination, the last key varying fastest.

    Raises:
        ConfigError: an item has no values, or a key or a value appears twice.

    Example:
        >>> [variant.name for variant in variants(["method=grpo,dapo", "train.group_size=4,8"])]
        ['method=grpo train.group_size=4', 'method=grpo train.group_size=8', 'method=dapo train.group_size=4', 'method=dapo train.group_size=8']
    """  # noqa: E501
    axes: dict[str, list[str]] = {}
    for assignment in vary:
        key, equals, text = assignment.partition("=")
        values = _split(text)
        if not equals or not key.strip() or not all(values):
            raise ConfigError(
                f"--vary {assignment!r} is not key=a,b; write for example --vary trust.kind=clip,gaussian"
            )
        if key.strip() == "seed":
            raise ConfigError(
                f"--vary {assignment!r}: every variant is run with the same seeds, so that runs pair up; write"
                f" --first-seed {values[0]} --seeds {len(values)}"
            )
        if key in axes:
            raise ConfigError(
                f"--vary names {key!r} twice; give all its values in one, --vary"
                f" {key}={','.join([*axes[key], *values])}"
            )
        if len(set(values)) < len(values):
            raise ConfigError(f"--vary {assignment!r} gives a value twice; each variant is run once for each seed")
        axes[key] = values
    return [
        Variant(tuple(f"{key}={value}" for key, value in zip(axes, combination, strict=True)))
        for combination in itertools.product(*axes.values())
    ]


def _split(text: str) -> list[str]:
    """Splits a text at its commas, except inside quotes and brackets."""
    values, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        depth += (character in "[{") - (character in "]}") if not quote else 0
        if character == "," and depth == 0 and not quote:
            values.append("")
        else:
            values[-1] += character
    return [value.strip() for value in values]


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

    Example:
        >>> cell = Cell(Variant(("method=dapo",)), 0, Path("runs/grid/method=dapo/seed-0"))
        >>> cell.finished, cell.log.as_posix()
        (False, 'runs/grid/method=dapo/seed-0.log')
    """

    variant: Variant
    seed: int
    folder: Path

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
        return [*head, "train", str(experiment), "--seed", str(self.seed), "--out", str(self.folder), "--run-code"]

    def _as_laid_out(self, experiment: Path) -> bool:
        """Returns whether the run's configuration is the one that the grid wrote, and not another one in its folder."""
        try:
            return read_json(RunFolder(self.folder).config) == {**read_json(experiment), "seed": self.seed}
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
                pairs = list(changed.items())[:5]
                keys = ", ".join(f"{key} ({there!r} there, {value!r} now)" for key, (there, value) in pairs)
                raise ConfigError(
                    f"{out} holds {variant.name!r} with another configuration: {keys}; give another folder with --out"
                )
    try:
        for variant, configuration in configurations.items():
            (out / variant.folder).mkdir(parents=True, exist_ok=True)
            write_table(out / variant.folder / "experiment.json", configuration)
        names = {variant.folder: list(variant.overrides) for variant in configurations}
        write_table(out / _RECORD, {"experiment": experiment, "variants": names, "seeds": list(seeds)})
    except OSError as error:
        raise ConfigError(f"{out} cannot be written ({error.strerror}); give another folder with --out") from None
    return [Cell(variant, seed, out / variant.folder / f"seed-{seed}") for seed in seeds for variant in configurations]


def write_table(path: Path, table: Mapping[str, Any]) -> Path:
    """Writes a table as JSON for people, and returns its path."""
    path.write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")
    return path


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
            " compare` without torchrun, and spread its runs by --workers"
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


def run_grid(
    cells: Sequence[Cell], *, workers: int, command: Callable[[Cell], Command] = Cell.command
) -> Iterator[Outcome]:
    """Runs the unfinished cells of a grid and yields every cell's outcome as the cell ends.

    Args:
        workers: processes at a time; each computes with one thread unless `OMP_NUM_THREADS` sets another number.
        command: returns the command that runs a cell.

    Yields:
        one outcome a cell, as it ends; cells that were finished before come first.

    Example:
        >>> list(run_grid([], workers=1))
        []
    """
    ended = {cell.folder: cell.finished for cell in cells}
    yield from (Outcome(cell, skipped=True) for cell in cells if ended[cell.folder])
    pool = ThreadPoolExecutor(max_workers=workers)
    running = _Processes()
    try:
        futures = [pool.submit(_run, cell, command, running) for cell in cells if not ended[cell.folder]]
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


# The bounds of an evaluation's scores, which no interval leaves.

Bounds = tuple[float, float]


def score_bounds(config: Mapping[str, Any], metric: str, scores: Iterable[float]) -> Bounds | None:
    """Returns the lowest and the highest value that a metric of an evaluation can have, or `None` where none are known.

    A reward states its bounds (`ends`), and the bounds of the weighted sum of rewards are the weighted sums of their
    bounds. Other metrics of a domain are shares, an accuracy for example, unless a score is outside 0 and 1. Bounds
    that a score contradicts are ignored: a reward without bounds states 0 and 1.

    Args:
        config: the content of the run's `config.json`.
        metric: `mode/name`, as the summary names it.
        scores: one score a prompt, of every run that is compared.

    Example:
        >>> config = {
        ...     "domain": {"rewards": {"correct": {"kind": "exact_answer"}, "psnr": {"kind": "psnr", "weight": 0.5}}}
        ... }
        >>> score_bounds(config, "greedy/correct", [0.0, 1.0]), score_bounds(config, "restored/psnr", [27.5])
        ((0.0, 1.0), None)
        >>> score_bounds(config, "greedy/reward", [0.5]), score_bounds(config, "selected/accuracy", [0.5])
        ((0.0, 1.5), (0.0, 1.0))
    """
    name = metric.rpartition("/")[2]
    domain = config.get("domain")
    table = domain.get("rewards") if isinstance(domain, Mapping) else None
    table = table if isinstance(table, Mapping) else {}
    rewards = {key: reward for key, reward in table.items() if isinstance(reward, Mapping)}
    bounds: Bounds | None = (0.0, 1.0)
    if name in rewards:
        bounds = _ends(rewards[name])
    elif name == "reward" and rewards:
        weights = {key: weight for key, weight in reward_weights(config).items() if weight != 0 and key in rewards}
        ends = {key: _ends(rewards[key]) for key in weights}
        scaled = [sorted((weights[key] * end[0], weights[key] * end[1])) for key, end in ends.items() if end]
        lows, highs = [low for low, _ in scaled], [high for _, high in scaled]
        bounds = (sum(lows), sum(highs)) if len(scaled) == len(weights) else None
    return bounds if bounds is not None and all(bounds[0] <= score <= bounds[1] for score in scores) else None


def difference_bounds(bounds: Bounds | None) -> Bounds | None:
    """Returns the bounds of the difference of two scores.

    Args:
        bounds: the bounds of each score.

    Example:
        >>> difference_bounds((0.0, 1.0)), difference_bounds(None)
        ((-1.0, 1.0), None)
    """
    return None if bounds is None else (bounds[0] - bounds[1], bounds[1] - bounds[0])


def _ends(table: Any) -> Bounds | None:
    """Returns the bounds that a reward's settings give; `None` for a table that is not a reward of this version."""
    from groupwise.reward import RewardConfig

    try:
        return TypeAdapter(RewardConfig).validate_python(table).ends
    except ValidationError:
        return None
