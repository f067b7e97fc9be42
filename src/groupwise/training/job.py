"""What a run is given: stages with every setting resolved, and a way to build the domain. Knows no experiment file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, final

import torch

from groupwise.checkpoint import CheckpointConfig
from groupwise.domain.base import Domain
from groupwise.domain.protocol import CONSISTENCY
from groupwise.objective import Objective
from groupwise.reference import ReferenceConfig
from groupwise.runs import EvaluatedOn
from groupwise.schedule import Schedule
from groupwise.track import TrackConfig
from groupwise.training.config import TrainConfig
from groupwise.training.optimiser_config import OptimiserConfig


def _same(domain: Domain) -> Domain:
    return domain


@final
@dataclass(frozen=True)
class Recipe:
    """One stage, resolved.

    Args:
        name: what reports call it.
        objective: the loss.
        train: its length, size and habits; `train.num_steps` is the stage's length.
        optimiser: the optimiser's numbers.
        reference: as configured; `None` where the user wrote none.
        sampling: sampling settings by name, as schedules over the steps of the stage; they override the domain's own.
        adapt: gives the domain of this stage, sharing the module, where the stage changes the domain's settings.
        measures: the settings that the numbers of evaluations depend on, as JSON-able values.

    Example:
        >>> Recipe("grpo", Objective.preset("grpo")).samples
        True
    """

    name: str
    objective: Objective
    train: TrainConfig = field(default_factory=TrainConfig)
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    reference: ReferenceConfig | None = None
    sampling: Mapping[str, Schedule] = field(default_factory=dict)
    adapt: Callable[[Domain], Domain] = _same
    measures: Mapping[str, Any] = field(default_factory=dict)

    def on(self, *, density: bool) -> Recipe:
        """The stage for decisions of this kind (`Objective.on`).

        Args:
            density: whether log-probs are of densities.

        Example:
            >>> Recipe("a", Objective.preset("balanced")).on(density=True).objective.credit.gradient_adaptive.signal
            'score_norm'
        """
        return replace(self, objective=self.objective.on(density=density))

    @property
    def samples(self) -> bool:
        """Whether the stage ever has a policy term, and so samples."""
        return self.objective.policy_weight.may_be_positive()

    @property
    def compares(self) -> bool:
        """Whether a term needs more of the reference than its log-probs: the exact divergence, or the auxiliary term
        `consistency`.
        """
        return "exact_divergence" in self.objective.requires or CONSISTENCY in self.objective.auxiliary

    @property
    def needs_reference(self) -> bool:
        """Whether a term of the loss reads a reference policy."""
        return self.objective.needs_reference or self.compares or self.train.l2_to_reference > 0


@final
class Domains:
    """The domain as each stage wants it, made once; all share one module.

    Args:
        base: the domain as built.
    """

    def __init__(self, base: Domain) -> None:
        self.base = base
        self._adapted: dict[Callable[[Domain], Domain], Domain] = {}

    def of(self, recipe: Recipe) -> Domain:
        """The domain of a stage.

        Args:
            recipe: the stage.
        """
        if recipe.adapt not in self._adapted:
            self._adapted[recipe.adapt] = recipe.adapt(self.base)
        return self._adapted[recipe.adapt]

    @property
    def remarks(self) -> list[str]:
        """What became of the data, each thing once."""
        return list(dict.fromkeys(remark for domain in self._all() for remark in domain.remarks))

    def evaluated_on(self, recipes: Sequence[Recipe]) -> EvaluatedOn:
        """Whether any of these stages trains on what any of them is evaluated on.

        Args:
            recipes: the stages.
        """
        domains = list({id(domain): domain for domain in map(self.of, recipes)}.values())
        trained = frozenset[str]().union(*(domain.trained_on for domain in domains))
        return EvaluatedOn.among(trained, frozenset[str]().union(*(domain.evaluated_on for domain in domains)))

    def close(self) -> None:
        """Ends what runs beside the domains."""
        for domain in self._all():
            domain.close()

    def _all(self) -> list[Domain]:
        return list({id(domain): domain for domain in (self.base, *self._adapted.values())}.values())


@final
@dataclass(frozen=True)
class Job:
    """A whole run.

    Args:
        name: what the run folder and the summary call it.
        seed: of every random draw.
        recipes: the stages in order.
        build_domain: makes the domain on a device; the global generators are seeded just before.
        resolved: what `config.json` holds.
        checkpoint, track: what is kept and who follows.
        controls: name -> stages that replace every stage from the first that samples on; each is trained from the same
            start for the same seconds, and the first one's result is `baseline` in `summary.json`.
        start: the folder of the run with whose warm-up this one begins; unset begins at the model itself.
        remarks: sentences to say once at the start (doubtful but legal settings).
        note: is told the file of the configuration and what it says, before it is written: where a run folder is to be
            known again as this user's.

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
    start: str | None = None
    remarks: Sequence[str] = ()
    note: Callable[[Path, Any], None] | None = None

    def on(self, *, density: bool) -> Job:
        """The run for decisions of this kind (`Objective.on`).

        Args:
            density: whether log-probs are of densities.

        Example:
            >>> job = Job("a", 0, [Recipe("a", Objective.preset("grpo"))], pow)
            >>> job.on(density=True).recipes[0] == job.recipes[0]
            True
        """
        controls = {name: [recipe.on(density=density) for recipe in recipes] for name, recipes in self.controls.items()}
        return replace(self, recipes=[recipe.on(density=density) for recipe in self.recipes], controls=controls)
