"""The laws of the objective, stated once over any configuration of its slots.

Kinds are read from the slots' discriminated unions, so a new file in a union is covered the moment it is there.
The laws that an author of a slot needs too are `groupwise.testing.laws`.
"""

from __future__ import annotations

import itertools
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import torch
from torch import Tensor

from groupwise.config import Config, ConfigError, FromPath, validate
from groupwise.objective import Batch, Objective
from groupwise.objective.credit import Credit
from groupwise.objective.objective import refusals
from groupwise.testing.laws import (  # noqa: F401
    Gradients,
    Outcome,
    SimulatedProcesses,
    World,
    derivative,
    extremes,
    finite,
    gradients_of,
    member_order,
    micro_batches,
    outcome,
    padding,
    plan_of,
    prepared,
    processes,
    same,
    same_outcome,
    slices,
    smallest,
    world,
)

Table = dict[str, Any]


def invariances(objective: Objective, batch: World) -> None:
    """Asserts that padding, order, micro-batches, slices and processes change no number."""
    expected = outcome(objective, batch)
    padding(objective, batch, expected)
    member_order(objective, batch, expected)
    micro_batches(objective, batch, expected, 3)
    slices(objective, batch, expected)
    processes(objective, batch, expected)


def same_names(objective: Objective, batch: World, second: World) -> None:
    """Asserts that processes with different members have metrics of the same names, since they are reduced by name."""
    simulated, worlds = SimulatedProcesses(2), (batch, second)

    def names(rank: int) -> tuple[set[str], set[str]]:
        """Returns the names of the batch's metrics and of the loss's metrics in the process `rank`."""
        reduce = simulated.reduce(rank)
        batch = prepared(objective, worlds[rank], reduce)
        return set(batch.statistics), set(
            objective.loss(worlds[rank].scored(), objective.plan(batch, reduce=reduce)).statistics
        )

    first_names, second_names = simulated.run(names)
    assert first_names == second_names, f"metrics differ by what a process holds: {first_names ^ second_names}"


SLOTS = ("advantage", "admission", "smoothing", "ratio", "trust", "credit", "correction", "aggregation", "divergence")

BEFORE_PLAN = ("advantage", "admission")
"""Slots that only `prepare` reads."""

# Every term of the loss is on, so that every law holds for all of them simulated.
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
    "gaussian_kl": {"threshold": 0.5},
}
# Switches that reproduce a published code together with the law it breaks: ties by the order of the members depend on
# it, and make something of a flat group. Each has tests of its own by hand.
AS_WRITTEN = {("rank", "order")}


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
        objective = _accepted(base.model_copy(update=dict(zip(parts, chosen, strict=True))))
        if objective is not None:
            yield objective


def _accepted(objective: Objective) -> Objective | None:
    """As `build`, of an objective whose parts were validated one by one."""
    refused = "; ".join(refusals(objective))
    if "ratio.gradient = 'token'" in refused and getattr(objective.ratio, "gradient", None) == "sequence":
        objective = objective.model_copy(update={"ratio": objective.ratio.model_copy(update={"gradient": "token"})})
        refused = "; ".join(refusals(objective))
    return None if refused else objective


def covering() -> Iterator[tuple[str, Objective]]:
    """A fixed choice of full combinations that holds every pair of kinds of two slots of the loss which is accepted by
    itself. The slots before the plan, of which the loss sees a batch's tensors alone, take their kinds in turn.

    Each starts from the first pair that none of those before it holds; every further slot takes the kind that adds
    most of such pairs and is accepted beside the kinds taken so far.
    """
    base = validate(Objective, BASE, source="law")
    tables = {slot: slot_tables(slot) for slot in SLOTS}
    parts = {slot: [_part(slot, table) for table in of_slot] for slot, of_slot in tables.items()}
    slots = [slot for slot in SLOTS if slot not in BEFORE_PLAN]

    def held(chosen: dict[str, int]) -> set[tuple[tuple[str, int], ...]]:
        return set(itertools.combinations([(slot, chosen[slot]) for slot in slots if slot in chosen], 2))

    def objective(chosen: dict[str, int]) -> Objective | None:
        return _accepted(base.model_copy(update={slot: parts[slot][kind] for slot, kind in chosen.items()}))

    missing = dict.fromkeys(
        ((one, first), (other, second))
        for one, other in itertools.combinations(slots, 2)
        for first, second in itertools.product(range(len(parts[one])), range(len(parts[other])))
        if objective({one: first, other: second}) is not None
    )
    turns = itertools.count()
    while missing:
        chosen, turn = dict(next(iter(missing))), next(turns)
        for slot in sorted(slots, key=lambda slot: -len(parts[slot])):
            if slot in chosen:
                continue
            kinds = range(len(parts[slot]))
            gains = [(-sum(pair in missing for pair in held(chosen | {slot: kind})), kind) for kind in kinds]
            for _, kind in sorted(gains):
                if objective(chosen | {slot: kind}) is not None:
                    chosen[slot] = kind
                    break
        for slot in BEFORE_PLAN:
            kinds = [(turn + step) % len(parts[slot]) for step in range(len(parts[slot]))]
            chosen[slot] = next(kind for kind in kinds if objective(chosen | {slot: kind}) is not None)
        found = objective(chosen)
        assert found is not None
        for pair in held(chosen):
            missing.pop(pair, None)
        yield str({slot: tables[slot][kind] for slot, kind in chosen.items()}), found


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
        simulated, parts = SimulatedProcesses(2), dealt(given)
        batches = simulated.run(lambda rank: prepared(objective, parts[rank], simulated.reduce(rank)))
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
    simulated = SimulatedProcesses(2)

    def work(rank: int) -> tuple[Tensor, Gradients]:
        mine, own = batch.dealt[rank]
        found = objective.cotangents(
            mine.scored(gradient=False), objective.plan(own, reduce=simulated.reduce(rank), detail=False)
        )
        return found.loss.total, found.scored.tensors()

    return simulated.run(work)


def finite_at(objective: Objective, given: World, batch: Batch) -> None:
    """Law 4 of one prepared batch: value and gradients are finite."""
    objective = after_prepare(objective)
    found = objective.cotangents(given.scored(gradient=False), objective.plan(batch, detail=False))
    numbers = torch.cat(
        [found.loss.total.reshape(1), *(gradient.flatten() for gradient in found.scored.tensors().values())]
    )
    assert bool(numbers.isfinite().all()), "loss or gradient is not finite"
