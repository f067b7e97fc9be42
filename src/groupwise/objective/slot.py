"""The bases of the objective's pieces: one base for all slots, and one base for each slot.

A user's piece extends the base of its slot and is named by `kind = "callable"`, `path = "module:Class"`. A class
variable that the piece does not set has the default of the base.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from groupwise.config import Config
from groupwise.objective.batch import Grouped, Running
from groupwise.objective.decisions import Counts, Decisions, Deviation, PerDecision, Surrogate, whole_member
from groupwise.statistics import Statistic

if TYPE_CHECKING:
    from groupwise.objective.objective import Objective

SCOPES = ("decision", "member", "batch")


class Slot(Config):
    """A piece of the objective that can be exchanged for another of the same slot.

    A class variable may be a property, where it depends on the settings of the piece.

    Example:
        >>> from groupwise.objective.trust import Clip
        >>> Clip().scope, sorted(Clip().reads), Clip().discrete_only
        ('decision', [], None)
    """

    scope: ClassVar[str] = "decision"
    """The extent of an update that one term of the loss reads: `decision`, `member` or `batch`. It decides how an
    update may be cut into micro-batches. Smoothings, ratios, trust regions and credits have to state it.
    """
    reads: ClassVar[frozenset[str]] = frozenset()
    """The optional fields of `Rollouts` and `Scored` that the piece reads."""
    uses: ClassVar[frozenset[str]] = frozenset()
    """Optional fields that the piece reads if they were recorded, and does without if not."""
    discrete_only: ClassVar[str | None] = None
    """For a piece that needs probabilities of discrete decisions: advice for users whose log-probs are densities.
    `None` for other pieces.
    """
    neutral: ClassVar[bool] = False
    """True for the kind that changes nothing (`identity`, `none`)."""

    def refuses(self, objective: Objective) -> Iterator[str]:
        """Yields the reasons why the piece does not go with the other pieces, in sentences.

        Args:
            objective: an objective whose pieces are valid one by one.
        """
        return iter(())

    def advises(self, objective: Objective) -> Iterator[str]:
        """Yields a sentence for each legal setting that is rarely intended. A run prints them once, at its start.

        Args:
            objective: a sound objective.
        """
        return iter(())


class AdvantageSlot(Slot):
    """Compares rewards inside groups, once per batch of rollouts, in fp64 and without gradient."""

    group_baseline: ClassVar[bool] = True
    """True where members are compared inside their group: groups of one member are refused then."""
    whole_member: ClassVar[bool] = False
    """True where a member has one reward: reward maps `[B, T]` are refused then."""
    takes_negative: ClassVar[bool] = True
    """False where rewards have to be positive or 0."""
    history_size: ClassVar[int] = 0
    """The number of earlier rewards of each prompt that the trainer keeps for the piece (`Rollouts.reward_history`)."""

    @abstractmethod
    def __call__(self, rewards: Grouped, running: Running) -> tuple[Float[Tensor, "B K"], Running]:
        """Returns `A [B, 1]` (or `[B, T]` for reward maps) and the running statistics after this batch.

        Args:
            rewards: the rewards of whole groups.
            running: statistics of earlier batches.
        """

    def summands(self, rewards: Grouped) -> Mapping[str, Float[Tensor, "B K"]]:
        """Returns the term of each reward in the comparison, `weight_k (R_ik - mean_k)` unless the piece overrides it.

        Args:
            rewards: the rewards of whole groups, with `parts`.
        """
        counted = {name: part for name, part in rewards.parts.items() if rewards.weights[name] != 0}
        return {
            name: (rewards.weights[name] * torch.where(part.present, part.value - part.mean, 0.0)).expand_as(
                rewards.value
            )
            for name, part in counted.items()
        }


class AdmissionSlot(Slot):
    """Chooses the groups that train."""

    resamples: ClassVar[bool] = False
    """True where the trainer draws further prompts until the batch is full."""
    rounds: ClassVar[int] = 1
    """The largest number of samplings for one batch, the first included."""

    @abstractmethod
    def __call__(self, rewards: Grouped) -> Bool[Tensor, " P"]:
        """Returns `[num_groups]` bool, true for the groups that train."""


class LogRatioSlot(Slot):
    """Maps log-ratios to log-ratios, with gradient: the common base of smoothings and ratios."""

    scope: ClassVar[str]

    def reach(self, terms: Bool[Tensor, "B T"], decisions: Decisions) -> Bool[Tensor, "B T"]:
        """Returns the decisions that the gradient of some terms reaches: the terms' own, or all of their members.

        Args:
            terms: `[B, T]` bool, the terms that carry gradient.
            decisions: the decisions, without gradient.
        """
        return terms if self.scope == "decision" else whole_member(terms, decisions)


class SmoothingSlot(LogRatioSlot):
    """Maps the log-ratios of a member to smoothed ones."""

    @abstractmethod
    def __call__(self, decisions: Decisions) -> Float[Tensor, "B T"]:
        """Returns `log r' [B, T]`, finite where the mask is false."""

    def measure(self, decisions: Decisions, smoothed: Float[Tensor, "B T"]) -> Mapping[str, Statistic]:
        """Returns the metrics of the piece.

        Args:
            decisions: the argument of `__call__`.
            smoothed: the result of `__call__`.
        """
        return {}


class RatioSlot(LogRatioSlot):
    """Turns log-ratios into one level a decision, or one a member broadcast over its decisions."""

    shared_gradient: ClassVar[bool] = False
    """True where all decisions of a member share one gradient, so that a credit of mean one would cancel."""
    constant_level: ClassVar[bool] = False
    """True where the level is a constant and each decision keeps the gradient of its own log-prob."""
    averages: ClassVar[bool] = False
    """True where the level is a mean over the member."""
    plain: ClassVar[bool] = False
    """True for the ratio of each single decision, unchanged."""
    ignores_smoothing: ClassVar[bool] = False
    """True where the level is not computed from log-ratios."""

    @abstractmethod
    def __call__(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Float[Tensor, "B T"]:
        """Returns `log rho [B, T]`.

        Args:
            log_ratio: smoothed log-ratios, in nats.
        """

    def held(self, log_level: Float[Tensor, "B T"]) -> Bool[Tensor, "B T"]:
        """Returns where the level is held at a bound and passes no gradient on: nowhere, unless the piece overrides it.

        Args:
            log_level: the result of `__call__`.
        """
        return torch.zeros_like(log_level, dtype=torch.bool)

    def measure(self, log_level: Float[Tensor, "B T"], decisions: Decisions) -> Mapping[str, Statistic]:
        """Returns the metrics of the piece.

        Args:
            log_level: the result of `__call__`.
            decisions: the argument of `__call__`.
        """
        return {}


class TrustSlot(Slot):
    """Bounds one update: `(rho, A) -> S`, with the decisions that still carry gradient."""

    scope: ClassVar[str]
    score_function: ClassVar[bool] = False
    """True where `S` is a detached weight times the decision's own log-prob: the ratio carries no gradient."""
    whole_member: ClassVar[bool] = False
    """True where a member has one surrogate: one advantage a member, a uniform credit."""
    per_decision: ClassVar[str | None] = None
    """The quantity that the region reads of each decision by itself (`probability`), so that it takes token ratios and
    no smoothing; `None` for a region that reads ratios of any level.
    """
    weighs_behaviour: ClassVar[bool] = False
    """True where the region weighs by the sampler's own probabilities, so that a correction would count twice."""

    @abstractmethod
    def __call__(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Surrogate:
        """Returns `S [B, T]` and the decisions that carry gradient.

        Args:
            log_ratio: `log rho` as the ratio slot returns it.
        """


class CreditSlot(Slot):
    """Spreads a member's advantage over its decisions: one link of the credit's chain."""

    kind: ClassVar[str]
    scope: ClassVar[str] = "member"
    masks: ClassVar[bool] = False
    """True where the weights are 0 or 1 and leave decisions out. A mask is multiplied last, after the other links were
    renormalised.
    """
    normalised: ClassVar[bool] = True
    """True where the weights have mean one over each member; a chain with a link that sets it to False is not
    normalised.
    """

    @abstractmethod
    def __call__(self, decisions: Decisions) -> Float[Tensor, "B T"]:
        """Returns `c [B, T]`, detached, 0 where the mask is false, of mean one over each member if `normalised`."""

    def measure(self, weight: Float[Tensor, "B T"], decisions: Decisions) -> Mapping[str, Statistic]:
        """Returns the metrics of the piece.

        Args:
            weight: the result of `__call__`.
            decisions: the argument of `__call__`.
        """
        return {}


class CorrectionSlot(Slot):
    """Weighs decisions for the difference between the old policy and the sampler."""

    reads: ClassVar[frozenset[str]] = frozenset({"behaviour_log_prob"})

    @abstractmethod
    def __call__(self, log_weight: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
        """Returns `k [B, T]`, detached.

        Args:
            log_weight: `lp_old - lp_behaviour`, fp64, 0 where the mask is false.
            mask: `[B, T]` bool, true where a decision counts.
        """


class AggregationSlot(Slot):
    """Weighs the terms of the loss."""

    @abstractmethod
    def __call__(self, counts: Counts) -> Float[Tensor, "B T"]:
        """Returns `w [B, T]`, 0 where the mask is false.

        Args:
            counts: the counts of decisions, members and prompts, over all processes.
        """


class DivergenceSlot(Slot):
    """Estimates the divergence of the policy from the reference, in nats. A user's class extends `Penalty`."""

    fits_reward: ClassVar[bool] = False
    """True where `place = "reward"` may subtract it from rewards, as `lp_old - lp_ref` (k1)."""
    needs_reference: ClassVar[bool] = False
    """True where the domain itself compares with the reference (`Scored.exact_divergence`)."""

    @abstractmethod
    def __call__(self, decisions: Decisions, reference_log_prob: PerDecision, exact: PerDecision | None) -> PerDecision:
        """Returns `D [B, T]`, 0 where both log-probs are 0.

        Args:
            decisions: the decisions, with gradient.
            reference_log_prob: log-probs under the policy compared with, 0 where the mask is false.
            exact: the domain's value of the divergence, where the piece reads `exact_divergence`.
        """


class MatchingSlot(Slot):
    """Learns from noised copies of what was sampled, in place of the decisions that sampled it. A user's class extends
    `NoisedCopies`, which has the settings.
    """

    pulls: ClassVar[bool] = False
    """True where members of advantage 0 have a gradient, once the policy has moved from the one that sampled."""
    has_surrogate: ClassVar[bool] = False
    """True where `surrogate` replaces ratio and trust region."""

    @abstractmethod
    def __call__(self, deviation: Deviation) -> Mapping[str, Float[Tensor, " N"]]:
        """Returns the scored fields of `N` noised copies by name: `log_prob`, and those that the piece `reads`.

        Args:
            deviation: the deviation of the predictions from their targets.
        """

    def surrogate(self, decisions: Decisions) -> Surrogate:
        """Returns `S [B, T]` of the copies and those that carry gradient, where `has_surrogate`.

        Args:
            decisions: the copies as decisions, with the fields that the call gave.
        """
        raise NotImplementedError


# Checks of a user's results at every call: an error names the path of the piece, and not a later operation.


def per_decision_problem(result: Any, mask: Tensor) -> str:
    """Returns what is wrong with numbers `[B, T]` or `[B, 1]`; empty where nothing is.

    Args:
        result: what the piece returned.
        mask: `[B, T]`, the decisions that it was called with.

    Example:
        >>> per_decision_problem(torch.ones(3), torch.ones(2, 3))
        'it returned a tensor of shape [3]; return [B, T] = [2, 3]'
        >>> per_decision_problem(torch.ones(2, 1), torch.ones(2, 3))
        ''
    """
    expected = f"return [B, T] = {list(mask.shape)}"
    if not isinstance(result, Tensor):
        return f"it returned {_described(result)}; {expected}"
    allowed = (mask.shape, (mask.shape[0], 1))
    return "" if result.shape in allowed else f"it returned a tensor of shape {list(result.shape)}; {expected}"


def surrogate_problem(result: Any, mask: Tensor) -> str:
    """Returns what is wrong with the result of a trust region; empty where nothing is.

    Args:
        result: what the piece returned.
        mask: `[B, T]`, the decisions that it was called with.

    Example:
        >>> surrogate_problem(torch.ones(2, 3), torch.ones(2, 3))
        'it returned a Tensor; return groupwise.objective.slot.Surrogate(value, alive)'
    """
    if not isinstance(result, Surrogate):
        return f"it returned {_described(result)}; return groupwise.objective.slot.Surrogate(value, alive)"
    if problem := per_decision_problem(result.value, mask):
        return problem
    for name in ("alive", "direct"):
        flags = getattr(result, name)
        if flags is None and name == "direct":
            continue
        if not isinstance(flags, Tensor) or flags.dtype is not torch.bool:
            described = str(flags.dtype) if isinstance(flags, Tensor) else _described(flags)
            return f"{name} of its Surrogate is {described}; give bool [B, T] = {list(mask.shape)}"
        if problem := per_decision_problem(flags, mask):
            return f"{name} of its Surrogate: {problem}"
    return statistics_problem(result.statistics)


def statistics_problem(result: Any) -> str:
    """Returns what is wrong with the metrics of a piece; empty where nothing is.

    Args:
        result: what the piece returned or handed over as its metrics.

    Example:
        >>> statistics_problem({"slope": 0.5})
        "its metric 'slope' is a float; give a groupwise.statistics.Statistic, for example Mean.of(values, mask)"
    """
    if not isinstance(result, Mapping):
        return f"its metrics are {_described(result)}; give a dict of groupwise.statistics.Statistic by name"
    for name, value in result.items():
        if not isinstance(value, Statistic):
            expected = "give a groupwise.statistics.Statistic, for example Mean.of(values, mask)"
            return f"its metric {name!r} is {_described(value)}; {expected}"
    return ""


def advantage_problem(result: Any, rewards: Tensor) -> str:
    """Returns what is wrong with the result of an advantage; empty where nothing is.

    Args:
        result: what the piece returned.
        rewards: `[B, K]`, the rewards that it was called with.

    Example:
        >>> advantage_problem(torch.ones(2, 1), torch.ones(2, 1))
        'it returned a Tensor; return the advantages and the running statistics: (advantage, running)'
    """
    if not (isinstance(result, tuple) and len(result) == 2):
        return (
            f"it returned {_described(result)}; return the advantages and the running statistics: (advantage, running)"
        )
    if not isinstance(result[1], Running):
        return f"its running statistics are {_described(result[1])}; return those that it was given"
    return per_decision_problem(result[0], rewards).replace("[B, T]", "[B, K]")


def admission_problem(result: Any, num_groups: int) -> str:
    """Returns what is wrong with the result of an admission; empty where nothing is.

    Args:
        result: what the piece returned.
        num_groups: the groups that it was called with.

    Example:
        >>> admission_problem(torch.ones(2), 2)
        'it returned torch.float32 [2]; return bool [P] = [2], true for the groups that train'
    """
    expected = f"return bool [P] = [{num_groups}], true for the groups that train"
    if not isinstance(result, Tensor):
        return f"it returned {_described(result)}; {expected}"
    if result.dtype is not torch.bool or list(result.shape) != [num_groups]:
        return f"it returned {result.dtype} {list(result.shape)}; {expected}"
    return ""


def matching_problem(result: Any, num_copies: int, names: Collection[str]) -> str:
    """Returns what is wrong with the result of a matching; empty where nothing is.

    Args:
        result: what the piece returned.
        num_copies: the noised copies that it was called with.
        names: the fields that it has to return.

    Example:
        >>> matching_problem(torch.ones(2), 2, {"log_prob"})
        "it returned a Tensor; return a dict of fields by name, each [N] = [2]: {'log_prob': ...}"
        >>> matching_problem({"log_prob": torch.ones(2, 3)}, 2, {"log_prob"})
        "it returned a tensor of shape [2, 3] as 'log_prob'; return [N] = [2]"
    """
    if not isinstance(result, Mapping):
        fields = ", ".join(f"{name!r}: ..." for name in sorted(names))
        expected = f"return a dict of fields by name, each [N] = [{num_copies}]: {{{fields}}}"
        return f"it returned {_described(result)}; {expected}"
    if missing := sorted(set(names) - set(result)):
        returned = ", ".join(map(repr, result)) or "nothing"
        return f"it returned no {missing[0]!r}, only {returned}; return {missing[0]!r} as well"
    for name, value in result.items():
        expected = f"return [N] = [{num_copies}]"
        if not isinstance(value, Tensor):
            return f"it returned {_described(value)} as {name!r}; {expected}"
        if list(value.shape) != [num_copies]:
            return f"it returned a tensor of shape {list(value.shape)} as {name!r}; {expected}"
    return ""


def _described(result: Any) -> str:
    return "None" if result is None else f"a {type(result).__name__}"
