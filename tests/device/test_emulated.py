"""The emulated device allows what CUDA allows, refuses what it refuses, and computes what the CPU computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.device.emulated import emulated_cuda

ALLOWED: dict[str, Callable[[Any, Any], Any]] = {
    "a scalar of the CPU": lambda there, here: there + torch.tensor(2.0),
    "an index of the CPU": lambda there, here: there[torch.tensor([0, 1])],
    "a copy": lambda there, here: there.copy_(here),
    "a slice that is set": lambda there, here: there.__setitem__(slice(0, 1), here[:1]),
    "made beside it": lambda there, here: (
        there + torch.zeros_like(there) + there.new_ones(3) + torch.ones(3, device=there.device)
    ),
    "made by an operation": lambda there, here: torch.nn.functional.one_hot(there.long(), 4) * there[:, None],
    "moved": lambda there, here: there.cpu() + here + (there + here.to(there.device)).to("cpu"),
    "read": lambda there, here: (there.tolist(), there[0].item(), float(there.sum()), bool(there.any())),
}
REFUSED: dict[str, Callable[[Any, Any], Any]] = {
    "a tensor without a device": lambda there, here: there + torch.zeros(3),
    "joined": lambda there, here: torch.cat([there, here]),
    "stacked scalars": lambda there, here: torch.stack([there[0], torch.tensor(1.0)]),
    "a mask without a device": lambda there, here: torch.where(torch.ones(3, dtype=torch.bool), there, 0.0),
    "an index of the device": lambda there, here: here[there.long()],
    "gathered by the CPU": lambda there, here: there.gather(0, torch.zeros(1, dtype=torch.long)),
    "a generator of the CPU": lambda there, here: torch.rand(3, device=there.device, generator=torch.Generator()),
    "another generator of the CPU": lambda there, here: torch.multinomial(there, 1, generator=torch.Generator()),
    "numpy": lambda there, here: there.numpy(),
    "added to the CPU's": lambda there, here: here.add_(there),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_what_cuda_allows(name: str) -> None:
    with emulated_cuda():
        ALLOWED[name](torch.ones(3, device="cuda"), torch.ones(3))


@pytest.mark.parametrize("name", REFUSED)
def test_what_cuda_refuses(name: str) -> None:
    with emulated_cuda(), pytest.raises((RuntimeError, TypeError), match=r"same device|device type|cuda:0 device"):
        REFUSED[name](torch.ones(3, device="cuda"), torch.ones(3))


def test_a_module_is_trained_there_as_on_the_cpu() -> None:
    def trained(place: str) -> torch.Tensor:
        torch.manual_seed(0)
        module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)).to(place)
        optimiser = torch.optim.AdamW(module.parameters(), lr=0.1)
        for _ in range(3):
            optimiser.zero_grad()
            module(torch.ones(2, 3, device=place)).square().mean().backward()
            torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            optimiser.step()
        assert {parameter.device.type for parameter in module.parameters()} == {place}
        assert {parameter.grad.device.type for parameter in module.parameters() if parameter.grad is not None} == {
            place
        }
        return torch.cat([parameter.detach().cpu().reshape(-1) for parameter in module.parameters()])

    with emulated_cuda():
        found = trained("cuda")
    # The same kernels on the same shapes; the optimiser groups its tensors otherwise, three steps of a few roundings.
    torch.testing.assert_close(found, trained("cpu"), rtol=1e-5, atol=1e-6)


def test_a_backward_pass_is_held_to_it_too() -> None:
    class Careless(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
            return value * 2

        @staticmethod
        def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
            return gradients[0] * torch.full((3,), 2.0)

    with emulated_cuda():
        leaf = torch.ones(3, device="cuda", requires_grad=True)
        with pytest.raises(RuntimeError, match="same device"):
            Careless.apply(leaf).sum().backward()


def test_outside_there_is_none() -> None:
    before = torch.Tensor.to
    with emulated_cuda():
        assert torch.cuda.is_available()
        assert torch.ones(1, device="cuda").is_cuda
    assert torch.Tensor.to is before
    assert not torch.ones(1).is_cuda
    assert torch.ones(1).device.type == "cpu"
