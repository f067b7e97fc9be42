"""Advantages: rewards compared inside their group, and which groups train at all (admission)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, final

import torch
from jaxtyping import Bool, Float
from pydantic import Field, model_validator
from torch import Tensor

from groupwise.config import PieceFromPath
from groupwise.config.errors import Length, PerStep
from groupwise.objective.batch import Grouped, Running
from groupwise.objective.decisions import bounded
from groupwise.objective.slot import AdmissionSlot, AdvantageSlot, admission_problem, advantage_problem

if TYPE_CHECKING:
    from groupwise.objective.objective import Objective


@final
class Everything(AdmissionSlot):
    """All groups: flat ones have advantage 0 and still count in every divisor.

    Example:
        >>> Everything()(Grouped.of([1.0, 0.0], [1.0, 1.0])).tolist()
        [True, True]
    """

    kind: Literal["all"] = "all"

    def __call__(self, rewards: Grouped) -> Bool[Tensor, " P"]:
        """Returns `[num_groups]` bool."""
        return torch.ones(rewards.num_groups, dtype=torch.bool, device=rewards.value.device)


@final
class Informative(AdmissionSlot):
    """Groups that are not flat (at any place, for reward maps). Dropped groups leave the divisor of token means.

    Example:
        >>> Informative()(Grouped.of([1.0, 0.0], [1.0, 1.0])).tolist()
        [True, False]
    """

    kind: Literal["informative"] = "informative"

    def __call__(self, rewards: Grouped) -> Bool[Tensor, " P"]:
        """Returns `[num_groups]` bool."""
        return ~rewards.group_flat.all(dim=1)


@final
class PositiveShare(AdmissionSlot):
    """Groups that are not flat and in which at least `min_positive_ratio` of the rewards exceed `threshold`.

    Example:
        A half; all, but flat; a third.

        >>> PositiveShare(min_positive_ratio=0.5)(Grouped.of([1.0, 0.0], [1.0, 1.0], [1.0, 0.0, 0.0])).tolist()
        [True, False, False]

    Source: `min_positive_ratio` of source 004.
    """

    kind: Literal["positive_share"] = "positive_share"
    threshold: float = 0.0
    """A reward above it is a success."""
    min_positive_ratio: float = Field(default=0.25, ge=0, le=1)

    def __call__(self, rewards: Grouped) -> Bool[Tensor, " P"]:
        """Returns `[num_groups]` bool."""
        hits = rewards.value.new_zeros(rewards.num_groups).index_add(
            0, rewards.index, ((rewards.value > self.threshold) & rewards.present).double().sum(1)
        )
        # The slack is for products such as 0.55 * 20, which rounds to just above 11.
        enough = hits + 1e-9 >= self.min_positive_ratio * rewards.group_size.sum(1)
        return enough & ~rewards.group_flat.all(dim=1)


@final
class Resample(AdmissionSlot):
    """Admits groups that are not flat. The trainer draws further prompts until the batch is full, at most `max_rounds`
    times.

    After that it trains the groups that were admitted, and a log line reports it.

    Example:
        >>> Resample()(Grouped.of([1.0, 0.0], [1.0, 1.0])).tolist()
        [True, False]

    Source: DAPO, arXiv 2503.14476, section 3.2.
    """

    resamples: ClassVar[bool] = True
    kind: Literal["resample"] = "resample"
    max_rounds: Length = 4
    """The largest number of samplings for one batch, the first included."""

    @property
    def rounds(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The largest number of samplings for one batch."""
        return self.max_rounds

    def __call__(self, rewards: Grouped) -> Bool[Tensor, " P"]:
        """Returns `[num_groups]` bool."""
        return ~rewards.group_flat.all(dim=1)


@final
class CallableAdmission(PieceFromPath, AdmissionSlot):
    """The piece whose class is at `path`, configured by `settings`.

    The class extends `AdmissionSlot`, which lists the class variables that it may set.

    Example:
        >>> CallableAdmission(path="groupwise.objective.advantage:Informative").piece
        Informative(kind='informative')
    """

    base: ClassVar[type[AdmissionSlot]] = AdmissionSlot

    def result_problem(self, result: Any, *arguments: Any) -> str:
        return admission_problem(result, arguments[0].num_groups)


Admission = Annotated[
    Everything | Informative | PositiveShare | Resample | CallableAdmission, Field(discriminator="kind")
]


@final
class Centred(AdvantageSlot):
    """`A_i = R_i - mean(R)` over the member's group: no division, so groups with little spread weigh little.

    A flat group gives exactly 0. Shift-invariant, and proportional to the scale of the reward.

    Example:
        >>> advantage, _ = Centred()(Grouped.of([1.0, 0.0, 0.5], [7.0, 7.0]), Running())
        >>> [round(value, 3) for value in advantage[:, 0].tolist()]
        [0.5, -0.5, 0.0, 0.0, 0.0]

    Source: Dr. GRPO, arXiv 2503.20783, equation 1.
    """

    kind: Literal["centred"] = "centred"
    clip: float | None = Field(default=None, gt=0)
    """Largest absolute advantage."""

    def __call__(self, rewards: Grouped, running: Running) -> tuple[Float[Tensor, "B K"], Running]:
        return bounded(rewards.compared(rewards.value - rewards.mean), self.clip), running


@final
class ZScore(AdvantageSlot):
    """`A_i = (R_i - mean(R)) / max(std(R), min_std)` over the member's group.

    A flat group gives exactly 0. Shift-invariant; scale-invariant while the standard deviation is above `min_std`.
    In a group of two that differ the advantage is +-0.707 (+-1 with `ddof = 0`), by however much they do.

    Example:
        Rewards 0, 0, 1, 1: mean 1/2, unbiased standard deviation `1/sqrt(3)`, so the advantage is `-+sqrt(3)/2`.

    Source: GRPO, arXiv 2402.03300, section 4.1.2.
    """

    kind: Literal["z_score"] = "z_score"
    ddof: Literal[0, 1] = 1
    """1 for the unbiased standard deviation, 0 for the population's (source 003)."""
    min_std: float = Field(default=1e-6, gt=0)
    """Floor under the standard deviation, in units of reward."""
    clip: float | None = Field(default=None, gt=0)
    """Largest absolute advantage, after scaling."""

    def __call__(self, rewards: Grouped, running: Running) -> tuple[Float[Tensor, "B K"], Running]:
        scaled = (rewards.value - rewards.mean) / rewards.std(self.ddof).clamp(min=self.min_std)
        return bounded(rewards.compared(scaled), self.clip), running


@final
class LeaveOneOut(AdvantageSlot):
    """`A_i = R_i - mean_{j != i} R_j = n / (n - 1) (R_i - mean(R))`: an unbiased baseline.

    A flat group gives exactly 0. Shift-invariant, and proportional to the scale of the reward.

    Example:
        1 against the mean of 0 and 1/2.

        >>> advantage, _ = LeaveOneOut()(Grouped.of([1.0, 0.0, 0.5]), Running())
        >>> [round(value, 3) for value in advantage[:, 0].tolist()]
        [0.75, -0.75, 0.0]

    Source: RLOO, arXiv 2402.14740, equation 5.
    """

    kind: Literal["leave_one_out"] = "leave_one_out"
    clip: float | None = Field(default=None, gt=0)
    """Largest absolute advantage."""

    def __call__(self, rewards: Grouped, running: Running) -> tuple[Float[Tensor, "B K"], Running]:
        scale = rewards.size / (rewards.size - 1).clamp(min=1)
        return bounded(rewards.compared(scale * (rewards.value - rewards.mean)), self.clip), running


@final
class Accepted(AdvantageSlot):
    """`A_i = 1[R_i > threshold]`, no comparison inside the group: with `S = A lp` this is supervised training on
    accepted samples.

    Not shift-invariant, and a flat group of accepted members keeps its ones.

    Example:
        >>> advantage, _ = Accepted()(Grouped.of([1.0, 0.0], [1.0, 1.0]), Running())
        >>> [round(value, 3) for value in advantage[:, 0].tolist()]
        [1.0, 0.0, 1.0, 1.0]

    Source: the control that every comparison needs (RAFT, arXiv 2304.06767).
    """

    group_baseline: ClassVar[bool] = False
    kind: Literal["accepted"] = "accepted"
    threshold: float = 0.5
    """Rewards above it are accepted."""

    def __call__(self, rewards: Grouped, running: Running) -> tuple[Float[Tensor, "B K"], Running]:
        return ((rewards.value > self.threshold) & rewards.present).to(rewards.value.dtype), running


@final
class BatchStd(AdvantageSlot):
    """`A_i = (R_i - mean(R)) / max(std_batch(R), min_std)`: the group's mean, the standard deviation of all rewards of
    the batch.

    Global over processes, taken before sharding. With `of = "advantage"` the scale is the standard deviation of the
    centred rewards. A flat group gives exactly 0. Shift-invariant; scale-invariant above `min_std`.

    Example:
        The four rewards spread by `sqrt(1/6) = 0.408`; 1 is half a point above its group.

        >>> advantage, _ = BatchStd()(Grouped.of([1.0, 0.0], [0.5, 0.5]), Running())
        >>> [round(value, 3) for value in advantage[:, 0].tolist()]
        [1.225, -1.225, 0.0, 0.0]

    Source: Lite PPO, arXiv 2508.08221, section 4.
    """

    kind: Literal["batch_std"] = "batch_std"
    of: Literal["reward", "advantage"] = "reward"
    """The standard deviation that scales: the rewards', or the centred rewards'."""
    ddof: Literal[0, 1] = 1
    """1 for the unbiased standard deviation, 0 for the population's (Flow-GRPO's code)."""
    min_std: float = Field(default=1e-6, gt=0)
    """Floor under the standard deviation, in units of reward."""
    clip: float | None = Field(default=None, gt=0)
    """Largest absolute advantage, after scaling."""

    def __call__(self, rewards: Grouped, running: Running) -> tuple[Float[Tensor, "B K"], Running]:
        centred = rewards.value - rewards.mean
        _, _, std = rewards.batch_moments(
            rewards.value if self.of == "reward" else rewards.compared(centred), self.ddof
        )
        return bounded(rewards.compared(centred / std.clamp(min=self.min_std)), self.clip), running


@final
class ConstantBaseline(AdvantageSlot):
    """`A_i = R_i - value`: no comparison inside the group, so a flat group keeps its advantage and neither shift nor
    scale is forgiven.

    Example:
        >>> advantage, _ = ConstantBaseline(value=0.5)(Grouped.of([1.0, 0.0], [1.0, 1.0]), Running())
        >>> [round(value, 3) for value in advantage[:, 0].tolist()]
        [0.5, -0.5, 0.5, 0.5]

    Source: TOPR, arXiv 2503.14286, section 4 (the baseline sets the effective share of positives).
    """

    group_baseline: ClassVar[bool] = False
    kind: Literal["constant"] = "constant"
    value: float = 0.0
    """The baseline, in units of reward."""
    clip: float | None = Field(default=None, gt=0)
    """Largest absolute advantage."""

    def __call__(self, rewards: Grouped, running: Running) -> tuple[Float[Tensor, "B K"], Running]:
        centred = rewards.value - self.value
        return bounded(centred.where(rewards.present, centred.new_zeros(())), self.clip), running


@final
class LengthWeighted(AdvantageSlot):
    """`A_i = R_i - sum_j n_j R_j / sum_j n_j` over the member's group, `n` the valid decisions.

    Longer members have noisier gradients and weigh more in the baseline; members without a decision do not enter it. A
    flat group gives exactly 0. Shift-invariant, and proportional to the scale of the reward.

    Source: OPO, arXiv 2505.23585, equation 7. Right for exactly on-policy updates.
    """

    kind: Literal["length_weighted"] = "length_weighted"
    clip: float | None = Field(default=None, gt=0)
    """Largest absolute advantage."""

    def __call__(self, rewards: Grouped, running: Running) -> tuple[Float[Tensor, "B K"], Running]:
        length = rewards.length.expand_as(rewards.value)
        baseline = rewards.sum(length * rewards.value) / rewards.sum(length).clamp(min=1)
        return bounded(rewards.compared(rewards.value - baseline), self.clip), running


@final
class MeanScaled(AdvantageSlot):
    """`A_i = (R_i - mean(R)) / mean(R)` over the member's group: with 0/1 rewards, the rarer a success the more it
    weighs (the gradient of log success).

    Rewards must not be negative. A flat group, and one whose mean is 0, gives exactly 0. Scale-invariant, not
    shift-invariant.

    Example:
        One success in four: mean 1/4.

        >>> advantage, _ = MeanScaled()(Grouped.of([1.0, 0.0, 0.0, 0.0]), Running())
        >>> [round(value, 3) for value in advantage[:, 0].tolist()]
        [3.0, -1.0, -1.0, -1.0]

    Source: MaxRL, arXiv 2602.02710, section 3.
    """

    takes_negative: ClassVar[bool] = False
    kind: Literal["mean_scaled"] = "mean_scaled"
    clip: float | None = Field(default=None, gt=0)
    """Largest absolute advantage, after scaling."""

    def __call__(self, rewards: Grouped, running: Running) -> tuple[Float[Tensor, "B K"], Running]:
        if bool((rewards.value < 0).any()):
            raise ValueError(
                "advantage.kind = 'mean_scaled' divides by the group's mean and takes no negative reward; the lowest"
                f" is {float(rewards.value.min()):.6g}; shift the reward, or write advantage.kind = 'centred'"
            )
        divisor = torch.where(rewards.mean > 0, rewards.mean, torch.ones_like(rewards.mean))
        return bounded(rewards.compared((rewards.value - rewards.mean) / divisor), self.clip), running


@final
class PerPrompt(AdvantageSlot):
    """`A_i = (R_i - mean(H)) / max(std(H), min_std)`, `H` the last `buffer_size` rewards of the member's prompt, those
    of its own group included.

    A prompt seen fewer than `min_count` times takes mean and standard deviation of the whole batch instead. `baseline =
    "group"` subtracts the group's mean and keeps the prompt's scale: a flat group then gives exactly 0. With `baseline
    = "prompt"` it does not: a group that is better than its prompt's past is reinforced as a whole. Shift-invariant
    where the past is shifted as well.

    The past is given (`Rollouts.reward_history`) and not remembered here: the trainer keeps it, in its checkpoints.
    Without one, only the batch counts.

    Example:
        A prompt's past 0, 0, 1, 1 (`min_count = 4`) and now a reward of 3: `H` has mean 1 and standard deviation
        `sqrt(1.2)`; the advantage is `2 / sqrt(1.2)`.

    Source: `PerPromptStatTracker` of DDPO, arXiv 2305.13301, and of source 002. A group larger than the buffer counts
    whole there and here, in any order of its members; the floor `min_std` stands where their code adds 1e-6.
    """

    reads: ClassVar[frozenset[str]] = frozenset({"reward_history"})
    whole_member: ClassVar[bool] = True
    kind: Literal["per_prompt"] = "per_prompt"
    buffer_size: Annotated[PerStep, Field(ge=2)] = 16
    """Rewards remembered of each prompt."""
    min_count: Annotated[PerStep, Field(ge=2)] = 16
    """Number of rewards from which on a prompt has its own statistics."""
    baseline: Literal["prompt", "group"] = "prompt"
    ddof: Literal[0, 1] = 0
    """0 for the population's standard deviation, as in the source; 1 for the unbiased one."""
    min_std: float = Field(default=1e-6, gt=0)
    """Floor under the standard deviation, in units of reward."""
    clip: float | None = Field(default=None, gt=0)
    """Largest absolute advantage, after scaling (5.0 in DDPO's code)."""

    @property
    def history_size(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Rewards remembered of each prompt."""
        return self.buffer_size

    @property
    def group_baseline(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """True when members are compared inside their group."""
        return self.baseline == "group"

    def __call__(self, rewards: Grouped, running: Running) -> tuple[Float[Tensor, "B K"], Running]:
        _, batch_mean, batch_std = rewards.batch_moments(rewards.value, self.ddof)
        past, in_buffer = self._past(rewards)
        count = rewards.size + in_buffer.sum(1, keepdim=True)
        mean = (rewards.sum(rewards.value) + torch.where(in_buffer, past, 0.0).sum(1, keepdim=True)) / count.clamp(
            min=1
        )
        squares = rewards.sum((rewards.value - mean).square()) + torch.where(
            in_buffer, (past - mean).square(), 0.0
        ).sum(1, keepdim=True)
        std = (squares / (count - self.ddof).clamp(min=1)).sqrt()
        enough = count >= self.min_count
        scale = torch.where(enough, std, batch_std).clamp(min=self.min_std)
        if self.baseline == "group":
            return bounded(rewards.compared((rewards.value - rewards.mean) / scale), self.clip), running
        scaled = (rewards.value - torch.where(enough, mean, batch_mean)) / scale
        return bounded(scaled.where(rewards.present, scaled.new_zeros(())), self.clip), running

    def _past(self, rewards: Grouped) -> tuple[Tensor, Tensor]:
        """Returns the past rewards of each member's prompt, `[B, H]`, and which of them the buffer still holds beside
        the group's.
        """
        if rewards.value.shape[1] > 1:
            raise ValueError(
                "advantage.kind = 'per_prompt' remembers one number a member, and a reward is a map [B, T]; write"
                " another advantage.kind"
            )
        if rewards.history is None or rewards.history.shape[1] == 0:
            empty = rewards.value[:, :0]
            return empty, empty.bool()
        recorded = rewards.history.isfinite()
        # The newest rewards are last. The buffer still holds a reward if few enough recorded rewards follow it.
        age = recorded.flip(1).cumsum(1).flip(1)
        return rewards.history, recorded & (age <= (self.buffer_size - rewards.size).clamp(min=0))


@final
class PerReward(AdvantageSlot):
    """`x_i = sum_k weight_k (R_ik - mean_k) / max(std_k, min_std)` inside the group, then `A = (x - mean(x)) /
    max(std(x), min_std)` over the batch.

    A missing reward leaves its own term alone. A group that is flat in every reward gives exactly 0. Shift- and
    scale-invariant in each reward by itself.

    Example:
        >>> advantage, _ = PerReward(whiten=False)(Grouped.of([1.0, 0.0], [0.5, 0.5]), Running())
        >>> [round(value, 3) for value in advantage[:, 0].tolist()]
        [0.707, -0.707, 0.0, 0.0]

    Source: GDPO, arXiv 2601.05242, equations 4 to 6.
    """

    kind: Literal["per_reward"] = "per_reward"
    ddof: Literal[0, 1] = 1
    min_std: float = Field(default=1e-6, gt=0)
    """Floor under every standard deviation."""
    whiten: bool = True
    """Whiten the sum over the batch."""
    clip: float | None = Field(default=None, gt=0)
    """Largest absolute advantage, after scaling."""

    def summands(self, rewards: Grouped) -> dict[str, Float[Tensor, "B K"]]:
        """Returns the term of each reward in the comparison, `weight_k (R_ik - mean_k) / max(std_k, min_std)`; rewards
        of weight 0 are left out.

        Args:
            rewards: the rewards of whole groups, with `parts`.

        Example:
            >>> list(PerReward().summands(Grouped.of([1.0, 0.0])))
            ['reward']
        """
        summands = {}
        for name, part in rewards.parts.items():
            if (weight := rewards.weights[name]) != 0:
                scaled = part.compared((part.value - part.mean) / part.std(self.ddof).clamp(min=self.min_std))
                summands[name] = (weight * scaled).expand_as(rewards.value)
        return summands

    def __call__(self, rewards: Grouped, running: Running) -> tuple[Float[Tensor, "B K"], Running]:
        summed = torch.zeros_like(rewards.value)
        flat = torch.ones_like(rewards.present)
        for name, summand in self.summands(rewards).items():
            summed = summed + summand
            flat = flat & rewards.parts[name].flat
        if self.whiten:
            _, mean, std = rewards.batch_moments(summed)
            summed = (summed - mean) / std.clamp(min=self.min_std)
        return bounded(torch.where(rewards.present & ~flat, summed, 0.0), self.clip), running


@final
class Rank(AdvantageSlot):
    """`A_i = 1 - 2 rank_i / (n - 1)`, rank 0 the best, average ranks on ties: from 1 for the best to -1 for the worst.

    A flat group gives exactly 0. Invariant under every increasing map of the reward; it discards the size of
    differences (source 004 warns of it).

    `ties = "order"` is source 004's own code, kept for comparison: equal rewards are ranked in the order of the
    members, so that a group with ties, and even a flat one, gets advantages that mean nothing.

    Example:
        Rewards 3, 1, 1: ranks 0, 1.5, 1.5, advantages 1, -0.5, -0.5; with `ties = "order"` ranks 0, 1, 2, advantages 1,
        0, -1.
    """

    kind: Literal["rank"] = "rank"
    ties: Literal["average", "order"] = "average"
    """Equal rewards get their average rank, or ranks in the order of the members."""

    def advises(self, objective: Objective) -> Iterator[str]:
        """Yields a remark on what ranks ignore."""
        yield "advantage.kind = 'rank' discards the size of differences between rewards"

    def __call__(self, rewards: Grouped, running: Running) -> tuple[Float[Tensor, "B K"], Running]:
        columns = range(rewards.value.shape[1])
        if self.ties == "order":
            placed = torch.stack([self._in_order(rewards, column) for column in columns], dim=1)
            return torch.where(rewards.present & (rewards.size > 1), placed, torch.zeros_like(placed)), running
        # Ordered by (group, reward), a member's average rank is half the number of better members of its group, less
        # half the number of worse ones.
        return rewards.compared(torch.stack([self._column(rewards, column) for column in columns], dim=1)), running

    @staticmethod
    def _in_order(rewards: Grouped, column: int) -> Tensor:
        """Returns the same ranks without ties: sorted by reward and then, stably, by group."""
        group = torch.where(rewards.present[:, column], rewards.index, rewards.num_groups)
        best_first = rewards.value[:, column].argsort(descending=True, stable=True)
        order = best_first[group[best_first].argsort(stable=True)]
        ordered = group[order]
        rank = torch.arange(len(order), device=order.device) - torch.searchsorted(ordered, ordered)
        rank = torch.empty_like(rank).index_copy_(0, order, rank)
        return 1 - 2 * rank.double() / (rewards.size[:, column] - 1).clamp(min=1)

    @staticmethod
    def _column(rewards: Grouped, column: int) -> Tensor:
        present = rewards.present[:, column]
        value = rewards.value[:, column]
        key = torch.stack([torch.where(present, rewards.index, rewards.num_groups).double(), value], dim=1)
        levels, inverse, counts = torch.unique(key, dim=0, return_inverse=True, return_counts=True)
        num_before = counts.cumsum(0) - counts
        group = levels[:, 0].long()
        sizes = counts.new_zeros(rewards.num_groups + 1).index_add(0, group, counts)
        start = sizes.cumsum(0) - sizes
        worse = (num_before - start[group])[inverse]
        better = (sizes[group] - (num_before - start[group]) - counts)[inverse]
        return (worse - better).double() / (sizes[group][inverse] - 1).clamp(min=1)


@final
class RunningStd(AdvantageSlot):
    """`A_i = (R_i - mean(R)) / max(s, min_std)`, `s` a bias-corrected exponential average of the batch's standard
    deviation.

    The average includes the batch at hand, so the first batch is scaled by its own. `baseline = "running"` subtracts
    the running mean instead of the group's (source 001's form): it replaces the comparison inside the group by the
    difficulty of the prompt, and is inferior.

    Over prompts of unlike difficulty the rewards' standard deviation is mostly that of the prompts, and advantages
    inside a group are then far below 1; `of = "advantage"` follows the standard deviation of the centred rewards
    instead, under which they have mean 0 and standard deviation about 1.

    With the group's baseline, a flat group gives exactly 0. Shift-invariant.

    Example:
        The first batch is scaled by its own standard deviation, 0.408.

        >>> advantage, _ = RunningStd()(Grouped.of([1.0, 0.0], [0.5, 0.5]), Running())
        >>> [round(value, 3) for value in advantage[:, 0].tolist()]
        [1.225, -1.225, 0.0, 0.0]

    Source: `--grpo_global_norm` of source 001, whose average never forgets its initial values.
    """

    kind: Literal["running_std"] = "running_std"
    decay: float = Field(default=0.99, ge=0, lt=1)
    """Weight of the past, per batch of rollouts."""
    baseline: Literal["group", "running"] = "group"
    of: Literal["reward", "advantage"] = "reward"
    """The standard deviation that scales: the rewards' (source 001), or that of the rewards less their group's mean."""
    min_std: float = Field(default=1e-6, gt=0)
    """Floor under the standard deviation, in units of reward."""
    clip: float | None = Field(default=None, gt=0)
    """Largest absolute advantage, after scaling (3.0 in source 001)."""

    @model_validator(mode="after")
    def _one_baseline(self) -> RunningStd:
        if self.of == "advantage" and self.baseline == "running":
            raise ValueError(
                'of = "advantage" is the spread around the group\'s mean, and baseline = "running" subtracts another'
                ' one; write baseline = "group"'
            )
        return self

    def advises(self, objective: Objective) -> Iterator[str]:
        """Yields a remark on what a running baseline compares with."""
        if self.baseline == "running":
            yield (
                "advantage.baseline = 'running' replaces the comparison inside a group by the difficulty of its prompt"
            )

    def __call__(self, rewards: Grouped, running: Running) -> tuple[Float[Tensor, "B K"], Running]:
        centred = rewards.value - rewards.mean
        count, mean, std = rewards.batch_moments(rewards.value)
        if count > 0:
            centred_std = rewards.batch_moments(rewards.compared(centred))[2]
            running = running.follow(float(mean), float(std), float(centred_std), self.decay)
        scale = max(running.std if self.of == "reward" else running.centred_std, self.min_std)
        if self.baseline == "running":
            scaled = (rewards.value - running.mean) / scale
            return bounded(scaled.where(rewards.present, scaled.new_zeros(())), self.clip), running
        return bounded(rewards.compared(centred / scale), self.clip), running


@final
class Whiten(AdvantageSlot):
    """`A_i = (x_i - mean(x)) / max(std(x), min_std)` over all members of the batch, `x = R`, or `x = R - mean_group(R)`
    with `baseline = "group"`.

    Global over processes, taken before sharding. With a group baseline a flat group is forced to 0 afterwards; without
    one the batch is the comparison, a flat *batch* gives exactly 0, and a flat group keeps what the others make of it.

    Example:
        Mean 1/2, standard deviation `1/sqrt(3) = 0.577`.

        >>> advantage, _ = Whiten()(Grouped.of([1.0, 0.0], [1.0, 0.0]), Running())
        >>> [round(value, 3) for value in advantage[:, 0].tolist()]
        [0.866, -0.866, 0.866, -0.866]

    Source: REINFORCE++, arXiv 2501.03262, section 3 (its baseline form: section 3.3).
    """

    kind: Literal["whiten"] = "whiten"
    baseline: Literal["none", "group"] = "none"
    min_std: float = Field(default=1e-6, gt=0)
    """Floor under the standard deviation, in units of reward."""
    clip: float | None = Field(default=None, gt=0)
    """Largest absolute advantage, after scaling."""

    @property
    def group_baseline(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """True when members are compared inside their group first."""
        return self.baseline == "group"

    def __call__(self, rewards: Grouped, running: Running) -> tuple[Float[Tensor, "B K"], Running]:
        # The mean of equal numbers is rounded. The differences from it are a few units in the last place, whose sum and
        # mean are exact, so a flat batch gives 0.
        level = rewards.mean if self.baseline == "group" else rewards.batch_moments(rewards.value)[1]
        value = rewards.value - level
        _, mean, std = rewards.batch_moments(value)
        scaled = (value - mean) / std.clamp(min=self.min_std)
        whitened = (
            rewards.compared(scaled)
            if self.baseline == "group"
            else scaled.where(rewards.present, scaled.new_zeros(()))
        )
        return bounded(whitened, self.clip), running


@final
class WinRate(AdvantageSlot):
    """`A_i = (x_i - mean(x)) / max(std(x), min_std)` inside the group, `x_i = sum_k weight_k w_ik`.

    `w_ik` is the share of the others that member i beats in reward k.
    A difference of at most `margin` is a draw, half a win: what a reward cannot distinguish is not learned from. With
    `margin = 0`, rewards may be changed by any increasing map; a missing reward takes no part in its comparisons. A
    flat group gives exactly 0, and so does one in which all win as often.

    Example:
        Rewards 5, 1, 1: win rates 1, 1/4, 1/4, mean 1/2, unbiased standard deviation `sqrt(3)/4`: advantages
        `2/sqrt(3)`, `-1/sqrt(3)`, `-1/sqrt(3)`.

    Source: Pref-GRPO, arXiv 2508.20751, section 3, whose judge compares two images; for such a judge see
    `groupwise.reward.models.judge`.
    """

    kind: Literal["win_rate"] = "win_rate"
    margin: float = Field(default=0.0, ge=0)
    """Differences of a reward up to this, in its own unit, are draws."""
    ddof: Literal[0, 1] = 1
    min_std: float = Field(default=1e-6, gt=0)
    """Floor under the standard deviation of the win rates."""
    clip: float | None = Field(default=None, gt=0)
    """Largest absolute advantage, after scaling."""

    def __call__(self, rewards: Grouped, running: Running) -> tuple[Float[Tensor, "B K"], Running]:
        weighted_rewards = [
            (rewards.weights[name], reward) for name, reward in rewards.parts.items() if rewards.weights[name] != 0
        ]
        share = torch.zeros_like(rewards.value)
        for weight, reward in weighted_rewards or [(1.0, rewards)]:
            share = share + weight * torch.where(reward.present, self._won(reward), 0.5)
        compared = rewards.with_value(share)
        scaled = (compared.value - compared.mean) / compared.std(self.ddof).clamp(min=self.min_std)
        return bounded(rewards.compared(compared.compared(scaled)), self.clip), running

    def _won(self, reward: Grouped) -> Tensor:
        """Returns `[B, K]`, the share of the group's other present members that a member beats; 1/2 where there is no
        other.
        """
        order = reward.index.argsort(stable=True)
        ordered = reward.index[order]
        place = torch.empty_like(order).index_copy_(
            0, order, torch.arange(len(order), device=order.device) - torch.searchsorted(ordered, ordered)
        )
        shape = (reward.num_groups, int(place.max()) + 1 if len(place) else 1, reward.value.shape[1])
        # Groups are laid side by side, so that only members of the same group are compared: [P, G, K], then pairs [P,
        # G, G, K].
        value = reward.value.new_zeros(shape).index_put((reward.index, place), reward.value)
        present = torch.zeros(shape, dtype=torch.bool, device=value.device).index_put(
            (reward.index, place), reward.present
        )
        gap = value[:, :, None] - value[:, None]
        won = torch.where(gap > self.margin, 1.0, torch.where(gap < -self.margin, 0.0, 0.5)).double()
        pairs = (present[:, :, None] & present[:, None]).double()
        # The pairs include each member with itself, which is a draw.
        num_opponents = (pairs.sum(2) - 1).clamp(min=0)
        share = torch.where(num_opponents > 0, ((won * pairs).sum(2) - 0.5) / num_opponents.clamp(min=1), 0.5)
        return share[reward.index, place]


@final
class CallableAdvantage(PieceFromPath, AdvantageSlot):
    """The piece whose class is at `path`, configured by `settings`.

    The class extends `AdvantageSlot`, which lists the class variables that it may set.

    Example:
        >>> CallableAdvantage(path="groupwise.objective.advantage:Centred").piece
        Centred(kind='centred', clip=None)
    """

    base: ClassVar[type[AdvantageSlot]] = AdvantageSlot
    unread: ClassVar[Mapping[str, Any]] = {"group_baseline": False}

    def result_problem(self, result: Any, *arguments: Any) -> str:
        return advantage_problem(result, arguments[0].value)


Advantage = Annotated[
    ZScore
    | Centred
    | Rank
    | LeaveOneOut
    | BatchStd
    | RunningStd
    | Whiten
    | LengthWeighted
    | MeanScaled
    | PerReward
    | WinRate
    | PerPrompt
    | ConstantBaseline
    | Accepted
    | CallableAdvantage,
    Field(discriminator="kind"),
]
