"""The reference policy beside the live one: a second set of the trained weights that takes the live ones' place for the
length of a block.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, final

import torch
from torch import Tensor, nn

from groupwise.reference.absent import AbsentReference
from groupwise.reference.ema import EmaReference
from groupwise.reference.frozen import FrozenReference


@final
class ReferencePolicy:
    """Weights of the reference, and the rule by which they follow the policy.

    Only what training changes is kept: parameters with `requires_grad`, and floating-point buffers (running
    statistics). With LoRA and a frozen reference nothing is kept, the adapter is switched off instead.

    Args:
        config: one of `ReferenceConfig`.
        module: the trained module, as it is when the reference begins.

    Example:
        >>> from groupwise.reference import PeriodicReference
        >>> module = nn.Linear(1, 1, bias=False)
        >>> _ = nn.init.constant_(module.weight, 1.0)
        >>> reference = ReferencePolicy(PeriodicReference(sync_steps=1, alpha=0.5), module)
        >>> _ = nn.init.constant_(module.weight, 3.0)
        >>> reference.observe(step=1, score=None)
        'mixed'
        >>> with reference.active():
        ...     module.weight.item()
        2.0
        >>> module.weight.item()
        3.0
    """

    def __init__(self, config: Any, module: nn.Module) -> None:
        self.config = config
        self.module = module
        self.score: float | None = None
        self._adapters = _adapted(module) if switches_off(config, module) else []
        keep = not isinstance(config, AbsentReference) and not self._adapters
        self._weights: dict[str, Tensor] = (
            {name: tensor.detach().clone() for name, tensor in _trained(module).items()} if keep else {}
        )

    @property
    def present(self) -> bool:
        """Whether there is a reference at all."""
        return not isinstance(self.config, AbsentReference)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Within the block the module computes as the reference; afterwards, also after an exception, as the policy.
        Without gradient.

        The swap exchanges storages, so it costs no copy.

        Raises:
            RuntimeError: there is no reference.
        """
        if not self.present:
            raise RuntimeError("there is no reference policy to activate")
        with torch.no_grad(), ExitStack() as stack:
            for module in self._adapters:
                stack.enter_context(_switched_off(module))
            self._swap()
            try:
                yield
            finally:
                self._swap()

    def observe(self, step: int, score: float | None) -> str:
        """Lets the reference follow the policy at the end of a step.

        Args:
            step: steps since the reference began, from 1.
            score: the newest score of the policy's evaluations, or `None`.

        Returns:
            `"mixed"`, `"refused"` (quality gate) or `""`.
        """
        if self.score is None:
            self.score = score
        if isinstance(self.config, AbsentReference | FrozenReference):
            return ""
        if isinstance(self.config, EmaReference):
            self.mix(1 - self.config.decay)
            return "mixed"
        if step % self.config.sync_steps:
            return ""
        if self.config.kind == "quality_gate" and self.config.refuses(self.score, score):
            return "refused"
        self.mix(self.config.alpha)
        self.score = score
        return "mixed"

    @property
    def holds_weights(self) -> bool:
        """Whether it has weights of its own, rather than an adapter to switch off."""
        return bool(self._weights)

    @torch.no_grad()
    def distance(self) -> float:
        """`|theta - ref|`, the Euclidean distance over all trained parameters."""
        gaps = [
            (parameter.detach().float() - self._weights[name].float()).square().sum()
            for name, parameter in self._compared()
        ]
        return float(torch.stack(gaps).sum().sqrt()) if gaps else 0.0

    @torch.no_grad()
    def pull(self, coefficient: float) -> float:
        """Adds the gradient of `coefficient |theta - ref|^2 / 2` to the parameters' own, and returns its value.

        Args:
            coefficient: of the pull.

        Returns:
            `coefficient |theta - ref|^2 / 2`.
        """
        total = 0.0
        for name, parameter in self._compared():
            gap = parameter - self._weights[name]
            parameter.grad = (
                coefficient * gap if parameter.grad is None else parameter.grad.add_(gap, alpha=coefficient)
            )
            total += float(gap.float().square().sum())
        return coefficient * total / 2

    def _compared(self) -> list[tuple[str, nn.Parameter]]:
        return [(name, parameter) for name, parameter in self.module.named_parameters() if name in self._weights]

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"weights": dict(self._weights), "score": self.score}

    def restore(self, state: dict[str, Any]) -> None:
        """Takes a checkpoint's state back.

        Args:
            state: what `state` gave.

        Raises:
            ValueError: the checkpoint's reference has other weights.
        """
        if set(state["weights"]) != set(self._weights):
            different = sorted(set(state["weights"]) ^ set(self._weights))[:3]
            raise ValueError(
                f"the checkpoint's reference and this model's differ in {different}; resume with the configuration the"
                " run began with"
            )
        for name, tensor in state["weights"].items():
            self._weights[name].copy_(tensor)
        self.score = state["score"]

    def _swap(self) -> None:
        live = _trained(self.module) if self._weights else {}
        for name, tensor in live.items():
            tensor.data, self._weights[name] = self._weights[name], tensor.data

    @torch.no_grad()
    def mix(self, alpha: float) -> None:
        """`ref <- alpha theta + (1 - alpha) ref`.

        Args:
            alpha: the policy's share, 0 to 1.
        """
        for name, tensor in _trained(self.module).items():
            # lerp_ gives exactly the reference at 0 and exactly the policy at 1.
            self._weights[name].lerp_(tensor, alpha)


def switches_off(config: Any, module: nn.Module) -> bool:
    """Whether this reference of this module is its adapter switched off, and holds no weights.

    Args:
        config: the reference.
        module: the policy.

    Example:
        >>> switches_off(FrozenReference(), nn.Linear(1, 1))
        False
    """
    return isinstance(config, FrozenReference) and config.adapter == "off" and bool(_adapted(module))


def _trained(module: nn.Module) -> dict[str, Tensor]:
    parameters: dict[str, Tensor] = {
        name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad
    }
    return parameters | {name: buffer for name, buffer in module.named_buffers() if buffer.is_floating_point()}


def _adapted(module: nn.Module) -> list[nn.Module]:
    """The outermost modules whose adapter can be switched off (peft's `PeftModel`)."""
    return [child for child in module.modules() if callable(getattr(child, "disable_adapter", None))][:1]


@contextmanager
def _switched_off(module: Any) -> Iterator[None]:
    # peft's switch also toggles requires_grad of the adapter's weights, which the optimiser relies on.
    flags = [(parameter, parameter.requires_grad) for parameter in module.parameters()]
    try:
        with module.disable_adapter():
            yield
    finally:
        for parameter, flag in flags:
            parameter.requires_grad_(flag)
