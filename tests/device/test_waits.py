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
import torch
from tests.device.emulated import emulated_cuda
from tests.device.test_domains import tree
from tests.device.waits import counted_waits
from tests.golden_runs.runs import DOMAINS
from tests.marks import slow_but

import groupwise
from groupwise.causal_lm.backbone import Backbone
from groupwise.causal_lm.config import SamplingConfig, SmallModelConfig
from groupwise.causal_lm.sampler import GroupBatch, sample
from groupwise.causal_lm.small import character_tokenizer, small_model
from groupwise.records import tensors_of
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
REACH = {"kind": "callable", "path": "tests.domain.callable.reach:Reach"}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "language": ("language", {"method": "grpo"}),
    "diffusion": ("diffusion", {"method": "flow_grpo"}),
    "restoration": ("restoration", {"method": "grpo"}),
    "selection": ("selection", {"method": "grpo"}),
}


def reach(folder: Path) -> dict[str, Any]:
    """A user's own domain, which is described by default."""
    return {"name": "reach", "domain": REACH, "train": {"prompts_per_step": 2, "group_size": 4}}


@pytest.mark.parametrize("case", slow_but(("callable",), [*CASES, "callable"]))
def test_a_step_waits_at_most_forty_times(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first step may check more, once a run."""
    monkeypatch.setitem(DOMAINS, "callable", reach)
    domain, changes = CASES.get(case, ("callable", {"method": "grpo"}))
    found = waits_of(domain, {**CHANGES, **changes}, tmp_path)
    (_, step), (_, file), (_, sent) = found["train_step"], found["_write_rollouts"], found["sent"]
    assert 0 < step.total() <= 40, step.most_common()
    assert 0 < file.total() <= 2, file.most_common()
    assert 0 < sent.total() <= 8, sent.most_common()


def test_a_sampler_reads_eight_tokens_at_a_time() -> None:
    """What it writes beyond a member's end is dropped: the completions are those of a reading at every token."""
    tokenizer = character_tokenizer("abcdefg ")
    shape = SmallModelConfig(hidden_size=32, num_layers=2, num_heads=4)
    model = small_model(shape, tokenizer, seed=0).double()
    prompts = [tokenizer.encode(text) for text in ("abc", "ab", "g fed cba")]
    batch = GroupBatch(prompts, 4, SamplingConfig(max_new_tokens=20), seeds=list(range(12)))
    each_token = sample(Backbone(model), batch, tokenizer=tokenizer)
    with emulated_cuda(), counted_waits() as waits:
        backbone = Backbone(model.to("cuda"))
        before = waits.lines.copy()
        eight = sample(backbone, batch, tokenizer=tokenizer)
        lines = waits.lines - before
        found = {name: value.cpu() for name, value in tensors_of(eight).items()}
    assert each_token.length.min() < 8 < each_token.length.max(), "some end between two readings"
    for name, value in tensors_of(each_token).items():
        torch.testing.assert_close(found[name], value, rtol=1e-12, atol=1e-12)
    # A reading after 8, 16 and 20 tokens, and the check at the end.
    assert sum(count for line, count in lines.items() if "causal_lm/sampler.py" in line) == 4
