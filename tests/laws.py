"""The laws of the objective, stated once over any configuration of its slots.

Kinds are read from the slots' discriminated unions, so a new file in a union is covered the moment it is there.
`worlds` gives small batches with everything that has ever gone wrong in them: ragged masks with holes, an empty member,
a member of one decision, a flat group, a missing reward.
"""

from __future__ import annotations

import itertools
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
import torch
from torch import Tensor

from groupwise.config import Config, ConfigError, FromPath, validate
from groupwise.objective import Batch, Objective, Plan
from groupwise.objective.credit import Credit
from groupwise.objective.refusals import refusals
from groupwise.records import Rollouts, Scored
from groupwise.statistics import Reduce, add, alone, finish

Table = dict[str, Any]
Gradients = dict[str, Tensor]

SLOTS = ("advantage", "admission", "smoothing", "ratio", "trust", "credit", "correction", "aggregation", "divergence")

BEFORE_PLAN = ("advantage", "admission")
"""Slots that only `prepare` reads."""

# Every term of the loss is on, so that every law holds for all of them together.
BASE: Table = {"entropy": 0.01, "auxiliary": {"supervised": 0.5}}


def kinds_of(annotation: Any) -> list[type[Config]]:
    """The configuration classes inside a union or annotation."""
    if get_origin(annotation) is Annotated:
        return kinds_of(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return [kind for member in get_args(annotation) for kind in kinds_of(member)]
    return [annotation] if isinstance(annotation, type) and issubclass(annotation, Config) else []


def slot_kinds(slot: str) -> list[type[Config]]:
    """The shipped kinds of a slot, from its union; for credit, the links of the chain. `callable` is what it names."""
    fields = Credit.model_fields.values() if slot == "credit" else [Objective.model_fields[slot]]
    kinds = [kind for field in fields for kind in kinds_of(field.annotation)]
    return [kind for kind in kinds if not issubclass(kind, FromPath)]


def name_of(kind: type[Config]) -> str:
    """The tag of a kind."""
    return str(
        kind.kind if isinstance(getattr(kind, "kind", None), str) else get_args(kind.model_fields["kind"].annotation)[0]
    )


def _options(kind: type[Config]) -> Iterator[Table]:
    """Single changes of a kind's own switches: every other value of its literals and booleans."""
    for key, field in kind.model_fields.items():
        if key == "kind":
            continue
        values = (
            get_args(field.annotation)
            if get_origin(field.annotation) is Literal
            else (True, False)
            if field.annotation is bool
            else ()
        )
        for value in values:
            if value != field.default and (name_of(kind), value) not in AS_WRITTEN:
                yield {key: value}


# Kinds whose defaults would pick or hold nothing in a world this small.
BUSY: dict[str, Table] = {
    "clip_cov": {"share": 0.3, "lower": -1.0},
    "kl_cov": {"share": 0.3},
    "dppo": {"threshold": 0.02},
}
# Switches that reproduce a published code together with the law it breaks: ties by the order of the members depend on
# it, and make something of a flat group. Each has tests of its own by hand.
AS_WRITTEN = {("rank", "order")}
# Kinds that refuse negative rewards by design.
NON_NEGATIVE = {"mean_scaled"}


def slot_tables(slot: str, switches: bool = False) -> list[Table]:
    """One table a kind of the slot, with `switches` also one for every switch of every kind."""
    tables: list[Table] = [{}] if slot == "credit" else []
    for kind in slot_kinds(slot):
        changes: list[Table] = [{}, *(_options(kind) if switches else ())]
        busy = BUSY.get(name_of(kind), {})
        tables += [
            {name_of(kind): change} if slot == "credit" else {"kind": name_of(kind)} | busy | change
            for change in changes
        ]
    return tables


def build(**slots: Table) -> Objective | None:
    """The objective with these slots and all terms on, or `None` where the combination is refused.

    A sequence level whose only fault is that a credit would cancel under it is taken in its token form.
    """
    try:
        return validate(Objective, BASE | slots, source="law")
    except ConfigError as error:
        if "ratio.gradient = 'token'" in str(error) and slots["ratio"].get("gradient") != "token":
            return build(**(slots | {"ratio": slots["ratio"] | {"gradient": "token"}}))
        return None


def singles() -> Iterator[tuple[str, Objective]]:
    """Every kind and every switch of every slot by itself."""
    for slot in SLOTS:
        for table in slot_tables(slot, switches=True):
            objective = build(**{slot: table})
            if objective is not None:
                yield f"{slot}={table}", objective


def pairs(first: str, second: str) -> Iterator[tuple[str, Objective]]:
    """Every pair of kinds of two slots."""
    for one, other in itertools.product(slot_tables(first), slot_tables(second)):
        objective = build(**{first: one, second: other})
        if objective is not None:
            yield f"{first}={one} {second}={other}", objective


def product(**fixed: Table) -> Iterator[Objective]:
    """The full product of the kinds of the slots that act in plan and loss, some of them fixed. As `build`, from parts
    that are validated once.
    """
    base = validate(Objective, BASE, source="law")
    parts = {
        slot: [_part(slot, table) for table in ([fixed[slot]] if slot in fixed else slot_tables(slot))]
        for slot in SLOTS
        if slot not in BEFORE_PLAN
    }
    for chosen in itertools.product(*parts.values()):
        objective = base.model_copy(update=dict(zip(parts, chosen, strict=True)))
        refused = "; ".join(refusals(objective))
        if "ratio.gradient = 'token'" in refused and getattr(objective.ratio, "gradient", None) == "sequence":
            objective = objective.model_copy(update={"ratio": objective.ratio.model_copy(update={"gradient": "token"})})
            refused = "; ".join(refusals(objective))
        if not refused:
            yield objective


def _part(slot: str, table: Table) -> Any:
    """The validated part of a slot, in the company that every kind accepts."""
    company: Table = {"ratio": {"kind": "token"}, "smoothing": {"kind": "identity"}}
    return getattr(validate(Objective, company | {slot: table}, source="law"), slot)


def sample(count: int, seed: int) -> Iterator[tuple[str, Objective]]:
    """A seeded sample of full combinations, switches included."""
    generator = torch.Generator().manual_seed(seed)
    tables = {slot: slot_tables(slot, switches=True) for slot in SLOTS}
    while count > 0:
        chosen = {
            slot: options[int(torch.randint(len(options), (1,), generator=generator))]
            for slot, options in tables.items()
        }
        objective = build(**chosen)
        if objective is not None:
            count -= 1
            yield str(chosen), objective


@dataclass(frozen=True)
class World:
    """A batch and its scores as plain tensors, `[B, T]` in `wide`, `[B]` in `tall`; a NaN reward is missing."""

    mask: Tensor
    group: Tensor
    wide: Mapping[str, Tensor]
    tall: Mapping[str, Tensor]

    def members(self, rows: Tensor) -> World:
        return World(
            self.mask[rows],
            self.group[rows],
            {k: v[rows] for k, v in self.wide.items()},
            {k: v[rows] for k, v in self.tall.items()},
        )

    def padded(self, width: int) -> World:
        """More masked decisions, holding NaN and infinity."""

        def pad(value: Tensor) -> Tensor:
            rest = value.new_full((value.shape[0], width), float("nan"))
            rest[:, ::2] = float("inf")
            return torch.cat([value, rest], 1)

        mask = torch.cat([self.mask, self.mask.new_zeros(self.mask.shape[0], width)], 1)
        return replace(self, mask=mask, wide={name: pad(value) for name, value in self.wide.items()})

    def to(self, dtype: torch.dtype) -> World:
        return replace(
            self,
            wide={k: v.to(dtype) for k, v in self.wide.items()},
            tall={k: v.to(dtype) for k, v in self.tall.items()},
        )

    def rollouts(self, density: bool = False, shift: float = 0.0) -> Rollouts:
        tall = {"correct": self.tall["correct"] + shift, "format": self.tall["format"]}
        rewards: dict[str, Any] = {
            name: [None if value != value else value for value in given.tolist()] if given.isnan().any() else given
            for name, given in tall.items()
        }
        if "map" in self.wide:
            rewards["map"] = self.wide["map"]
        return Rollouts(
            group=self.group,
            mask=self.mask,
            old_log_prob=self.wide["old"],
            rewards=rewards,
            reward_weights={"format": 0.3},
            behaviour_log_prob=self.wide["behaviour"],
            reference_log_prob=self.wide["reference"],
            step_size=self.wide["step_size"],
            member=self.tall["member"].long(),
            density=density,
            auxiliary_count={"supervised": self.tall["count"]},
        )

    def with_map(self, values: Tensor) -> World:
        """The same with a reward of every decision beside the others, `[B, T]`."""
        return replace(self, wide={**self.wide, "map": values})

    def scored(self, gradient: bool = True) -> Scored:
        """The scores as leaves."""
        fields = ("log_prob", "entropy", "exact_divergence", "score_norm", "mean_shift")
        leaves = {name: self.wide[name].clone().requires_grad_(gradient) for name in fields}
        return Scored(**leaves, auxiliary={"supervised": self.tall["supervised"].clone().requires_grad_(gradient)})


def world(seed: int = 0, spread: float = 0.5, width: int = 5) -> World:
    """Three groups of 3, 2 and 2 members; the second is flat, member 4 is empty, member 5 has one decision, one reward
    is missing.

    Args:
        seed: of everything.
        spread: the largest log-ratio, in nats.
        width: decisions.
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
    # All of a decision's log-probs move down together until none is above zero.
    above = torch.stack([log_prob, old, behaviour, reference]).amax(0) + 0.01
    log_prob, old, behaviour, reference = (
        value - above.clamp(min=0) for value in (log_prob, old, behaviour, reference)
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
    form = torch.tensor([0.5, 0.25, float("nan"), 0.5, 0.5, 0.75, 0.0], dtype=torch.float64)
    tall = {
        "correct": correct,
        "format": form,
        "count": torch.tensor([0.0, 3.0, 0, 2, 0, 5, 0], dtype=torch.float64),
        "supervised": draw(members),
        "member": torch.tensor([11.0, 3, 7, 20, 2, 5, 8], dtype=torch.float64),
    }
    broken = torch.where(draw(members, width) < 0.5, float("nan"), float("inf")).double()
    masked = {name: torch.where(mask, value, broken) for name, value in wide.items()}
    return World(mask, torch.tensor([4, 4, 4, 9, 9, 2, 2]), masked, tall)


@dataclass(frozen=True)
class Outcome:
    """A loss, its gradients by scored field, and its metrics."""

    value: Tensor
    gradients: Gradients
    metrics: Mapping[str, float]


def gradients_of(total: Tensor, scored: Scored) -> Gradients:
    leaves = scored.tensors()
    given = (
        torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
        if total.requires_grad
        else [None] * len(leaves)
    )
    return {
        name: torch.zeros_like(leaf) if g is None else g for (name, leaf), g in zip(leaves.items(), given, strict=True)
    }


def outcome(objective: Objective, given: World) -> Outcome:
    """Prepare, plan and loss of the whole batch at once."""
    scored = given.scored()
    loss = objective.loss(scored, plan_of(objective, given))
    return Outcome(loss.total.detach(), gradients_of(loss.total, scored), finish(loss.statistics))


def prepared(objective: Objective, given: World, reduce: Reduce = alone) -> Batch:
    """The batch of these rollouts."""
    shift = 0.0 if objective.advantage.takes_negative else 0.5
    return objective.prepare(given.rollouts(shift=shift), objective.init(), reduce)


def plan_of(objective: Objective, given: World) -> Plan:
    """The plan of one step on the whole batch."""
    return objective.plan(prepared(objective, given))


def same(actual: Tensor, expected: Tensor, what: str, within: float = 1e-12) -> None:
    """Equal to fp64 rounding, relative to the largest entry."""
    scale = max(1.0, float(expected.abs().max()) if expected.numel() else 0.0)
    worst = float((actual - expected).abs().max()) if expected.numel() else 0.0
    assert worst <= within * scale, f"{what}: off by {worst}"


def same_outcome(actual: Outcome, expected: Outcome, what: str, metrics: bool = True) -> None:
    same(actual.value, expected.value, f"{what}: loss")
    for name, gradient in expected.gradients.items():
        same(actual.gradients[name], gradient, f"{what}: gradient by {name}")
    if metrics:
        assert actual.metrics.keys() == expected.metrics.keys(), what
        for name, number in expected.metrics.items():
            assert abs(actual.metrics[name] - number) <= 1e-9 * max(1.0, abs(number)), (
                f"{what}: {name} is {actual.metrics[name]}, not {number}"
            )


def padding(objective: Objective, given: World, whole: Outcome) -> None:
    """Law 2 (and 4): masked decisions, whatever they hold, change nothing."""
    wider = outcome(objective, given.padded(3))
    width = given.mask.shape[1]
    for name, gradient in wider.gradients.items():
        assert gradient.dim() < 2 or not gradient[:, width:].any(), f"padding: gradient by {name} on padding"
    trimmed = {
        name: gradient[:, :width] if gradient.dim() == 2 else gradient for name, gradient in wider.gradients.items()
    }
    same_outcome(replace(wider, gradients=trimmed), whole, "padding")


def member_order(objective: Objective, given: World, whole: Outcome) -> None:
    """Law 2: the order of members changes nothing."""
    order = torch.tensor([5, 0, 3, 6, 2, 4, 1])
    shuffled = outcome(objective, given.members(order))
    same_outcome(
        replace(shuffled, gradients={k: v[order.argsort()] for k, v in shuffled.gradients.items()}),
        whole,
        "member order",
    )


def micro_batches(objective: Objective, given: World, whole: Outcome, size: int) -> None:
    """Law 2: micro-batches, the last filled with filler rows, sum to the whole; so do their metrics."""
    if objective.scope == "batch":
        return
    plan, scored = plan_of(objective, given), given.scored()
    members = given.mask.shape[0]
    rows = torch.arange(members + (-members) % size)
    rows[members:] = -1
    parts = [objective.loss(scored.select(part), plan.select(part)) for part in rows.split(size)]
    total = torch.stack([part.total for part in parts]).sum()
    found = Outcome(total.detach(), gradients_of(total, scored), finish(add(part.statistics for part in parts)))
    same_outcome(found, whole, f"micro-batches of {size}")


def slices(objective: Objective, given: World, whole: Outcome) -> None:
    """Law 2: cotangents are the gradient of the whole, so slices sum to it; scope `decision` also takes slices in
    `loss`.
    """
    plan, scored = plan_of(objective, given), given.scored(gradient=False)
    cotangents = objective.cotangents(scored, plan)
    found = Outcome(cotangents.loss.total, cotangents.scored.tensors(), finish(cotangents.loss.statistics))
    same_outcome(found, whole, "cotangents")
    everyone = torch.arange(given.mask.shape[0])
    if objective.scope != "decision" or objective.auxiliary:
        with pytest.raises(ValueError, match="cotangents"):
            objective.loss(_slice(scored, slice(0, 2), auxiliary=True), plan.select(everyone, slice(0, 2)))
    if objective.scope != "decision":
        return
    # An auxiliary sum belongs to whole members: the other terms are what a slice can have.
    bare = objective.model_copy(update={"auxiliary": {}})
    leaf, bare_plan = given.scored(), plan_of(bare, given)
    cuts = (slice(0, 2), slice(2, given.mask.shape[1]))
    total = torch.stack([bare.loss(_slice(leaf, cut), bare_plan.select(everyone, cut)).total for cut in cuts]).sum()
    same_outcome(Outcome(total.detach(), gradients_of(total, leaf), {}), outcome(bare, given), "slices", metrics=False)


def _slice(scored: Scored, cut: slice, auxiliary: bool = False) -> Scored:
    return Scored.from_tensors(
        {
            name: value if name.startswith("auxiliary.") else value[:, cut]
            for name, value in scored.tensors().items()
            if auxiliary or not name.startswith("auxiliary.")
        }
    )


_POOL = ThreadPoolExecutor(2)


class Together:
    """Threads that play processes: `reduce(rank)` waits for all and returns the sum."""

    def __init__(self, size: int) -> None:
        self._barrier = threading.Barrier(size, timeout=120)
        self._parts: list[Tensor | None] = [None] * size

    def reduce(self, rank: int) -> Reduce:
        def total(part: Tensor) -> Tensor:
            self._parts[rank] = part
            self._barrier.wait()
            result = torch.stack([piece for piece in self._parts if piece is not None]).sum(0)
            self._barrier.wait()
            return result

        return total

    def run(self, work: Callable[[int], Any]) -> list[Any]:
        """`work(rank)` on every rank at once."""

        def guarded(rank: int) -> Any:
            try:
                return work(rank)
            except BaseException:
                self._barrier.abort()
                raise

        return [future.result() for future in [_POOL.submit(guarded, rank) for rank in range(len(self._parts))]]


def processes(objective: Objective, given: World, whole: Outcome) -> None:
    """Law 2: two processes, one with five members and one with a flat group that admission may drop, sum to one."""
    rows = [torch.tensor([0, 1, 2, 5, 6]), torch.tensor([3, 4])]
    together = Together(2)

    def work(rank: int) -> tuple[Tensor, Gradients]:
        mine = given.members(rows[rank])
        reduce = together.reduce(rank)
        scored = mine.scored()
        loss = objective.loss(scored, objective.plan(prepared(objective, mine, reduce), reduce=reduce))
        return loss.total.detach(), gradients_of(loss.total, scored)

    parts = together.run(work)
    back = torch.cat(rows).argsort()
    gradients = {name: torch.cat([part[1][name] for part in parts])[back] for name in whole.gradients}
    same_outcome(Outcome(parts[0][0] + parts[1][0], gradients, {}), whole, "processes", metrics=False)


def invariances(objective: Objective, given: World) -> None:
    """Law 2, all of it."""
    whole = outcome(objective, given)
    padding(objective, given, whole)
    member_order(objective, given, whole)
    micro_batches(objective, given, whole, 3)
    slices(objective, given, whole)
    processes(objective, given, whole)


class Unread:
    """Stands for a slot that nothing may read.

    Args:
        slot: what it stands for.
    """

    def __init__(self, slot: str) -> None:
        object.__setattr__(self, "_slot", slot)

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"{object.__getattribute__(self, '_slot')}.{name} was read after prepare")


def after_prepare(objective: Objective) -> Objective:
    """The objective without the slots that only `prepare` may read: they reach plan and loss as the tensors of a batch,
    and no other way.
    """
    return objective.model_copy(update={slot: Unread(slot) for slot in BEFORE_PLAN})


_DEALT = (torch.tensor([5, 0, 6, 2, 1]), torch.tensor([4, 3]))
"""Two processes' members of `world`, whole groups of it, in an order of their own; the second holds the flat group,
which admission may drop.
"""


def dealt(given: World) -> list[World]:
    """The parts of a `world` on two processes, with masked decisions added."""
    return [given.members(rows).padded(width) for rows, width in zip(_DEALT, (3, 1), strict=True)]


def undealt(parts: Sequence[Tensor], width: int | None = None) -> Tensor:
    """Two processes' values by member, as the whole has them; of decisions the first `width`."""
    return torch.cat([part if part.dim() == 1 or width is None else part[:, :width] for part in parts])[
        torch.cat(_DEALT).argsort()
    ]


@dataclass(frozen=True)
class Prepared:
    """One batch as plan and loss see it: whole on one process; and dealt to two, its members in another order, with
    masked decisions added.
    """

    given: World
    whole: Batch
    dealt: tuple[tuple[World, Batch], ...]

    @staticmethod
    def of(objective: Objective, given: World) -> Prepared:
        together, parts = Together(2), dealt(given)
        batches = together.run(lambda rank: prepared(objective, parts[rank], together.reduce(rank)))
        return Prepared(given, prepared(objective, given), tuple(zip(parts, batches, strict=True)))


def at_once(objective: Objective, batch: Prepared) -> None:
    """Law 2 in one comparison: the cotangents of the whole are the gradients of micro-batches on two processes,
    reordered, padded and filled.

    Args:
        objective: any; of scope `batch`, whose micro-batches go through cotangents as well.
        batch: prepared by the slots that act before the plan.
    """
    objective = after_prepare(objective)
    given, width = batch.given, batch.given.mask.shape[1]
    whole = objective.cotangents(given.scored(gradient=False), objective.plan(batch.whole, detail=False))
    parts = (_through_cotangents if objective.scope == "batch" else _in_micro_batches)(objective, batch)
    same(parts[0][0] + parts[1][0], whole.loss.total, "loss")
    for name, gradient in whole.scored.tensors().items():
        own = [part[1][name] for part in parts]
        assert not any(bool(each[:, width:].any()) for each in own if each.dim() == 2), f"gradient by {name} on padding"
        same(undealt(own, width), gradient, f"gradient by {name}")


def _in_micro_batches(objective: Objective, batch: Prepared) -> list[tuple[Tensor, Gradients]]:
    """Each process's loss and gradients, one process after the other: the sums of the counts are taken first and then
    handed to both.
    """
    own: list[list[Tensor]] = [[], []]
    for (_, part), counts in zip(batch.dealt, own, strict=True):
        objective.plan(part, reduce=lambda value, counts=counts: counts.append(value) or value, detail=False)
    found = []
    for (mine, part), counts in zip(batch.dealt, own, strict=True):
        sums = iter(
            zip(counts, torch.stack([torch.stack(each) for each in zip(*own, strict=True)]).sum(1), strict=True)
        )

        def reduce(value: Tensor, sums: Iterator[tuple[Tensor, Tensor]] = sums) -> Tensor:
            before, total = next(sums)
            assert torch.equal(value, before), "a count of the plan depends on another's sum"
            return total

        plan = objective.plan(part, reduce=reduce, detail=False)
        scored, members = mine.scored(), len(plan)
        rows = torch.arange(members + (-members) % 3)
        rows[members:] = -1
        total = torch.stack(
            [objective.loss(scored.select(each), plan.select(each)).total for each in rows.split(3)]
        ).sum()
        found.append((total.detach(), gradients_of(total, scored)))
    return found


def _through_cotangents(objective: Objective, batch: Prepared) -> list[tuple[Tensor, Gradients]]:
    """The same where the loss of a part reads the whole."""
    together = Together(2)

    def work(rank: int) -> tuple[Tensor, Gradients]:
        mine, own = batch.dealt[rank]
        found = objective.cotangents(
            mine.scored(gradient=False), objective.plan(own, reduce=together.reduce(rank), detail=False)
        )
        return found.loss.total, found.scored.tensors()

    return together.run(work)


def finite_at(objective: Objective, given: World, batch: Batch) -> None:
    """Law 4 of one prepared batch: value and gradients are finite."""
    objective = after_prepare(objective)
    found = objective.cotangents(given.scored(gradient=False), objective.plan(batch, detail=False))
    numbers = torch.cat(
        [found.loss.total.reshape(1), *(gradient.flatten() for gradient in found.scored.tensors().values())]
    )
    assert bool(numbers.isfinite().all()), "loss or gradient is not finite"


def finite(objective: Objective, given: World) -> None:
    """Law 4: value, gradients and metrics are finite."""
    found = outcome(objective, given)
    assert found.value.isfinite(), f"loss is {float(found.value)}"
    for name, gradient in found.gradients.items():
        assert gradient.isfinite().all(), f"gradient by {name} is not finite"
    for name, number in found.metrics.items():
        assert abs(number) < float("inf"), f"{name} is {number}"


def same_names(objective: Objective, given: World, other: World) -> None:
    """Law 2: metrics are reduced over processes by name, so what a process holds must not decide which there are."""
    together, worlds = Together(2), (given, other)

    def names(rank: int) -> tuple[set[str], set[str]]:
        reduce = together.reduce(rank)
        batch = prepared(objective, worlds[rank], reduce)
        return set(batch.statistics), set(
            objective.loss(worlds[rank].scored(), objective.plan(batch, reduce=reduce)).statistics
        )

    one, two = together.run(names)
    assert one == two


def extremes() -> list[World]:
    """Law 4's batches: log-ratios up to 20 nats in fp32 and up to 80 in fp64, and as far as a policy that has left its
    samples goes.
    """
    return [world(1, spread=20.0).to(torch.float32), world(2, spread=80.0), world(3, spread=700.0).to(torch.float32)]


def smallest() -> list[World]:
    """No member at all, as on a process that sampled nothing, and one member alone in its group."""
    return [world().members(torch.arange(count)) for count in (0, 1)]
