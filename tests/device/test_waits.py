"""How often a step and a file of rollouts wait for the device."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from tests.device.emulated import emulated_cuda
from tests.device.test_domains import tree
from tests.device.waits import counted_waits

import groupwise
from groupwise.training.run import loop


def waits_of(domain: str, changes: dict[str, Any], folder: Path) -> dict[str, list[Counter[str]]]:
    """The waits of each step of a run, and of each file of rollouts, by line."""
    path = folder / "experiment.json"
    path.write_text(json.dumps(tree(domain, changes, folder)), encoding="utf-8")
    experiment = groupwise.load_experiment(path, run_code=True)
    found: dict[str, list[Counter[str]]] = {"train_step": [], "_write_rollouts": [], "sent": []}
    with emulated_cuda(), counted_waits() as waits, ExitStack() as stack:

        def counting(name: str) -> Callable[..., Any]:
            plain = getattr(loop, name)

            def call(*args: Any, **kwargs: Any) -> Any:
                before, sent = waits.lines.copy(), waits.sent.copy()
                result = plain(*args, **kwargs)
                found[name].append(waits.lines - before)
                if name == "train_step":
                    found["sent"].append(waits.sent - sent)
                return result

            return call

        for name in ("train_step", "_write_rollouts"):
            stack.enter_context(patch.object(loop, name, counting(name)))
        groupwise.train(experiment, out=folder / "run")
    return found


CHANGES = {"train": {"updates_per_batch": 1, "evaluate_every": 0}, "track": {"rollouts_every": 1}}
METHODS = {"language": "grpo", "diffusion": "flow_grpo", "restoration": "grpo", "selection": "grpo"}


@pytest.mark.parametrize("domain", METHODS)
def test_a_step_waits_at_most_forty_times(domain: str, tmp_path: Path) -> None:
    found = waits_of(domain, {**CHANGES, "method": METHODS[domain]}, tmp_path)
    steps, files = found["train_step"], found["_write_rollouts"]
    assert len(steps) == len(files) == 2
    assert all(0 < step.total() <= 40 for step in steps), steps[1].most_common()
    assert all(0 < file.total() <= 2 for file in files), files[1].most_common()
