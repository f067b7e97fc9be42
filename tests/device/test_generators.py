"""Random numbers: a device's own generator comes back, and what a seed draws is the same on every device."""

from __future__ import annotations

import json

import torch
from tests.golden_runs.runs import DOMAINS

import groupwise
from groupwise.experiment.runner import open_domain
from groupwise.streams import Streams, capture, restore, seed_everything


def test_the_devices_generator_comes_back_through_json(device: torch.device) -> None:
    before = capture()
    try:
        seed_everything(3)
        torch.rand(3, device=device)
        kept = json.loads(json.dumps(capture()))
        first = torch.rand(3, device=device)
        torch.rand(3, device=device)
        restore(kept)
        assert torch.equal(torch.rand(3, device=device), first)
    finally:
        restore(before)


def test_members_draw_the_same_noise_on_every_device(device: torch.device, tmp_path) -> None:
    """Before the model is asked anything: the images that a diffusion run degrades are drawn from seeds, on the CPU."""
    path = tmp_path / "experiment.json"
    path.write_text(json.dumps({**DOMAINS["restoration"](tmp_path), "method": "grpo"}))
    domain = open_domain(groupwise.load_experiment(path, run_code=True), device)
    try:
        prompts = domain.prompts([0, 1])
        samples = domain.sample(prompts, 2, streams=Streams(0), step=0, settings={}, requires=frozenset({"log_prob"}))
        assert samples.payload["degraded"].device == samples.old_log_prob.device
        assert samples.payload["degraded"].device.type == device.type
        assert samples.payload["images"].device.type == "cpu", "rewards and people read them there"
        total = float(samples.payload["degraded"].double().sum())
    finally:
        domain.close()
    again = open_domain(groupwise.load_experiment(path, run_code=True), "cpu")
    try:
        expected = again.sample(prompts, 2, streams=Streams(0), step=0, settings={}, requires=frozenset({"log_prob"}))
        # Drawn and degraded in numpy; the device only adds 256 numbers of at most one in another order.
        assert (
            abs(total - float(expected.payload["degraded"].double().sum()))
            <= 256 * 256 * torch.finfo(torch.float64).eps
        )
    finally:
        again.close()
