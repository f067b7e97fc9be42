"""A second set of a module's trained weights, which takes the live ones' place for the length of a block."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from groupwise.learner.shards import fill, local_part, reshard, sum_over_shards


class LocalCopy:
    """A copy of the trained weights of a module of this process.

    The copy has only the tensors that training changes: parameters with `requires_grad`, and floating-point buffers
    (running statistics). With an adapter that is switched off it has no tensors.

    Args:
        module: the trained module, whose present weights are copied.
        adapter_off: whether the copy is the module without its adapter.

    Example:
        >>> module = nn.Linear(1, 1, bias=False)
        >>> _ = nn.init.constant_(module.weight, 1.0)
        >>> copy = LocalCopy(module)
        >>> _ = nn.init.constant_(module.weight, 3.0)
        >>> copy.mix(0.5)
        >>> with copy.active():
        ...     module.weight.item()
        2.0
        >>> module.weight.item()
        3.0
    """

    def __init__(self, module: nn.Module, *, adapter_off: bool = False) -> None:
        self._module = module
        reshard(module)
        self._adapters = adapters(module) if adapter_off else []
        self._weights: dict[str, Tensor] = (
            {} if adapter_off else {name: tensor.detach().clone() for name, tensor in _trained(module).items()}
        )

    @property
    def holds_weights(self) -> bool:
        """True where the copy has weights of its own, rather than an adapter to switch off."""
        return bool(self._weights)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Makes the module compute with these weights, without gradient, within the block. Storages are exchanged, so
        no tensor is copied; for shards the contents are exchanged.
        """
        with torch.no_grad(), ExitStack() as stack:
            reshard(self._module)
            for module in self._adapters:
                stack.enter_context(_switched_off(module))
            self._swap()
            try:
                yield
            finally:
                self._swap()

    @torch.no_grad()
    def mix(self, alpha: float) -> None:
        """Moves the copy towards the live weights: `copy <- alpha theta + (1 - alpha) copy`.

        Args:
            alpha: the live weights' share, 0 to 1.
        """
        reshard(self._module)
        for name, tensor in _trained(self._module).items():
            # lerp_ gives exactly the copy at 0 and exactly the live weights at 1.
            self._weights[name].lerp_(tensor, alpha)

    @torch.no_grad()
    def distance(self) -> float:
        """Returns `|theta - copy|`, the Euclidean distance over all trained parameters."""
        reshard(self._module)
        compared = self._compared()
        gaps = [
            (local_part(parameter).detach().float() - local_part(self._weights[name]).float()).square().sum()
            for name, parameter in compared
        ]
        if not gaps:
            return 0.0
        return float(sum_over_shards(torch.stack(gaps).sum(), [parameter for _, parameter in compared]).sqrt())

    @torch.no_grad()
    def pull(self, coefficient: float) -> float:
        """Adds the gradient of `coefficient |theta - copy|^2 / 2` to the parameters' gradients, and returns the term's
        value.
        """
        reshard(self._module)
        compared, total = self._compared(), 0.0
        for name, parameter in compared:
            gap = parameter - self._weights[name]
            parameter.grad = (
                coefficient * gap if parameter.grad is None else parameter.grad.add_(gap, alpha=coefficient)
            )
            total += float(local_part(gap).float().square().sum())
        squares = torch.tensor(total, dtype=torch.float64, device=compared[0][1].device if compared else None)
        return coefficient * float(sum_over_shards(squares, [parameter for _, parameter in compared])) / 2

    def record(self) -> dict[str, Tensor]:
        """Returns the copy's weights by name."""
        return dict(self._weights)

    def restore(self, record: Mapping[str, Any]) -> None:
        """Takes back what `record` returned.

        Raises:
            ValueError: the record's names are not those of this copy.
        """
        if set(record) != set(self._weights):
            different = sorted(set(record) ^ set(self._weights))[:3]
            raise ValueError(
                f"the checkpoint's reference and this model's differ in {different}; resume with the configuration the"
                " run began with"
            )
        fill((self._weights[name], tensor) for name, tensor in record.items())

    def _compared(self) -> list[tuple[str, nn.Parameter]]:
        """Returns the live parameters of which the copy has weights, by name."""
        return [(name, parameter) for name, parameter in self._module.named_parameters() if name in self._weights]

    def _swap(self) -> None:
        """Exchanges the storages of the live weights and of the copy. For shards, on which FSDP holds views, it
        exchanges the contents.
        """
        reshard(self._module)
        live = _trained(self._module) if self._weights else {}
        for name, tensor in live.items():
            part, copied = local_part(tensor), local_part(self._weights[name])
            if part is tensor:
                tensor.data, self._weights[name] = self._weights[name], tensor.data
                continue
            before = part.clone()
            part.copy_(copied)
            copied.copy_(before)


def adapters(module: nn.Module) -> list[nn.Module]:
    """Returns the outermost module whose adapter can be switched off (peft's `PeftModel`), in a list of at most one.

    Example:
        >>> adapters(nn.Linear(1, 1))
        []
    """
    return [child for child in module.modules() if callable(getattr(child, "disable_adapter", None))][:1]


def _trained(module: nn.Module) -> dict[str, Tensor]:
    parameters: dict[str, Tensor] = {
        name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad
    }
    return parameters | {name: buffer for name, buffer in module.named_buffers() if buffer.is_floating_point()}


@contextmanager
def _switched_off(module: Any) -> Iterator[None]:
    # peft's switch also toggles requires_grad of the adapter's weights, which the optimiser relies on.
    flags = [(parameter, parameter.requires_grad) for parameter in module.parameters()]
    try:
        with module.disable_adapter():
            # FSDP takes the flag of a weight when it first gathers that weight.
            for parameter, flag in flags:
                parameter.requires_grad_(flag)
            yield
    finally:
        for parameter, flag in flags:
            parameter.requires_grad_(flag)


# A hash of weights, which keys the caches of models that are trained from them.


def hash_weights(module: nn.Module) -> str:
    """Returns a hash of every tensor of the module's state, by name and bytes.

    Example:
        >>> module = nn.Linear(2, 1)
        >>> before = hash_weights(module)
        >>> _ = nn.init.zeros_(module.weight)
        >>> before == hash_weights(module)
        False
    """
    digest = hashlib.blake2b(digest_size=16)
    for name, value in module.state_dict().items():
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
