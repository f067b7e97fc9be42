"""The records that the packages exchange. Axes: `B` members, `T` decisions, `K` 1 or `T`. Log-probs are in nats.

A member is one sample of a group; a decision is one choice with a log-prob; `mask` is true where a decision counts.
Values where the mask is false have no effect.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Real
from typing import Any

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from groupwise.statistics import ABOVE_ZERO, Statistic

RewardValues = Tensor | Sequence[float | None]


def tensors_of(record: Any) -> dict[str, Tensor]:
    """Returns the fields of a dataclass that are tensors, by name, without those that it computes from others.

    Example:
        >>> list(tensors_of(DecisionFields(step_size=torch.ones(1, 2))))
        ['step_size']
    """
    given = [entry.name for entry in fields(record) if entry.init]
    return {name: value for name in given if isinstance(value := getattr(record, name), Tensor)}


@dataclass(frozen=True, kw_only=True)
class DecisionFields:
    """Optional fields of a decision other than its old log-prob, with one name from the sampler to the slots.

    `Samples`, `Rollouts` and `Acted` have these fields from here: a new one is a line in this class. Samples select
    and join it, rollouts check it and cut its graph, a slot names it in `reads` and finds it in `decisions.acted`. A
    field whose name ends in `_log_prob` is at most 0, unless the log-probs are of densities.

    Args:
        behaviour_log_prob: `[B, T]` nats under the distribution that sampled, where it differs from the full one of the
            policy (top-p, another engine).
        reference_log_prob: `[B, T]` nats under the reference policy.
        step_size: `[B, T]` positive, the time step `dt` of a transition, for methods that weigh by it.

    Example:
        >>> list(DecisionFields(step_size=torch.ones(1, 2)).decision_fields())
        ['step_size']
    """

    behaviour_log_prob: Float[Tensor, "B T"] | None = None
    reference_log_prob: Float[Tensor, "B T"] | None = None
    step_size: Float[Tensor, "B T"] | None = None

    def decision_fields(self) -> dict[str, Any]:
        """Returns those of these fields that are set, by name."""
        return {name: value for name in DECISION_FIELDS if (value := getattr(self, name)) is not None}


DECISION_FIELDS = tuple(field.name for field in fields(DecisionFields))
"""The names of `DecisionFields`."""


@dataclass(frozen=True)
class Rollouts(DecisionFields):
    """Sampled members and their rewards: plain tensors, whole groups. Decisions may carry `DecisionFields` too.

    Args:
        group: `[B]` integers; members with the same number share a prompt.
        mask: `[B, T]` bool, true where a decision counts.
        old_log_prob: `[B, T]` log-prob (nats) under the full distribution at the sampling temperature; a constant, as
            all recorded log-probs: their graphs are cut here.
        rewards: name -> `[B]`, or `[B, T]` for a reward map, or a list in which `None` is a missing reward. NaN and
            infinity are errors.
        reward_weights: name -> weight in the sum; 1 where unnamed.
        truncated: `[B]` bool, true where a member was cut off by a limit.
        member: `[B]` integer ids, unique over processes, for methods that draw at random; by default the index in the
            batch.
        density: whether the log-probs are those of densities, which may exceed zero.
        auxiliary_count: name -> `[B]`: the divisor of an auxiliary term's sum, itself summed over the whole update.
        reward_bounds: name -> the lowest and the highest value that the reward can give, 0 and 1 where unnamed. Only
            metrics read them, to count groups whose members are all right or all wrong.
        reward_history: `[B, H]` earlier rewards (their weighted sum) of the member's prompt, oldest first, NaN where
            there are fewer; for advantages that compare with a prompt's past.

    Raises:
        ValueError: a shape or type does not fit, a value is NaN or infinite where the mask is true, or a log-prob that
            is not of a density is above zero.

    Example:
        >>> rollouts = Rollouts(
        ...     torch.tensor([0, 0]), torch.ones(2, 1, dtype=torch.bool), torch.zeros(2, 1), {"correct": [1.0, None]}
        ... )
        >>> rollouts.reward_present["correct"].tolist()
        [True, False]
    """

    group: Int[Tensor, " B"]
    mask: Bool[Tensor, "B T"]
    old_log_prob: Float[Tensor, "B T"]
    rewards: Mapping[str, RewardValues] = field(default_factory=dict)
    reward_weights: Mapping[str, float] = field(default_factory=dict)
    truncated: Bool[Tensor, " B"] | None = None
    member: Int[Tensor, " B"] | None = None
    density: bool = False
    auxiliary_count: Mapping[str, Shaped[Tensor, " B"]] = field(default_factory=dict)
    reward_history: Float[Tensor, "B H"] | None = None
    reward_bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    reward_present: Mapping[str, Tensor] = field(init=False)

    def __post_init__(self) -> None:
        if not isinstance(self.mask, Tensor) or self.mask.dim() != 2 or self.mask.dtype != torch.bool:
            two_axes = isinstance(self.mask, Tensor) and self.mask.dim() == 2
            write = "mask=mask.bool()" if two_axes else "one row a member, one column a decision"
            raise ValueError(f"Rollouts.mask must be a bool tensor [B, T], got {_describe(self.mask)}; write {write}")
        if self.mask.shape[1] == 0:
            raise ValueError("Rollouts.mask has no decisions (T = 0); pad to at least one, with the mask false")
        members = self.mask.shape[0]
        _check_rows("group", self.group, members, "an integer")
        for name, value in {"old_log_prob": self.old_log_prob, **self.decision_fields()}.items():
            _check_decisions(name, value, self.mask, self.density or not name.endswith("_log_prob"))
            # Recorded numbers are constants: log-probs with a gradient of their own would cancel the policy's.
            object.__setattr__(self, name, value.detach())
        if self.step_size is not None and bool((self.mask & ~(self.step_size > 0)).any()):
            raise ValueError(
                "Rollouts.step_size must be positive where the mask is true; the lowest is"
                f" {float(self.step_size[self.mask].min()):.6g}"
            )
        if self.truncated is not None:
            _check_rows("truncated", self.truncated, members, "a bool")
        if self.member is not None:
            _check_rows("member", self.member, members, "an integer")
        for name in ("rewards", "reward_weights", "reward_bounds", "auxiliary_count"):
            if not isinstance(getattr(self, name), Mapping):
                raise ValueError(
                    f"Rollouts.{name} must be a dictionary by name, got {_describe(getattr(self, name))}; write"
                    f" {name}={{'reward': ...}}"
                )
        tensors = {name: _reward_tensors(name, values, self.mask) for name, values in self.rewards.items()}
        for name in ("reward_weights", "reward_bounds"):
            if unknown := sorted(set(getattr(self, name)) - set(tensors)):
                raise ValueError(
                    f"Rollouts.{name} names {unknown}, which are no rewards; rewards are {sorted(tensors)}"
                )
        for name, weight in self.reward_weights.items():
            if not isinstance(weight, Real) or not math.isfinite(weight):
                raise ValueError(f"Rollouts.reward_weights[{name!r}] is {weight!r}; a weight is a finite number")
        for name, ends in self.reward_bounds.items():
            if not isinstance(ends, Sequence) or len(ends) != 2 or not ends[0] < ends[1]:
                raise ValueError(
                    f"Rollouts.reward_bounds[{name!r}] is {ends!r}; write the lowest value and then the highest, for"
                    " example (0.0, 1.0)"
                )
        for name, count in self.auxiliary_count.items():
            if not isinstance(count, Tensor) or count.shape != (members,):
                raise ValueError(
                    f"Rollouts.auxiliary_count[{name!r}] must be [B] with B = {members}, got {_describe(count)}"
                )
        if self.reward_history is not None:
            _check_rows("reward_history", self.reward_history, members, "a float", "[B, H]")
            object.__setattr__(self, "reward_history", self.reward_history.double())
        object.__setattr__(self, "rewards", {name: value for name, (value, _) in tensors.items()})
        object.__setattr__(self, "reward_present", {name: present for name, (_, present) in tensors.items()})


LARGEST_REWARD = 1e150
"""The largest magnitude of a reward; the square of a larger one overflows when deviations are taken."""


def _describe(value: object) -> str:
    """Returns the type and the shape of a value, for messages."""
    return f"{value.dtype} {list(value.shape)}" if isinstance(value, Tensor) else f"{type(value).__name__}"


def _check_rows(name: str, value: Tensor, members: int, kind: str, axes: str = "[B]") -> None:
    """Refuses a field that is not a tensor of this kind ("a bool", "an integer" or "a float") with a row a member."""
    shaped = isinstance(value, Tensor) and value.shape[:1] == (members,) and value.dim() == len(axes.split(","))
    if shaped:
        is_float, is_bool = value.is_floating_point(), value.dtype == torch.bool
        if kind == ("a float" if is_float else "a bool" if is_bool else "an integer"):
            return
    raise ValueError(f"Rollouts.{name} must be {kind} tensor {axes} with B = {members}, got {_describe(value)}")


def _check_decisions(name: str, value: Tensor, mask: Tensor, may_exceed_zero: bool) -> None:
    """Refuses a field of the wrong type or shape, and values that are not finite, or log-probs above zero, where the
    mask is true.
    """
    if not isinstance(value, Tensor) or value.shape != mask.shape or not value.is_floating_point():
        raise ValueError(
            f"Rollouts.{name} must be a float tensor of the mask's shape {list(mask.shape)}, got {_describe(value)}"
        )
    if mask.numel() == 0:
        return
    # One pass is enough in the usual case, where masked values are sound too: if any value is NaN or infinite, so is an
    # extreme.
    lowest, highest = torch.stack(value.detach().aminmax()).tolist()
    if math.isfinite(lowest) and math.isfinite(highest) and (may_exceed_zero or highest <= ABOVE_ZERO):
        return
    not_finite = mask & ~value.isfinite()
    if not_finite.any():
        member, decision = (int(i) for i in not_finite.nonzero()[0])
        raise ValueError(
            f"Rollouts.{name}[{member}, {decision}] is {value[member, decision].item()} where the mask is true"
            f" ({int(not_finite.sum())} such places); a decision that carries no log-prob must be masked out"
        )
    above_zero = mask & (value > ABOVE_ZERO)
    if not may_exceed_zero and above_zero.any():
        member, decision = (int(i) for i in above_zero.nonzero()[0])
        raise ValueError(
            f"Rollouts.{name}[{member}, {decision}] is {value[member, decision].item():.6g}, above zero: a"
            " log-probability is at most 0. Pass log-probs, not probabilities; for densities write density=True"
        )


def _reward_tensors(name: str, reward_values: RewardValues, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Returns a reward as fp64, 0 where it is missing or masked, and the places where it counts."""
    members, decisions = mask.shape
    if isinstance(reward_values, Tensor):
        value = reward_values.detach().to(torch.float64)
        present = torch.ones_like(value, dtype=torch.bool)
    else:
        if isinstance(reward_values, (Real, str)) or not isinstance(reward_values, Iterable):
            raise ValueError(
                f"Rollouts.rewards[{name!r}] is {reward_values!r}; give a number a member: a tensor [B], a map [B, T],"
                " or a list with None where missing"
            )
        for index, number in enumerate(reward_values):
            is_scalar = isinstance(number, Tensor) and number.dim() == 0
            if number is not None and not isinstance(number, Real) and not is_scalar:
                kind = type(number).__name__
                raise ValueError(
                    f"Rollouts.rewards[{name!r}][{index}] is {number!r} ({kind}); a list holds numbers and None, a map"
                    " is a tensor [B, T]"
                )
        value = torch.tensor(
            [0.0 if number is None else float(number) for number in reward_values],
            dtype=torch.float64,
            device=mask.device,
        )
        present = torch.tensor([number is not None for number in reward_values], dtype=torch.bool, device=mask.device)
    if value.shape not in ((members,), (members, decisions)):
        raise ValueError(
            f"Rollouts.rewards[{name!r}] must be [B] = [{members}] or [B, T] = {[members, decisions]}, got"
            f" {list(value.shape)}"
        )
    counted = present & (mask if value.dim() == 2 else torch.ones_like(present))
    not_finite = counted & ~value.isfinite()
    if not_finite.any():
        index = not_finite.nonzero()[0].tolist()
        raise ValueError(
            f"Rollouts.rewards[{name!r}]{index} is {value[tuple(index)].item()}; a reward is finite, or None where it"
            " is missing"
        )
    overflowing = counted & (value.abs() > LARGEST_REWARD)
    if overflowing.any():
        index = overflowing.nonzero()[0].tolist()
        raise ValueError(
            f"Rollouts.rewards[{name!r}]{index} is {value[tuple(index)].item():.6g}, whose square overflows; divide the"
            " reward, or bound it"
        )
    return torch.where(counted, value, torch.zeros_like(value)), counted


@dataclass(frozen=True)
class Scored:
    """The fields that a domain returns when it rescores decisions under the live policy. Only `log_prob` is required;
    the others are present when `objective.requires` names them.

    Args:
        log_prob: `[B, T]` nats, with gradient. NaN or infinite where the mask is true is an error that names the place;
            a training run leaves such a decision out and counts it (`objective.plan(..., not_finite="counted")`). Above
            zero it is an error unless the rollouts are of densities.
        entropy: `[B, T]` nats, with gradient.
        exact_divergence: `[B, T]` nats, the exact divergence from the reference per decision, with gradient.
        score_norm: `[B, T]` norm of the score (gradient of the log-prob by the distribution's own parameters).
        mean_shift: `[B, T]` `mean(eps (mu - mu_old))` over the dimensions of a Gaussian transition `mu_old + sigma
            sqrt(dt) eps`, with gradient: how far its mean has moved along the noise that was drawn (`ratio.kind =
            "transition"`).
        old_divergence: `[B, T]` nats, the exact divergence of a decision's distribution from the one that sampled it
            (`trust.kind = "gaussian_kl"`).
        positive_error, negative_error: `[B, T]`, the errors of the two mirrored predictions on noised copies, with
            gradient (`matching.kind = "mirrored"`).
        auxiliary: name -> `[B]` per-member sums of an auxiliary loss, with gradient.
    """

    log_prob: Float[Tensor, "B T"]
    entropy: Float[Tensor, "B T"] | None = None
    exact_divergence: Float[Tensor, "B T"] | None = None
    score_norm: Float[Tensor, "B T"] | None = None
    mean_shift: Float[Tensor, "B T"] | None = None
    old_divergence: Float[Tensor, "B T"] | None = None
    positive_error: Float[Tensor, "B T"] | None = None
    negative_error: Float[Tensor, "B T"] | None = None
    auxiliary: Mapping[str, Float[Tensor, " B"]] = field(default_factory=dict)

    def tensors(self) -> dict[str, Tensor]:
        """Returns the fields that are set, auxiliary terms as `auxiliary.NAME`."""
        scored_fields = {
            scored_field.name: getattr(self, scored_field.name)
            for scored_field in fields(self)
            if scored_field.name != "auxiliary" and getattr(self, scored_field.name) is not None
        }
        return scored_fields | {f"auxiliary.{name}": value for name, value in self.auxiliary.items()}

    @staticmethod
    def from_tensors(tensors: Mapping[str, Tensor]) -> Scored:
        """Builds the record from the dictionary that `tensors` returned."""
        plain: dict[str, Any] = {name: value for name, value in tensors.items() if not name.startswith("auxiliary.")}
        return Scored(
            **plain,
            auxiliary={
                name.removeprefix("auxiliary."): value
                for name, value in tensors.items()
                if name.startswith("auxiliary.")
            },
        )

    def select(self, rows: Int[Tensor, " N"]) -> Scored:
        """Returns the members of these rows. A negative row is padding and repeats member 0."""
        return Scored.from_tensors({name: value[rows.clamp(min=0)] for name, value in self.tensors().items()})

    def detach(self) -> Scored:
        """Returns the same numbers without gradient."""
        return Scored.from_tensors({name: value.detach() for name, value in self.tensors().items()})


@dataclass(frozen=True)
class Loss:
    """A loss and the statistics of its computation.

    Args:
        total: scalar, with gradient; micro-batches sum to the whole.
        statistics: additive statistics by metric name (`groupwise.statistics`).
    """

    total: Float[Tensor, ""]
    statistics: Mapping[str, Statistic]

    def backward(self) -> None:
        """Accumulates the gradient."""
        self.total.backward()


@dataclass(frozen=True)
class Cotangents:
    """The gradient of a loss by each scored field, and the loss itself (without gradient)."""

    scored: Scored
    loss: Loss
