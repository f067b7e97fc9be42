"""Ways to break a training step, each a mistake that somebody has made: the replay has to see every one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.training.step_runs import Case

from groupwise.causal_lm import loading
from groupwise.domain.language import domain as language
from groupwise.domain.protocol import Samples
from groupwise.learner import local
from groupwise.learner.local import trained_parameters
from groupwise.objective import Objective, Plan
from groupwise.objective.advantage import ZScore
from groupwise.objective.aggregate import MemberMean
from groupwise.objective.correction import Truncate
from groupwise.records import Loss, Scored
from groupwise.reference import ReferencePolicy
from groupwise.training.optimiser_config import OptimiserConfig
from groupwise.training.step import passes
from groupwise.training.step import step as step_module
from groupwise.training.step.state import Step

Patch = pytest.MonkeyPatch


def mask(patch: Patch) -> None:
    """The last decision of every member is left out."""
    plain = Samples.rollouts

    def shorter(samples: Samples, *arguments: Any, **options: Any) -> Any:
        last = torch.arange(samples.mask.shape[1]) == samples.mask.sum(1, keepdim=True) - 1
        return plain(replace(samples, mask=samples.mask & ~last), *arguments, **options)

    patch.setattr(Samples, "rollouts", shorter)


def temperature(patch: Patch) -> None:
    """Members are scored at temperature 1."""
    plain = language.scoring_inputs
    patch.setattr(language, "scoring_inputs", lambda samples, names: replace(plain(samples, names), temperature=1.0))


def prompt(patch: Patch) -> None:
    """Members are scored after a prompt whose first token is lost."""
    plain = language.scoring_inputs

    def shorter(*given: Any) -> Any:
        inputs = plain(*given)
        return replace(inputs, prompts=[ids[1:] for ids in inputs.prompts])

    patch.setattr(language, "scoring_inputs", shorter)


def denominator(patch: Patch) -> None:
    """A member is divided by the longest member's length."""

    def padded(self: MemberMean, counts: Any) -> Any:
        return counts.spread(torch.ones_like(counts.length) / (counts.mask.shape[1] * counts.total(counts.admitted)))

    patch.setattr(MemberMean, "__call__", padded)


def order_of_clipping(patch: Patch) -> None:
    """The policy's gradient is clipped before the supervised one joins it."""
    plain = passes.supervised_gradient

    def late(step: Step, samples: Any) -> Any:
        parameters = trained_parameters(step.domain.module)
        torch.nn.utils.clip_grad_norm_(parameters, step.recipe.train.max_grad_norm)
        return plain(step, samples)

    patch.setattr(passes, "supervised_gradient", late)


def accumulation(patch: Patch) -> None:
    """The last micro-batch is lost."""
    plain = Step.passes
    patch.setattr(
        Step,
        "passes",
        lambda *arguments: (lambda batches: batches[: max(1, len(batches) - 1)])(plain(*arguments)),
    )


def old_log_prob(patch: Patch) -> None:
    """Every update believes that it is the first on its batch."""
    plain = Objective.loss

    def first(self: Objective, scored: Scored, plan: Plan) -> Loss:
        return plain(self, scored, replace(plan, acted=replace(plan.acted, old_log_prob=scored.log_prob.detach())))

    patch.setattr(Objective, "loss", first)


def reference(patch: Patch) -> None:
    """The reference is the policy itself."""
    patch.setattr(ReferencePolicy, "active", lambda self: contextlib.nullcontext())


def advantage(patch: Patch) -> None:
    """The population's standard deviation in place of the unbiased one."""

    def biased(self: ZScore, rewards: Any, running: Any) -> Any:
        return rewards.compared((rewards.value - rewards.mean) / rewards.std(0).clamp(min=1e-6)), running

    patch.setattr(ZScore, "__call__", biased)


def dealing(patch: Patch) -> None:
    """Groups are dealt to minibatches in the order in which they were drawn."""
    plain = step_module._minibatches

    class InOrder:
        def numpy(self, *key: Any) -> Any:
            return type("Unshuffled", (), {"permutation": staticmethod(np.arange)})

    patch.setattr(
        step_module,
        "_minibatches",
        lambda step, collected, number: plain(replace(step, streams=InOrder()), collected, number),
    )


def supervised_count(patch: Patch) -> None:
    """The supervised term is a mean over texts, not over their tokens."""
    plain = language.as_samples

    def by_text(*arguments: Any) -> Any:
        samples = plain(*arguments)
        return replace(samples, auxiliary_count={"supervised": torch.ones_like(samples.auxiliary_count["supervised"])})

    patch.setattr(language, "as_samples", by_text)


def behaviour(patch: Patch) -> None:
    """Forgets the effect of top-p on the sampler."""
    patch.setattr(Truncate, "__call__", lambda self, log_weight, mask: torch.ones_like(log_weight))


def decay(patch: Patch) -> None:
    """Vectors decay too."""
    plain = local.build_optimiser

    def everything(*arguments: Any) -> Any:
        optimiser = plain(*arguments)
        for group in optimiser.param_groups:
            group["decays"] = True
        return optimiser

    patch.setattr(local, "build_optimiser", everything)


def moments(patch: Patch) -> None:
    """The optimiser forgets its moments after every step."""
    plain = local.configure_optimiser

    def fresh(optimiser: Any, *arguments: Any, **settings: Any) -> Any:
        optimiser.state.clear()
        return plain(optimiser, *arguments, **settings)

    patch.setattr(local, "configure_optimiser", fresh)


def rate(patch: Patch) -> None:
    """The learning rate runs a step ahead."""
    plain = OptimiserConfig.rate
    patch.setattr(OptimiserConfig, "rate", lambda self, step: plain(self, step + 1))


def scale_of_adapter(patch: Patch) -> None:
    """The adapter's update is not divided by its rank."""
    plain = loading.add_lora
    patch.setattr(
        loading,
        "add_lora",
        lambda model, config: plain(model, config.model_copy(update={"alpha": config.alpha * config.r})),
    )


@dataclass(frozen=True)
class Break:
    """A mistake, and a run that it harms."""

    make: Callable[[Patch], None]
    case: Case

    @property
    def name(self) -> str:
        """For people."""
        return self.make.__name__


ONE, SEVERAL = Case("grpo"), Case("grpo", minibatches=2)
QUICK = ("mask", "denominator", "accumulation", "moments")
BREAKS = [
    Break(mask, ONE),
    Break(temperature, ONE),
    Break(prompt, ONE),
    Break(denominator, ONE),
    Break(order_of_clipping, ONE),
    Break(accumulation, ONE),
    Break(old_log_prob, SEVERAL),
    Break(reference, ONE),
    Break(advantage, ONE),
    Break(dealing, SEVERAL),
    Break(supervised_count, ONE),
    Break(behaviour, Case("dapo+tis")),
    Break(decay, ONE),
    Break(moments, ONE),
    Break(rate, ONE),
    Break(scale_of_adapter, Case("grpo", lora=True)),
]
