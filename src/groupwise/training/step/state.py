"""The objects that a step works with: the state of a run with its record for a checkpoint, the memory of rewards, and
the passes of a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from time import perf_counter
from typing import Any

import torch
from pydantic import TypeAdapter
from torch import Tensor

from groupwise import streams
from groupwise.config import ConfigError
from groupwise.domain.base import Domain
from groupwise.domain.protocol import Samples
from groupwise.learner.protocol import Learner
from groupwise.objective import Objective, ObjectiveState
from groupwise.processes import is_out_of_memory
from groupwise.reference import AbsentReference, EmaReference, ReferenceConfig, ReferencePolicy
from groupwise.reward import Rewards, RewardTable
from groupwise.reward.scoring.table import TrainerState
from groupwise.streams import Streams
from groupwise.training.config import WeightAverage
from groupwise.training.distributed import World
from groupwise.training.job import Recipe

Earned = list[tuple[int, list[float]]]
"""Pairs for each group: the place of its prompt in the training set, and the rewards (weighted sums) of its members."""

_VISITS = 3
"""A prompt is counted as revisited from this number of draws on."""
_NEAR = 1e-9


@dataclass
class RewardMemory:
    """The memory of a run's rewards, the same on every process and a part of its checkpoints.

    Args:
        size: the number of rewards that are kept of each prompt.
        last: place of a prompt in the training set -> its last rewards, the newest last.
        draws: place -> how often the stage drew the prompt, and the one value that all its members earned; None once
            two of them differed.
        kept: what the rewards that have a memory keep for themselves, by reward, JSON-able.

    Example:
        >>> memory = RewardMemory(size=3)
        >>> _ = memory.add([(7, [0.0, 1.0]), (2, [5.0])])
        >>> memory.add([(7, [2.0, 3.0])])
        {'history/num_prompts': 2.0, 'history/gain': 2.0}
        >>> memory.past([2, 7, 4]).tolist()
        [[nan, nan, 5.0], [1.0, 2.0, 3.0], [nan, nan, nan]]
    """

    size: int = 0
    last: dict[int, list[float]] = field(default_factory=dict)
    draws: dict[int, tuple[int, float | None]] = field(default_factory=dict)
    kept: dict[str, Any] = field(default_factory=dict)

    def begin_stage(self, recipe: Recipe, domain: Domain) -> None:
        """Sets the number of remembered rewards per prompt to what the stage reads, and restarts the count of draws."""
        if (rewards := rewards_of(domain)) is not None and not rewards.follows:
            self.kept = {}
        train, sizes = recipe.train, [0]
        if "reward_history" in recipe.objective.requires_rollouts:
            sizes.append(recipe.objective.advantage.history_size)
        sizes += [rule.memory for rule in (train.adaptive_sampling, train.worst_first) if rule is not None]
        self.size, self.draws = max(sizes), {}

    def past(self, places: Sequence[int]) -> Tensor:
        """Returns `[B, size]` fp64, the past of each prompt, oldest first, NaN where the past is shorter.

        Args:
            places: `B` prompts, by place in the training set.
        """
        pasts = [self.last.get(place, [])[-self.size :] for place in places]
        padded = [[float("nan")] * (self.size - len(past)) + past for past in pasts]
        return torch.tensor(padded, dtype=torch.float64).reshape(len(places), self.size)

    def add(self, earned: Iterable[tuple[int, Sequence[float]]]) -> dict[str, float]:
        """Adds the rewards of a step, in one entry a draw, and returns what they say of the prompts.

        Returns:
            `history/gain`, how far the groups' means are above those of their prompts' pasts, and
            `history/num_prompts`, where rewards are remembered; `prompts/revisited`, how many prompts were drawn three
            times or more, and `prompts/one_value`, the share of them that earned one value alone.
        """
        gains: list[float] = []
        for place, rewards in earned:
            if not rewards:
                continue
            num_draws, value = self.draws.get(place, (0, rewards[0]))
            if value is not None and any(abs(reward - value) > _NEAR * max(1.0, abs(value)) for reward in rewards):
                value = None
            self.draws[place] = num_draws + 1, value
            if self.size:
                past = self.last.get(place, [])
                if past:
                    gains.append(sum(rewards) / len(rewards) - sum(past) / len(past))
                self.last[place] = [*past, *rewards][-self.size :]
        revisited = [value is not None for num_draws, value in self.draws.values() if num_draws >= _VISITS]
        metrics: dict[str, float] = {}
        if revisited:
            metrics = {"prompts/revisited": float(len(revisited)), "prompts/one_value": sum(revisited) / len(revisited)}
        if self.size:
            metrics["history/num_prompts"] = float(len(self.last))
        return metrics | ({"history/gain": sum(gains) / len(gains)} if gains else {})

    def follow(self, rewards: Rewards, rounds: Sequence[Samples], world: World) -> dict[str, float]:
        """Lets the rewards that have a memory learn from a step. Every process continues with the memory of the first.

        Args:
            rewards: the rewards of the domain, with one that follows training.
            rounds: the members of each round of sampling.
            world: the processes; every process must call this method.

        Returns:
            the rewards' metrics of themselves, by name.
        """
        local_groups = [group for samples in rounds for group in group_comparisons(samples.place, samples.rewards)]
        groups = sorted((group for share in world.gather(local_groups) for group in share), key=lambda group: group[0])
        comparisons: dict[str, list[dict[str, list[float]]]] = {}
        for _, fields in groups:
            for name, of_group in fields.items():
                comparisons.setdefault(name, []).extend(of_group)
        metrics = rewards.follow(comparisons)
        # A reward may draw numbers for its memory, or round differently on another machine.
        self.kept = world.gather(rewards.memory())[0]
        # An evaluation may come before the next batch.
        rewards.recall(self.kept)
        return metrics

    def record(self) -> dict[str, Any]:
        """Returns plain values for a checkpoint."""
        last, draws = ({str(place): value for place, value in table.items()} for table in (self.last, self.draws))
        return {"size": self.size, "last": last, "draws": draws, "kept": self.kept}

    @staticmethod
    def from_record(record: Mapping[str, Any]) -> RewardMemory:
        """Restores the memory from what `record` returned.

        Example:
            >>> memory = RewardMemory(size=1, last={7: [1.0]}, draws={7: (3, 1.0)})
            >>> RewardMemory.from_record(memory.record()) == memory
            True
        """
        return RewardMemory(
            record["size"],
            {int(place): rewards for place, rewards in record["last"].items()},
            {int(place): (num_draws, value) for place, (num_draws, value) in record["draws"].items()},
            dict(record["kept"]),
        )


def rewards_of(domain: Any) -> Rewards | None:
    """Returns a domain's rewards, which may have a memory; a user's domain may use the attribute for something else."""
    rewards = getattr(domain, "rewards", None)
    return rewards if isinstance(rewards, Rewards) else None


def ready_rewards(rewards: Rewards, state: TrainState, recipe: Recipe, num_prompts: int) -> None:
    """Gives rewards the memory of the run, also after a resume or in another stage, and the progress of the run, which
    functions get as `trainer_state`.

    Args:
        rewards: the rewards of the domain.
        num_prompts: size of its training set.
    """
    progress = state.progress
    if rewards.follows:
        rewards.recall(state.memory.kept)
    rewards.state = TrainerState(
        global_step=progress.step,
        max_steps=progress.step - progress.stage_step + recipe.train.num_steps,
        epoch=progress.num_drawn / max(num_prompts, 1),
    )


GroupComparisons = list[tuple[int, dict[str, list[dict[str, list[float]]]]]]
"""Groups as (place in the step, reward -> its comparisons); a comparison is a table of field -> values of members."""


def group_comparisons(place: Tensor, table: RewardTable) -> GroupComparisons:
    """Returns the fields of a table by group. Where a reward has a value for every decision, the same decision of a
    group's members makes one comparison.

    Args:
        place: `[B]`, the place of each member's group in the step.
        table: rewards, with their fields.

    Example:
        >>> table = RewardTable({"vqa": [1.0, 0.0, 1.0]}, fields={"vqa": {"correct": [1.0, 0.0, 1.0]}})
        >>> group_comparisons(torch.tensor([4, 4, 2]), table)
        [(2, {'vqa': [{'correct': [1.0]}]}), (4, {'vqa': [{'correct': [1.0, 0.0]}]})]
    """
    if not table.fields:
        return []
    members: dict[int, list[int]] = {}
    for row, number in enumerate(place.tolist()):
        members.setdefault(number, []).append(row)
    return [
        (number, {name: _comparisons(fields, rows) for name, fields in table.fields.items()})
        for number, rows in sorted(members.items())
    ]


def _comparisons(fields: Mapping[str, Sequence[Any]], rows: Sequence[int]) -> list[dict[str, list[float]]]:
    by_field = {
        name: [value if isinstance(value, list) else [value] for value in (values[row] for row in rows)]
        for name, values in fields.items()
    }
    num_comparisons = max((len(of_member) for values in by_field.values() for of_member in values), default=0)
    return [
        {
            name: [of_member[place] for of_member in values if len(of_member) > place]
            for name, values in by_field.items()
        }
        for place in range(num_comparisons)
    ]


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
        widest_range: the widest mean range of a step's groups where the size follows it, inside the stage.
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
        doing: the part of the run that is at work now; in no checkpoint.

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
    widest_range: float = 0.0
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
    doing: str = field(default="", compare=False)

    @property
    def num_attempts(self) -> int:
        """Optimiser steps before this step of the loop, with those left out: a key for draws that never comes twice."""
        return self.num_updates + self.num_skipped + self.num_not_finite

    def record(self) -> dict[str, Any]:
        """Returns plain values for a checkpoint."""
        record = asdict(self)
        del record["doing"]
        return record

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
        start, before, self.doing = perf_counter(), self.doing, part
        try:
            yield
        finally:
            self.doing = before
            # A GPU still computes while Python continues; without the wait the next part would be charged for it.
            if torch.cuda.is_initialized():
                torch.cuda.synchronize()
            self.seconds[part] = self.seconds.get(part, 0.0) + perf_counter() - start


@dataclass
class TrainState:
    """The state of a run.

    Args:
        progress: counters of the run.
        objective: state of the objective.
        learner: the owner of weights and optimiser.
        reference: the reference policy; absent before a stage begins.
        average: the running average of the weights; absent where the stage keeps none.
        memory: what prompts earned lately, and what rewards remember.
    """

    progress: Progress
    objective: ObjectiveState
    learner: Learner
    reference: ReferencePolicy = field(init=False)
    average: ReferencePolicy = field(init=False)
    memory: RewardMemory = field(default_factory=RewardMemory)

    def __post_init__(self) -> None:
        self.reference = ReferencePolicy(AbsentReference(), self.learner)
        self.average = ReferencePolicy(AbsentReference(), self.learner)

    def begin_average(self, config: WeightAverage | None) -> None:
        """Begins an average at the present weights, ends it, or continues with the present average.

        Args:
            config: the average of the stage that begins; `None` where it has none.
        """
        if (config is not None) != self.average.present:
            self.average = ReferencePolicy(AbsentReference() if config is None else EmaReference(), self.learner)
            self.progress.average_step = 0

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Gives the policy its averaged weights within the block, where an average is kept."""
        with self.average.active() if self.average.present else nullcontext():
            yield

    def record(self, world: World, metrics_length: int) -> dict[str, Any]:
        """Returns everything that a bit-exact resume needs, from all processes; every process must call it.

        Args:
            world: the processes, of which each has its own random generators (dropout).
            metrics_length: bytes of `metrics.jsonl` up to this state.
        """
        return {
            "progress": self.progress.record(),
            "objective": self.objective.model_dump(mode="json"),
            "learner": self.learner.record(),
            "reference": {**self.reference.state(), "config": self.reference.config.model_dump(mode="json")},
            "average": {**self.average.state(), "config": self.average.config.model_dump(mode="json")},
            "memory": self.memory.record(),
            "generators": world.gather(streams.capture()),
            "metrics_length": metrics_length,
        }

    def restore(self, record: Mapping[str, Any], world: World) -> None:
        """Restores a record. The reference must be of the record's kind already.

        The global generators (dropout) are restored only where the number of processes is that of the record; with
        another number the run resumes, but not bit for bit.

        Args:
            record: the values of `record`.
            world: the processes of this start.

        Raises:
            ValueError: the record is of another model, or of an earlier version.
        """
        if "memory" not in record:
            raise ValueError("an earlier Groupwise saved it, which kept its state by other names")
        self.learner.restore(record["learner"])
        self.progress = Progress.from_record(record["progress"])
        self.objective = ObjectiveState.model_validate(record["objective"])
        self.reference.restore(record["reference"])
        self.average = ReferencePolicy(reference_config(record["average"]), self.learner)
        self.average.restore(record["average"])
        self.memory = RewardMemory.from_record(record["memory"])
        if len(record["generators"]) == world.size:
            streams.restore(record["generators"][world.rank])


@contextmanager
def restoring(problem: str, advice: str) -> Iterator[None]:
    """Names the record that the block restores where it does not fit: a record of another model may fail in any way.

    Raises:
        ConfigError: it does not fit.
    """
    try:
        yield
    except Exception as error:
        if is_out_of_memory(error):
            raise
        reason = " ".join((str(error) or type(error).__name__).split())[:300]
        raise ConfigError(f"{problem}: {reason}; {advice}") from error


def reference_config(record: Mapping[str, Any]) -> ReferenceConfig:
    """Returns the configuration of the reference that a record holds.

    Args:
        record: the entry of a reference in a checkpoint.

    Example:
        >>> reference_config({"config": {"kind": "frozen"}}).kind
        'frozen'
    """
    return TypeAdapter(ReferenceConfig).validate_python(record["config"])


@dataclass
class Step:
    """Everything that the steps of a stage work with; made once a stage.

    Args:
        domain: the policy and its data, with the stage's settings.
        recipe: the stage with its settings resolved.
        state: the state of the run, which a step changes.
        streams: the random streams of the run.
        world: the processes; every process must call a function that gathers or sums.
        measure: evaluates the weights that the module holds and returns their score, turned so that more is better.

    Attributes:
        objective: the stage's objective.
        rewards: the rewards of the domain; `None` where it has others than ours.
        group_size: present number of members in a group; only a dynamic group size changes it.
        sharded: true where the weights are spread over the processes, so that all of them make the same passes.
        measures_pass_size: true where the number of members in a pass is found by measuring.
    """

    domain: Domain
    recipe: Recipe
    state: TrainState
    streams: Streams
    world: World
    measure: Callable[[], float | None] = lambda: None
    objective: Objective = field(init=False)
    rewards: Rewards | None = field(init=False)
    group_size: int = field(init=False)
    sharded: bool = field(init=False)
    measures_pass_size: bool = field(init=False)

    def __post_init__(self) -> None:
        train = self.recipe.train
        self.objective, self.rewards = self.recipe.objective, rewards_of(self.domain)
        followed_size = self.state.progress.group_size if train.dynamic_group_size is not None else 0
        self.group_size = followed_size or train.group_size
        self.sharded = train.sharding == "full" and self.world.joined
        self.measures_pass_size = train.micro_batch_members == "auto"

    @property
    def members_at_once(self) -> int | None:
        """The number of members in a pass; `None` means all. Before a measurement it is one."""
        size = self.recipe.train.micro_batch_members
        return (self.state.progress.micro_batch_members or 1) if size == "auto" else size

    def passes(self, lengths: Tensor) -> list[Tensor | None]:
        """Returns the members of each pass of this process, longest members first, so that a batch that does not fit
        into memory fails at once; members of similar length share a pass, and little is padding. Where the weights are
        spread, all processes make equally many passes: one with fewer members gets `None`, a pass that it only joins.
        Every process must call this method.

        Args:
            lengths: `[B]`, decisions of each member.
        """
        order = torch.argsort(lengths, descending=True, stable=True)
        batches: list[Tensor | None] = [*order.split(self.members_at_once or len(order))] if len(order) else []
        if self.sharded:
            batches += [None] * (self.world.max(len(batches)) - len(batches))
        return batches


@contextmanager
def whole_weights(domain: Domain, world: World) -> Iterator[None]:
    """Gives the whole weights within the block to every process that draws by itself or sends weights, unless the
    domain draws with shards. Then lets the domain send them to a server that the processes share.

    Args:
        domain: the domain of the stage.
        world: the processes; each must enter the block.
    """
    elsewhere = domain.samples_remotely
    gathered = domain.learner.gathered(on_cpu=elsewhere, here=not elsewhere or domain.sends_weights)
    with nullcontext() if domain.draws_in_shards else gathered:
        domain.send_weights(world)
        yield
