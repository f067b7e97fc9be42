"""The description of a run: stages with every setting resolved, and a function that builds the domain. Knows no
experiment file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from time import perf_counter
from typing import Any, final

import torch

from groupwise.checkpoint import CheckpointConfig
from groupwise.domain.base import Domain
from groupwise.domain.protocol import CONSISTENCY
from groupwise.objective import Objective
from groupwise.objective.matching import NoMatching
from groupwise.reference import ReferenceConfig
from groupwise.runs import EvaluatedOn
from groupwise.schedule import Schedule
from groupwise.track import TrackConfig
from groupwise.training.config import TrainConfig
from groupwise.training.optimiser_config import AnyOptimiser, OptimiserConfig


def _unchanged(domain: Domain) -> Domain:
    return domain


@final
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
    adapt: Callable[[Domain], Domain] = _unchanged
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

    @property
    def samples(self) -> bool:
        """True where the stage ever has a policy term, for which it samples."""
        return self.objective.policy_weight.may_be_positive()

    @property
    def compares(self) -> bool:
        """True where a term needs more of the reference than its log-probs: the exact divergence, or the auxiliary term
        `consistency`.
        """
        return "exact_divergence" in self.objective.requires or CONSISTENCY in self.objective.auxiliary

    @property
    def needs_reference(self) -> bool:
        """True where a term of the loss reads a reference policy."""
        return self.objective.needs_reference or self.compares or self.train.l2_to_reference > 0


@final
class Domains:
    """The domain of every stage, built once for each different setting; all of them share one module.

    Args:
        base: the domain that `Job.build_domain` returned.
    """

    def __init__(self, base: Domain) -> None:
        self.base = base
        self._adapted: dict[Callable[[Domain], Domain], Domain] = {}

    def of(self, recipe: Recipe) -> Domain:
        """Returns the domain of a stage."""
        if recipe.adapt not in self._adapted:
            self._adapted[recipe.adapt] = recipe.adapt(self.base)
        return self._adapted[recipe.adapt]

    def remarks(self, recipes: Sequence[Recipe]) -> list[str]:
        """Sentences for people on the domains of these stages, each once: on what happened to the data, and on what a
        clip means where a stage reads log-probs.
        """
        reading = [recipe for recipe in recipes if isinstance(recipe.objective.matching, NoMatching)]
        clips = [domain.clip_remark for domain in self.that_sample(reading) if domain.clip_remark]
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


@final
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
        start: the folder of the run whose warm-up this run begins with; unset begins with the weights of the model.
        remarks: sentences to say once at the start (doubtful but legal settings).
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
    start: str | None = None
    remarks: Sequence[str] = ()
    tries_domain: bool = False
    sources: Callable[[], Mapping[str, str]] = dict

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


@final
@dataclass
class Progress:
    """The counters of a run.

    Args:
        step: steps done since the run began.
        start_step: the step at which the run began: 0, or the last step of the warm-up that it starts from.
        stage: place of the current stage among the recipes.
        stage_step: steps done inside the stage.
        stage_seconds: time of the stage's training by `undelayed_seconds`, without evaluations and checkpoints.
        stage_ended: the reason why the stage ended before its last step (time, early stopping, a callback); else empty.
        sampled_seconds: `stage_seconds` of all finished stages that sample.
        num_drawn: counter of `draw_prompts`.
        num_updates: optimiser steps taken.
        num_skipped: optimiser steps left out because nothing would have changed.
        num_not_finite: optimiser steps left out because a gradient was NaN or infinite.
        skipped_in_a_row: skipped optimiser steps since the last one taken; `train.patience` of them cause a warning.
        reference_step: steps since the reference began.
        reference_mixed: step of the loop at which the reference was last mixed with the policy.
        average_step: updates since the average of the weights began.
        group_size: members of a group where the size follows the rewards, inside the stage; 0 before its first step.
        before: metrics of the evaluation at the start of the first stage that samples (at the run's start if none
            does).
        before_step: the step of that evaluation.
        latest: metrics of the newest evaluation.
        latest_step: the step of the newest evaluation, -1 before the first one.
        score: the newest value of the deciding metric.
        best, best_step: the best score and its step.
        anchor: the score of the last gain that counted for early stopping, inside the stage.
        evaluations_without_gain: evaluations since that gain, inside the stage.
        micro_batch_members: measured number of members in a pass, inside the stage; 0 before the measurement.
        measured_decisions: decisions of the longest member that was measured.
        pass_sizes: rows of each kind of pass, of a domain that cuts its passes by itself.
        seconds: wall time by part of the run.

    Example:
        >>> progress = Progress(step=3)
        >>> Progress.from_record(progress.record()) == progress
        True
    """

    step: int = 0
    start_step: int = 0
    stage: int = 0
    stage_step: int = 0
    stage_seconds: float = 0.0
    stage_ended: str = ""
    sampled_seconds: float = 0.0
    num_drawn: int = 0
    num_updates: int = 0
    num_skipped: int = 0
    num_not_finite: int = 0
    skipped_in_a_row: int = 0
    reference_step: int = 0
    reference_mixed: int = 0
    average_step: int = 0
    group_size: int = 0
    before: dict[str, float] = field(default_factory=dict)
    before_step: int = 0
    latest: dict[str, float] = field(default_factory=dict)
    latest_step: int = -1
    score: float | None = None
    best: float | None = None
    best_step: int = -1
    anchor: float | None = None
    evaluations_without_gain: int = 0
    micro_batch_members: int = 0
    measured_decisions: int = 0
    pass_sizes: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def num_attempts(self) -> int:
        """Optimiser steps before this step of the loop, with those left out: a key for draws that never comes twice."""
        return self.num_updates + self.num_skipped + self.num_not_finite

    def record(self) -> dict[str, Any]:
        """Returns plain values for a checkpoint."""
        return asdict(self)

    @staticmethod
    def from_record(record: dict[str, Any]) -> Progress:
        """Restores the counters from the values of `record`.

        Args:
            record: the return value of the method `record`.
        """
        return Progress(**record)

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Adds the block's wall time to `seconds[part]`. The time ends when the device has finished the block's work.

        Args:
            part: the key in `seconds`.
        """
        start = perf_counter()
        try:
            yield
        finally:
            # A GPU still computes while Python goes on; without the wait the next part would be charged for it.
            if torch.cuda.is_initialized():
                torch.cuda.synchronize()
            self.seconds[part] = self.seconds.get(part, 0.0) + perf_counter() - start
