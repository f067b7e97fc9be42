"""A configuration that cannot work is an error before the first step, and the message says what to write."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.training.toy import ToyDomain, job, recipe, supervised

from groupwise.config import ConfigError
from groupwise.reference import EmaReference, QualityGateReference
from groupwise.streams import Streams
from groupwise.training.config import EarlyStopping, TrainConfig
from groupwise.training.distributed import World
from groupwise.training.job import Job, Recipe
from groupwise.training.optimiser_config import OptimiserFromPath
from groupwise.training.run.preflight import check_configuration, check_domain, idle_remarks, precision_remarks
from groupwise.training.sampling import AdaptiveSampling, DynamicGroupSize


def refused(recipe: Recipe, match: str, world: World = World(), **domain: Any) -> None:  # noqa: B008
    with pytest.raises(ConfigError, match=match):
        check_domain(ToyDomain(**domain), recipe, Streams(0), world)


@pytest.mark.parametrize(("dtype", "count"), [(torch.bfloat16, 1), (torch.float32, 0)])
def test_half_precision_is_named_as_what_it_is(dtype: torch.dtype, count: int) -> None:
    domain = ToyDomain()
    domain.module.to(dtype)
    remarks = precision_remarks(domain)
    assert len(remarks) == count
    assert all("trained weights are bfloat16 and are trained as they are" in remark for remark in remarks)


def test_float16_is_refused_because_no_loss_is_scaled() -> None:
    domain = ToyDomain()
    domain.module.to(torch.float16)
    with pytest.raises(ConfigError, match=r"weights in float16, .* no loss is scaled here; write domain\.model\.dtype"):
        check_domain(domain, recipe(method="grpo", num_steps=1, prompts_per_step=4, group_size=4), Streams(0), World())


def test_what_several_processes_cannot_do_is_told_before_a_model_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(ConfigError, match="4 processes need a prompt each; write 4"):
        check_configuration(job(recipe(prompts_per_step=2)))
    own = OptimiserFromPath.model_validate({"path": "torch.optim:SGD"})
    stage = replace(recipe(prompts_per_step=4, sharding="full"), optimiser=own)
    with pytest.raises(ConfigError, match=r"optimiser.path = 'torch.optim:SGD': weights that are spread are stepped"):
        check_configuration(job(stage))


def test_a_field_the_domain_cannot_supply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ToyDomain, "supplies", frozenset({"log_prob"}))
    refused(recipe(objective={"entropy": 0.1}), r"reads \['entropy'\], and this domain supplies \['log_prob'\]")


@pytest.mark.parametrize("objective", [{"trust.kind": "gmpo"}, {"advantage.kind": "per_prompt"}])
def test_a_reward_for_every_decision_where_the_method_takes_one_a_member(
    monkeypatch: pytest.MonkeyPatch, objective: dict[str, Any]
) -> None:
    stage = recipe(method="grpo", objective={"divergence.kind": "none", **objective})
    monkeypatch.setattr(ToyDomain, "rewards_decisions", "", raising=False)
    check_domain(ToyDomain(), stage, Streams(0), World())
    monkeypatch.setattr(ToyDomain, "rewards_decisions", "domain.prefix")
    refused(stage, "takes one reward a member, and domain.prefix rewards every decision; write another")


def test_step_sizes_the_domain_does_not_have() -> None:
    refused(recipe(objective={"credit.inverse_step.raw": True}), r"reads \['step_size'\], and this domain supplies")


def test_probabilities_where_decisions_are_continuous(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ToyDomain, "density", True)
    refused(
        recipe(objective={"trust.kind": "dppo"}),
        r"trust.kind = 'dppo' needs the probabilities of discrete decisions.*decisions are continuous",
    )


def test_a_model_without_trained_parameters() -> None:
    toy = ToyDomain()
    toy.module.requires_grad_(False)
    with pytest.raises(ConfigError, match="nothing can be trained"):
        check_domain(toy, recipe(), Streams(0), World())


def test_a_supervised_term_without_a_corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ToyDomain, "demonstrations", lambda *_, **__: None)
    refused(
        supervised(),
        r"no demonstrations; give it a corpus \(domain.demonstrations, .*images that are prompts need targets too\)",
    )


def test_gradient_checkpointing_where_the_model_has_none() -> None:
    refused(recipe(gradient_checkpointing=True), "gradient_checkpointing = true: this model does not offer it")


@pytest.mark.parametrize(
    ("build_job", "match"),
    [
        (lambda: job(recipe(group_size=1)), "group_size = 1: an advantage that compares"),
        (lambda: job(recipe(objective={"policy_weight": 0.0})), "nothing is trained"),
        (
            lambda: job(recipe(callbacks=["nowhere:f"])),
            "train.callbacks = 'nowhere:f': the module 'nowhere' cannot be imported",
        ),
        (lambda: Job("empty", 0, (), lambda device: ToyDomain()), "there is none"),
        (lambda: job(controls={"late": [recipe(group_size=1)]}), "group_size = 1"),
    ],
)
def test_a_configuration_that_cannot_work(build_job: Any, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        check_configuration(build_job())


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"minibatches": 5, "prompts_per_step": 4}, "at most 4"),
        ({"early_stopping": {"patience": 2}}, "evaluate_every = 10"),
        ({"callbacks": ["os.getcwd"]}, "write package.module:name"),
    ],
)
def test_settings_of_training_that_contradict(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        TrainConfig.model_validate(settings)


def test_cuda_where_there_is_none(tmp_path: Path) -> None:
    from groupwise.training.run.launch import train

    with pytest.raises(ConfigError, match="PyTorch sees no CUDA device"):
        train(job(recipe(device="cuda")), tmp_path / "run")


def test_an_auxiliary_term_the_domain_does_not_have() -> None:
    refused(
        recipe(objective={"auxiliary.supervisd": 1.0}),
        r"auxiliary.supervisd: .*supplies no such term; allowed: supervised; did you mean supervised",
    )
    check_domain(ToyDomain(), recipe(objective={"auxiliary.consistency": 0.0}), Streams(0), World())


def test_a_setting_that_cannot_have_an_effect_is_named() -> None:
    kl = {"divergence.kind": "k3", "divergence.beta": 0.1}
    gate, frozen_average = QualityGateReference(sync_steps=10), EmaReference(decay=1.0)
    one_size = DynamicGroupSize(minimum=4, maximum=4)
    idle = [
        (replace(recipe(objective=kl, num_steps=10), reference=gate), "reference.sync_steps = 10: .* 10 steps"),
        (
            replace(recipe(objective=kl, num_steps=10), reference=frozen_average),
            "reference.kind = 'ema' takes in nothing",
        ),
        (recipe(group_size=4, dynamic_group_size=one_size), "dynamic_group_size has one size between its bounds, 4"),
        (
            recipe(prompts_per_step=8, adaptive_sampling=AdaptiveSampling()),
            "adaptive_sampling has no choice: .* 8 prompts of 8",
        ),
        (recipe(num_steps=3, evaluate_every=4), "evaluate_every = 4: .* 3 steps"),
        (
            recipe(num_steps=10, evaluate_every=2, early_stopping=EarlyStopping(patience=5)),
            "patience = 5: .* ends before",
        ),
    ]
    for stage, sentence in idle:
        (remark,) = idle_remarks([stage], 8)
        assert re.search(sentence, remark), remark
    rules = {"adaptive_sampling": AdaptiveSampling(), "dynamic_group_size": DynamicGroupSize()}
    sound = recipe(
        objective=kl,
        num_steps=11,
        evaluate_every=2,
        early_stopping=EarlyStopping(patience=5),
        prompts_per_step=7,
        **rules,
    )
    assert idle_remarks([replace(sound, reference=gate)], 8) == []
