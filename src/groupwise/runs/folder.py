"""The names of a run's files and folders, which every reader and writer of a run takes from here."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from groupwise.config import ConfigError, read_json
from groupwise.config.files import MOST_TABLE_BYTES, check_file, read_whole


class _Inside:
    """A path inside a run folder, by the name of its file or folder."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, run: RunFolder, owner: type[RunFolder]) -> Path:
        return run.path / self.name


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

    config = _Inside("config.json")
    """`config.json`, the resolved configuration."""
    environment = _Inside("environment.json")
    """`environment.json`, one entry a start."""
    metrics = _Inside("metrics.jsonl")
    """`metrics.jsonl`, one row a step."""
    summary = _Inside("summary.json")
    """`summary.json`, which a run has once it has ended."""
    rollouts = _Inside("rollouts")
    """The folder of sampled members."""
    tables = _Inside("tables")
    """The folder of the tables that a domain makes at the end."""
    checkpoints = _Inside("checkpoints")
    """The folder of checkpoints."""
    warm_up = _Inside("warm_up")
    """The folder of the state after the leading stages that sample nothing, where another run may start."""
    controls = _Inside("controls")
    """The folder of the controls' run folders."""
    models = _Inside("models")
    """The folder of the models of single steps."""
    model = _Inside("model")
    """The folder of the final model."""
    best = _Inside("best")
    """The folder of the model with the best score of an evaluation."""

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
    def ended_controls(self) -> list[str]:
        """The names of the controls that have ended, sorted."""
        return sorted(path.parent.name for path in self.controls.glob(f"*/{self.summary.name}"))

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


def with_slots_at_top(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a run's configuration with the slots of the objective at its top; earlier versions wrote them below
    `objective`.

    Args:
        config: the content of `config.json`.

    Example:
        >>> with_slots_at_top({"seed": 1, "objective": {"name": "grpo", "trust": {"kind": "clip"}}})
        {'seed': 1, 'trust': {'kind': 'clip'}}
    """
    slots = config.get("objective")
    if not isinstance(slots, Mapping):
        return dict(config)
    other_keys = {key: value for key, value in config.items() if key != "objective"}
    return other_keys | {key: slot for key, slot in slots.items() if key != "name"}


# The order in which people sort names with numbers.


def natural(path: Path) -> tuple[tuple[int, int | str], ...]:
    """Returns a sort key by which `step-9` comes before `step-10`.

    Args:
        path: a path; its last name is compared.

    Returns:
        the texts and numbers of the name, in turn.

    Example:
        >>> [path.name for path in sorted([Path("step-10"), Path("step-9")], key=natural)]
        ['step-9', 'step-10']
    """
    return tuple((0, int(part)) if part.isdecimal() else (1, part) for part in re.split(r"(\d+)", path.name) if part)


# Finds the run folders that a path stands for.

DEPTH = 3
"""The number of folder levels that are searched for runs. The runs of a comparison are two levels down."""


def is_run(folder: Path) -> bool:
    """Returns whether a folder holds a run, or the remains of a run. A model's folder has a `config.json` as well, but
    holds no run.

    Example:
        >>> is_run(Path("nowhere"))
        False
    """
    run = RunFolder(folder)
    return run.metrics.is_file() or run.environment.is_file() or (run.is_run and run.rollouts.is_dir())


def find_runs(paths: Iterable[Path], *, warm_ups: bool = False) -> list[Path]:
    """Returns the run folders among `paths` and below them, each once, in the order of `paths`; those of a comparison
    in the order of its variants, those of other folders by name.

    The controls and models inside a run folder belong to that run and are not listed.

    Args:
        paths: run folders, comparisons, or folders of either.
        warm_ups: also list the warm-ups that variants of a comparison share; they are listed in any case where they are
            named, or where no variant has a run yet.

    Returns:
        at least one folder.

    Raises:
        ConfigError: a path does not exist, or holds no run.

    Example:
        >>> find_runs([Path("nowhere")])
        Traceback (most recent call last):
        groupwise.config.errors.ConfigError: no such folder: nowhere; runs lie in runs/ unless --out said otherwise
    """
    runs_by_path: dict[Path, Path] = {}
    for path in paths:
        if not path.is_dir():
            raise ConfigError(f"no such folder: {path}; runs lie in runs/ unless --out said otherwise")
        runs = _below([path], DEPTH, warm_ups)
        if not runs:
            raise ConfigError(
                f"{path} holds no run: no metrics.jsonl in it or up to {DEPTH} folders down; give a folder that"
                " `groupwise train` printed"
            )
        for run in runs:
            runs_by_path.setdefault(run.resolve(), run)
    return list(runs_by_path.values())


def _below(folders: Sequence[Path], depth: int, warm_ups: bool) -> list[Path]:
    runs: list[Path] = []
    for folder in folders:
        if is_run(folder):
            runs.append(folder)
        elif depth:
            children = sorted(
                (child for child in folder.iterdir() if child.is_dir() and not child.name.startswith(".")), key=natural
            )
            order = _order(folder)
            children.sort(key=lambda child: order.get(child.name, len(order)))
            # A comparison's folder also holds the warm-ups that its variants share, which are not results.
            shared = not warm_ups and (folder / "comparison.json").is_file()
            results = [
                child for child in children if child.name in order or not (shared and child.name.startswith("warm-up-"))
            ]
            found = _below(results, depth - 1, warm_ups)
            runs += found or _below(children, depth - 1, warm_ups)
    return runs


def _order(folder: Path) -> dict[str, int]:
    """Returns the places of a comparison's variants by name; empty where the folder holds no comparison or a damaged
    one.
    """
    try:
        variants = json.loads(read_whole(folder / "comparison.json", MOST_TABLE_BYTES))["variants"]
        return {str(name): place for place, name in enumerate(variants)}
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return {}


# The version of Groupwise that wrote a run folder, and whether the installed version can go on with the run.

FIRST_READ = (0, 2)
"""The oldest version, major and minor, whose configurations and checkpoints the installed version reads."""


def written_by(folder: RunFolder) -> str | None:
    """Returns the version that started the run last, and `None` where the folder does not state it."""
    try:
        starts = read_json(folder.environment).get("starts")
    except ConfigError:
        return None
    start = starts[-1] if isinstance(starts, list) and starts else None
    versions = start.get("versions") if isinstance(start, dict) else None
    value = versions.get("groupwise") if isinstance(versions, dict) else None
    return value if isinstance(value, str) and numbers(value) else None


def require_known_version(folder: RunFolder, installed: str | None = None) -> None:
    """Refuses to go on with a run that another, incompatible version wrote; a run of an unknown version passes.

    Args:
        folder: a run folder.
        installed: the version that asks; the installed one by default.

    Raises:
        ConfigError: the run's version is older than `FIRST_READ`, or newer than the installed one.

    Example:
        >>> from pathlib import Path
        >>> require_known_version(RunFolder(Path("nowhere")))
    """
    theirs, ours = written_by(folder), installed or version("groupwise")
    if theirs is None or FIRST_READ <= numbers(theirs) <= numbers(ours):
        return
    if numbers(theirs) > numbers(ours):
        raise ConfigError(
            f"{folder.path} was written by Groupwise {theirs}, and {ours} is installed; install {theirs} or later to go"
            " on with the run (groupwise report and doctor read it)"
        )
    raise ConfigError(
        f"{folder.path} was written by Groupwise {theirs}, whose configuration and checkpoints {ours} does not read;"
        f" go on with {theirs} (pip install '.' in a checkout of that version), or train anew into another folder"
        " (groupwise report, doctor and export read the run)"
    )


_TEXTS = re.compile(r'"([^"\\]{1,200})"')


@contextlib.contextmanager
def naming_start(folder: RunFolder) -> Iterator[None]:
    """Adds to an error of the block the folder in which the run was started, where files that its configuration names
    by relative paths are there and not here.

    Raises:
        ConfigError: the error of the block, with the folder.
    """
    try:
        yield
    except ConfigError as error:
        try:
            start = Path(read_json(folder.environment)["starts"][0]["started_in"])
            texts = _TEXTS.findall(folder.config.read_text(encoding="utf-8"))
        except (OSError, ValueError, KeyError, TypeError, IndexError):
            raise error from error.__cause__
        # `my_rewards:correct` is in `my_rewards.py`.
        named = [Path(name) for text in texts for name in (text, f"{text.partition(':')[0]}.py")]
        lost = [str(path) for path in named if not path.exists() and (start / path).exists()]
        if not lost:
            raise
        gone = f"{folder.path} was started in {start}, which holds {', '.join(dict.fromkeys(lost))}; go there first"
        raise ConfigError(f"{error}; {gone}") from error


def numbers(text: str) -> tuple[int, ...]:
    """Returns the major and minor number of a version."""
    return tuple(int(number) for number in re.findall(r"\d+", text)[:2])


# JSON objects, one a line, read up to the first damage and beyond it.

_MOST_DIGITS = 300
"""The number of digits of a whole number that a float can still hold."""

_SHAPE = bytes.maketrans(b"123456789E", b"000000000e")
_SIGNS = b"+-"
_LONG, _GREAT = b"0" * (_MOST_DIGITS // 2), b"e000"
"""Digits and exponents, every digit written as 0 and without signs, of numbers that may not be finite."""


@dataclass(frozen=True)
class Lines:
    """The objects of a file of JSON lines.

    Args:
        rows: the objects, in order.
        remarks: one sentence for each kind of line that could not be read.
    """

    rows: list[dict[str, Any]]
    remarks: list[str]


def read_lines(path: Path) -> Lines:
    """Reads every whole object of a file, and describes the unreadable lines in sentences; never raises.

    A last line without a line feed that is not a whole object is being written now, or was cut in half by a crash.

    Args:
        path: the file; an absent file has no objects.

    Returns:
        the objects and the remarks.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "metrics.jsonl"
        >>> _ = path.write_text('{"step": 1}\\n[2]\\n{"step": 3, "kl": NaN}\\n{"st')
        >>> read_lines(path).rows
        [{'step': 1}, {'step': 3, 'kl': None}]
        >>> read_lines(path).remarks
        ['metrics.jsonl: line 2 is no JSON object and is left out', 'metrics.jsonl: the last line is cut off and is left out']
    """  # noqa: E501
    remarks: list[str] = []
    return Lines(list(each_line(path, remarks)), remarks)


def each_line(path: Path, remarks: list[str]) -> Iterator[dict[str, Any]]:
    """Yields the objects of `read_lines` one after the other, for files that are too large for memory.

    Args:
        remarks: receives the sentences once the file has been read; all broken lines share one sentence.

    Yields:
        one object a line; `NaN` and infinities are `None`.

    Example:
        >>> remarks = []
        >>> list(each_line(Path("nowhere.jsonl"), remarks)), remarks
        ([], ['nowhere.jsonl is not there'])
    """
    broken: list[int] = []
    last_line_is_cut = False
    try:
        check_file(path)
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                try:
                    row = parse(line)
                # A line of a thousand nested brackets raises RecursionError and counts as damaged.
                except (ValueError, RecursionError):
                    row = None
                if isinstance(row, dict):
                    yield row
                elif line.endswith(b"\n"):
                    broken.append(number)
                else:
                    last_line_is_cut = True
    except FileNotFoundError:
        remarks.append(f"{path.name} is not there")
    except OSError as error:
        remarks.append(f"{path.name} cannot be read ({error.strerror})")
    if broken:
        remarks.append(f"{path.name}: {_describe_lines(broken)} and {'is' if len(broken) == 1 else 'are'} left out")
    if last_line_is_cut:
        remarks.append(f"{path.name}: the last line is cut off and is left out")


def parse(content: bytes) -> Any:
    """Parses JSON of a run folder; a number that is not finite, or too large for a float, becomes `None`.

    Args:
        content: UTF-8; bytes that are not valid UTF-8 are replaced.

    Raises:
        ValueError: the content is not JSON.
        RecursionError: the content is nested too deep.

    Example:
        >>> parse(b"[NaN, 1e999, 12, 1" + b"0" * 400 + b"]")
        [None, None, 12, None]
    """
    # This is five times as fast as the decoder below, and agrees with it where it parses and no number is too large.
    shape = content.translate(_SHAPE, _SIGNS)
    if _LONG not in shape and _GREAT not in shape:
        with contextlib.suppress(ValueError):
            return from_json(content, allow_inf_nan=False)
    return _DECODER.decode(content.decode("utf-8", errors="replace"))


def _real(text: str) -> float | None:
    return number if math.isfinite(number := float(text)) else None


def _whole(text: str) -> int | None:
    return int(text) if len(text) < _MOST_DIGITS else None


_DECODER = json.JSONDecoder(parse_constant=lambda _: None, parse_float=_real, parse_int=_whole)


def _describe_lines(broken: list[int]) -> str:
    if len(broken) == 1:
        return f"line {broken[0]} is no JSON object"
    line_numbers = ", ".join(map(str, broken[:5])) + (f" and {len(broken) - 5} more" if len(broken) > 5 else "")
    return f"lines {line_numbers} are no JSON objects"
