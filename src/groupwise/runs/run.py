"""One run, read from its folder."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, TypeGuard

from groupwise import file_lock
from groupwise.config import ConfigError, read_json
from groupwise.config.files import MOST_TABLE_BYTES, check_file, read_whole
from groupwise.runs.folder import (
    RunFolder,
    each_line,
    is_run,
    numbers,
    parse,
    read_lines,
    with_slots_at_top,
    written_by,
)

NOTED = "evaluated_on"
"""The entry of a start in `environment.json` that holds the counts."""


@dataclass(frozen=True)
class EvaluatedOn:
    """The number of prompts that a run is evaluated on, and how many of them are also trained on.

    Args:
        num: the number of different prompts that are evaluated; 0 where no prompt is recorded. A folder that does not
            state the number counts as one prompt.
        num_trained: the number of these prompts that any stage trains on.

    Example:
        >>> EvaluatedOn(512, 0).of("greedy/correct"), EvaluatedOn(10, 10).of("ode/seen")
        ('held-out greedy/correct', 'ode/seen on training prompts')
        >>> EvaluatedOn(10, 3).prompts
        'evaluation prompts (3 of 10 trained on)'
    """

    num: int = 0
    num_trained: int = 0

    @staticmethod
    def among(trained: Set[str], evaluated: Set[str]) -> EvaluatedOn:
        """Counts the evaluated prompts, and how many of them are also trained on.

        Args:
            trained, evaluated: one text a prompt, the same for the same prompt.

        Example:
            >>> EvaluatedOn.among({"a", "b"}, {"b", "c"})
            EvaluatedOn(num=2, num_trained=1)
        """
        return EvaluatedOn(len(evaluated), len(evaluated & trained))

    @staticmethod
    def read(config: Mapping[str, Any], starts: Sequence[Any]) -> EvaluatedOn:
        """Reads the counts that a run's folder states; a folder of an older version states none, and its configuration
        implies them.

        Args:
            config: the table in `config.json`.
            starts: the entries of `environment.json`.

        Example:
            >>> EvaluatedOn.read({"domain": {"kind": "diffusion"}}, []).prompts
            'training prompts'
        """
        recorded_counts = starts[-1].get(NOTED) if starts and isinstance(starts[-1], Mapping) else None
        counts = (
            [recorded_counts.get(name) for name in ("num", "num_trained")]
            if isinstance(recorded_counts, Mapping)
            else []
        )
        match counts:
            case [int(num), int(num_trained)]:
                return EvaluatedOn(num, num_trained)
        if not config:
            return EvaluatedOn()
        domain = config.get("domain")
        domain = domain if isinstance(domain, Mapping) else {}
        data = domain.get("data")
        # In older versions only image models could be evaluated on their training prompts, and they were unless the
        # configuration held prompts out.
        num_held_out = data.get("num_held_out") if isinstance(data, Mapping) else None
        return EvaluatedOn(1, int(domain.get("kind") == "diffusion" and not num_held_out))

    @staticmethod
    def read_folder(run: Path) -> EvaluatedOn:
        """Reads the counts from the folder's two small files; both counts are 0 where the files cannot be read.

        Example:
            >>> EvaluatedOn.read_folder(Path("nowhere")).prompts
            'evaluation prompts'
        """
        config, environment = (_table(path) for path in (RunFolder(run).config, RunFolder(run).environment))
        starts = environment.get("starts")
        return EvaluatedOn.read(config, starts if isinstance(starts, list) else [])

    @staticmethod
    def together(parts: Iterable[EvaluatedOn]) -> EvaluatedOn:
        """Returns the counts of one of the runs if all runs describe their prompts in the same words; otherwise no
        counts.

        Args:
            parts: the counts of each run.

        Example:
            >>> (
            ...     EvaluatedOn.together([EvaluatedOn(5, 0), EvaluatedOn(8, 0)]).prompts,
            ...     EvaluatedOn.together([EvaluatedOn(5, 0), EvaluatedOn(5, 5)]).prompts,
            ... )
            ('held-out prompts', 'evaluation prompts')
        """
        distinct_counts = set(parts)
        prompt_names = {counts.prompts for counts in distinct_counts}
        return next(iter(distinct_counts)) if len(prompt_names) == 1 else EvaluatedOn()

    @property
    def prompts(self) -> str:
        """The words for the evaluated prompts."""
        return self.called("prompts")

    def called(self, noun: str) -> str:
        """Returns the words for the evaluated prompts.

        Args:
            noun: `prompts`, or the domain's word for prompts.

        Example:
            >>> EvaluatedOn(8, 0).called("queries")
            'held-out queries'
        """
        if self.num and not self.num_trained:
            return f"held-out {noun}"
        if self.num and self.num_trained >= self.num:
            return f"training {noun}"
        return f"evaluation {noun}" + (f" ({self.num_trained} of {self.num} trained on)" if self.num else "")

    @property
    def around(self) -> tuple[str, str]:
        """The words before and after a metric's name."""
        return ("held-out ", "") if self.num and not self.num_trained else ("", f" on {self.prompts}")

    def of(self, metric: str) -> str:
        """Returns a metric's name with the prompts that the metric was measured on."""
        before, after = self.around
        return f"{before}{metric}{after}"

    def record(self) -> dict[str, int]:
        """Returns plain values for `environment.json`."""
        return {"num": self.num, "num_trained": self.num_trained}


def _table(path: Path) -> dict[str, Any]:
    try:
        table = read_json(path)
    # A person may have damaged or removed the file.
    except (OSError, ValueError):
        return {}
    return table if isinstance(table, dict) else {}


State = Literal["finished", "training", "unfinished"]


@dataclass(frozen=True)
class Run:
    """The readable content of a run folder.

    Args:
        path: the run folder.
        config: the table in `config.json`; empty where the file is missing or damaged.
        starts: the entries of `environment.json`, one a start.
        summary: `summary.json`; `None` before the run has ended.
        rows: the rows of `metrics.jsonl`, one a step (two where a stage begins with an evaluation), in order of the
            steps.
        state: `finished`; `training` while a process holds the folder's lock; `unfinished` after a stop or a kill.
        remarks: one sentence for each file that is missing or damaged.
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
        """The seed, from the first file that states one."""
        for table in (self.config, self.summary or {}, *self.starts):
            if isinstance(seed := table.get("seed"), int):
                return seed
        return None

    @property
    def evaluated_on(self) -> EvaluatedOn:
        """The counts of evaluated prompts, and of those that were trained on."""
        return EvaluatedOn.read(self.config, self.starts)

    @property
    def num_steps(self) -> int:
        """The step of the last row."""
        return int(self.rows[-1]["step"]) if self.rows else 0

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        """The names of all numbers in the rows, in the order in which they first appear."""
        names: dict[str, None] = {}
        for row in self.rows:
            names.update((name, None) for name in [name for name in row if name not in names] if is_number(row[name]))
        return tuple(name for name in names if name != "step")

    def series(self, name: str) -> tuple[list[int], list[float]]:
        """Returns the steps and values of one metric, where it is a finite number.

        Returns:
            two lists of one length.
        """
        points = [(int(row["step"]), float(row[name])) for row in self.rows if is_number(row.get(name))]
        return [step for step, _ in points], [value for _, value in points]

    @cached_property
    def rollouts(self) -> dict[int, Path]:
        """Step -> the file of members sampled in it, in order."""
        return self._numbered("step")

    @cached_property
    def evaluations(self) -> dict[int, Path]:
        """Step -> the file of the evaluation's records after it, in order."""
        return self._numbered("evaluation")

    @cached_property
    def controls(self) -> dict[str, Mapping[str, Any]]:
        """Name of a control that was trained alongside the run -> the control's `summary.json`, in the order of the
        configuration; damaged files are left out.
        """
        configured = self.config.get("controls")
        order = list(configured) if isinstance(configured, Mapping) else []
        places = {name: place for place, name in enumerate(order)}
        folder = RunFolder(self.path)
        names = sorted(folder.ended_controls, key=lambda name: places.get(name, len(places)))
        summaries = {name: _document(folder.control(name).summary, None, []) for name in names}
        return {name: summary for name, summary in summaries.items() if summary is not None}

    @cached_property
    def tables(self) -> dict[str, Mapping[str, Any]]:
        """Name of a table that the domain made at the end -> its content, by name; damaged files are left out."""
        tables = {path.stem: _document(path, None, []) for path in sorted(RunFolder(self.path).tables.glob("*.json"))}
        return {name: content for name, content in tables.items() if content is not None}

    @property
    def whole_from(self) -> int | None:
        """The first step from which on no file of rollouts was removed; `None` where the run removed none."""
        track = self.config.get("track")
        newest = track.get("keep_records") if isinstance(track, Mapping) else None
        steps = list(self.rollouts)
        return steps[-newest] if isinstance(newest, int) and 0 < newest < len(steps) else None

    def pictures(self, step: int) -> dict[str, Path]:
        """Returns the pictures of the evaluation after a step, by name."""
        return {
            path.stem: path for path in sorted(RunFolder(self.path).evaluation_at(step).with_suffix("").glob("*.png"))
        }

    def records(self, path: Path, remarks: list[str]) -> Iterator[dict[str, Any]]:
        """Yields the records of one file of `rollouts` or `evaluations`, one after the other.

        Args:
            remarks: receives sentences about unreadable lines.

        Yields:
            one record a member.
        """
        return each_line(path, remarks)

    def _numbered(self, kind: str) -> dict[int, Path]:
        paths = {}
        for path in RunFolder(self.path).rollouts.glob(f"{kind}-*.jsonl"):
            number = path.stem.removeprefix(f"{kind}-")
            if number.isdecimal():
                paths[int(number)] = path
        return dict(sorted(paths.items()))


def read_run(path: Path) -> Run:
    """Reads the readable part of a run folder.

    Returns:
        the run, with one remark for each file that is missing or damaged.

    Raises:
        ConfigError: the folder does not exist or holds no file of a run.

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
    config = with_slots_at_top(_document(folder.config, "how the run was configured is unknown", remarks) or {})
    environment = _document(folder.environment, "what it ran on is unknown", remarks) or {}
    starts = [start for start in _as_list(environment.get("starts")) if isinstance(start, dict)]
    installed, wrote = metadata.version("groupwise"), written_by(folder)
    if wrote is not None and numbers(wrote) > numbers(installed):
        remarks.append(f"groupwise {wrote} wrote this run and {installed} reads it: what is new in it is not shown")
    lines = read_lines(folder.metrics)
    remarks += lines.remarks
    summary = _document(folder.summary, None, remarks)
    state: State = "finished" if summary is not None else "training" if is_training(path) else "unfinished"
    if state == "training":
        remarks.append("a process is training in it now: what follows is how far it has come")
    elif state == "unfinished":
        remarks.append(f"summary.json is not there: the run has not ended; go on with `groupwise resume {path}`")
    return Run(path, config, starts, summary, _by_step(lines.rows, remarks), state, remarks)


def is_number(value: object) -> TypeGuard[int | float]:
    """Returns whether a value of a row can be drawn: a finite number that is not a truth value.

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
    """Merges the rows of one step and stage, in order. A stage that ends early, or whose last evaluation differs from
    the one before, writes a second row for its step. If a step was repeated, its later values count.
    """
    row_at: dict[tuple[int, str], Mapping[str, Any]] = {}
    missing = 0
    for row in rows:
        if is_number(step := row.get("step")):
            place = (int(step), str(row.get("stage") or ""))
            row_at[place] = {**row_at[place], **row} if place in row_at else row
        else:
            missing += 1
    if missing:
        remarks.append(f"metrics.jsonl: {missing} rows have no step and are left out")
    return [row_at[place] for place in sorted(row_at, key=lambda place: place[0])]


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


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def is_training(path: Path) -> bool:
    """Returns whether a process trains in a run folder: it locks `config.json` as long as it lives."""
    config = RunFolder(path).config
    try:
        check_file(config)
        with config.open("rb") as file:
            return not file_lock.take(file.fileno(), shared=True)
    except OSError:
        return False


# The score of an evaluation's record by a metric.


def score(record: Mapping[str, Any], name: str, weights: Mapping[str, float]) -> float | None:
    """Returns a record's value of a metric; `None` where the record has no such value.

    Args:
        record: one line of `rollouts/evaluation-STEP.jsonl`.
        name: the metric without its mode: a reward's name, `length`, or `reward` for the weighted sum.
        weights: reward -> weight in the sum; 1 for a reward that is absent here.

    Example:
        >>> record = {"rewards": {"correct": 1.0, "brief": 0.5}, "num_tokens": 3}
        >>> [score(record, name, {"brief": 2.0}) for name in ("correct", "length", "reward", "other")]
        [1.0, 3, 2.0, None]
    """
    rewards = record.get("rewards")
    rewards = rewards if isinstance(rewards, Mapping) else {}
    if name in rewards:
        return rewards[name]
    if name == "length":
        return record.get("num_tokens")
    if name == "reward":
        # A record may hold judges and measures in addition to rewards. Only the domain can distinguish them, so its sum
        # takes precedence where the record has one.
        if "reward" in record:
            return record["reward"]
        return _total((rewards.get(reward_name), weights.get(reward_name, 1.0)) for reward_name in rewards)
    return None


def split_metric(metric: str, records: Iterable[Mapping[str, Any]]) -> tuple[str, str]:
    """Returns the mode and the name of a metric of an evaluation: `SET/MODE/NAME`, or `MODE/NAME` without a set's name.

    Args:
        records: the records of the evaluation; their modes tell where the name begins, which may have a `/` too.

    Example:
        >>> split_metric("hard/greedy/correct", [{"mode": "hard/greedy"}]), split_metric("greedy/a/b", [{}])
        (('hard/greedy', 'correct'), ('greedy', 'a/b'))
    """
    modes = {mode for record in records if isinstance(mode := record.get("mode"), str)}
    mode = max((mode for mode in modes if metric.startswith(f"{mode}/")), key=len, default=metric.partition("/")[0])
    return mode, metric[len(mode) + 1 :]


def reward_weights(config: Mapping[str, Any]) -> dict[str, float]:
    """Returns reward -> weight in the sum, from a resolved configuration; the weight of a judge is 0, and an
    environment states its weight.

    Args:
        config: the table in `config.json`.

    Example:
        >>> reward_weights({"domain": {"rewards": {"brief": {"weight": 0.5}}, "environment": {"weight": 2.0}}})
        {'brief': 0.5, 'environment': 2.0}
    """
    domain = config.get("domain", {})
    rewards = domain.get("rewards")
    # Another package's domain may use these keys for something else.
    tables = {**(rewards if isinstance(rewards, Mapping) else {}), "environment": domain.get("environment")}
    return {
        name: 0.0 if reward.get("role") == "judge" else float(reward.get("weight", 1.0))
        for name, reward in tables.items()
        if isinstance(reward, Mapping) and reward
    }


def _total(weighted_values: Iterable[tuple[float | None, float]]) -> float | None:
    """Returns the weighted sum; where a reward is missing, the sum of the others is scaled to the total weight."""
    counted = [(value, weight) for value, weight in weighted_values if weight != 0]
    present = [(value, weight) for value, weight in counted if value is not None]
    if not present:
        return None
    return (
        sum(value * weight for value, weight in present)
        * sum(abs(weight) for _, weight in counted)
        / sum(abs(weight) for _, weight in present)
    )
