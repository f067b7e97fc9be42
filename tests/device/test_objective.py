"""Every method's loss and gradient on the device is the CPU's, and rounds otherwise at most."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from tests.device.emulated import emulated_cuda
from tests.marks import slow_but
from tests.objective.test_presets import agree, given_batch, ours, suited
from tests.oracles.common import Given

from groupwise.objective import Objective
from groupwise.objective.preset import method_names, overlay_names
from groupwise.objective.ratio import scan

BOUND = 1e-11
"""Some thousand operations in fp64, each within 1.1e-16 of its result, and ratios up to e^3 that multiply what came
before.
"""
METHODS = [*method_names(), *(f"dapo+{name}" for name in overlay_names())]
ALWAYS = (
    "all_compatible",
    "awm",
    "rloo",
    "aggressive",
    "dppo_kl",
    "grpo_guard",
    "reinforce_pp_baseline",
    "topr",
    "aspo",
)
ALWAYS += ("clip_cov", "gdpo", "dapo+geo_rs")
"""Together they take some kind of every slot, and most kinds."""


def moved(given: Given, device: torch.device) -> Given:
    there: dict[str, Any] = {name.name: getattr(given, name.name) for name in fields(given)}
    return replace(
        given, **{name: value.to(device) for name, value in there.items() if isinstance(value, torch.Tensor)}
    )


def on(name: str, device: torch.device) -> list[torch.Tensor]:
    log_prob, given = given_batch(0, 3.0)
    value, gradients = ours(Objective.preset(name), log_prob.to(device), moved(suited(name, given), device))
    assert {tensor.device.type for tensor in (value, *gradients)} == {device.type}
    return [tensor.cpu() for tensor in (value, *gradients)]


@pytest.mark.parametrize("device", [pytest.param("cuda", marks=pytest.mark.gpu)], indirect=True)
@pytest.mark.parametrize("name", METHODS)
def test_the_loss_is_the_cpus(name: str, device: torch.device) -> None:
    for found, expected in zip(on(name, device), on(name, torch.device("cpu")), strict=True):
        agree(found, expected, within=BOUND)


@pytest.mark.parametrize("name", slow_but(ALWAYS, METHODS))
def test_nothing_of_it_is_left_on_the_cpu(name: str) -> None:
    with emulated_cuda():
        found = on(name, torch.device("cuda", 0))
    for there, expected in zip(found, on(name, torch.device("cpu")), strict=True):
        agree(there, expected, within=BOUND)


def test_autocast_is_for_the_model_and_not_for_the_smoothing(device: torch.device) -> None:
    ratio = (0.1 * torch.randn(4, 300, generator=torch.Generator().manual_seed(0))).exp().to(device)
    start = torch.ones(4, 1, device=device)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        cast = scan(ratio, 0.1, start)
    assert cast.dtype == torch.float32
    # An average of numbers near one, of 18 and 17 terms one after the other.
    torch.testing.assert_close(
        cast.double(), scan(ratio.double(), 0.1, start.double()), rtol=0, atol=2 * 35 * torch.finfo(torch.float32).eps
    )
