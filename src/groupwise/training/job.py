"""The description of a run: stages with every setting resolved, and a function that builds the domain. Knows no
experiment file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch

from groupwise.checkpoint import CheckpointConfig
from groupwise.domain.base import Domain
from groupwise.domain.protocol import CONSISTENCY
from groupwise.domain.returned import check_returns
from groupwise.objective import Objective
from groupwise.objective.matching import NoMatching
from groupwise.reference import ReferenceConfig
from groupwise.runs import EvaluatedOn
from groupwise.schedule import Schedule
from groupwise.track import TrackConfig
from groupwise.training.config import TrainConfig
from groupwise.training.optimiser_config import AnyOptimiser, OptimiserConfig


@dataclass(frozen=True)
class Recipe:
    """One stage with every setting resolved.

    Args:
        name: the stage's name in reports.
        objective: the loss of the stage.
        train: length, sizes and frequencies; `train.num_steps` is the stage's length.
        optimiser: learning rate, decays and moments.
        reference: the configured reference policy; `None` where the user wrote none.
        sampling: sampling settings by name, as schedules over the steps of the stage; they override the domain's own.
        adapt: returns the domain of this stage, which shares its module with the argument; another domain only where
            the stage changes the domain's settings.
        measures: the settings that decide the numbers of evaluations, as JSON-able values.

    Example:
        >>> Recipe("grpo", Objective.preset("grpo")).samples
        True
    """

    name: str
    objective: Objective
    train: TrainConfig = field(default_factory=TrainConfig)
    optimiser: AnyOptimiser = field(default_factory=OptimiserConfig)
    reference: ReferenceConfig | None = None
    sampling: Mapping[str, Schedule] = field(default_factory=dict)
    adapt: Callable[[Domain], Domain] = lambda domain: domain
    measures: Mapping[str, Any] = field(default_factory=dict)

    def on(self, *, density: bool) -> Recipe:
        """Returns the stage for decisions of this kind (`Objective.on`).

        Args:
            density: true for log-probs of densities, false for those of probabilities.

        Example:
            >>> Recipe("a", Objective.preset("balanced")).on(density=True).objective.credit.gradient_adaptive.signal
            'score_norm'
        """
        return replace(self, objective=self.objective.on(density=density))

    def fitted(self, num_prompts: int) -> Recipe:
        """Returns the stage with as many prompts a step as the training set has, where that has fewer, and with the
        steps of its epochs. As a draw never crosses an epoch's end, an epoch is as many whole steps as it holds.

        Args:
            num_prompts: the number of prompts of the training set.

        Example:
            >>> Recipe("a", Objective.preset("grpo")).fitted(9).train.prompts_per_step
            9
            >>> Recipe("a", Objective.preset("grpo"), TrainConfig(num_epochs=2.5)).fitted(80).train.num_steps
            13
        """
        train, changes = self.train, dict[str, Any]()
        if self.samples and train.prompts_per_step > num_prompts:
            changes = {"prompts_per_step": num_prompts, "minibatches": min(train.minibatches, num_prompts)}
        if train.num_epochs is not None:
            taken = min(train.prompts_per_step, num_prompts) if self.samples else train.demonstrations_per_step
            changes["num_steps"] = max(1, math.ceil(train.num_epochs * max(1, num_prompts // taken) - 1e-9))
        return replace(self, train=train.model_copy(update=changes)) if changes else self

    @cached_property
    def samples(self) -> bool:
        """True where the stage ever has a policy term, for which it samples."""
        return self.objective.policy_weight.may_be_positive()

    @cached_property
    def compares(self) -> bool:
        """True where a term needs more of the reference than its log-probs: the exact divergence, or the auxiliary term
        `consistency`.
        """
        return "exact_divergence" in self.objective.requires or CONSISTENCY in self.objective.auxiliary

    @property
    def needs_reference(self) -> bool:
        """True where a term of the loss reads a reference policy."""
        return self.objective.needs_reference or self.compares or self.train.l2_to_reference > 0


_BOUNDS = ("low", "high", "eps_pos", "eps_neg", "sigma")
"""The settings of trust regions that are distances of the ratio from 1."""


def _clip_remark(domain: Domain, recipe: Recipe) -> str:
    """Says what the stage's own bounds hold in the unit of its domain's log-probs."""
    bounds: dict[float, list[str]] = {}
    for name, bound in recipe.objective.trust.model_dump().items():
        if name in _BOUNDS and isinstance(bound, float):
            bounds.setdefault(bound, []).append(f"trust.{name}")
    if not (domain.clip_remark and domain.clip_shift and bounds):
        return domain.clip_remark
    held = [f"{' and '.join(names)} = {at:g} holds {at * domain.clip_shift:.3g}" for at, names in bounds.items()]
    alone = recipe.train.updates_per_batch * recipe.train.minibatches == 1
    never = ", but with one update a batch the ratio is 1 and nothing is held" if alone else ""
    return f"{domain.clip_remark}; of shifts in standard deviations {', '.join(held)}{never}"


class Domains:
    """The domain of every stage, built once for each different setting; all of them share one module.

    Args:
        base: the domain that `Job.build_domain` returned.
    """

    def __init__(self, base: Domain) -> None:
        self.base = check_returns(base)
        self._adapted: dict[Callable[[Domain], Domain], Domain] = {}

    def of(self, recipe: Recipe) -> Domain:
        """Returns the domain of a stage."""
        if recipe.adapt not in self._adapted:
            self._adapted[recipe.adapt] = check_returns(recipe.adapt(self.base))
        return self._adapted[recipe.adapt]

    def remarks(self, recipes: Sequence[Recipe]) -> list[str]:
        """Sentences for people on the domains of these stages, each once: on what happened to the data, and on what a
        clip means where a stage reads log-probs.
        """
        reading = [recipe for recipe in recipes if isinstance(recipe.objective.matching, NoMatching)]
        clips = [_clip_remark(self.of(recipe), recipe) for recipe in reading if recipe.samples]
        clips = [remark for remark in clips if remark]
        return list(dict.fromkeys([*clips, *(remark for domain in self._all() for remark in domain.remarks)]))

    def evaluated_on(self, recipes: Sequence[Recipe]) -> EvaluatedOn:
        """Counts the evaluated prompts of these stages, and those that any of the stages trains on."""
        domains = self._different(recipes)
        trained_prompts = frozenset[str]().union(*(domain.trained_on for domain in domains))
        return EvaluatedOn.among(trained_prompts, frozenset[str]().union(*(domain.evaluated_on for domain in domains)))

    def that_sample(self, recipes: Sequence[Recipe]) -> list[Domain]:
        """Returns the domains of those stages that sample, each once."""
        return self._different([recipe for recipe in recipes if recipe.samples])

    def _different(self, recipes: Sequence[Recipe]) -> list[Domain]:
        return list({id(domain): domain for domain in map(self.of, recipes)}.values())

    def close(self) -> None:
        """Ends the processes and servers that the domains started."""
        for domain in self._all():
            domain.close()

    def _all(self) -> list[Domain]:
        return list({id(domain): domain for domain in (self.base, *self._adapted.values())}.values())


@dataclass(frozen=True)
class Job:
    """The complete description of a run.

    Args:
        name: the run's name in its folder and its summary.
        seed: the seed of every random draw.
        recipes: the stages in the order of training.
        build_domain: builds the domain on a device; the global generators are seeded just before.
        resolved: the resolved configuration, which `config.json` will hold.
        checkpoint, track: the settings of checkpoints, and of metrics and records.
        controls: name -> stages that replace every stage from the first that samples on; each control is trained from
            the same start for the same seconds, and the score of the first control is `baseline` in `summary.json`.
        minutes: the time of the clock that the whole run may take, its last evaluation included; unset bounds nothing.
        start: the folder of the run whose warm-up this run begins with; unset begins with the weights of the model.
        remarks: sentences to print once at the start (doubtful but legal settings).
        tries_domain: whether one small batch is sampled, scored, rewarded and checked before a new run begins
            (`groupwise.domain.returned`), as for a domain that somebody else wrote.
        sources: returns import path -> source text of the user's code, which every start of the run records.

    Example:
        >>> job = Job(
        ...     "two stages",
        ...     0,
        ...     [Recipe("a", Objective.preset("grpo")), Recipe("b", Objective.preset("dapo"))],
        ...     build_domain=None,
        ... )
        >>> [recipe.objective.name for recipe in job.recipes]
        ['grpo', 'dapo']
    """

    name: str
    seed: int
    recipes: Sequence[Recipe]
    build_domain: Callable[[torch.device], Domain]
    resolved: Mapping[str, Any] = field(default_factory=dict)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    track: TrackConfig = field(default_factory=TrackConfig)
    controls: Mapping[str, Sequence[Recipe]] = field(default_factory=dict)
    minutes: float | None = None
    start: str | None = None
    remarks: Sequence[str] = ()
    tries_domain: bool = False
    sources: Callable[[], Mapping[str, str]] = dict

    def fitted(self, domains: Domains) -> Job:
        """Returns the run with steps that its training sets can fill, and with a sentence where they have too few
        prompts.
        """

        def fit(recipes: Sequence[Recipe]) -> list[Recipe]:
            return [recipe.fitted(domains.of(recipe).num_prompts) for recipe in recipes]

        recipes = fit(self.recipes)
        remarks = [
            f"stage {after.name}: a step takes all {after.train.prompts_per_step} training prompts"
            f" (train.prompts_per_step = {before.train.prompts_per_step})"
            for before, after in zip(self.recipes, recipes, strict=True)
            if before.train.prompts_per_step != after.train.prompts_per_step
        ]
        remarks += [
            f"stage {recipe.name}: num_epochs = {recipe.train.num_epochs:g} passes over the training set are"
            f" {recipe.train.num_steps} steps"
            for recipe in recipes
            if recipe.train.num_epochs is not None
        ]
        controls = {name: fit(stages) for name, stages in self.controls.items()}
        return replace(self, recipes=recipes, controls=controls, remarks=[*self.remarks, *remarks])

    def on(self, *, density: bool) -> Job:
        """Returns the run for decisions of this kind (`Objective.on`).

        Args:
            density: true for log-probs of densities, false for those of probabilities.

        Example:
            >>> job = Job("a", 0, [Recipe("a", Objective.preset("grpo"))], pow)
            >>> job.on(density=True).recipes[0] == job.recipes[0]
            True
        """
        controls = {name: [recipe.on(density=density) for recipe in recipes] for name, recipes in self.controls.items()}
        return replace(self, recipes=[recipe.on(density=density) for recipe in self.recipes], controls=controls)
