"""The run folder: the checks before anything is computed, and the files other than the metrics."""

import contextlib
import hashlib
import json
import os
import platform
import re
import shutil
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, final

import torch

from groupwise import file_lock
from groupwise.checkpoint import is_empty, write_file
from groupwise.checkpoint.atomic import check_writable
from groupwise.config import ConfigError, read_json
from groupwise.processor import processor
from groupwise.runs import RunFolder
from groupwise.runs.run import NOTED, EvaluatedOn
from groupwise.training.step.state import Progress

_LIBRARIES = (
    "groupwise",
    "torch",
    "transformers",
    "tokenizers",
    "peft",
    "datasets",
    "safetensors",
    "numpy",
    "pydantic",
    "reasoning-gym",
    "math-verify",
)

_EXACT = ("python", "machine", "processor", "device", "num_threads")
"""The entries on which the bits of a result depend, in addition to versions and the number of processes."""


@final
class FolderTakenError(ConfigError):
    """The error of a run whose folder belongs to another run, or to another process that trains the same run."""


def check_new(path: Path) -> RunFolder:
    """Makes an empty run folder.

    Returns:
        the paths in the folder.

    Raises:
        FolderTakenError: the folder is not empty.
        ConfigError: the folder cannot be written.
    """
    if path.exists() and not path.is_dir():
        raise ConfigError(f"run folder {path}: a file of that name exists; write --out NEW")
    if path.is_dir() and not is_empty(path):
        if RunFolder(path).config.exists():
            raise FolderTakenError(
                f"run folder {path}: it holds a run already; write `groupwise resume {path}` to go on with it, or --out"
                " NEW for another one"
            )
        raise FolderTakenError(f"run folder {path}: it is not empty and holds no run; write --out NEW")
    try:
        path.mkdir(parents=True, exist_ok=True)
        check_writable(path)
    except OSError as error:
        raise ConfigError(
            f"run folder {path}: it cannot be written ({error.strerror}); write --out FOLDER with one that can"
        ) from error
    return RunFolder(path)


def open_existing(path: Path) -> RunFolder:
    """Opens the folder of a run that began earlier.

    Returns:
        the paths in the folder.

    Raises:
        ConfigError: the folder holds no run.

    Example:
        >>> open_existing(Path("nowhere"))
        Traceback (most recent call last):
        groupwise.config.errors.ConfigError: run folder nowhere: it holds no run (no config.json); give the folder that `groupwise train` printed
    """  # noqa: E501
    if not RunFolder(path).config.is_file():
        raise ConfigError(
            f"run folder {path}: it holds no run (no config.json); give the folder that `groupwise train` printed"
        )
    return RunFolder(path)


@contextmanager
def locked(folder: RunFolder, patience_seconds: float = 10.0) -> Iterator[None]:
    """Locks the run folder within the block, so that no other process trains in it. The system releases the lock when
    the process ends, however it ends.

    Args:
        folder: the folder of a run whose `config.json` is written.
        patience_seconds: the longest wait for a process that is about to end.

    Raises:
        FolderTakenError: another process trains in the folder.

    Example:
        >>> import tempfile
        >>> folder = RunFolder(Path(tempfile.mkdtemp()))
        >>> write_json(folder.config, {})
        >>> with locked(folder), locked(folder, patience_seconds=0.0):  # doctest: +ELLIPSIS
        ...     print("never reached")
        Traceback (most recent call last):
        groupwise.training.run.run_folder.FolderTakenError: run folder ...: another process is training in it; wait for it or end it, or write --out NEW for another run
    """  # noqa: E501
    deadline = time.monotonic() + patience_seconds
    while True:
        with folder.config.open("rb") as file:
            # A file that took the place of this one meanwhile has a lock of its own.
            if file_lock.take(file.fileno()) and os.path.samestat(os.fstat(file.fileno()), folder.config.stat()):
                yield
                return
        if time.monotonic() > deadline:
            raise FolderTakenError(
                f"run folder {folder.path}: another process is training in it; wait for it or end it, or write"
                " --out NEW for another run"
            )
        time.sleep(0.1)


def write_json(path: Path, values: Mapping[str, Any], *, replace: bool = True) -> None:
    """Writes a small JSON file in one step, keys in the given order.

    Args:
        values: JSON-able values.
        replace: whether the file may exist.

    Raises:
        FileExistsError: the file exists and is not to be replaced.
        StorageError: the file could not be written.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_json(Path(folder) / "a.json", {"seed": 0})
        ...     (Path(folder) / "a.json").read_text()
        '{\\n  "seed": 0\\n}\\n'
    """
    write_file(path, json.dumps(values, indent=2) + "\n", replace=replace)


def append_environment(
    folder: RunFolder,
    *,
    seed: int,
    device: torch.device,
    num_processes: int,
    remarks: Sequence[str] = (),
    evaluated_on: EvaluatedOn | None = None,
    sources: Mapping[str, str] | None = None,
) -> list[str]:
    """Adds one entry to `environment.json` at every start of the run: versions, device, threads, seed, the source of
    the user's code, and a hash of the configuration.

    Args:
        num_processes: number of processes that train together.
        remarks: the sentences of this start, for the report.
        evaluated_on: the counts of evaluated prompts and of those trained on, by which a result is called held-out.
        sources: import path -> source text of the user's functions and classes.

    Returns:
        a sentence for each difference from the previous start that may change results.

    Raises:
        StorageError: the file could not be written.
    """
    entries: list[Any] = []
    if folder.environment.exists():
        # A file that a person damaged does not stop the run.
        with contextlib.suppress(ValueError, KeyError, TypeError):
            entries = list(read_json(folder.environment)["starts"])
    digest = _configuration_digest(folder)
    evaluation_entry = {} if evaluated_on is None else {NOTED: evaluated_on.record()}
    entry = {
        **environment(seed, device, num_processes),
        "configuration": digest,
        **evaluation_entry,
        **({"remarks": list(remarks)} if remarks else {}),
        **({"sources": dict(sources)} if sources else {}),
    }
    write_json(folder.environment, {"starts": [*entries, entry]})
    previous = entries[-1] if entries and isinstance(entries[-1], dict) else {}
    changes = []
    if previous.get("configuration", digest) != digest:
        changes.append(
            f"{folder.config} was changed since the start before: the run goes on by what it says now, and is no longer"
            " the one that began"
        )
    before = previous.get("sources")
    before = before if isinstance(before, Mapping) else {}
    if other := [path for path, text in (sources or {}).items() if before.get(path, text) != text]:
        changes.append(
            f"the source of {', '.join(other)} differs from the start before: the run goes on with it, and may"
            " not repeat the uninterrupted run"
        )
    changed = _changed(previous, entry) if previous else []
    if not changed:
        return changes
    return [
        *changes,
        (
            f"this start differs from the one before ({', '.join(changed)}): the run goes on, but may not repeat the"
            " uninterrupted run bit for bit"
        ),
    ]


def accept_configuration(folder: RunFolder) -> None:
    """Notes in the last start of `environment.json` that the present `config.json` belongs to the run.

    Raises:
        StorageError: the file could not be written.
    """
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, IndexError):
        starts = list(read_json(folder.environment)["starts"])
        starts[-1] = {**starts[-1], "configuration": _configuration_digest(folder)}
        write_json(folder.environment, {"starts": starts})


def _configuration_digest(folder: RunFolder) -> str:
    """Returns the hash of the text of `config.json`. The text is hashed because a configuration that is read from it
    also contains today's defaults.
    """
    text = json.dumps(read_json(folder.config), sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _changed(previous: Mapping[str, Any], entry: Mapping[str, Any]) -> list[str]:
    """Returns the differences between two starts that affect rounding, as `name before -> now`."""
    # An entry of an older version may lack keys; an absent key is not a difference.
    recorded_keys = [key for key in _EXACT if key in previous]
    old, new = (
        {**{key: start.get(key) for key in recorded_keys}, **start.get("versions", {})} for start in (previous, entry)
    )
    return [f"{key} {old.get(key, 'none')} -> {new.get(key, 'none')}" for key in new if old.get(key) != new[key]]


def environment(seed: int, device: torch.device, num_processes: int) -> dict[str, Any]:
    """Collects the facts that a reader needs to repeat a number.

    Args:
        num_processes: number of processes that train together.

    Returns:
        one entry of `environment.json`.

    Example:
        >>> environment(0, torch.device("cpu"), 1)["versions"]["torch"] == metadata.version("torch")
        True
    """
    versions = {}
    for library in _LIBRARIES:
        try:
            versions[library] = metadata.version(library)
        except metadata.PackageNotFoundError:
            continue
    return {
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "machine": platform.machine(),
        "processor": processor(),
        "versions": versions,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "num_cpus": os.cpu_count(),
        "num_threads": torch.get_num_threads(),
        "num_processes": num_processes,
        "seed": seed,
        "started_in": os.getcwd(),
    }


def write_records(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Writes JSON records, one a line, in one step.

    Args:
        records: JSON-able records.

    Raises:
        StorageError: the file could not be written.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_records(Path(folder) / "a.jsonl", [{"key": "a"}, {"key": "b"}])
        ...     (Path(folder) / "a.jsonl").read_text()
        '{"key": "a"}\\n{"key": "b"}\\n'
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))


def forget_after(folder: RunFolder, step: int) -> None:
    """Removes record files of steps after a checkpoint, which a resumed run writes again.

    Args:
        step: the step of the checkpoint; -1 removes all files.
    """
    for path in [*folder.rollouts.glob("step-*"), *folder.rollouts.glob("evaluation-*")]:
        number = path.stem.rsplit("-", 1)[1]
        if number.isdecimal() and int(number) > step:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


# The records of a run that stay: its newest ones, and older ones evenly over the run, so that the folder of a run of
# any length has a bounded size.

_NAME = re.compile(r"(step|evaluation)-(\d+)(?:\.jsonl)?")


def retained_steps(steps: Collection[int], newest: int) -> set[int]:
    """Returns the steps whose records stay: the newest ones, and before them the first of every span of `2^k` steps,
    where `k` is the smallest for which at most `newest` spans fit into the run.

    A later call removes every step that an earlier call removed, and needs only the steps that the earlier call kept.
    The result is therefore the same however often the function is called, and whether or not the run was killed in
    between.

    Args:
        steps: the steps that have records.
        newest: number of the newest steps that stay.

    Returns:
        at most `2 * newest` steps, always with the first and the last one.

    Example:
        >>> sorted(retained_steps(range(10, 1001, 10), newest=4))
        [10, 260, 520, 770, 970, 980, 990, 1000]
    """
    ordered = sorted(steps)
    if len(ordered) <= newest:
        return set(ordered)
    span = 1
    while ordered[-1] // span >= newest:
        span *= 2
    first_of_span: dict[int, int] = {}
    for step in ordered:
        first_of_span.setdefault(step // span, step)
    return {*first_of_span.values(), *ordered[-newest:]}


def remove_old_records(
    folder: Path, kind: Literal["step", "evaluation"], newest: int, always: Collection[int] = ()
) -> int:
    """Removes the records of the steps that `retained_steps` leaves out, with their pictures.

    Args:
        folder: `RUN/rollouts`.
        kind: the kind of records, rollouts of steps or evaluations.
        newest: number of the newest steps whose records stay.
        always: further steps whose records stay.

    Returns:
        the number of steps whose records were removed.
    """
    paths_by_step: dict[int, list[Path]] = {}
    for path in folder.iterdir() if folder.is_dir() else ():
        if (name := _NAME.fullmatch(path.name)) and name[1] == kind:
            paths_by_step.setdefault(int(name[2]), []).append(path)
    removed = paths_by_step.keys() - retained_steps(paths_by_step, newest) - set(always)
    for step in removed:
        # The records go first, so that no record names a missing picture. Nothing is renamed before it is removed: the
        # next call removes the files that a kill leaves.
        for path in sorted(paths_by_step[step], key=Path.is_dir):
            _remove(path)
    return len(removed)


def forget(records: Path) -> None:
    """Removes a file of records with its pictures, where there is one."""
    for path in (records, records.with_suffix("")):
        _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        # A file that cannot be removed does not end the run.
        with suppress(OSError):
            path.unlink()


# `summary.json`: the result of a run in seven entries.


def summarise(progress: Progress, metric: str | None, baseline: float | None, seed: int) -> dict[str, Any]:
    """Returns the summary: `metric`, `before`, `after`, `baseline`, `seconds` by part, `steps`, `seed`.

    `before` is the score at the start of the first stage that samples, `after` the score at the end, `baseline` the
    score of the first control.

    Args:
        progress: the counters at the end of the run.
        metric: the deciding metric, if there is one.
        baseline: the score of the first control, if there is one.

    Example:
        >>> list(summarise(Progress(), None, None, 0))
        ['metric', 'before', 'after', 'baseline', 'seconds', 'steps', 'seed']
    """
    return {
        "metric": metric,
        "before": progress.before.get(metric) if metric else None,
        "after": progress.latest.get(metric) if metric else None,
        "baseline": baseline,
        "seconds": {part: round(seconds, 3) for part, seconds in progress.seconds.items()},
        "steps": progress.step,
        "seed": seed,
    }
