"""Control parameters drawn from Beta distributions: a policy of few dimensions that inference uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast, final

import torch
from torch import Tensor, nn
from torch.distributions import Beta, kl_divergence

from groupwise.config import ConfigError
from groupwise.domain.restoration.policy.base import Drawn, Fields, wide

_EDGE = 1e-6


@final
class GatePolicy:
    """`g_k ~ Beta(1 + c_k m_k, 1 + c_k (1 - m_k))`, whose mode is `m_k`: the network with its most likely controls is
    the network as it ships.

    Source: Chou et al. 2017, Improving Stochastic Policy Gradients in Continuous Control with Deep Reinforcement
    Learning using the Beta Distribution.
    """

    unit = "nats per control parameter"
    supplies = frozenset({"log_prob", "entropy", "score_norm", "exact_divergence"})

    def check(self, module: nn.Module, image: Tensor, target: Tensor) -> None:
        if not getattr(module, "num_controls", 0) or not callable(getattr(module, "controls", None)):
            raise ConfigError(
                'policy.kind = "gates": the network has no control parameters (num_controls and controls(x)); write'
                ' network.kind = "gated", or policy.kind = "pixels"'
            )
        with torch.no_grad():
            _check_controls(cast(Any, module), image)

    def draw(
        self,
        module: nn.Module,
        degraded: Tensor,
        group_size: int,
        generators: Sequence[torch.Generator] | None,
        sigma: float | None,
        requires: frozenset[str],
    ) -> Drawn:
        alpha, beta = (value.repeat_interleave(group_size, 0) for value in _parameters(module, degraded))
        # Drawn one member at a time, so that a member's gates depend on its own generator alone.
        if generators is None:
            gates = (alpha - 1) / (alpha + beta - 2)
        else:
            gates = torch.stack(
                [_draw(alpha[member], beta[member], generator) for member, generator in enumerate(generators)]
            )
        gates = gates.clamp(_EDGE, 1 - _EDGE)
        images = cast(Any, module)(degraded.repeat_interleave(group_size, 0), controls=gates.to(degraded))
        payload = {"gates": gates}
        return Drawn(
            images.clamp(0, 1),
            payload,
            _fields(Beta(alpha, beta, validate_args=False), payload, requires - {"exact_divergence"}),
        )

    def predict(self, module: nn.Module, degraded: Tensor) -> Sequence[Tensor]:
        return _parameters(module, degraded)

    def fields(self, predicted: Sequence[Tensor], payload: Mapping[str, Tensor], requires: frozenset[str]) -> Fields:
        alpha, beta = predicted
        return _fields(Beta(alpha, beta, validate_args=False), payload, requires)

    def reference(
        self, module: nn.Module, degraded: Tensor, row: Tensor, payload: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        alpha, beta = _parameters(module, degraded)
        return {"reference_alpha": alpha[row], "reference_beta": beta[row]}


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


def _parameters(module: nn.Module, degraded: Tensor) -> tuple[Tensor, Tensor]:
    mode, concentration = (wide(value) for value in cast(Any, module).controls(degraded))
    return 1 + concentration * mode, 1 + concentration * (1 - mode)


def _draw(alpha: Tensor, beta: Tensor, generator: torch.Generator) -> Tensor:
    """Draws by inverse transform from a uniform number: exact for the distribution and keyed by the generator."""
    import numpy as np
    from scipy.special import betaincinv

    uniform = torch.rand(alpha.shape, generator=generator, dtype=torch.float64).numpy()
    gates = betaincinv(
        np.asarray(alpha.detach().cpu(), dtype=np.float64), np.asarray(beta.detach().cpu(), dtype=np.float64), uniform
    )
    return torch.from_numpy(np.atleast_1d(gates)).to(alpha)


def _fields(distribution: Beta, payload: Mapping[str, Tensor], requires: frozenset[str]) -> Fields:
    gates = payload["gates"]
    values = {"log_prob": distribution.log_prob(gates)}
    if "entropy" in requires:
        values["entropy"] = distribution.entropy()
    if "score_norm" in requires:
        alpha, beta = distribution.concentration1.detach(), distribution.concentration0.detach()
        digamma_sum = torch.digamma(alpha + beta)
        by_alpha, by_beta = (
            gates.log() - torch.digamma(alpha) + digamma_sum,
            torch.log1p(-gates) - torch.digamma(beta) + digamma_sum,
        )
        values["score_norm"] = torch.hypot(by_alpha, by_beta)
    if "exact_divergence" in requires:
        reference = Beta(payload["reference_alpha"], payload["reference_beta"], validate_args=False)
        values["exact_divergence"] = kl_divergence(distribution, reference)
    return values
