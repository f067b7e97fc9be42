"""A plugin of pytest for TRL's own tests: data from a folder instead of the hub, Groupwise's trainer in the place of
TRL's where `PEERS_TRAINER` says so, and the outcome of every test as a line of JSON in `PEERS_OUTCOMES`.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest
import trl

FOLDER = Path(os.environ["PEERS_FOLDER"])
_load_dataset = datasets.load_dataset


def _load(
    path: str, name: str | None = None, *, split: str | None = None, streaming: bool = False, **options: Any
) -> Any:
    """Reads a data set that was made here; anything else goes the usual way, which is closed without the hub."""
    folder = FOLDER / "data" / path / str(name)
    if not folder.exists():
        return _load_dataset(path, name, split=split, streaming=streaming, **options)
    dataset: Any = datasets.load_from_disk(str(folder))
    if streaming:
        dataset = datasets.IterableDatasetDict({key: rows.to_iterable_dataset() for key, rows in dataset.items()})
    return dataset if split is None else dataset[split]


def _asked_later(name: str) -> Callable[[], bool]:
    """Answers a question about a package that TRL's tests ask and the installed TRL, of another version, does not."""
    package = name.removeprefix("is_").removesuffix("_available")
    if name == package or not name.endswith("_available"):
        raise AttributeError(f"module 'trl.import_utils' has no attribute {name!r}")
    return lambda: importlib.util.find_spec(package) is not None


def _shorten(steps: int) -> None:
    """Ends every training whose test names no number of steps after some."""
    begun = trl.GRPOConfig.__post_init__

    def post_init(self: Any) -> None:
        if self.max_steps <= 0:
            self.max_steps = steps
        begun(self)

    trl.GRPOConfig.__post_init__ = post_init


datasets.load_dataset = _load
if (num_steps := int(os.environ.get("PEERS_STEPS", "0"))) > 0:
    _shorten(num_steps)
vars(importlib.import_module("trl.import_utils"))["__getattr__"] = _asked_later
if os.environ["PEERS_TRAINER"] == "groupwise":
    warnings.filterwarnings("ignore", category=UserWarning, module="groupwise")
    from groupwise_trainers.trl import GRPOTrainer

    trl.GRPOTrainer = GRPOTrainer


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the tests whose outcomes an earlier call of the command has written."""
    path = Path(os.environ["PEERS_OUTCOMES"])
    if not path.exists():
        return
    done = {json.loads(line)["test"] for line in path.read_text(encoding="utf-8").splitlines() if line.endswith("}")}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in done])
    items[:] = [item for item in items if item.nodeid not in done]


class _Outcomes:
    """Writes the outcome of every test."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Writes a line for the part of a test that decides it: its call, or a set-up that skipped or failed."""
        if report.when != "call" and report.outcome == "passed":
            return
        text = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
        expected = "xfailed" if hasattr(report, "wasxfail") and report.outcome == "skipped" else report.outcome
        line = {"test": report.nodeid, "outcome": expected, "reason": text[-6000:]}
        with Path(os.environ["PEERS_OUTCOMES"]).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def pytest_configure(config: pytest.Config) -> None:
    """Has outcomes written by one process: reports of pytest-xdist's workers reach the process that started them."""
    # An environment variable does not tell a worker: a test that starts this command hands its own worker's name on.
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Outcomes())
