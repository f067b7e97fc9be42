"""Control as a domain: a Gaussian or categorical policy in an environment of gymnasium, in groups that begin alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from gymnasium.spaces.utils import flatten, flatten_space
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution, Independent, Normal

import groupwise
from groupwise.config import ConfigError
from groupwise.domain.protocol import Evaluation, Prompt, Samples, Table
from groupwise.records import Scored
from groupwise.reward import RewardTable
from groupwise.streams import Streams


class Policy(nn.Module):
    """Maps observations `[..., O]` to a distribution of actions: normal, `[..., A]`, where -1 is the lowest and 1 the
    highest, or of one of `A` choices.
    """

    def __init__(self, num_observed: int, num_actions: int, width: int, discrete: bool) -> None:
        super().__init__()
        self.mean = nn.Sequential(
            nn.Linear(num_observed, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, num_actions)
        )
        self.log_deviation = None if discrete else nn.Parameter(torch.zeros(num_actions))

    def forward(self, observed: Tensor) -> Distribution:
        mean = self.mean(observed)
        if self.log_deviation is None:
            return Categorical(logits=mean)
        return Independent(Normal(mean, self.log_deviation.exp().expand_as(mean)), 1)

    def act(self, observed: Tensor, noise: Tensor) -> Tensor:
        """Draws actions; `noise [..., A]` is normal, or Gumbel's for choices. Without noise they are the likeliest."""
        mean = self.mean(observed)
        return (mean + noise).argmax(-1) if self.log_deviation is None else mean + self.log_deviation.exp() * noise


class Control(groupwise.Domain):
    """Trains a policy to act for the highest return; the members of a group begin in the same state."""

    unit = "nats per action"
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
        bounded = isinstance(space, Box) and space.is_bounded() and len(space.shape) == 1
        if not (bounded or isinstance(space, Discrete)):
            raise ConfigError(
                f"domain.environment = {settings.environment!r} has the actions {space}; the policy needs Discrete, or"
                " a bounded Box of one dimension, such as that of Pendulum-v1"
            )
        self._actions, self._observations = space, environment.observation_space
        self.density = isinstance(space, Box)
        self._width = space.shape[0] if self.density else int(space.n)
        if not self._observations.is_np_flattenable:
            raise ConfigError(
                f"domain.environment = {settings.environment!r} has the observations {self._observations}; the policy"
                " reads those that gymnasium.spaces.flatten makes one row of"
            )
        high = flatten_space(self._observations).high.astype(np.float64)
        self._scale = torch.from_numpy(np.where(high < 1e3, np.clip(high, 1e-3, None), 10.0).astype(np.float32))
        torch.manual_seed(streams.seed("weights"))
        self.module = Policy(len(self._scale), self._width, settings.width, not self.density).to(device)
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
        noise = torch.stack([self._noise((), streams.generator("act", step, *key)) for key in keys])
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
        entropy = policy.entropy() if "entropy" in requires else None
        return Scored(policy.log_prob(samples.payload["actions"][rows]), entropy=entropy)

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
        shape = (len(self._held_out), self.settings.num_decisions, self._width)
        draws = torch.rand(shape, generator=streams.generator("uniform actions", 0))
        uniform = 2 * draws - 1 if self.density else draws.argmax(-1)
        rows = [
            ["the policy", self._held_out_return()],
            ["uniformly random actions", self._held_out_return(uniform)],
        ]
        if self.density:
            rows.append(["no action", self._held_out_return(torch.zeros(shape))])
        return [Table("baselines", "Return from held-out states.", ["who acts", "return"], rows)]

    def close(self) -> None:
        for environment in self._environments:
            environment.close()
        self._environments.clear()

    def _prompt(self, seed: int) -> Prompt:
        return Prompt(f"state-{seed}", {"seed": seed})

    def _noise(self, members: tuple[int, ...], generator: torch.Generator) -> Tensor:
        shape = (*members, self.settings.num_decisions, self._width)
        if self.density:
            return torch.randn(shape, generator=generator)
        return -torch.empty(shape).exponential_(generator=generator).log()

    def _moves(self, actions: np.ndarray) -> Any:
        """Returns actions as the environment takes them, inside its space."""
        if not self.density:
            return self._actions.start + actions
        low, high = self._actions.low, self._actions.high
        moves = low + (np.clip(actions, -1, 1) + 1) / 2 * (high - low)
        whole = np.issubdtype(self._actions.dtype, np.integer)
        return np.clip(np.rint(moves) if whole else moves, low, high).astype(self._actions.dtype)

    def _flat(self, observation: Any) -> np.ndarray:
        return np.asarray(flatten(self._observations, observation), dtype=np.float32)

    def _held_out_return(self, actions: Tensor | None = None) -> float:
        noise = torch.zeros(len(self._held_out), self.settings.num_decisions, self._width)
        payload, _ = self._roll_out(self._held_out, noise, actions)
        return float(payload["rewards"].sum(1).mean())

    @torch.no_grad()
    def _roll_out(
        self, prompts: Sequence[Prompt], noise: Tensor, fixed: Tensor | None = None
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Acts from the state of each prompt, by the policy or by fixed actions: what was seen, done and earned."""
        environments = [self._environment(place) for place in range(len(prompts))]
        state = np.stack(
            [
                self._flat(environment.reset(seed=prompt.columns["seed"])[0])
                for environment, prompt in zip(environments, prompts, strict=True)
            ]
        )
        running = np.ones(len(prompts), dtype=bool)
        observed, actions, rewards, mask = [], [], [], []
        for turn in range(noise.shape[1]):
            observed.append(torch.from_numpy(state.copy()) / self._scale)
            actions.append(self.module.act(observed[-1], noise[:, turn]) if fixed is None else fixed[:, turn])
            mask.append(torch.from_numpy(running.copy()))
            earned = np.zeros(len(prompts))
            moves = self._moves(actions[-1].numpy())
            for member in np.flatnonzero(running):
                for _ in range(self.settings.repeat):
                    seen, reward, terminated, truncated, _ = environments[member].step(moves[member])
                    state[member] = self._flat(seen)
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
