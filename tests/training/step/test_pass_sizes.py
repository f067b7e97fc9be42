"""Sizes of passes in a run: an update without memory is made again in smaller passes; a resumed run keeps its sizes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.images.diffusion import small
from tests.training.toy import job, recipe, weights

from groupwise.checkpoint import CheckpointConfig
from groupwise.domain.pass_sizes import SAMPLING, UPDATE
from groupwise.training.run.launch import resume, train

EVERY: dict[str, Any] = {"checkpoint": CheckpointConfig(every=1)}


def stage(num_steps: int = 2) -> Any:
    return recipe(
        method="flow_grpo", rate=1e-3, num_steps=num_steps, prompts_per_step=3, group_size=4, updates_per_batch=2
    )


class Opened:
    """Opens the small diffusion domain with memory for so many rows with and without gradient, and keeps it."""

    def __init__(self, with_gradient: int = 10**9, without: int = 10**9) -> None:
        self.with_gradient, self.without, self.passes, self.armed = with_gradient, without, [], True

    def __call__(self, device: Any) -> Any:
        self.domain = small.domain()
        self.domain.fit_passes()
        self.domain.module.register_forward_pre_hook(self.check)
        return self.domain

    def check(self, module: Any, arguments: Any) -> None:
        num, grad = len(arguments[0]), torch.is_grad_enabled()
        self.passes.append((num, grad))
        if num > (self.with_gradient if grad else self.without):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")


def last(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])


@pytest.mark.slow
def test_an_update_without_memory_is_made_again_in_smaller_passes(tmp_path: Path) -> None:
    usual, narrow = Opened(), Opened(with_gradient=5, without=7)
    train(job(stage(), domain=usual), tmp_path / "usual")
    train(job(stage(), domain=narrow), tmp_path / "narrow")
    assert 1 <= narrow.domain.pass_sizes.rows(UPDATE) <= 5
    assert 1 <= narrow.domain.pass_sizes.rows(SAMPLING) <= 7
    torch.testing.assert_close(weights(narrow.domain.module), weights(usual.domain.module), rtol=0, atol=1e-6)
    assert last(tmp_path / "narrow")["grad_norm"] == pytest.approx(last(tmp_path / "usual")["grad_norm"], rel=1e-6)


@pytest.mark.slow
def test_a_resumed_run_cuts_as_the_run_before_it_did(tmp_path: Path) -> None:
    first = Opened(5, 7)
    train(job(stage(), domain=first, **EVERY), tmp_path / "run")
    sizes = first.domain.pass_sizes.record()
    newest = max((tmp_path / "run" / "checkpoints").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    shutil.rmtree(newest)
    (tmp_path / "run" / "summary.json").unlink()
    enough = Opened()
    resume(job(stage(), domain=enough, **EVERY), tmp_path / "run")
    assert enough.domain.pass_sizes.record() == sizes, "though it would have memory for more"
    assert max(num for num, with_gradient in enough.passes if not with_gradient) <= 7
