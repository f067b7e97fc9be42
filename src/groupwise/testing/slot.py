"""The laws of a slot: what a piece of the objective has to keep, whatever stands in the other slots."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from groupwise.config import ConfigError, holding, object_path, validate
from groupwise.objective import Objective
from groupwise.objective.acted import OPTIONAL
from groupwise.objective.slot import (
    SCOPES,
    AdmissionSlot,
    AdvantageSlot,
    AggregationSlot,
    CorrectionSlot,
    CreditSlot,
    DivergenceSlot,
    RatioSlot,
    Slot,
    SmoothingSlot,
    TrustSlot,
)
from groupwise.records import Rollouts, Scored
from groupwise.schedule import Constant
from groupwise.testing import laws
from groupwise.testing.broken import BrokenLaws
from groupwise.testing.world import World, extremes, smallest, world

_PIECE = "piece"
"""The name under which the class of a piece is held while it is tried."""

GUIDE = "docs/guide/write_your_own_method.md"
PLACES: dict[str, type[Slot]] = {
    "advantage": AdvantageSlot,
    "admission": AdmissionSlot,
    "smoothing": SmoothingSlot,
    "ratio": RatioSlot,
    "trust": TrustSlot,
    "credit": CreditSlot,
    "correction": CorrectionSlot,
    "aggregation": AggregationSlot,
    "divergence": DivergenceSlot,
}
"""The slots, and the base that a piece of each extends."""


def check_slot(piece: Slot) -> None:
    """Tries a piece of the objective against every law that training relies on, in an objective with all terms on.

    What is read is declared; masked decisions, the order of members, micro-batches, slices and processes change
    nothing; a flat group has advantage 0 where members are compared inside their group; the gradient is the derivative
    of the value, but for what `stop_gradient` holds constant; at ratio one a trust region pushes no good decision down;
    far out and for an empty batch everything is finite; the configuration survives its own file.

    Args:
        piece: an object of a class that extends one of the bases in `groupwise.objective.slot`.

    Raises:
        BrokenLaws: the laws that do not hold, all at once.
        ValueError: what was passed is no slot, or an objective refuses it beside the plainest other pieces.

    Example:
        >>> from groupwise.objective.trust import Clip
        >>> check_slot(Clip(high=0.3))
        >>> check_slot(0.3)
        Traceback (most recent call last):
        ValueError: 0.3 is no slot; pass an object whose class extends one of groupwise.objective.slot
    """
    place = next((name for name, base in PLACES.items() if isinstance(piece, base)), None)
    if place is None:
        raise ValueError(f"{piece!r} is no slot; pass an object whose class extends one of groupwise.objective.slot")
    if piece.scope not in SCOPES:
        raise BrokenLaws([f"scope: it is {piece.scope!r}; write one of {', '.join(map(repr, SCOPES))}"], place, GUIDE)
    with holding({_PIECE: type(piece)}):
        objective = _objective(place, piece)
        broken = [
            f"{law}: {sentence}" for law, attempt in _LAWS.items() for sentence in _tried(attempt, piece, objective)
        ]
    if broken:
        raise BrokenLaws(broken, f"{type(piece).__name__} as {place}", GUIDE)


def _objective(place: str, piece: Slot) -> Objective:
    """Returns an objective with the piece in its place, as a configuration names it, and every other term of the loss
    on.
    """
    settings = piece.model_dump(mode="json")
    by_path = {"path": object_path(_PIECE), "settings": settings}
    table = settings if "kind" in settings else by_path | {"kind": "callable"}
    terms = {"entropy": 0.01, "auxiliary": {"supervised": 0.5}}
    try:
        return validate(Objective, terms | {place: {"callable": by_path} if place == "credit" else table})
    except ConfigError as error:
        raise ValueError(f"{type(piece).__name__} is refused beside the plainest other pieces: {error}") from error


def _tried(attempt: Callable[[Any, Objective], Iterator[str]], piece: Slot, objective: Objective) -> list[str]:
    try:
        return list(attempt(piece, objective))
    # The code of an author may fail in any way.
    except Exception as error:
        return [_why(error)]


def _why(error: Exception) -> str:
    first = str(error).splitlines()[0] if str(error) else "no message"
    return first if isinstance(error, AssertionError) else f"{type(error).__name__}: {first}"


def _declared(piece: Slot, objective: Objective) -> Iterator[str]:
    """Yields that the piece reads what it does not declare: without every other field it gives something else."""
    batch = world(11)
    expected = laws.outcome(objective, batch).value
    shift = 0.0 if objective.advantage.takes_negative else 0.5
    rollouts = batch.rollouts(shift=shift, without=OPTIONAL - objective.requires_rollouts - piece.uses)
    scored = {
        name: value
        for name, value in batch.scored().tensors().items()
        if name in objective.requires or name.startswith("auxiliary.")
    }
    try:
        plan = objective.plan(objective.prepare(rollouts, objective.init()))
        loss = objective.loss(Scored.from_tensors(scored), plan).total.detach()
    except Exception as error:
        yield f"it fails without the fields that it does not declare ({_why(error)}); name what it reads in `reads`"
        return
    if abs(float(loss - expected)) > 1e-12 * max(1.0, abs(float(expected))):
        yield "the loss changes without the fields that it does not declare; name what it reads in `reads`"


def _sums(piece: Slot, objective: Objective) -> Iterator[str]:
    """Yields every change of a batch that should change nothing and does."""
    batch = world(7)
    whole = laws.outcome(objective, batch)
    for name, (attempt, cure) in _INVARIANCES.items():
        try:
            attempt(objective, batch, whole)
        except Exception as error:
            yield f"{name} change the loss ({_why(error)}); {cure}"


def _singly(objective: Objective, batch: World, whole: laws.Outcome) -> None:
    laws.micro_batches(objective, batch, whole, 1)


_INVARIANCES: dict[str, tuple[Callable[..., None], str]] = {
    "masked decisions": (laws.padding, "read tensors through decisions.masked(...), and mask before an exponential"),
    "rows in another order": (laws.member_order, "read no member by its row"),
    "micro-batches": (_singly, "state the true scope, 'member' or 'batch'"),
    "slices of decisions": (laws.slices, "state the true scope"),
    "two processes": (laws.processes, "sum over processes by the methods of the record that the piece is given"),
}


def _flat(piece: Slot, objective: Objective) -> Iterator[str]:
    """Yields that a group of equal rewards teaches something, where members are compared inside it."""
    if not isinstance(piece, AdvantageSlot) or not piece.group_baseline:
        return
    rewards = {"correct": torch.tensor([0.5, 0.5, 0.5, 1.0, 0.0], dtype=torch.float64)}
    group, mask = torch.tensor([0, 0, 0, 1, 1]), torch.ones(5, 2, dtype=torch.bool)
    batch = objective.prepare(Rollouts(group, mask, torch.full((5, 2), -1.0), rewards), objective.init())
    if bool(batch.advantage[:3].ne(0).any()):
        yield (
            f"members of equal rewards have the advantages {batch.advantage[:3, 0].tolist()}; return"
            " rewards.compared(...), or write group_baseline: ClassVar[bool] = False"
        )


def _push(piece: Slot, objective: Objective) -> Iterator[str]:
    """Yields that a good decision is pushed down at ratio one, or a bad one up."""
    if not isinstance(piece, TrustSlot):
        return
    batch = world(5)
    batch = replace(batch, wide={**batch.wide, "old": batch.wide["log_prob"]})
    policy_term = objective.model_copy(update={"auxiliary": {}, "entropy": Constant(value=0.0)})
    plan, scored = laws.plan_of(policy_term, batch), batch.scored()
    gradients = laws.gradients_of(policy_term.loss(scored, plan).total, scored)["log_prob"]
    for sign, decision in ((1, "good decision is pushed down"), (-1, "bad decision is pushed up")):
        chosen = plan.acted.mask & (plan.advantage * sign > 0).expand_as(plan.acted.mask)
        if bool((gradients[chosen] * sign > 1e-12).any()):
            yield f"at ratio one a {decision}; `Surrogate.value` is larger where the policy is better"


def _derivative(piece: Slot, objective: Objective) -> Iterator[str]:
    """Yields that the gradient is not that of the value."""
    try:
        laws.derivative(objective, world(8))
    except AssertionError as error:
        yield f"{error}; for what is meant to be constant write groupwise.objective.stop_gradient.stop_gradient(...)"


def _finite(piece: Slot, objective: Objective) -> Iterator[str]:
    """Yields what is infinite or no number."""
    far = extremes()
    if isinstance(piece, CorrectionSlot):
        far = [replace(batch, wide={**batch.wide, "behaviour": 40 * batch.wide["behaviour"]}) for batch in far]
    for name, batches in (("far out", far), ("with one member or none", smallest())):
        for batch in batches:
            try:
                laws.finite(objective, batch)
            except Exception as error:
                yield f"{name}, {_why(error)}; clamp in logarithms, and divide by counts that are at least 1"
                break


def _file(piece: Slot, objective: Objective) -> Iterator[str]:
    """Yields that a configuration is not read as it was written."""
    if (again := type(piece).model_validate_json(piece.model_dump_json())) != piece:
        yield f"{piece!r} is read from its own JSON as {again!r}"


_LAWS: dict[str, Callable[[Any, Objective], Iterator[str]]] = {
    "reads": _declared,
    "sums": _sums,
    "flat": _flat,
    "push": _push,
    "gradient": _derivative,
    "finite": _finite,
    "file": _file,
}
