"""Gaussian pixels: exact log-probs, entropies and divergences of blocks of pixels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional

from groupwise.config import ConfigError
from groupwise.domain.restoration.policy.base import Drawn, Fields, wide
from groupwise.domain.restoration.policy.config import Pixels


@final
class PixelPolicy:
    """`a ~ N(mu, sigma^2)` at every pixel and channel, independent; see `Pixels`.

    The action is `a`, before it is clamped: the log-prob is that of what was drawn. Nothing flows through the sample:
    it is detached, and a score function is all the gradient there is.
    """

    unit = "nats per block of pixels"
    supplies = frozenset({"log_prob", "entropy", "score_norm", "mean_shift", "exact_divergence", "step_size"})

    def __init__(self, config: Pixels) -> None:
        self.config = config

    def check(self, module: nn.Module, image: Tensor, target: Tensor) -> None:
        height, width = target.shape[2:]
        if height % self.config.block or width % self.config.block:
            size = f"{height} x {width}"
            raise ConfigError(
                f"policy.block = {self.config.block}: images of {size} pixels cannot be cut into such blocks; write a"
                " divisor of both"
            )

    def draw(
        self,
        module: nn.Module,
        degraded: Tensor,
        group_size: int,
        generators: Sequence[torch.Generator] | None,
        sigma: float | None,
        requires: frozenset[str],
    ) -> Drawn:
        mean = wide(module(degraded)).repeat_interleave(group_size, 0)
        spread = torch.full(
            (len(mean),), self.config.sigma if sigma is None else sigma, dtype=mean.dtype, device=mean.device
        )
        action = mean
        if generators is not None:
            noise = torch.stack([self._noise(generators, member, group_size, mean) for member in range(len(mean))])
            action = mean + spread.view(-1, 1, 1, 1) * noise
        payload = {"action": action, "mean": mean, "sigma": spread}
        return Drawn(action.clamp(0, 1), payload, self._fields(mean, payload, requires - {"exact_divergence"}))

    def predict(self, module: nn.Module, degraded: Tensor) -> Sequence[Tensor]:
        return (wide(module(degraded)),)

    def fields(self, predicted: Sequence[Tensor], payload: Mapping[str, Tensor], requires: frozenset[str]) -> Fields:
        (mean,) = predicted
        return self._fields(mean, payload, requires)

    def reference(
        self, module: nn.Module, degraded: Tensor, row: Tensor, payload: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        return {"reference_mean": wide(module(degraded))[row]}

    def _noise(self, generators: Sequence[torch.Generator], member: int, group_size: int, like: Tensor) -> Tensor:
        if not self.config.antithetic:
            return torch.randn(like.shape[1:], generator=generators[member]).to(like)
        # Members 0 and 1, 2 and 3, ... of a group share a draw; the last of an odd group shares it with no other.
        place = member % group_size
        pair_member = member - place % 2
        noise = torch.randn(
            like.shape[1:],
            generator=generators[pair_member].clone_state() if place % 2 == 0 else generators[pair_member],
        ).to(like)
        return -noise if place % 2 else noise

    def _fields(self, mean: Tensor, payload: Mapping[str, Tensor], requires: frozenset[str]) -> Fields:
        action, sigma = payload["action"], payload["sigma"].view(-1, 1, 1, 1)
        standard = (action - mean) / sigma
        log_scale = (payload["sigma"].log() + 0.5 * math.log(2 * math.pi)) * mean.shape[1] * self.config.block**2
        values = {"log_prob": self._summed(-0.5 * standard.square()) - log_scale[:, None]}
        if "entropy" in requires:
            # The spread is fixed, and the entropy with it: it has no gradient.
            entropy = (log_scale + 0.5 * mean.shape[1] * self.config.block**2)[:, None]
            values["entropy"] = entropy.expand(values["log_prob"].shape).contiguous()
        if "score_norm" in requires:
            values["score_norm"] = self._summed((standard / sigma).detach().square()).sqrt()
        if "mean_shift" in requires:
            noise = (action - payload["mean"]) / sigma
            values["mean_shift"] = self._summed(noise * (mean - payload["mean"])) / (
                mean.shape[1] * self.config.block**2
            )
        if "exact_divergence" in requires:
            values["exact_divergence"] = self._summed(0.5 * ((mean - payload["reference_mean"]) / sigma).square())
        return values

    def _summed(self, value: Tensor) -> Tensor:
        """Sums over the channels and pixels of each block, `[B, T]`, row by row of blocks."""
        return (functional.avg_pool2d(value.sum(1, keepdim=True), self.config.block) * self.config.block**2).flatten(1)
