"""Memory and operations of group-relative training beside an actor-critic of the same model, each in a process that
really trains two steps. Operations are those of matrix products outside attention in the second step.

    python benchmarks/actor_critic_memory.py
    python benchmarks/actor_critic_memory.py --size default --repeats 1

Four ways, alike in model, prompts, completions, micro-batches and AdamW:
    grpo             advantages from the group; no critic
    value head       a linear value head on the policy's own trunk, both losses in one backward pass
    value network    a second network of the same shape with a value head, trained after the policy
    joint            the same, both losses in one backward pass (both networks' activations live at once)
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import measure
import torch
import transformers
import transformers.models.qwen3.modeling_qwen3
import typer
from machine import describe
from rich.console import Console
from rich.table import Table
from step_task import SIZES, build, evenness
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from groupwise import Objective, Rollouts, Scored
from groupwise.causal_lm.backbone import Backbone
from groupwise.causal_lm.config import SamplingConfig
from groupwise.causal_lm.sampler import GroupBatch, sample

WAYS = ("grpo", "value head", "value network", "joint")
NUM_STEPS = 2
"""AdamW's state exists from the end of the first step, so the second step holds everything at once."""

console = Console(width=max(100, Console().width))


class Operations(TorchDispatchMode):
    """Counts the multiplications and additions of matrix products outside attention, forward and backward.

    `FlopCounterMode` counts the same and hooks every module, which the head's own backward pass does not bear.
    """

    total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if (count := flop_registry.get(func._overloadpacket)) is not None:
            self.total += count(*args, **(kwargs or {}), out_val=result)
        return result


class Critic(nn.Module):
    """A value at every position that chooses a token: a trunk of its own and one linear layer, or the linear layer
    alone.
    """

    def __init__(self, trunk: nn.Module | None, width: int) -> None:
        super().__init__()
        self.trunk, self.head = trunk, nn.Linear(width, 1)

    def forward(self, ids: Tensor, hidden: Tensor | None, num_prompt: int) -> Tensor:
        states = (
            hidden
            if self.trunk is None
            else self.trunk(input_ids=ids, use_cache=False).last_hidden_state[:, num_prompt - 1 : -1]
        )
        return self.head(states).squeeze(-1)


def advantages(values: Tensor, reward: Tensor, discount: float = 1.0, smoothing: float = 0.95) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimates `[B, T]` and returns, with one reward at the end of a member (arXiv
    1506.02438).
    """
    found, running = torch.zeros_like(values), torch.zeros_like(reward)
    for step in reversed(range(values.shape[1])):
        last = step == values.shape[1] - 1
        surprise = (reward if last else discount * values[:, step + 1]) - values[:, step]
        running = surprise + (0.0 if last else discount * smoothing) * running
        found[:, step] = running
    return found, found + values


def train(way: str, specification: dict[str, Any]) -> dict[str, Any]:
    """Two steps of one way; the sizes of what it holds and the peak above the level after import."""
    after_import = measure.reset_peak()
    torch.manual_seed(0)
    folder = Path(specification["folder"])
    model: Any = transformers.Qwen3ForCausalLM.from_pretrained(folder / "model", dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "model")
    texts = [json.loads(line)["prompt"] for line in (folder / "prompts.jsonl").read_text().splitlines()][
        : specification["num_prompts"]
    ]
    prompts = [tokenizer(text)["input_ids"] for text in texts]
    group, length, num_prompt = specification["group_size"], specification["completion_tokens"], len(prompts[0])
    micro_batch = specification["micro_batch"] or len(prompts) * group
    policy = Backbone(model)
    critic = None
    if way != "grpo":
        trunk = (
            None
            if way == "value head"
            else transformers.Qwen3Model.from_pretrained(folder / "model", dtype=torch.float32)
        )
        critic = Critic(trunk, model.config.hidden_size)
    modules = [model] if critic is None else [model, critic]
    parameters = [parameter for module in modules for parameter in module.parameters()]
    optimiser = torch.optim.AdamW(parameters, lr=1e-6)
    objective = Objective.preset("bnpo")
    counters = [Operations() for _ in range(2)]
    for step in range(NUM_STEPS):
        counts = specification["counts"] and step == NUM_STEPS - 1
        sampling, training = counters if counts else (nullcontext(), nullcontext())
        with sampling:
            found = sample(
                policy,
                GroupBatch(
                    prompts,
                    group,
                    SamplingConfig(max_new_tokens=length),
                    list(range(step * 10**6, step * 10**6 + len(prompts) * group)),
                ),
                eos=[1],
            )
        reward = torch.tensor(evenness([], tokenizer.batch_decode(found.tokens)))
        ids = torch.cat([torch.tensor([prompt for prompt in prompts for _ in range(group)]), found.tokens], dim=1)
        rollouts = Rollouts(
            torch.arange(len(prompts)).repeat_interleave(group),
            found.mask,
            found.log_prob,
            rewards={"evenness": reward},
        )
        plan = objective.plan(objective.prepare(rollouts, objective.init()))
        with training:
            returns, advantage = None, None
            if critic is not None:
                with torch.no_grad():
                    parts = [
                        critic(part, _states(policy, part, num_prompt) if critic.trunk is None else None, num_prompt)
                        for part in ids.split(micro_batch)
                    ]
                advantage, returns = advantages(torch.cat(parts), reward)
            for rows in torch.arange(len(ids)).split(micro_batch):
                states = _states(policy, ids[rows], num_prompt)
                target = found.tokens[rows].reshape(-1)
                log_prob = policy.scores(states.reshape(len(target), -1), target, frozenset({"log_prob"}), 1.0)[
                    "log_prob"
                ].view(len(rows), -1)
                if critic is None or advantage is None or returns is None:
                    objective.loss(Scored(log_prob), plan.select(rows)).backward()
                    continue
                ratio = (log_prob - found.log_prob[rows]).exp()
                surrogate = torch.minimum(ratio * advantage[rows], ratio.clamp(0.8, 1.2) * advantage[rows])
                loss = -surrogate.sum() / ids[:, num_prompt:].numel()
                if way == "value network":
                    loss.backward()
                    del loss, log_prob, states
                    states, loss = None, 0.0
                value = critic(ids[rows], states, num_prompt)
                (loss + 0.5 * (value - returns[rows]).square().sum() / ids[:, num_prompt:].numel()).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        gradients = _bytes([parameter.grad for parameter in parameters if parameter.grad is not None])
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
    state = [value for entry in optimiser.state.values() for value in entry.values() if isinstance(value, Tensor)]
    return {
        "weights": _bytes(parameters),
        "gradients": gradients,
        "optimiser": _bytes(state),
        "peak": measure.memory_bytes("VmHWM") - after_import,
        "sampling": counters[0].total,
        "training": counters[1].total,
    }


def _states(policy: Backbone, ids: Tensor, num_prompt: int) -> Tensor:
    return policy.hidden(ids)[:, num_prompt - 1 : -1]


def _bytes(tensors: list[Any]) -> int:
    return sum({tensor.data_ptr(): tensor.numel() * tensor.element_size() for tensor in tensors}.values())


def main(
    size: Annotated[list[str] | None, typer.Option(help="default, 20m; both when left out.")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Processes of each way, in turn.")] = 3,
    micro_batch: Annotated[int, typer.Option(min=1, help="Members in one pass.")] = 8,
    worker: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Peak memory of the four ways, and what each holds."""
    if worker is not None:
        specification = json.loads(Path(worker).read_text())
        torch.set_num_threads(1)
        transformers.logging.set_verbosity_error()
        print(json.dumps(train(specification["way"], specification)))
        return
    console.print(describe())
    for name in size or list(SIZES):
        with tempfile.TemporaryDirectory() as folder:
            task = build(SIZES[name], "fixed", SIZES[name].num_prompts, Path(folder)) | {
                "folder": folder,
                "micro_batch": micro_batch,
                "counts": False,
            }
            found: dict[str, list[dict[str, int]]] = {way: [] for way in WAYS}
            for _ in range(repeats):
                for way in WAYS:
                    found[way].append(_process({**task, "way": way}))
            # What counts operations takes memory of its own, so that they are counted in a process beside.
            counts = {way: _process({**task, "way": way, "counts": True}) for way in WAYS}
        _show(name, task, found)
        _show_operations(counts)


def _process(specification: dict[str, Any]) -> dict[str, int]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "specification.json"
        path.write_text(json.dumps(specification))
        done = subprocess.run(
            [sys.executable, __file__, "--worker", str(path)],
            capture_output=True,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    if done.returncode != 0:
        raise SystemExit(done.stderr[-4000:])
    return json.loads(done.stdout.splitlines()[-1])


def _show(name: str, task: dict[str, Any], found: dict[str, list[dict[str, int]]]) -> None:
    console.rule(f"{name}: {task['num_parameters']:,} parameters, vocabulary {task['vocabulary']:,}")
    console.print(
        f"{task['num_prompts']} prompts of {task['prompt_tokens']} tokens x {task['group_size']} members of"
        f" {task['completion_tokens']} tokens, {task['micro_batch']} members a pass, fp32, one thread; MiB"
    )
    table = Table("", "weights", "gradients", "optimiser", "peak above import", "peak / grpo's")
    base = [run["peak"] for run in found["grpo"]]
    for way, runs in found.items():
        held = [f"{runs[0][part] / 2**20:.1f}" for part in ("weights", "gradients", "optimiser")]
        peaks = [run["peak"] / 2**20 for run in runs]
        ratios = [run["peak"] / other for run, other in zip(runs, base, strict=True)]
        table.add_row(way, *held, _spread(peaks, 0), _spread(ratios, 2))
    console.print(table)


def _show_operations(counts: dict[str, dict[str, int]]) -> None:
    table = Table("", "sampling, 10^9 operations", "training", "training / grpo's", "both / grpo's")
    base = counts["grpo"]
    for way, run in counts.items():
        both = [(each["sampling"] + each["training"]) for each in (run, base)]
        cells = [run["sampling"] / 1e9, run["training"] / 1e9, run["training"] / base["training"], both[0] / both[1]]
        table.add_row(way, *(f"{cell:.3g}" for cell in cells[:2]), *(f"{cell:.2f}" for cell in cells[2:]))
    console.print(table)


def _spread(values: list[float], digits: int) -> str:
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


if __name__ == "__main__":
    typer.run(main)
