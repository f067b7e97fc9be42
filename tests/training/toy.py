"""A tiny real domain: a categorical policy over four actions, prompts of different length, a reward that counts right
actions.

Everything is exact and fp64, so that two ways to the same number can be compared to rounding, and a whole run takes a
second.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from groupwise.domain.base import Domain
from groupwise.domain.protocol import Evaluation, Prompt, Samples
from groupwise.objective import Objective
from groupwise.records import Scored
from groupwise.reward import RewardTable
from groupwise.streams import Streams
from groupwise.track import TrackConfig
from groupwise.training.config import TrainConfig
from groupwise.training.job import Job, Recipe
from groupwise.training.optimiser_config import OptimiserConfig

NUM_ACTIONS = 4
QUIET = TrackConfig(console="none", rollouts_every=2, num_rollouts=8)


class ToyPolicy(nn.Module):
    """Logits of a decision from its prompt and its place."""

    def __init__(self, num_prompts: int, num_decisions: int, dropout: float) -> None:
        super().__init__()
        self.by_prompt = nn.Embedding(num_prompts, 8, dtype=torch.float64)
        self.by_place = nn.Embedding(num_decisions, 8, dtype=torch.float64)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(8, NUM_ACTIONS, dtype=torch.float64)

    def forward(self, prompt: Tensor) -> Tensor:
        """`[B]` prompts -> `[B, T, NUM_ACTIONS]` logits."""
        hidden = torch.tanh(self.by_prompt(prompt)[:, None] + self.by_place.weight[None])
        return self.out(self.dropout(hidden))


class ToyDomain(Domain):
    """`num_prompts` prompts; prompt `p` has `1 + p % num_decisions` decisions, and decision `t` should be `(p + t) %
    4`.

    Args:
        recorded: whether the sampler hands over its own fields.
        graded: whether the reward is the share of right actions, or 1 only when all are right.
        reward_of: replaces the reward, from `(prompt index, actions)` to a number or `None`.
    """

    unit = "nats per action"
    density = False
    supplies = frozenset({"log_prob", "entropy", "score_norm"})
    auxiliary = frozenset({"supervised"})
    metric_names = ("accuracy", "sampled_accuracy")
    remarks: Sequence[str] = ()

    def __init__(
        self,
        num_prompts: int = 8,
        num_decisions: int = 3,
        *,
        recorded: bool = True,
        graded: bool = True,
        dropout: float = 0.0,
        reward_of: Any = None,
    ) -> None:
        self.num_prompts, self.num_decisions = num_prompts, num_decisions
        self.recorded, self.graded, self.reward_of = recorded, graded, reward_of
        self.module = ToyPolicy(num_prompts, num_decisions, dropout)
        self.num_scored = 0

    @property
    def trained_on(self) -> frozenset[str]:
        return frozenset(f"toy-{index}" for index in range(self.num_prompts))

    @property
    def evaluated_on(self) -> frozenset[str]:
        """The prompts that are trained on."""
        return self.trained_on

    def prompts(self, indices: Sequence[int]) -> list[Prompt]:
        return [Prompt(f"toy-{index}", {"index": index}) for index in indices]

    def _length(self, index: int) -> int:
        return 1 + index % self.num_decisions

    def _mask(self, prompt: Tensor) -> Tensor:
        return torch.arange(self.num_decisions)[None] < (1 + prompt % self.num_decisions)[:, None]

    def sample(
        self,
        prompts: Sequence[Prompt],
        group_size: int,
        *,
        streams: Streams,
        step: int,
        settings: Mapping[str, float],
        requires: frozenset[str],
    ) -> Samples:
        index = torch.tensor([prompt.columns["index"] for prompt in prompts]).repeat_interleave(group_size)
        temperature = settings.get("temperature", 1.0)
        with torch.no_grad():
            log_probs = (self.module(index) / temperature).log_softmax(-1)
        actions = []
        for prompt in prompts:
            for member in range(group_size):
                generator = streams.generator("toy", step, prompt.key, member)
                row = len(actions)
                actions.append(torch.multinomial(log_probs[row].exp(), 1, generator=generator)[:, 0])
        action = torch.stack(actions)
        group = torch.arange(len(prompts)).repeat_interleave(group_size)
        mask = self._mask(index)
        payload = {
            "index": index,
            "action": action,
            "temperature": torch.full((len(index),), temperature, dtype=torch.float64),
        }
        fields = _fields(log_probs, action)
        old = torch.where(mask, fields.log_prob, 0.0)
        return Samples(
            prompts,
            group,
            mask,
            old,
            recorded=fields if self.recorded else None,
            payload=payload,
            settings={"temperature": temperature},
        )

    def reward(self, samples: Samples) -> RewardTable:
        right = (samples.payload["action"] == self._target(samples.payload["index"])) & samples.mask
        share = right.sum(1) / samples.mask.sum(1)
        values: list[float | None] = (share if self.graded else (share == 1).double()).tolist()
        if self.reward_of is not None:
            values = [
                self.reward_of(int(index), action)
                for index, action in zip(samples.payload["index"], samples.payload["action"], strict=True)
            ]
        return RewardTable({"right": values})

    def _target(self, index: Tensor) -> Tensor:
        return (index[:, None] + torch.arange(self.num_decisions)[None]) % NUM_ACTIONS

    def score(self, samples: Samples, rows: Tensor, requires: frozenset[str]) -> Scored:
        self.num_scored += len(rows)
        index = samples.payload["index"][rows]
        temperature = samples.payload["temperature"][rows][:, None, None]
        log_probs = (self.module(index) / temperature).log_softmax(-1)
        if "target" in samples.payload:
            picked = log_probs.gather(-1, samples.payload["target"][rows][..., None])[..., 0]
            nll = torch.where(self._mask(index), -picked, 0.0).sum(1)
            return Scored(torch.zeros_like(picked), auxiliary={"supervised": nll})
        fields = _fields(log_probs, samples.payload["action"][rows]).tensors()
        return Scored.from_tensors({name: value for name, value in fields.items() if name in requires})

    def backward(self, samples: Samples, rows: Tensor, cotangents: Scored) -> Scored:
        cotangent_fields = cotangents.tensors()
        scored = self.score(samples, rows, frozenset(cotangent_fields))
        torch.autograd.backward([scored.tensors()[name] for name in cotangent_fields], list(cotangent_fields.values()))
        return scored.detach()

    def demonstrations(self, size: int, *, streams: Streams, step: int) -> Samples | None:
        generator = streams.generator("demonstrations", step)
        index = torch.randint(self.num_prompts, (size,), generator=generator)
        zeros = torch.zeros(size, self.num_decisions, dtype=torch.float64)
        # A corpus with systematic mistakes: every third prompt is answered wrongly, and the same way, seven times out
        # of ten.
        wrong = (index % 3 == 0) & (torch.rand(size, generator=generator) < 0.7)
        target = torch.where(wrong[:, None], (self._target(index) + 1) % NUM_ACTIONS, self._target(index))
        payload = {"index": index, "target": target, "temperature": torch.ones(size, dtype=torch.float64)}
        count = {"supervised": self._mask(index).sum(1).double()}
        return Samples(
            [], torch.zeros(size, dtype=torch.long), zeros.bool(), zeros, payload=payload, auxiliary_count=count
        )

    def evaluate(self, *, streams: Streams) -> Evaluation:
        index = torch.arange(self.num_prompts)
        with torch.no_grad():
            log_probs = self.module(index).log_softmax(-1)
        mask, target = self._mask(index), self._target(index)
        right = ((log_probs.argmax(-1) == target) | ~mask).all(1)
        expected = torch.where(mask, log_probs.gather(-1, target[..., None])[..., 0], 0.0).sum(1).exp()
        records = [{"prompt": f"toy-{i}", "text": log_probs[i].argmax(-1).tolist()} for i in range(self.num_prompts)]
        return Evaluation(
            {"accuracy": float(right.double().mean()), "sampled_accuracy": float(expected.mean())}, records
        )

    def describe(self, samples: Samples, rows: Tensor) -> list[dict[str, Any]]:
        return [
            {"prompt": f"toy-{int(samples.payload['index'][row])}", "text": samples.payload["action"][row].tolist()}
            for row in rows
        ]

    def adapted(self, config: Any) -> ToyDomain:
        return self

    def close(self) -> None:
        self.closed = True

    def save(self, folder: Path) -> None:
        save_file(
            {name: tensor.contiguous() for name, tensor in self.module.state_dict().items()},
            folder / "model.safetensors",
        )


def _fields(log_probs: Tensor, action: Tensor) -> Scored:
    probs = log_probs.exp()
    picked = log_probs.gather(-1, action[..., None])[..., 0]
    square = (probs * probs).sum(-1)
    return Scored(
        picked, entropy=-(probs * log_probs).sum(-1), score_norm=(1 - 2 * picked.exp() + square).clamp(min=0).sqrt()
    )


def recipe(
    name: str = "main",
    method: str = "dapo",
    *,
    rate: float = 0.05,
    objective: Mapping[str, Any] | None = None,
    **train: Any,
) -> Recipe:
    """A small stage."""
    settings = {"num_steps": 4, "prompts_per_step": 4, "group_size": 4, **train}
    chosen = {"admission.kind": "all", **(objective or {})} if method == "dapo" else dict(objective or {})
    return Recipe(
        name,
        Objective.preset(method, **chosen),
        TrainConfig(**settings),
        OptimiserConfig.model_validate({"learning_rate": rate}),
    )


def supervised(name: str = "warm_up", **train: Any) -> Recipe:
    """A stage that samples nothing."""
    return recipe(
        name, "grpo", objective={"policy_weight": 0.0, "divergence.kind": "none", "auxiliary.supervised": 1.0}, **train
    )


def job(*recipes: Recipe, seed: int = 0, domain: Any = None, **settings: Any) -> Job:
    """A small run."""
    return Job(
        "toy",
        seed,
        recipes or (recipe(),),
        domain or (lambda device: ToyDomain()),
        {"name": "toy", "seed": seed},
        **{"track": QUIET, **settings},
    )


def cut_back(run: Path, step: int) -> Path:
    """Leaves of a whole run what a kill after the checkpoint of this step leaves; every step has to have one."""
    for folder in (run / "checkpoints").glob("step-*"):
        if int(folder.name.removeprefix("step-")) > step:
            shutil.rmtree(folder)
    shutil.rmtree(run / "model")
    (run / "summary.json").unlink()
    return run


def saved_model(run: Path) -> bytes:
    """The weights that a run ended with."""
    return (run / "model" / "model.safetensors").read_bytes()


def weights(module: nn.Module) -> Tensor:
    """All parameters as one vector."""
    return torch.cat([parameter.detach().reshape(-1) for parameter in module.parameters()])
