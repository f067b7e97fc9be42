"""Policies over a network's output: every pixel is drawn, or its control parameters are. The mode of each is the
network as it ships.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, cast, final

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.distributions import Beta, kl_divergence
from torch.nn import functional

from groupwise.config import Config, ConfigError
from groupwise.config.errors import Width


@final
class Pixels(Config):
    """`a = sg(mu) + sigma z` at every pixel, `mu = f(x)`; what is shown and rewarded is `clamp(a, 0, 1)`. A decision is
    a block of pixels.

    Args:
        sigma: standard deviation, where white is 1. A schedule may change it (`domain.sampling_schedule`).
        block: pixels on the side of a decision; 1 makes every pixel one. Channels belong to their pixel.
        antithetic: members come in pairs `+z`, `-z`, which takes the noise's own mean out of the group.
    """

    kind: Literal["pixels"] = "pixels"
    sigma: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.2
    block: Width = 1
    antithetic: bool = True

    def open(self) -> Policy:
        """Opens the policy."""
        return PixelPolicy(self)


@final
class Gates(Config):
    """Each control parameter of the network is drawn from a Beta distribution whose mode the network gives; a decision
    is one of them.

    Inference uses the mode. A network that begins at the identity (`network.kind = "gated"`) is exactly its plain self
    there.
    """

    kind: Literal["gates"] = "gates"

    def open(self) -> Policy:
        """Opens the policy."""
        return GatePolicy()


# The interface of a policy: draw, score again, compare with a reference.

Fields = dict[str, Tensor]


def wide(value: Tensor) -> Tensor:
    """Converts to at least single precision: a log-prob of half precision is no more than a guess."""
    return value.to(torch.promote_types(value.dtype, torch.float32))


class Draws(NamedTuple):
    """The inputs from which the members of groups are drawn.

    Args:
        group_size: members of a group.
        generators: one a member; None takes the mode, which is the network as it ships.
        sigma: overrides the configured spread.
    """

    group_size: int
    generators: Sequence[torch.Generator] | None = None
    sigma: float | None = None


@final
@dataclass(frozen=True)
class Drawn:
    """The images that were drawn, and their log-probs.

    Args:
        images: `[B, C, H, W]` in [0, 1].
        payload: rows that scoring needs again, `[B, ...]` each.
        fields: the fields of `Scored`, `[B, T]` each, without gradient.
    """

    images: Tensor
    payload: Mapping[str, Tensor]
    fields: Fields


class Policy(ABC):
    """A distribution over restored images (or over a network's controls), given by a network.

    `unit` is what a log-prob is per; `supplies` the fields of `Scored` it can give; `references` the names of what
    `predict` returns of the reference.
    """

    unit: ClassVar[str]
    supplies: ClassVar[frozenset[str]]
    references: ClassVar[tuple[str, ...]]

    def draw(self, module: nn.Module, degraded: Tensor, draws: Draws, requires: frozenset[str]) -> Drawn:
        """Draws a group for each of the `P` images, member by member.

        Args:
            degraded: `[P, C, H, W]`.
            draws: group size, generators and spread.
            requires: fields in addition to the log-prob.
        """
        predicted = [value.repeat_interleave(draws.group_size, 0) for value in self.predict(module, degraded)]
        payload = self._drawn(predicted, draws)
        images = self._images(module, degraded.repeat_interleave(draws.group_size, 0), payload)
        return Drawn(images.clamp(0, 1), payload, self.fields(predicted, payload, requires - {"exact_divergence"}))

    def reference(
        self, module: nn.Module, degraded: Tensor, row: Tensor, payload: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Computes what `exact_divergence` needs of the active network, `[B, ...]` each."""
        return dict(zip(self.references, (value[row] for value in self.predict(module, degraded)), strict=True))

    @abstractmethod
    def check(self, module: nn.Module, image: Tensor, target: Tensor) -> None:
        """Refuses a network, or images of a size, that do not suit the policy.

        Args:
            image: `[1, C, H, W]`, as the network is given it.
            target: `[1, C, scale H, scale W]`, of the size that it gives.
        """

    @abstractmethod
    def predict(self, module: nn.Module, degraded: Tensor) -> Sequence[Tensor]:
        """Computes the distribution's parameters for each image, `[P, ...]` each, with gradient.

        Args:
            degraded: `[P, C, H, W]`, each image once.
        """

    @abstractmethod
    def fields(self, predicted: Sequence[Tensor], payload: Mapping[str, Tensor], requires: frozenset[str]) -> Fields:
        """Computes fields `[B, T]` of members.

        Args:
            predicted: what `predict` returned for each member's image, `[B, ...]` each.
            payload: the rows of these members in what `draw` and `reference` returned.
            requires: fields in addition to the log-prob.
        """

    @abstractmethod
    def _drawn(self, predicted: Sequence[Tensor], draws: Draws) -> dict[str, Tensor]:
        """Draws what scoring needs again, `[B, ...]` each; see `draw`."""

    @abstractmethod
    def _images(self, module: nn.Module, degraded: Tensor, payload: Mapping[str, Tensor]) -> Tensor:
        """Computes the images `[B, C, H, W]` of what was drawn."""


_EDGE = 1e-6


@final
class GatePolicy(Policy):
    """`g_k ~ Beta(1 + c_k m_k, 1 + c_k (1 - m_k))`, whose mode is `m_k`: the network with its most likely controls is
    the network as it ships.

    Source: Chou et al. 2017, Improving Stochastic Policy Gradients in Continuous Control with Deep Reinforcement
    Learning using the Beta Distribution.
    """

    unit = "nats per control parameter"
    supplies = frozenset({"log_prob", "entropy", "score_norm", "exact_divergence"})
    references = ("reference_alpha", "reference_beta")

    def check(self, module: nn.Module, image: Tensor, target: Tensor) -> None:
        if not getattr(module, "num_controls", 0) or not callable(getattr(module, "controls", None)):
            raise ConfigError(
                'policy.kind = "gates": the network has no control parameters (num_controls and controls(x)); write'
                ' network.kind = "gated", or policy.kind = "pixels"'
            )
        with torch.no_grad():
            _check_controls(cast(Any, module), image)

    def predict(self, module: nn.Module, degraded: Tensor) -> Sequence[Tensor]:
        mode, concentration = (wide(value) for value in cast(Any, module).controls(degraded))
        return 1 + concentration * mode, 1 + concentration * (1 - mode)

    def _drawn(self, predicted: Sequence[Tensor], draws: Draws) -> dict[str, Tensor]:
        alpha, beta = predicted
        if draws.generators is None:
            gates = (alpha - 1) / (alpha + beta - 2)
        else:
            # Drawn one member at a time, so that a member's gates depend on its own generator alone.
            gates = torch.stack([_draw(*member) for member in zip(alpha, beta, draws.generators, strict=True)])
        return {"gates": gates.clamp(_EDGE, 1 - _EDGE)}

    def _images(self, module: nn.Module, degraded: Tensor, payload: Mapping[str, Tensor]) -> Tensor:
        return cast(Any, module)(degraded, controls=payload["gates"].to(degraded))

    def fields(self, predicted: Sequence[Tensor], payload: Mapping[str, Tensor], requires: frozenset[str]) -> Fields:
        alpha, beta = predicted
        distribution, gates = Beta(alpha, beta, validate_args=False), payload["gates"]
        values = {"log_prob": distribution.log_prob(gates)}
        if "entropy" in requires:
            values["entropy"] = distribution.entropy()
        if "score_norm" in requires:
            alpha, beta = alpha.detach(), beta.detach()
            digamma_sum = torch.digamma(alpha + beta)
            by_alpha = gates.log() - torch.digamma(alpha) + digamma_sum
            by_beta = torch.log1p(-gates) - torch.digamma(beta) + digamma_sum
            values["score_norm"] = torch.hypot(by_alpha, by_beta)
        if "exact_divergence" in requires:
            reference = Beta(*(payload[name] for name in self.references), validate_args=False)
            values["exact_divergence"] = kl_divergence(distribution, reference)
        return values


def _check_controls(module: Any, image: Tensor) -> None:
    """Tries a user's network on one image and refuses control parameters that are not as the policy needs them.

    Raises:
        ConfigError: it is not what the policy draws from, or the network restores with something else than their mode.
    """
    number = module.num_controls
    requirement = (
        f"controls(x) must give (mode, concentration), each [N, {number}] (num_controls = {number}), modes in [0, 1]"
        " and concentrations above 0"
    )
    try:
        mode, concentration = module.controls(image)
        shapes = [list(mode.shape), list(concentration.shape)]
        at_mode, plain = module(image, controls=mode), module(image)
        ends = [module(image, controls=torch.full_like(mode, value)) for value in (0.1, 0.9)]
    except Exception as error:
        raise ConfigError(
            f"network: its control parameters fail on images of {list(image.shape)}: {type(error).__name__}: {error};"
            f" {requirement}, and the network must take controls=[N, K] beside the images"
        ) from error
    if shapes != [[1, number], [1, number]]:
        raise ConfigError(f"network: controls(x) gives {shapes[0]} and {shapes[1]} for one image; {requirement}")
    if not (mode.ge(0).all() and mode.le(1).all() and concentration.gt(0).all() and concentration.isfinite().all()):
        raise ConfigError(
            f"network: controls(x) gives modes {mode[0].tolist()} and concentrations {concentration[0].tolist()};"
            f" {requirement}"
        )
    if not torch.allclose(at_mode, plain, rtol=1e-3, atol=1e-3):
        gap = float((at_mode - plain).abs().max())
        raise ConfigError(
            f"network: without controls it gives another image than with their mode (by {gap:.3g}); what is trained"
            " must be what ships"
        )
    # A network whose correction begins at zero returns its input under any gates.
    if all(torch.equal(end, plain) for end in ends) and not torch.equal(plain, image):
        raise ConfigError("network: it gives the same image whatever controls are; nothing drawn would have an effect")


def _draw(alpha: Tensor, beta: Tensor, generator: torch.Generator) -> Tensor:
    """Draws by inverse transform from a uniform number: exact for the distribution and keyed by the generator."""
    import numpy as np
    from scipy.special import betaincinv

    uniform = torch.rand(alpha.shape, generator=generator, dtype=torch.float64).numpy()
    gates = betaincinv(
        np.asarray(alpha.detach().cpu(), dtype=np.float64), np.asarray(beta.detach().cpu(), dtype=np.float64), uniform
    )
    return torch.from_numpy(np.atleast_1d(gates)).to(alpha)


@final
class PixelPolicy(Policy):
    """`a ~ N(mu, sigma^2)` at every pixel and channel, independent; see `Pixels`.

    The action is `a`, before it is clamped: the log-prob is that of what was drawn. Nothing flows through the sample:
    it is detached, and a score function is all the gradient there is.
    """

    unit = "nats per block of pixels"
    supplies = frozenset({"log_prob", "entropy", "score_norm", "mean_shift", "exact_divergence", "step_size"})
    references = ("reference_mean",)

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

    def predict(self, module: nn.Module, degraded: Tensor) -> Sequence[Tensor]:
        return (wide(module(degraded)),)

    def _drawn(self, predicted: Sequence[Tensor], draws: Draws) -> dict[str, Tensor]:
        (mean,) = predicted
        spread = mean.new_full((len(mean),), self.config.sigma if draws.sigma is None else draws.sigma)
        action = mean
        if (generators := draws.generators) is not None:
            shape, group_size = mean.shape[1:], draws.group_size
            noise = torch.stack([self._noise(generators, member, group_size, shape) for member in range(len(mean))])
            action = mean + spread.view(-1, 1, 1, 1) * noise.to(mean)
        return {"action": action, "mean": mean, "sigma": spread}

    def _images(self, module: nn.Module, degraded: Tensor, payload: Mapping[str, Tensor]) -> Tensor:
        return payload["action"]

    def _noise(self, generators: Sequence[torch.Generator], member: int, group_size: int, shape: torch.Size) -> Tensor:
        if not self.config.antithetic:
            return torch.randn(shape, generator=generators[member])
        # Members 0 and 1, 2 and 3, ... of a group share a draw; the last of an odd group shares it with no other.
        place = member % group_size
        pair_member = member - place % 2
        generator = generators[pair_member]
        noise = torch.randn(shape, generator=generator.clone_state() if place % 2 == 0 else generator)
        return -noise if place % 2 else noise

    def fields(self, predicted: Sequence[Tensor], payload: Mapping[str, Tensor], requires: frozenset[str]) -> Fields:
        (mean,) = predicted
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


PolicyConfig = Annotated[Pixels | Gates, Field(discriminator="kind")]
"""Any policy, chosen by `kind`."""
