"""One run as its folder tells it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, TypeGuard, final

from groupwise import file_lock
from groupwise.config import ConfigError
from groupwise.config.files import MOST_TABLE_BYTES, check_file, read_whole
from groupwise.runs.evaluated import EvaluatedOn
from groupwise.runs.find import is_run
from groupwise.runs.folder import RunFolder
from groupwise.runs.lines import each_line, parse, read_lines

State = Literal["finished", "training", "unfinished"]


@final
@dataclass(frozen=True)
class Run:
    """What a run folder holds, as far as it could be read.

    Args:
        path: the folder.
        config: `config.json`; empty where it is missing or damaged.
        starts: the entries of `environment.json`, one a start.
        summary: `summary.json`; `None` before the run has ended.
        rows: of `metrics.jsonl`, one a step (two where a stage begins with a measurement of its own), in order of the
            steps.
        state: ended; being written now by a process that holds the folder; or neither (stopped, killed).
        remarks: what is missing or damaged, in sentences.
    """

    path: Path
    config: Mapping[str, Any]
    starts: Sequence[Mapping[str, Any]]
    summary: Mapping[str, Any] | None
    rows: Sequence[Mapping[str, Any]]
    state: State
    remarks: Sequence[str]

    @property
    def name(self) -> str:
        """The experiment's name, or the folder's where the configuration is lost."""
        name = self.config.get("name")
        return name if isinstance(name, str) and name else self.path.resolve().name

    @property
    def seed(self) -> int | None:
        """The seed, where anything says it."""
        for table in (self.config, self.summary or {}, *self.starts):
            if isinstance(seed := table.get("seed"), int):
                return seed
        return None

    @property
    def evaluated_on(self) -> EvaluatedOn:
        """Whether the prompts of its evaluations were trained on."""
        return EvaluatedOn.read(self.config, self.starts)

    @property
    def num_steps(self) -> int:
        """The last step with a row."""
        return int(self.rows[-1]["step"]) if self.rows else 0

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        """Names of all numbers in the rows, in the order in which they first appear."""
        names = dict.fromkeys(name for row in self.rows for name, value in row.items() if is_number(value))
        return tuple(name for name in names if name != "step")

    def series(self, name: str) -> tuple[list[int], list[float]]:
        """Steps and values of one metric, where it is a finite number.

        Args:
            name: of a metric.

        Returns:
            two lists of one length.
        """
        pairs = [(int(row["step"]), float(row[name])) for row in self.rows if is_number(row.get(name))]
        return [step for step, _ in pairs], [value for _, value in pairs]

    @cached_property
    def rollouts(self) -> dict[int, Path]:
        """Step -> the file of members sampled in it, in order."""
        return self._numbered("step")

    @cached_property
    def evaluations(self) -> dict[int, Path]:
        """Step -> the file of what an evaluation recorded after it, in order."""
        return self._numbered("evaluation")

    @cached_property
    def controls(self) -> dict[str, Mapping[str, Any]]:
        """Name of a control that was trained beside the run -> its own `summary.json`, in the order of the
        configuration; damaged ones are left out.
        """
        configured = self.config.get("controls")
        order = list(configured) if isinstance(configured, Mapping) else []
        places = {name: place for place, name in enumerate(order)}
        folder = RunFolder(self.path)
        names = sorted(folder.ended_controls, key=lambda name: places.get(name, len(places)))
        read = {name: _document(folder.control(name).summary, None, []) for name in names}
        return {name: summary for name, summary in read.items() if summary is not None}

    @property
    def whole_from(self) -> int | None:
        """The step from which on every file of rollouts is there; `None` where there are no more than a run keeps, so
        that none was left out.
        """
        track = self.config.get("track")
        newest = track.get("keep_records") if isinstance(track, Mapping) else None
        steps = list(self.rollouts)
        return steps[-newest] if isinstance(newest, int) and 0 < newest < len(steps) else None

    def pictures(self, step: int) -> dict[str, Path]:
        """Name -> picture that the evaluation after a step left.

        Args:
            step: of the run.
        """
        return {
            path.stem: path for path in sorted(RunFolder(self.path).evaluation_at(step).with_suffix("").glob("*.png"))
        }

    def records(self, path: Path, remarks: list[str]) -> Iterator[dict[str, Any]]:
        """The records of one file of `rollouts` or `evaluations`, one after the other.

        Args:
            path: of the file.
            remarks: sentences on what cannot be read are added here.

        Yields:
            one record a member.
        """
        return each_line(path, remarks)

    def _numbered(self, kind: str) -> dict[int, Path]:
        found = {}
        for path in RunFolder(self.path).rollouts.glob(f"{kind}-*.jsonl"):
            number = path.stem.removeprefix(f"{kind}-")
            if number.isdecimal():
                found[int(number)] = path
        return dict(sorted(found.items()))


def read_run(path: Path) -> Run:
    """Reads a run folder as far as it goes.

    Args:
        path: the folder.

    Returns:
        the run, with a remark for everything that is missing or damaged.

    Raises:
        ConfigError: there is no such folder, or nothing of a run in it.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "metrics.jsonl").write_text('{"step": 1, "reward": 0.5}\\n{"step": 2, "rew')
        >>> run = read_run(folder)
        >>> run.series("reward"), run.state
        (([1], [0.5]), 'unfinished')
        >>> run.remarks[0]
        'config.json is not there: how the run was configured is unknown'
    """
    if not path.is_dir():
        raise ConfigError(f"no such run folder: {path}; runs lie in runs/ unless --out said otherwise")
    folder = RunFolder(path)
    if not (is_run(path) or folder.is_run):
        raise ConfigError(
            f"{path} is not a run folder: it has neither config.json nor metrics.jsonl; give the folder that `groupwise"
            " train` printed"
        )
    remarks: list[str] = []
    config = _document(folder.config, "how the run was configured is unknown", remarks) or {}
    environment = _document(folder.environment, "what it ran on is unknown", remarks) or {}
    starts = [start for start in _listed(environment.get("starts")) if isinstance(start, dict)]
    remarks += _newer(starts)
    rows = read_lines(folder.metrics)
    remarks += rows.remarks
    summary = _document(folder.summary, None, remarks)
    state: State = "finished" if summary is not None else "training" if _held(folder.config) else "unfinished"
    if state == "training":
        remarks.append("a process is training in it now: what follows is how far it has come")
    elif state == "unfinished":
        remarks.append(f"summary.json is not there: the run has not ended; go on with `groupwise resume {path}`")
    return Run(path, config, starts, summary, _by_step(rows.rows, remarks), state, remarks)


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a value of a row can be drawn: a finite number, and no truth value.

    Args:
        value: any.

    Example:
        >>> [is_number(value) for value in (1, 0.5, float("inf"), True, None, "1", 10**400)]
        [True, True, False, False, False, False, False]
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _by_step(rows: Sequence[Mapping[str, Any]], remarks: list[str]) -> list[Mapping[str, Any]]:
    """One row a step and stage, in order. A stage that ends early has its last evaluation in a row of its own, and one
    that is measured otherwise than the one before begins with a row at its step; a step that was run again counts as it
    was run last.
    """
    found: dict[tuple[int, str], Mapping[str, Any]] = {}
    for row in rows:
        if is_number(row.get("step")):
            place = (int(row["step"]), str(row.get("stage") or ""))
            found[place] = {**found.get(place, {}), **row}
    if missing := sum(not is_number(row.get("step")) for row in rows):
        remarks.append(f"metrics.jsonl: {missing} rows have no step and are left out")
    return [found[place] for place in sorted(found, key=lambda place: place[0])]


def _document(path: Path, lost: str | None, remarks: list[str]) -> dict[str, Any] | None:
    try:
        table = parse(read_whole(path, MOST_TABLE_BYTES))
    except FileNotFoundError:
        if lost:
            remarks.append(f"{path.name} is not there: {lost}")
        return None
    except OSError as error:
        remarks.append(f"{path.name} cannot be read ({error.strerror})")
        return None
    except (ValueError, RecursionError):
        table = None
    if not isinstance(table, dict):
        remarks.append(f"{path.name} is damaged" + (f": {lost}" if lost else " and is left out"))
        return None
    return table


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _newer(starts: Sequence[Mapping[str, Any]]) -> list[str]:
    """A sentence where a later version wrote the run than the one that reads it."""
    versions = [start.get("versions") for start in starts]
    wrote = [str(each["groupwise"]) for each in versions if isinstance(each, dict) and "groupwise" in each]
    here = metadata.version("groupwise")
    newer = [version for version in wrote if _numbers(version) > _numbers(here)]
    return (
        [f"groupwise {newer[-1]} wrote this run and {here} reads it: what is new in it is not shown"] if newer else []
    )


def _numbers(version: str) -> tuple[int, ...]:
    parts = version.split("+")[0].split(".")
    return tuple(
        int(digits) for part in parts[:3] if (digits := "".join(char for char in part if char in "0123456789"))
    )


def _held(path: Path) -> bool:
    """Whether a process trains in the folder: it holds a lock on `config.json` as long as it lives."""
    try:
        check_file(path)
        with path.open("rb") as file:
            return not file_lock.take(file.fileno(), shared=True)
    except OSError:
        return False
