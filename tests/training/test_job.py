"""Stages of one run share what they have trained on: a prompt that one of them learns from is not held out
for another.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.training.toy import ToyDomain

from groupwise.objective import Objective
from groupwise.runs import EvaluatedOn
from groupwise.training.config import TrainConfig
from groupwise.training.job import Domains, Recipe


class Divided(ToyDomain):
    """Trains on some prompts and is evaluated on others."""

    def __init__(self, trained: set[str], evaluated: set[str]) -> None:
        super().__init__()
        self.divided = frozenset(trained), frozenset(evaluated)

    @property
    def trained_on(self) -> frozenset[str]:
        return self.divided[0]

    @property
    def evaluated_on(self) -> frozenset[str]:
        return self.divided[1]


def test_what_another_stage_trains_on_is_not_held_out() -> None:
    domain_one: Any = Divided({"a", "b"}, {"c", "d"})
    second: Any = Divided({"c"}, {"d", "e"})
    grpo = Objective.preset("grpo")
    one, two = Recipe("one", grpo), Recipe("two", grpo, adapt=lambda domain: second)
    domains = Domains(domain_one)
    assert domains.evaluated_on([one]) == EvaluatedOn(2, 0)
    assert domains.evaluated_on([two]) == EvaluatedOn(2, 0)
    assert domains.evaluated_on([one, two]) == EvaluatedOn(3, 1)


def test_a_clip_is_spoken_of_where_a_stage_reads_log_probs() -> None:
    domain: Any = Divided(set(), set())
    domain.clip_remark, domain.remarks = "log-probs: a clip of c holds little", ("data: one row left out",)
    grpo = Recipe("grpo", Objective.preset("grpo"))
    copies = [Recipe(name, Objective.preset(name)) for name in ("awm", "diffusion_nft")]
    supervised = Recipe("supervised", Objective.preset("grpo", policy_weight=0.0))
    for recipes in ([grpo], [supervised, grpo], [*copies, grpo]):
        assert Domains(domain).remarks(recipes) == [domain.clip_remark, *domain.remarks]
    domain.clip_shift = 8.0
    twice = replace(grpo, train=TrainConfig(minibatches=2))
    sizes = f"{domain.clip_remark}; of shifts in standard deviations trust.low and trust.high = 0.2 holds 1.6"
    assert Domains(domain).remarks([twice])[0] == sizes
    assert (
        Domains(domain).remarks([grpo])[0] == f"{sizes}, but with one update a batch the ratio is 1 and nothing is held"
    )
    for recipes in (copies, [supervised], [supervised, *copies]):
        assert Domains(domain).remarks(recipes) == [*domain.remarks]


def test_epochs_are_whole_steps_of_the_training_set() -> None:
    def steps(num_prompts: int, weight: float = 1.0, **train: Any) -> int:
        recipe = Recipe("a", Objective.preset("grpo", policy_weight=weight), TrainConfig(prompts_per_step=8, **train))
        return recipe.fitted(num_prompts).train.num_steps

    assert steps(80, num_epochs=50) == 500, "source 001: eighty images, eight a step"
    assert steps(87, num_epochs=2) == 20, "what does not fill a step is left out of an epoch"
    assert (steps(80, num_epochs=0.01), steps(5, num_epochs=3), steps(80, num_epochs=0.1)) == (1, 3, 1)
    assert steps(80, 0.0, num_epochs=5, demonstrations_per_step=16) == 25
    assert (steps(80), steps(80, num_steps=7)) == (100, 7)
