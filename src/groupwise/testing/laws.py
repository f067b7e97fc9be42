"""The laws of an objective: assertions that hold for any objective and any small batch.

A loss is a sum over decisions of the whole update. Therefore masked decisions, the order of members, micro-batches,
slices and processes change no number, the gradient is the derivative of the loss, and all numbers are finite.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from torch import Tensor

from groupwise.objective import Batch, Objective, Plan
from groupwise.objective.decisions import recording, replaying
from groupwise.records import Rollouts, Scored
from groupwise.statistics import Reduce, add, finish, sum_over_one_process

# Small batches of hard cases: ragged masks with holes, an empty member, a member of one decision, a flat group and a
# missing reward.

SCORED = (
    *("log_prob", "entropy", "exact_divergence", "score_norm", "mean_shift"),
    *("old_divergence", "positive_error", "negative_error"),
)
"""The fields of `Scored` that are leaves of the graph in a world."""


@final
@dataclass(frozen=True)
class World:
    """A batch and its scores as plain tensors.

    Args:
        mask: `[B, T]` bool, true where a decision counts.
        group: `[B]` integers, the number of each member's group.
        wide: tensors `[B, T]` by name, NaN or infinite where the mask is false.
        tall: tensors `[B]` by name; a NaN reward is missing.
    """

    mask: Tensor
    group: Tensor
    wide: Mapping[str, Tensor]
    tall: Mapping[str, Tensor]

    def members(self, rows: Tensor) -> World:
        """Returns the members at these rows."""
        return World(
            self.mask[rows],
            self.group[rows],
            {name: values[rows] for name, values in self.wide.items()},
            {name: values[rows] for name, values in self.tall.items()},
        )

    def padded(self, width: int) -> World:
        """Returns the same batch with masked decisions added, which hold NaN and infinity."""

        def pad(value: Tensor) -> Tensor:
            padding = value.new_full((value.shape[0], width), float("nan"))
            padding[:, ::2] = float("inf")
            return torch.cat([value, padding], 1)

        mask = torch.cat([self.mask, self.mask.new_zeros(self.mask.shape[0], width)], 1)
        return replace(self, mask=mask, wide={name: pad(value) for name, value in self.wide.items()})

    def to(self, dtype: torch.dtype) -> World:
        """Returns the same batch in another precision."""
        return replace(
            self,
            wide={name: values.to(dtype) for name, values in self.wide.items()},
            tall={name: values.to(dtype) for name, values in self.tall.items()},
        )

    def rollouts(
        self, density: bool = False, shift: float = 0.0, without: Collection[str] = (), history_size: int = 0
    ) -> Rollouts:
        """Returns the batch as recorded rollouts.

        Args:
            density: whether log-probs are of densities.
            shift: added to one of the rewards.
            without: optional fields that are left out.
            history_size: the number of earlier rewards of each prompt, of which the first prompt lacks the oldest.
        """
        tall = {"correct": self.tall["correct"] + shift, "format": self.tall["format"]}
        rewards: dict[str, Any] = {
            name: [None if value != value else value for value in values.tolist()] if values.isnan().any() else values
            for name, values in tall.items()
        }
        if "map" in self.wide:
            rewards["map"] = self.wide["map"]
        optional: dict[str, Any] = {
            "behaviour_log_prob": self.wide["behaviour"],
            "reference_log_prob": self.wide["reference"],
            "step_size": self.wide["step_size"],
        }
        return Rollouts(
            group=self.group,
            mask=self.mask,
            old_log_prob=self.wide["old"],
            rewards=rewards,
            reward_weights={"format": 0.3},
            **{name: value for name, value in optional.items() if name not in without},
            member=self.tall["member"].long(),
            density=density,
            auxiliary_count={"supervised": self.tall["count"]},
            reward_history=self._past(history_size) if history_size else None,
        )

    def _past(self, size: int) -> Tensor:
        past = (self.group[:, None] * 3 + torch.arange(size)).double() % 5 / 4
        past[self.group == 0, : (size + 1) // 2] = float("nan")
        return past

    def with_map(self, values: Tensor) -> World:
        """Returns the same batch with a reward of every decision, `[B, T]`, in addition to the others."""
        return replace(self, wide={**self.wide, "map": values})

    def scored(self, gradient: bool = True) -> Scored:
        """Returns the scores as leaves of the graph."""
        leaves = {name: self.wide[name].clone().requires_grad_(gradient) for name in SCORED if name in self.wide}
        return Scored(**leaves, auxiliary={"supervised": self.tall["supervised"].clone().requires_grad_(gradient)})


def world(seed: int = 0, spread: float = 0.5, width: int = 5) -> World:
    """Returns three groups of 3, 2 and 2 members: the second is flat, member 4 is empty, member 5 has one decision, and
    one reward is missing.

    Args:
        seed: seed of all random numbers.
        spread: the largest log-ratio, in nats.
        width: number of decisions `T`, masked ones included.
    """
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.rand(*shape, dtype=torch.float64, generator=generator)

    def signed(scale: float) -> Tensor:
        return scale * (2 * draw(members, width) - 1)

    members = 7
    mask = draw(members, width) < 0.7
    mask[0] = True
    mask[1] = torch.arange(width) % 2 == 0
    mask[4] = False
    mask[5] = torch.arange(width) == 2
    log_prob = -4 * draw(members, width) - 0.1
    old = log_prob - signed(spread)
    old[2] = log_prob[2]
    behaviour, reference = old + signed(0.5), log_prob + signed(0.5)
    # All log-probs of a decision are shifted by the same amount, so that none is above zero.
    excess = torch.stack([log_prob, old, behaviour, reference]).amax(0) + 0.01
    log_prob, old, behaviour, reference = (
        value - excess.clamp(min=0) for value in (log_prob, old, behaviour, reference)
    )
    wide = {
        "log_prob": log_prob,
        "old": old,
        "behaviour": behaviour,
        "reference": reference,
        "step_size": 0.5 + draw(members, width),
        "entropy": 3 * draw(members, width),
        "exact_divergence": draw(members, width),
        "score_norm": draw(members, width),
        "mean_shift": signed(0.1),
    }
    correct = torch.tensor([0.0, 1.0, 1.0, 0.3, 0.3, 1.0, -0.5], dtype=torch.float64)
    format_reward = torch.tensor([0.5, 0.25, float("nan"), 0.5, 0.5, 0.75, 0.0], dtype=torch.float64)
    tall = {
        "correct": correct,
        "format": format_reward,
        "count": torch.tensor([0.0, 3.0, 0, 2, 0, 5, 0], dtype=torch.float64),
        "supervised": draw(members),
        "member": torch.tensor([11.0, 3, 7, 20, 2, 5, 8], dtype=torch.float64),
    }
    invalid = torch.where(draw(members, width) < 0.5, float("nan"), float("inf")).double()
    wide |= {name: draw(members, width) for name in ("old_divergence", "positive_error", "negative_error")}
    masked = {name: torch.where(mask, value, invalid) for name, value in wide.items()}
    return World(mask, torch.tensor([4, 4, 4, 9, 9, 2, 2]), masked, tall)


def extremes() -> list[World]:
    """Returns batches with log-ratios up to 20 nats in fp32, 80 in fp64, and 700 in fp32, as of a policy that has moved
    far from its samples.
    """
    return [world(1, spread=20.0).to(torch.float32), world(2, spread=80.0), world(3, spread=700.0).to(torch.float32)]


def smallest() -> list[World]:
    """Returns a batch without members, as on a process that sampled nothing, and one with a member alone in its
    group.
    """
    return [world().members(torch.arange(count)) for count in (0, 1)]


# The laws, each a function that yields a sentence for every violation.

Gradients = dict[str, Tensor]
_WIDTH = 1e-6
"""Half of the distance of a central difference, whose error in fp64 is about 1e-10."""


@final
@dataclass(frozen=True)
class Outcome:
    """A loss, its gradients by scored field, and its metrics."""

    value: Tensor
    gradients: Gradients
    metrics: Mapping[str, float]


def gradients_of(total: Tensor, scored: Scored) -> Gradients:
    """Returns the gradient of a scalar by every scored field; 0 for a field on which it does not depend."""
    leaves = scored.tensors()
    gradients = (
        torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
        if total.requires_grad
        else [None] * len(leaves)
    )
    return {
        name: torch.zeros_like(leaf) if gradient is None else gradient
        for (name, leaf), gradient in zip(leaves.items(), gradients, strict=True)
    }


def outcome(objective: Objective, world: World) -> Outcome:
    """Returns the loss of the whole batch at once, through prepare and plan."""
    scored = world.scored()
    loss = objective.loss(scored, plan_of(objective, world))
    return Outcome(loss.total.detach(), gradients_of(loss.total, scored), finish(loss.statistics))


def prepared(objective: Objective, world: World, reduce: Reduce = sum_over_one_process) -> Batch:
    """Returns the prepared batch."""
    shift = 0.0 if objective.advantage.takes_negative else 0.5
    rollouts = world.rollouts(shift=shift, history_size=objective.advantage.history_size)
    return objective.prepare(rollouts, objective.init(), reduce)


def plan_of(objective: Objective, world: World) -> Plan:
    """Returns the plan of one step on the whole batch."""
    return objective.plan(prepared(objective, world))


def same(actual: Tensor, expected: Tensor, label: str, tolerance: float = 1e-12) -> None:
    """Asserts that two tensors are equal to fp64 rounding, relative to the largest entry."""
    scale = max(1.0, float(expected.abs().max()) if expected.numel() else 0.0)
    worst = float((actual - expected).abs().max()) if expected.numel() else 0.0
    assert worst <= tolerance * scale, f"{label}: off by {worst}"


def same_outcome(actual: Outcome, expected: Outcome, label: str, metrics: bool = True) -> None:
    """Asserts that loss, gradients and, unless they are left out, metrics are equal."""
    same(actual.value, expected.value, f"{label}: loss")
    for name, gradient in expected.gradients.items():
        same(actual.gradients[name], gradient, f"{label}: gradient by {name}")
    if metrics:
        assert actual.metrics.keys() == expected.metrics.keys(), label
        for name, number in expected.metrics.items():
            assert abs(actual.metrics[name] - number) <= 1e-9 * max(1.0, abs(number)), (
                f"{label}: {name} is {actual.metrics[name]}, not {number}"
            )


def padding(objective: Objective, world: World, expected: Outcome) -> None:
    """Asserts that the values of masked decisions change no number."""
    wider = outcome(objective, world.padded(3))
    width = world.mask.shape[1]
    for name, gradient in wider.gradients.items():
        assert gradient.dim() < 2 or not gradient[:, width:].any(), f"padding: gradient by {name} on padding"
    trimmed = {
        name: gradient[:, :width] if gradient.dim() == 2 else gradient for name, gradient in wider.gradients.items()
    }
    same_outcome(replace(wider, gradients=trimmed), expected, "padding")


def member_order(objective: Objective, world: World, expected: Outcome) -> None:
    """Asserts that the order of members changes no number."""
    order = torch.tensor([5, 0, 3, 6, 2, 4, 1])
    shuffled = outcome(objective, world.members(order))
    same_outcome(
        replace(shuffled, gradients={name: gradient[order.argsort()] for name, gradient in shuffled.gradients.items()}),
        expected,
        "member order",
    )


def micro_batches(objective: Objective, world: World, expected: Outcome, size: int) -> None:
    """Asserts that micro-batches, the last filled with filler rows, sum to the whole; so do their metrics."""
    if objective.scope == "batch":
        return
    plan, scored = plan_of(objective, world), world.scored()
    members = world.mask.shape[0]
    rows = torch.arange(members + (-members) % size)
    rows[members:] = -1
    losses = [objective.loss(scored.select(batch_rows), plan.select(batch_rows)) for batch_rows in rows.split(size)]
    total = torch.stack([loss.total for loss in losses]).sum()
    summed = Outcome(total.detach(), gradients_of(total, scored), finish(add(loss.statistics for loss in losses)))
    same_outcome(summed, expected, f"micro-batches of {size}")


def slices(objective: Objective, world: World, expected: Outcome) -> None:
    """Asserts that cotangents are the gradient of the whole, and that slices sum to it with the scope `decision`."""
    plan, scored = plan_of(objective, world), world.scored(gradient=False)
    cotangents = objective.cotangents(scored, plan)
    by_fields = Outcome(cotangents.loss.total, cotangents.scored.tensors(), finish(cotangents.loss.statistics))
    same_outcome(by_fields, expected, "cotangents")
    everyone = torch.arange(world.mask.shape[0])
    if objective.scope != "decision" or objective.auxiliary:
        with suppress(ValueError):
            objective.loss(_slice(scored, slice(0, 2), auxiliary=True), plan.select(everyone, slice(0, 2)))
            raise AssertionError("slices: a slice was taken where whole members are needed")
    if objective.scope != "decision":
        return
    # Auxiliary sums belong to whole members, so slices are compared without them.
    bare = objective.model_copy(update={"auxiliary": {}})
    leaf, bare_plan = world.scored(), plan_of(bare, world)
    cuts = (slice(0, 2), slice(2, world.mask.shape[1]))
    total = torch.stack([bare.loss(_slice(leaf, cut), bare_plan.select(everyone, cut)).total for cut in cuts]).sum()
    same_outcome(Outcome(total.detach(), gradients_of(total, leaf), {}), outcome(bare, world), "slices", metrics=False)


def _slice(scored: Scored, cut: slice, auxiliary: bool = False) -> Scored:
    return Scored.from_tensors(
        {
            name: value if name.startswith("auxiliary.") else value[:, cut]
            for name, value in scored.tensors().items()
            if auxiliary or not name.startswith("auxiliary.")
        }
    )


_POOL = ThreadPoolExecutor(2)


@final
class SimulatedProcesses:
    """Threads that stand for processes: `reduce(rank)` waits for all of them and returns the sum."""

    def __init__(self, size: int) -> None:
        self._barrier = threading.Barrier(size, timeout=120)
        self._summands: list[Tensor | None] = [None] * size

    def reduce(self, rank: int) -> Reduce:
        """Returns the sum over processes as this rank calls it."""

        def total(tensor: Tensor) -> Tensor:
            self._summands[rank] = tensor
            self._barrier.wait()
            summed = torch.stack([summand for summand in self._summands if summand is not None]).sum(0)
            self._barrier.wait()
            return summed

        return total

    def run(self, work: Callable[[int], Any]) -> list[Any]:
        """Runs `work(rank)` on every rank at once and returns the results."""

        def guarded(rank: int) -> Any:
            try:
                return work(rank)
            except BaseException:
                self._barrier.abort()
                raise

        return [future.result() for future in [_POOL.submit(guarded, rank) for rank in range(len(self._summands))]]


def processes(objective: Objective, world: World, expected: Outcome) -> None:
    """Asserts that two processes sum to one, and end with its running statistics; one of them holds a flat group alone,
    which admission may drop.
    """
    rows = [torch.tensor([0, 1, 2, 5, 6]), torch.tensor([3, 4])]
    simulated = SimulatedProcesses(2)

    running = prepared(objective, world).state.running

    def work(rank: int) -> tuple[Tensor, Gradients]:
        rank_world = world.members(rows[rank])
        reduce = simulated.reduce(rank)
        scored = rank_world.scored()
        batch = prepared(objective, rank_world, reduce)
        loss = objective.loss(scored, objective.plan(batch, reduce=reduce))
        for name in type(running).model_fields:
            number, whole = getattr(batch.state.running, name), getattr(running, name)
            assert abs(number - whole) <= 1e-9 * max(1.0, abs(whole)), (
                f"processes: running.{name} is {number}, not {whole}"
            )
        return loss.total.detach(), gradients_of(loss.total, scored)

    outcomes = simulated.run(work)
    inverse_order = torch.cat(rows).argsort()
    gradients = {
        name: torch.cat([rank_outcome[1][name] for rank_outcome in outcomes])[inverse_order]
        for name in expected.gradients
    }
    same_outcome(Outcome(outcomes[0][0] + outcomes[1][0], gradients, {}), expected, "processes", metrics=False)


def finite(objective: Objective, world: World) -> None:
    """Asserts that value, gradients and metrics are finite."""
    at_world = outcome(objective, world)
    assert at_world.value.isfinite(), f"loss is {float(at_world.value)}"
    for name, gradient in at_world.gradients.items():
        assert gradient.isfinite().all(), f"gradient by {name} is not finite"
    for name, number in at_world.metrics.items():
        assert abs(number) < float("inf"), f"{name} is {number}"


def derivative(objective: Objective, world: World) -> None:
    """Asserts that the gradient is the central difference of the loss along a random direction, with what
    `stop_gradient` holds constant held constant.
    """
    plan, base = plan_of(objective, world), world.scored()
    with recording() as stopped:
        loss = objective.loss(base, plan).total
    gradients = gradients_of(loss, base)
    generator = torch.Generator().manual_seed(0)
    steps = {
        name: torch.randn(leaf.shape, dtype=leaf.dtype, generator=generator) for name, leaf in base.tensors().items()
    }
    slope = sum(float((gradients[name] * step)[gradients[name] != 0].sum()) for name, step in steps.items())

    def at(distance: float) -> float:
        moved = {name: leaf.detach() + distance * steps[name] for name, leaf in base.tensors().items()}
        with replaying(list(stopped)):
            return float(objective.loss(Scored.from_tensors(moved), plan).total)

    difference = (at(_WIDTH) - at(-_WIDTH)) / (2 * _WIDTH)
    assert abs(difference - slope) <= max(1e-6 * abs(slope), 1e-7), (
        f"the gradient along a direction is {slope:.9g}, and the loss changes by {difference:.9g}"
    )
