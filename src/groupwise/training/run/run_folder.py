"""The folder of a run: the checks before anything is computed, and what is written there beside the metrics."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from groupwise import file_lock
from groupwise.checkpoint import StorageError, is_empty, write_file
from groupwise.checkpoint.atomic import check_writable
from groupwise.config import ConfigError, read_json
from groupwise.processor import processor
from groupwise.runs import RunFolder
from groupwise.runs.evaluated_on import NOTED, EvaluatedOn

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
"""Beside versions and the number of processes: what the same bits depend on."""


def check_new(path: Path) -> RunFolder:
    """Makes an empty run folder, or says why it cannot be one.

    Args:
        path: the folder to be.

    Returns:
        the paths in it.

    Raises:
        ConfigError: the folder holds something already, or cannot be written.
    """
    if path.exists() and not path.is_dir():
        raise ConfigError(f"run folder {path}: a file of that name exists; write --out NEW")
    if path.is_dir() and not is_empty(path):
        if RunFolder(path).config.exists():
            raise ConfigError(
                f"run folder {path}: it holds a run already; write `groupwise resume {path}` to go on with it, or --out"
                " NEW for another one"
            )
        raise ConfigError(f"run folder {path}: it is not empty and holds no run; write --out NEW")
    try:
        path.mkdir(parents=True, exist_ok=True)
        check_writable(path)
    except OSError as error:
        raise ConfigError(
            f"run folder {path}: it cannot be written ({error.strerror}); write --out FOLDER with one that can"
        ) from error
    return RunFolder(path)


def open_existing(path: Path) -> RunFolder:
    """The folder of a run that began earlier.

    Args:
        path: the folder.

    Returns:
        the paths in it.

    Raises:
        ConfigError: there is no run in it.

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
def alone(folder: RunFolder, patience_seconds: float = 10.0) -> Iterator[None]:
    """Within the block no other process trains in the folder. The system gives it back with the process, however that
    ends.

    Args:
        folder: of a run whose `config.json` is written.
        patience_seconds: how long one that is about to end is waited for.

    Raises:
        ConfigError: another process trains in it.

    Example:
        >>> import tempfile
        >>> folder = RunFolder(Path(tempfile.mkdtemp()))
        >>> write_json(folder.config, {})
        >>> with alone(folder), alone(folder, patience_seconds=0.0):  # doctest: +ELLIPSIS
        ...     print("never reached")
        Traceback (most recent call last):
        groupwise.config.errors.ConfigError: run folder ...: another process is training in it; wait for it or end it, or write --out NEW for another run
    """  # noqa: E501
    with folder.config.open("rb") as file:
        until = time.monotonic() + patience_seconds
        while not file_lock.take(file.fileno()):
            if time.monotonic() > until:
                raise ConfigError(
                    f"run folder {folder.path}: another process is training in it; wait for it or end it, or write"
                    " --out NEW for another run"
                )
            time.sleep(0.1)
        yield


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Writes a small JSON file in one step, keys in the given order.

    Args:
        path: the file.
        values: JSON-able.

    Raises:
        StorageError: it could not be written.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_json(Path(folder) / "a.json", {"seed": 0})
        ...     (Path(folder) / "a.json").read_text()
        '{\\n  "seed": 0\\n}\\n'
    """
    write_file(path, json.dumps(values, indent=2) + "\n")


def append_environment(
    folder: RunFolder,
    *,
    seed: int,
    device: torch.device,
    num_processes: int,
    remarks: Sequence[str] = (),
    evaluated_on: EvaluatedOn | None = None,
) -> list[str]:
    """Adds one entry to `environment.json` for every time the run was started: versions, device, threads, seed, a hash
    of the configuration.

    Args:
        folder: the run's.
        seed: the run's.
        device: where it computes.
        num_processes: how many do.
        remarks: what is said at this start, kept for the report.
        evaluated_on: whether the prompts of its evaluations are trained on, for everything that calls a result
            held-out.

    Returns:
        a sentence where something differs from the start before by which results may differ.

    Raises:
        StorageError: it could not be written.
    """
    entries: list[Any] = []
    if folder.environment.exists():
        # What a person made of the file is no reason not to go on.
        with contextlib.suppress(ValueError, KeyError, TypeError):
            entries = list(read_json(folder.environment)["starts"])
    # Of what the file says, not of what was read from it: reading states defaults that the file leaves out.
    written = json.dumps(read_json(folder.config), sort_keys=True)
    digest = hashlib.blake2b(written.encode(), digest_size=16).hexdigest()
    asked = {} if evaluated_on is None else {NOTED: evaluated_on.record()}
    now = {
        **environment(seed, device, num_processes),
        "configuration": digest,
        **asked,
        **({"remarks": list(remarks)} if remarks else {}),
    }
    write_json(folder.environment, {"starts": [*entries, now]})
    before = entries[-1] if entries and isinstance(entries[-1], dict) else {}
    changes = []
    if before.get("configuration", digest) != digest:
        changes.append(
            f"{folder.config} was changed since the start before: the run goes on by what it says now, and is no longer"
            " the one that began"
        )
    changed = _changed(before, now) if before else []
    if not changed:
        return changes
    return [
        *changes,
        (
            f"this start differs from the one before ({', '.join(changed)}): the run goes on, but may not repeat the"
            " uninterrupted run bit for bit"
        ),
    ]


def _changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What decides how numbers are rounded, as `name before -> now`."""
    # What an older version did not write down is not known to differ.
    known = [key for key in _EXACT if key in before]
    old, new = ({**{key: each.get(key) for key in known}, **each.get("versions", {})} for each in (before, now))
    return [f"{key} {old.get(key, 'none')} -> {new.get(key, 'none')}" for key in new if old.get(key) != new[key]]


def environment(seed: int, device: torch.device, num_processes: int) -> dict[str, Any]:
    """What a reader needs in order to repeat a number.

    Args:
        seed: the run's.
        device: where it computes.
        num_processes: how many do.

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
    }


def write_records(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Writes JSON records one a line, in one step.

    Args:
        path: the file.
        records: JSON-able.

    Raises:
        StorageError: it could not be written.

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
        folder: of the run.
        step: the checkpoint's; -1 forgets all.
    """
    for path in [*folder.rollouts.glob("step-*"), *folder.rollouts.glob("evaluation-*")]:
        number = path.stem.rsplit("-", 1)[1]
        if number.isdecimal() and int(number) > step:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


__all__ = [
    "StorageError",
    "alone",
    "append_environment",
    "check_new",
    "environment",
    "forget_after",
    "open_existing",
    "write_json",
    "write_records",
]
