"""Trained weights that are called otherwise than they were trained are told; others are not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from tests.images.restoration.odd_networks import Straight
from tests.images.restoration.small import domain
from torch import Tensor

from groupwise_images.restoration.network_check import other_convention

NETWORK = {"kind": "callable", "path": "tests.images.restoration.odd_networks:Straight", "channels": 1}


def trained(path: Path, restored: Callable[[Straight, Tensor], Tensor]) -> Path:
    """A denoiser of digits, trained so that `restored` of it is the image."""
    torch.manual_seed(0)
    network = Straight().double()
    clean = torch.from_numpy(load_digits().images[:40] / 16)[:, None]
    degraded = (clean + 0.2 * torch.randn_like(clean)).clamp(0, 1)
    optimiser = torch.optim.Adam(network.parameters(), 3e-2)
    for _ in range(300):
        optimiser.zero_grad()
        (restored(network, degraded) - clean).square().mean().backward()
        optimiser.step()
    save_file(network.state_dict(), path)
    return path


@pytest.mark.parametrize(
    ("restored", "told"),
    [
        pytest.param(lambda network, x: network(x), "", id="plain", marks=pytest.mark.slow),
        pytest.param(
            lambda network, x: x + network(x), "its output is added to what it is given, as a residual", id="residual"
        ),
        pytest.param(
            lambda network, x: x - network(x),
            "its output is taken from what it is given, as the noise in it",
            id="noise",
            marks=pytest.mark.slow,
        ),
        pytest.param(lambda network, x: network(x) / 255, "its output is 0 to 255", id="bytes", marks=pytest.mark.slow),
        pytest.param(
            lambda network, x: network(x * 255) / 255, "both are 0 to 255", id="bytes both ways", marks=pytest.mark.slow
        ),
    ],
)
def test_weights_that_are_meant_otherwise_are_told(
    tmp_path: Path, restored: Callable[[Straight, Tensor], Tensor], told: str
) -> None:
    path = trained(tmp_path / "weights.safetensors", restored)
    remarks = domain({"model": {"network": NETWORK, "checkpoint": str(path)}, "degradation": {"sigma": 0.2}}).remarks
    assert len(remarks) == bool(told)
    assert all(told in each for each in remarks)


def test_a_network_that_leaves_clean_images_alone_is_what_it_should_be() -> None:
    clean = torch.rand(1, 1, 8, 8, dtype=torch.float64)
    assert other_convention(torch.nn.Identity(), clean, clean) == ""


def test_a_network_for_something_stronger_is_not_doubted_for_doing_less_where_it_is_called_otherwise() -> None:
    torch.manual_seed(0)
    clean = torch.rand(1, 1, 16, 16, dtype=torch.float64)
    noise = 0.01 * torch.randn_like(clean)
    # What it takes away does not grow with the scale of the images, as behind a normalisation.
    assert other_convention(_Calls(lambda x: x - 10 * noise), clean + noise, clean) == ""


def test_a_good_network_is_not_doubted_for_dark_images() -> None:
    torch.manual_seed(0)
    clean = torch.full((1, 1, 8, 8), 0.001, dtype=torch.float64)
    assert other_convention(_Calls(lambda x: 0.1 * x), clean + 0.1 * torch.randn_like(clean), clean) == ""


def test_a_network_may_refuse_to_be_called_otherwise() -> None:
    def strict(x: Tensor) -> Tensor:
        assert x.max() < 10, "images of 0 to 1"
        return x - 0.5 * x

    clean = torch.rand(1, 1, 8, 8, dtype=torch.float64)
    degraded = clean + 0.2 * torch.randn_like(clean)
    assert other_convention(_Calls(strict), degraded, clean) == ""
    assert "as a residual (" in other_convention(_Calls(lambda x: strict(x) - strict(x) + clean - x), degraded, clean)


class _Calls(torch.nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.forward = function


def test_of_fresh_weights_nothing_is_said() -> None:
    assert domain({"model": {"network": NETWORK}}).remarks == []
