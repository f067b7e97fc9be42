"""Source 002's list of later ideas that concern the reference and the coefficients, each by its effect in a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.training.toy import ToyDomain, job, recipe
from torch import nn

from groupwise.config import ConfigError
from groupwise.learner.local import LocalLearner
from groupwise.reference import EmaReference, FrozenReference, PeriodicReference, QualityGateReference, ReferencePolicy
from groupwise.track import read_metrics
from groupwise.training.run.launch import train

KL: dict[str, Any] = {"divergence.kind": "k3", "divergence.beta": 0.1}


def rows(path: Path, name: str) -> list[float]:
    return [row[name] for row in read_metrics(path / "metrics.jsonl") if name in row]


@pytest.mark.slow
def test_the_mixed_reference_enters_the_loss(tmp_path: Path) -> None:
    """With full mixing every step the policy is compared with itself, and the KL it is charged stays zero; with a
    frozen reference it grows; an averaging reference stays between the start and the policy.
    """
    references = {
        "frozen": FrozenReference(),
        "mixed": PeriodicReference(sync_steps=1, alpha=1.0),
        "ema": EmaReference(decay=0.8),
    }
    for name, reference in references.items():
        train(job(replace(recipe(objective=KL, num_steps=5), reference=reference)), tmp_path / name)
    assert max(rows(tmp_path / "mixed", "kl")) < 1e-12
    assert rows(tmp_path / "frozen", "kl")[-1] > 1e-4
    assert rows(tmp_path / "mixed", "reference/distance") == [0.0] * 5
    assert rows(tmp_path / "mixed", "reference/steps_since_mixed") == [0] * 5
    distance = {name: rows(tmp_path / name, "reference/distance")[-1] for name in ("ema", "frozen")}
    assert 0 < distance["ema"] < 0.8 * distance["frozen"]
    assert rows(tmp_path / "ema", "reference/mixed") == [1.0] * 5


def test_the_quality_gate_keeps_a_policy_that_fell_out_of_the_reference(tmp_path: Path) -> None:
    """Rewarded for wrong actions the policy falls; ungated the reference follows it down, gated it stays
    where it was.
    """

    def spoilt(device: Any) -> ToyDomain:
        return ToyDomain(num_decisions=1, reward_of=lambda index, action: float(int(action[0]) != index % 4))

    stage = recipe(objective=KL, num_steps=5, rate=0.3, metric="sampled_accuracy")
    for name, reference in (
        ("gated", QualityGateReference(sync_steps=1, alpha=1.0, margin=0.0)),
        ("open", PeriodicReference(sync_steps=1, alpha=1.0)),
    ):
        train(job(replace(stage, reference=reference), domain=spoilt), tmp_path / name)
    assert sum(rows(tmp_path / "gated", "reference/refused")) >= 3
    assert sum(rows(tmp_path / "open", "reference/refused")) == 0
    scores = [rows(tmp_path / "gated", f"reference/{name}") for name in ("policy_score", "score")]
    assert len(scores[0]) == 5
    refused = [float(policy < reference) for policy, reference in zip(*scores, strict=True)]
    assert refused == rows(tmp_path / "gated", "reference/refused")
    assert rows(tmp_path / "gated", "reference/distance")[-1] > 0.1
    assert rows(tmp_path / "open", "reference/distance")[-1] == 0.0


@pytest.mark.slow
def test_a_dynamic_beta_steers_the_kl(tmp_path: Path) -> None:
    """From a coefficient far too small, the adaptive one rises until the KL is held; the constant one lets it go."""
    kl = {}
    adaptive = {"kind": "adaptive", "initial": 0.001, "target": 0.002, "horizon": 1.0}
    for name, beta in (("constant", {"divergence.beta": 0.001}), ("adaptive", {"divergence.beta": adaptive})):
        stage = recipe(objective={"divergence.kind": "k3", **beta}, num_steps=60, prompts_per_step=8, group_size=8)
        train(job(stage), tmp_path / name)
        kl[name] = rows(tmp_path / name, "kl")[-1]
    assert kl["adaptive"] < 0.5 * kl["constant"]


def test_the_pull_to_the_reference_is_the_gradient_of_half_the_squared_distance() -> None:
    module = nn.Linear(2, 1, bias=False)
    reference = ReferencePolicy(FrozenReference(), LocalLearner(module))
    with torch.no_grad():
        module.weight += torch.tensor([[3.0, -4.0]])
    assert reference.distance() == pytest.approx(5.0)
    module.weight.grad = torch.ones(1, 2)
    assert reference.pull(0.1) == pytest.approx(0.1 * 25 / 2)
    assert torch.allclose(module.weight.grad, torch.tensor([[1.3, 0.6]]))


def test_a_pull_to_an_adapter_that_is_switched_off_is_refused(tmp_path: Path) -> None:
    class Adapted(ToyDomain):
        def __init__(self) -> None:
            super().__init__()
            self.module.disable_adapter = lambda: None  # type: ignore[attr-defined]

    stage = replace(recipe(l2_to_reference=0.5), reference=FrozenReference(adapter="off"))
    message = r'train.l2_to_reference = 0.5: .*write reference = \{ kind = "frozen", adapter = "copy" \}'
    with pytest.raises(ConfigError, match=message):
        train(job(stage, domain=lambda device: Adapted()), tmp_path / "run")
