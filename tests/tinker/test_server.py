"""Gradients through a real server of the Tinker API against the local ones of the same weights."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model, set_peft_model_state_dict
from safetensors.torch import load as load_safetensors
from tests.tinker.conftest import Server
from transformers import AutoModelForCausalLM

from groupwise import Objective, Rollouts, Scored
from groupwise.causal_lm import scoring
from groupwise.causal_lm.backbone import Backbone
from groupwise.causal_lm.config import BuiltinEngine, SamplingConfig
from groupwise.causal_lm.sampler import GroupBatch
from groupwise.config import ConfigError
from groupwise.learner.protocol import StepNumbers
from groupwise_tinker.client import Service
from groupwise_tinker.config import Tinker
from groupwise_tinker.policy import TinkerPolicy

pytestmark = pytest.mark.nightly

PRESETS = (
    "grpo",
    "dapo",
    "dr_grpo",
    "gspo",
    "cispo",
    "clip_cov",
    "gmpo",
    "reinforce_pp",
    "rloo",
    "sapo",
    "lite_ppo",
    "topr",
)
PROMPTS = [[5, 6, 7], [8, 9, 10, 11]]
GROUP = 4
RATE = 1e-3
"""Of the probing step: AdamW with `eps >> |g|` is SGD, so that the moved weights divided by it are the gradient."""

BOUND = 2e-3
"""Relative, of the whole gradient: the weights of fp32 move by `RATE x gradient`, some 1e-5 to 1e-4, from 0 on, and
both sides' backward passes round to 1e-6 of sums that cancel to some 1e-2 of their terms.
"""


@pytest.fixture(scope="module")
def policy(server: Server) -> Any:
    config = Tinker(address=server.address, base_model=str(server.model), rank=4)
    policy = TinkerPolicy(config, BuiltinEngine(), seed=1)
    yield policy
    policy.learner.close()


def adapter_weights(policy: Any, server: Server) -> dict[str, torch.Tensor]:
    """Returns the adapter's weights, from the archive that the server writes for its sampler."""
    live = policy.learner.live
    folder = server.checkpoints / live.model_id / "sampler_weights"
    before = set(folder.glob("*.tar.gz")) if folder.exists() else set()
    name = f"probe-{len(before)}"
    live._training.save_weights_for_sampler(name).result()
    (archive,) = folder.glob(f"{name}*.tar.gz")
    with tarfile.open(archive) as tar:
        (member,) = [entry for entry in tar.getmembers() if Path(entry.name).suffix == ".safetensors"]
        file = tar.extractfile(member)
        assert file is not None
        return load_safetensors(file.read())


def local_model(server: Server, weights: dict[str, torch.Tensor]) -> Any:
    names = sorted({name.split(".")[-3] for name in weights})
    base = AutoModelForCausalLM.from_pretrained(server.model, dtype=torch.float32)
    model = get_peft_model(base, LoraConfig(r=4, lora_alpha=32, target_modules=names))
    missing = set_peft_model_state_dict(model, weights)
    assert not missing.unexpected_keys
    return model


@pytest.mark.parametrize("preset", PRESETS)
def test_a_gradient_through_the_server_is_the_local_one(preset: str, policy: Any, server: Server) -> None:
    objective = Objective.preset(preset)
    assert objective.requires <= policy.supplies
    settings = SamplingConfig(max_new_tokens=6)
    sampled = policy.sample(GroupBatch(PROMPTS, GROUP, settings, list(range(8)), requires=frozenset({"log_prob"})))
    prompts = [prompt for prompt in PROMPTS for _ in range(GROUP)]
    shift = 0.3 * torch.randn(sampled.mask.shape, generator=torch.Generator().manual_seed(1))
    rollouts = Rollouts(
        group=torch.arange(8) // GROUP,
        mask=sampled.mask,
        old_log_prob=torch.where(sampled.mask, sampled.log_prob + shift, -1.0),
        rewards={"reward": torch.tensor([1.0, 0.0, 0.3, 0.1, 0.0, 1.0, 1.0, 0.2])},
        reference_log_prob=sampled.log_prob if objective.needs_reference else None,
    )
    plan = objective.plan(objective.prepare(rollouts, objective.init()))
    inputs = scoring.ScoringInputs(prompts, sampled.tokens, sampled.mask)
    now = policy.score(inputs)["log_prob"]
    cotangent = torch.where(sampled.mask, objective.cotangents(Scored(now), plan).scored.log_prob, 0.0).float()

    before = adapter_weights(policy, server)
    start = policy.learner.record()
    for rows in torch.arange(8).split(3):
        part = {"log_prob": cotangent[rows]}
        chosen = [prompts[row] for row in rows]
        policy.backward(scoring.ScoringInputs(chosen, sampled.tokens[rows], sampled.mask[rows]), part)
    norm = policy.learner.step(StepNumbers(RATE * 1e6, beta1=0.0, beta2=0.0, eps=1e6))
    after = adapter_weights(policy, server)
    policy.learner.restore(start)

    model = local_model(server, before)
    backbone = Backbone(model)
    local = scoring.score(backbone, inputs)["log_prob"]
    assert (local.detach() - now).abs().max() < 1e-5, "the local model has the server's weights"
    objective.loss(Scored(local), plan).total.backward()
    expected, measured = [], []
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            key = name.replace(".default", "")
            expected.append(parameter.grad.flatten())
            measured.append(-(after[key] - before[key]).flatten() / RATE)
    local_gradient, served_gradient = torch.cat(expected), torch.cat(measured)
    assert local_gradient.norm() > 1e-4
    assert (served_gradient - local_gradient).norm() < BOUND * local_gradient.norm()
    assert norm == pytest.approx(float(local_gradient.norm()), rel=BOUND)


def test_an_unknown_base_model_is_one_line(server: Server) -> None:
    with pytest.raises(ConfigError, match="does not serve it; allowed") as refusal:
        Service(Tinker(address=server.address, base_model="nothing/here"))
    assert "\n" not in str(refusal.value)
