"""Continuous control as a domain: a Gaussian policy in an environment of gymnasium, in groups that begin alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Normal

import groupwise
from groupwise.config import ConfigError
from groupwise.domain.protocol import Evaluation, Prompt, Samples, Table
from groupwise.records import Scored
from groupwise.reward import RewardTable
from groupwise.streams import Streams


class GaussianPolicy(nn.Module):
    """Maps observations `[..., O]` to a normal distribution of actions `[..., A]`: -1 is the lowest, 1 the highest."""

    def __init__(self, num_observed: int, num_actions: int, width: int) -> None:
        super().__init__()
        self.mean = nn.Sequential(
            nn.Linear(num_observed, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, num_actions)
        )
        self.log_deviation = nn.Parameter(torch.zeros(num_actions))

    def forward(self, observed: Tensor) -> Normal:
        mean = self.mean(observed)
        return Normal(mean, self.log_deviation.exp().expand_as(mean))


class Control(groupwise.Domain):
    """Trains a policy to act for the highest return; the members of a group begin in the same state."""

    unit = "nats per action"
    density = True
    supplies = frozenset({"log_prob", "entropy"})
    metric_names = ("return",)

    class Settings(groupwise.Config):
        environment: str = "Pendulum-v1"
        num_decisions: int = 40
        repeat: int = 5  # steps of the environment that an action is held for
        width: int = 64
        num_train: int = 256
        num_held_out: int = 32

    def __init__(self, settings: Settings, *, streams: Streams, device: str) -> None:
        self.settings = settings
        self._environments: list[gymnasium.Env[Any, Any]] = []
        environment: Any = self._environment(0)
        space = environment.action_space
        if not (isinstance(space, gymnasium.spaces.Box) and space.is_bounded() and len(space.shape) == 1):
            raise ConfigError(
                f"domain.environment = {settings.environment!r} has the actions {space}; a Gaussian policy needs a"
                " bounded Box of one dimension, such as that of Pendulum-v1"
            )
        self._lowest, self._largest = space.low, space.high
        observed = environment.observation_space
        if not (isinstance(observed, gymnasium.spaces.Box) and len(observed.shape) == 1):
            raise ConfigError(
                f"domain.environment = {settings.environment!r} has the observations {observed}; the policy reads a Box"
                " of one dimension"
            )
        self._scale = torch.from_numpy(np.clip(observed.high, 1e-3, 10.0).astype(np.float32))
        torch.manual_seed(streams.seed("weights"))
        self.module = GaussianPolicy(len(self._scale), len(self._largest), settings.width).to(device)
        self.num_prompts = settings.num_train
        self._held_out = [self._prompt(settings.num_train + place) for place in range(settings.num_held_out)]
        self.trained_on = frozenset(prompt.key for prompt in self.prompts(range(settings.num_train)))
        self.evaluated_on = frozenset(prompt.key for prompt in self._held_out)

    def prompts(self, indices: Sequence[int]) -> list[Prompt]:
        return [self._prompt(index) for index in indices]

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
        keys = [(prompt.key, member) for prompt in prompts for member in range(group_size)]
        shape = (self.settings.num_decisions, len(self._largest))
        noise = torch.stack([torch.randn(shape, generator=streams.generator("act", step, *key)) for key in keys])
        states = [prompt for prompt in prompts for _ in range(group_size)]
        payload, mask = self._roll_out(states, 0 * noise if settings.get("top_k") == 1 else noise)
        samples = Samples(
            prompts=list(prompts),
            group=torch.arange(len(prompts)).repeat_interleave(group_size),
            mask=mask,
            old_log_prob=torch.zeros(mask.shape),
            payload=payload,
        )
        scored = self.score(samples, torch.arange(len(mask)), requires)
        return replace(samples, old_log_prob=scored.log_prob, recorded=scored)

    def reward(self, samples: Samples) -> RewardTable:
        return RewardTable({"return": samples.payload["rewards"].sum(1).tolist()})

    def score(self, samples: Samples, rows: Tensor, requires: frozenset[str]) -> Scored:
        policy = self.module(samples.payload["observed"][rows])
        entropy = policy.entropy().sum(-1) if "entropy" in requires else None
        return Scored(policy.log_prob(samples.payload["actions"][rows]).sum(-1), entropy=entropy)

    def evaluate(self, *, streams: Streams) -> Evaluation:
        return Evaluation({"return": self._held_out_return()})

    def describe(self, samples: Samples, rows: Tensor) -> list[dict[str, Any]]:
        totals = samples.payload["rewards"].sum(1)
        lengths = samples.mask.sum(1)
        return [
            {**record, "text": f"return {totals[row]:.1f} after {lengths[row]} decisions"}
            for record, row in zip(super().describe(samples, rows), rows.tolist(), strict=True)
        ]

    def tables(self, *, streams: Streams) -> list[Table]:
        generator = streams.generator("uniform actions", 0)
        uniform = 2 * torch.rand(self._noise_shape(), generator=generator) - 1
        rows = [
            ["the policy", self._held_out_return()],
            ["uniformly random actions", self._held_out_return(uniform)],
            ["no action", self._held_out_return(torch.zeros(self._noise_shape()))],
        ]
        return [Table("baselines", "Return from held-out states.", ["who acts", "return"], rows)]

    def close(self) -> None:
        for environment in self._environments:
            environment.close()
        self._environments.clear()

    def _prompt(self, seed: int) -> Prompt:
        return Prompt(f"state-{seed}", {"seed": seed})

    def _noise_shape(self) -> tuple[int, int, int]:
        return len(self._held_out), self.settings.num_decisions, len(self._largest)

    def _held_out_return(self, actions: Tensor | None = None) -> float:
        payload, _ = self._roll_out(self._held_out, torch.zeros(self._noise_shape()), actions)
        return float(payload["rewards"].sum(1).mean())

    @torch.no_grad()
    def _roll_out(
        self, prompts: Sequence[Prompt], noise: Tensor, fixed: Tensor | None = None
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Acts from the state of each prompt, by the policy or by fixed actions: what was seen, done and earned."""
        environments = [self._environment(place) for place in range(len(prompts))]
        state = np.stack(
            [
                environment.reset(seed=prompt.columns["seed"])[0]
                for environment, prompt in zip(environments, prompts, strict=True)
            ]
        )
        running = np.ones(len(prompts), dtype=bool)
        observed, actions, rewards, mask = [], [], [], []
        for turn in range(noise.shape[1]):
            observed.append(torch.from_numpy(state.astype(np.float32)) / self._scale)
            policy = self.module(observed[-1])
            actions.append(policy.mean + policy.stddev * noise[:, turn] if fixed is None else fixed[:, turn])
            mask.append(torch.from_numpy(running.copy()))
            earned = np.zeros(len(prompts))
            share = (np.clip(actions[-1].numpy(), -1, 1) + 1) / 2
            moves = self._lowest + share * (self._largest - self._lowest)
            for member in np.flatnonzero(running):
                for _ in range(self.settings.repeat):
                    state[member], reward, terminated, truncated, _ = environments[member].step(moves[member])
                    earned[member] += float(reward)
                    if terminated or truncated:
                        running[member] = False
                        break
            rewards.append(torch.from_numpy(earned).float())
        parts = {"observed": observed, "actions": actions, "rewards": rewards}
        return {name: torch.stack(values, 1) for name, values in parts.items()}, torch.stack(mask, 1)

    def _environment(self, place: int) -> gymnasium.Env[Any, Any]:
        while len(self._environments) <= place:
            self._environments.append(gymnasium.make(self.settings.environment, disable_env_checker=True))
        return self._environments[place]
