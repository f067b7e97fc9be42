"""The length, size and habits of training. Imports no torch, so that reading an experiment is fast."""

from __future__ import annotations

from typing import Annotated, Any, Literal, final

from pydantic import Field, model_validator

from groupwise.config import Config, InModule
from groupwise.config.errors import Count, Parallel, PerStep, Positive
from groupwise.training.sampling import AdaptiveSampling, DynamicGroupSize, WorstFirst


@final
class EarlyStopping(Config):
    """Ends a stage when the score of the evaluations has not risen for a while.

    Args:
        patience: evaluations without a gain that end the stage.
        min_gain: how much the score must rise to count, in the metric's unit.

    Example:
        >>> EarlyStopping(patience=3).min_gain
        0.0
    """

    patience: Positive = 5
    min_gain: float = Field(default=0.0, ge=0)


@final
class WeightAverage(Config):
    """The average `average <- d average + (1 - d) theta` after every update, with `d = min(decay, (1 + n) / (10 + n))`
    after `n` updates.

    Training continues with the weights themselves; evaluation, the best model and the final one take the average. The
    rising decay lets the average forget its first values. With an adapter only the adapter's weights are averaged.

    Args:
        decay: the average's share in the long run; about `1 / (1 - decay)` updates are remembered.
        warm_up: true lets the decay rise to `decay`; false uses `decay` from the first update on.

    Example:
        >>> average = WeightAverage(decay=0.9)
        >>> [round(average.decay_after(n), 3) for n in (1, 10, 1000)]
        [0.182, 0.55, 0.9]

    Source: Polyak and Juditsky 1992; the rising decay is that of diffusers' `EMAModel`.
    """

    decay: Annotated[float, Field(ge=0, lt=1)] = 0.99
    warm_up: bool = True

    def decay_after(self, num_updates: int) -> float:
        """Returns the average's share at its `num_updates`-th update, from 1.

        Args:
            num_updates: optimiser steps since the average began, this one included.
        """
        return min(self.decay, (1 + num_updates) / (10 + num_updates)) if self.warm_up else self.decay


Epochs = Annotated[float, Field(gt=0, le=1e6)]


@final
class TrainConfig(Config):
    """The settings by which a stage trains. A step draws prompts, samples a group for each, and updates the policy
    `updates_per_batch * minibatches` times.

    Args:
        num_steps: steps, where the experiment has no stages (a stage states its own).
        num_epochs: passes over the training set in place of `num_steps`, rounded up to whole steps; a step takes
            `prompts_per_step` prompts of it, or `demonstrations_per_step` where nothing is sampled.
        prompts_per_step: prompts drawn a step, over all processes together.
        group_size: members sampled for each prompt.
        dynamic_group_size: lets the group size follow the share of groups whose rewards say little, within bounds;
            unset keeps it.
        adaptive_sampling: draws prompts by how much their last rewards say; unset goes through the training set epoch
            by epoch.
        worst_first: draws the share of the prompts whose last rewards are lowest; unset goes by epochs.
        updates_per_batch: passes over a batch of rollouts.
        minibatches: optimiser steps a pass; groups are dealt to them at random.
        micro_batch_members: members in one forward and backward pass; changes memory, and the result by rounding alone.
            Unset takes all at once. `auto` measures the first batch (and any with longer members), takes as many as
            fit, and halves when memory runs out all the same; on a CPU it needs `memory_limit_gib`.
        memory_limit_gib: for `auto`, the most memory that a process may take on its device; unset takes the free memory
            of the CUDA device.
        demonstrations_per_step: supervised members added to each optimiser step, where the objective has a supervised
            term.
        max_seconds: ends the stage after so much time, evaluations and checkpoints not counted. On Linux the time in
            which the run waits for a processor that other programs use is not counted either.
        max_grad_norm: the global gradient norm is clipped to this; unset does not clip.
        l2_to_reference: coefficient of `|theta - ref|^2 / 2` over all trained weights, a pull towards the reference
            in addition to any divergence.
        weight_average: evaluates and saves a running average of the weights in place of the weights themselves; unset
            does not.
        autocast: `bfloat16` runs the model's matrix products in that type.
        sharding: `full` spreads weights, gradients and moments over the processes that torchrun started, layer by layer
            (FSDP2); `none` has all of them on every process.
        gradient_checkpointing: recomputes activations in the backward pass, less memory for more time.
        evaluate_every: steps between evaluations; one before the first step and one after the last are always made. 0
            makes only those.
        metric: the metric of an evaluation that decides which model is best and goes into `summary.json`; unset takes
            the first one the domain reports.
        metric_goal: whether more of it is better, or less.
        early_stopping: the rule that ends the stage early; unset never ends it early.
        patience: optimiser steps skipped in a row before the run warns.
        callbacks: functions to call after every step, as `package.module:function`; called as `function(step,
            metrics)`; a true result ends the stage.
        num_threads: threads a process uses on a CPU. Two threads on two busy cores have been many times slower than
            one.
        device: `auto` takes CUDA where there is one.
        deterministic: on CUDA, takes kernels that give the same bits again, which are slower, so that a resumed run
            repeats the uninterrupted one; an operation that has none warns. On a CPU every kernel does.

    Example:
        >>> TrainConfig(prompts_per_step=8, group_size=4).num_steps
        100
    """

    num_steps: Positive = 100
    num_epochs: Epochs | None = None
    prompts_per_step: PerStep = 16
    group_size: PerStep = 8
    dynamic_group_size: DynamicGroupSize | None = None
    adaptive_sampling: AdaptiveSampling | None = None
    worst_first: WorstFirst | None = None
    updates_per_batch: PerStep = 1
    minibatches: PerStep = 1
    micro_batch_members: Positive | Literal["auto"] | None = None
    memory_limit_gib: float | None = Field(default=None, gt=0)
    demonstrations_per_step: PerStep = 32
    max_seconds: float | None = Field(default=None, gt=0)
    max_grad_norm: float | None = Field(default=1.0, gt=0)
    l2_to_reference: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    weight_average: WeightAverage | None = None
    autocast: Literal["none", "bfloat16"] = "none"
    sharding: Literal["none", "full"] = "none"
    gradient_checkpointing: bool = False
    evaluate_every: Count = 0
    metric: str | None = None
    metric_goal: Literal["max", "min"] = "max"
    early_stopping: EarlyStopping | None = None
    patience: Positive = 10
    callbacks: list[InModule] = Field(default_factory=list)
    num_threads: Parallel = 1
    device: Literal["auto", "cpu", "cuda"] = "auto"
    deterministic: bool = False

    @model_validator(mode="after")
    def _consistent(self) -> TrainConfig:
        if self.minibatches > self.prompts_per_step:
            raise ValueError(
                f"train.minibatches = {self.minibatches} is more than train.prompts_per_step = {self.prompts_per_step}:"
                f" a minibatch holds whole groups; write at most {self.prompts_per_step}"
            )
        if self.memory_limit_gib is not None and self.micro_batch_members != "auto":
            raise ValueError(
                'train.memory_limit_gib is what train.micro_batch_members = "auto" keeps to, and has no effect'
                " otherwise; write both or neither"
            )
        if self.adaptive_sampling is not None and self.worst_first is not None:
            raise ValueError(
                "train.adaptive_sampling and train.worst_first both say which prompts are drawn; set one of them to"
                " null"
            )
        rule = self.dynamic_group_size
        if rule is not None and not rule.minimum <= self.group_size <= rule.maximum:
            raise ValueError(
                f"train.group_size = {self.group_size} is where the dynamic group size begins, and lies outside its"
                f" bounds {rule.minimum} to {rule.maximum}; write a size between them"
            )
        if self.early_stopping is not None and self.evaluate_every == 0:
            raise ValueError(
                "train.early_stopping looks at evaluations and train.evaluate_every = 0 makes none; write"
                " train.evaluate_every = 10"
            )
        return self

    def signed_score(self, score: float) -> float:
        """Returns the score with the sign under which more is better.

        Args:
            score: in the metric's unit.

        Example:
            >>> TrainConfig(metric_goal="min").signed_score(0.5)
            -0.5
        """
        return score if self.metric_goal == "max" else -score


@final
class Stage(Config):
    """A span of steps in which some keys of the experiment differ.

    Args:
        name: the stage's name in reports.
        num_steps: number of steps in the stage.
        num_epochs: passes over the training set, in place of them.
        set: keys of the experiment and their values in this stage, nested as in the experiment itself.

    Example:
        >>> Stage(name="warm_up", num_steps=300, set={"policy_weight": 0.0}).num_steps
        300
    """

    name: str
    num_steps: Positive | None = None
    num_epochs: Epochs | None = None
    set: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _long(self) -> Stage:
        if self.num_steps is None and self.num_epochs is None:
            raise ValueError(f"stage {self.name!r} has no length; write num_steps, or num_epochs")
        return self
