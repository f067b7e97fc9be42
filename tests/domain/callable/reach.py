"""A domain in one file outside the package: a point that moves to a goal in five Gaussian steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.distributions import Normal

import groupwise
from groupwise.domain.protocol import Evaluation, Prompt, Samples
from groupwise.records import Scored
from groupwise.reward import RewardTable
from groupwise.streams import Streams


class Reach(groupwise.Domain):
    """A Gaussian policy; the reward is how near the point comes."""

    unit = "nats per action"
    density = True
    supplies = frozenset({"log_prob", "entropy"})
    metric_names = ("distance", "near")

    class Settings(groupwise.Config):
        num_train: int = 64
        num_actions: int = 5
        deviation: float = 0.3

    def __init__(self, settings: Settings, *, streams: Streams, device: str) -> None:
        self.settings = settings
        torch.manual_seed(streams.seed("weights"))
        self.module = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2)).to(device)
        tasks = torch.randn(settings.num_train + 64, 4, generator=torch.Generator().manual_seed(0)).to(device)
        self.train_tasks, self.held_out = tasks[: settings.num_train], tasks[settings.num_train :]
        self.num_prompts = settings.num_train
        self.trained_on = frozenset(f"task-{index}" for index in range(settings.num_train))
        self.evaluated_on = frozenset(f"task-{index}" for index in range(settings.num_train, len(tasks)))

    def prompts(self, indices: Sequence[int]) -> list[Prompt]:
        return [Prompt(f"task-{index}", {"index": index}) for index in indices]

    @torch.no_grad()
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
        task = torch.stack([self.train_tasks[prompt.columns["index"]] for prompt in prompts]).repeat_interleave(
            group_size, 0
        )
        keys = [(prompt.key, member) for prompt in prompts for member in range(group_size)]
        shape = (self.settings.num_actions, 2)
        noise = torch.stack([torch.randn(shape, generator=streams.generator("reach", step, *key)) for key in keys])
        noise = noise.to(task.device)
        states, actions, end = self._roll(task, 0 * noise if settings.get("top_k") == 1 else noise)
        samples = Samples(
            prompts=list(prompts),
            group=torch.arange(len(prompts), device=task.device).repeat_interleave(group_size),
            mask=torch.ones_like(actions[..., 0], dtype=torch.bool),
            old_log_prob=torch.zeros_like(actions[..., 0]),
            payload={"states": states, "actions": actions, "end": end, "goal": task[:, 2:]},
        )
        scored = self.score(samples, torch.arange(len(task), device=task.device), requires)
        return replace(samples, old_log_prob=scored.log_prob, recorded=scored)

    def reward(self, samples: Samples) -> RewardTable:
        return RewardTable({"near": (-(samples.payload["end"] - samples.payload["goal"]).norm(dim=1)).tolist()})

    def score(self, samples: Samples, rows: Tensor, requires: frozenset[str]) -> Scored:
        policy = Normal(self.module(samples.payload["states"][rows]), self.settings.deviation)
        entropy = policy.entropy().sum(-1) if "entropy" in requires else None
        return Scored(policy.log_prob(samples.payload["actions"][rows]).sum(-1), entropy=entropy)

    @torch.no_grad()
    def evaluate(self, *, streams: Streams) -> Evaluation:
        _, _, end = self._roll(self.held_out, self.held_out.new_zeros(len(self.held_out), self.settings.num_actions, 2))
        distance = (end - self.held_out[:, 2:]).norm(dim=1)
        return Evaluation({"distance": float(distance.mean()), "near": float((distance < 0.3).double().mean())})

    def _roll(self, task: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        position, goal, states, actions = task[:, :2], task[:, 2:], [], []
        for turn in range(noise.shape[1]):
            states.append(torch.cat([position, goal], 1))
            actions.append(self.module(states[-1]) + self.settings.deviation * noise[:, turn])
            position = position + actions[-1]
        return torch.stack(states, 1), torch.stack(actions, 1), position
