"""The laws of a slot, which hold for a piece of the objective in combination with any pieces in the other slots."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from groupwise.config import ConfigError, PieceError, holding, object_path, validate
from groupwise.objective import Objective
from groupwise.objective import slot as slots
from groupwise.objective.batch import OPTIONAL, Grouped, Running
from groupwise.records import Rollouts, Scored
from groupwise.schedule import Constant
from groupwise.testing import laws
from groupwise.testing.laws import World, extremes, smallest, world


class BrokenLaws(AssertionError):
    """The error of a check: the laws that an author's piece breaks.

    Args:
        broken: one sentence a broken law, which begins with the method or the aspect to be mended.
        piece: kind of the piece, such as `a reward`.
        guide: path of the page that explains the laws.

    Example:
        >>> print(BrokenLaws(["repeat: it gave two values"], "a reward", "docs/guide/rewards.md"))
        1 law of a reward is broken (docs/guide/rewards.md):
        - repeat: it gave two values
    """

    def __init__(
        self, broken: Sequence[str], piece: str = "a domain", guide: str = "docs/guide/write_your_own_domain.md"
    ) -> None:
        self.broken = list(broken)
        super().__init__(
            "\n".join(
                [
                    f"{_counted(len(self.broken), piece)} broken ({guide}):",
                    *(f"- {sentence}" for sentence in self.broken),
                ]
            )
        )


def _counted(count: int, piece: str) -> str:
    return f"1 law of {piece} is" if count == 1 else f"{count} laws of {piece} are"


_PIECE = "piece"
"""The name by which a configuration refers to the class of the piece under test."""

GUIDE = "docs/guide/write_your_own_method.md"
SLOT_BASES: dict[str, type[slots.Slot]] = {
    "advantage": slots.AdvantageSlot,
    "admission": slots.AdmissionSlot,
    "matching": slots.MatchingSlot,
    "smoothing": slots.SmoothingSlot,
    "ratio": slots.RatioSlot,
    "trust": slots.TrustSlot,
    "credit": slots.CreditSlot,
    "correction": slots.CorrectionSlot,
    "aggregation": slots.AggregationSlot,
    "divergence": slots.DivergenceSlot,
}
"""Name of a slot -> the base class that its pieces extend."""


def check_slot(piece: slots.Slot) -> None:
    """Tests a piece of the objective against every law that training relies on, in an objective with all terms on.

    The piece declares every field that it reads; masked decisions, the order of members, micro-batches, slices and
    processes change no number; a member's advantage depends on its own group, unless it sums over the whole
    batch; a flat group has advantage 0 where members are compared inside their group; the gradient
    is the derivative of the value, apart from values under `stop_gradient`; at ratio one a trust region lowers no good
    decision; extreme and empty batches give finite numbers; the configuration survives its own file.

    Args:
        piece: an object of a class that extends one of the bases in `groupwise.objective.slot`.

    Raises:
        BrokenLaws: at least one law does not hold; the message lists all of them.
        ValueError: the object is not a slot, or an objective refuses it together with the plainest other pieces.

    Example:
        >>> from groupwise.objective.trust import Clip
        >>> check_slot(Clip(high=0.3))
        >>> check_slot(0.3)
        Traceback (most recent call last):
        ValueError: 0.3 is no slot; pass an object whose class extends one of groupwise.objective.slot
    """
    slot_name = next((name for name, base in SLOT_BASES.items() if isinstance(piece, base)), None)
    if slot_name is None:
        raise ValueError(f"{piece!r} is no slot; pass an object whose class extends one of groupwise.objective.slot")
    if piece.scope not in slots.SCOPES:
        raise BrokenLaws(
            [f"scope: it is {piece.scope!r}; write one of {', '.join(map(repr, slots.SCOPES))}"], slot_name, GUIDE
        )
    with holding({_PIECE: type(piece)}):
        objective = _objective(slot_name, piece)
        # A piece that always fails would break every law, so it is reported once.
        broken = _failures(objective) or [
            f"{law}: {sentence}"
            for law, attempt in _LAWS.items()
            for sentence in _violations(attempt, piece, objective)
        ]
    if broken:
        raise BrokenLaws(broken, f"{type(piece).__name__} as {slot_name}", GUIDE)


def _objective(slot_name: str, piece: slots.Slot) -> Objective:
    """Returns an objective with the piece in its place, as a configuration names it, and every other term of the loss
    on.
    """
    settings = piece.model_dump(mode="json")
    by_path = {"path": object_path(_PIECE), "settings": settings}
    table = settings if "kind" in settings else by_path | {"kind": "callable"}
    # A matching may take the place of the trust region, and refuses one that would be ineffective.
    terms: dict[str, Any] = {"entropy": 0.01, "auxiliary": {"supervised": 0.5}}
    terms |= {"trust": {"kind": "unbounded"}} if slot_name == "matching" else {}
    try:
        return validate(Objective, terms | {slot_name: {"callable": by_path} if slot_name == "credit" else table})
    except ConfigError as error:
        raise ValueError(f"{type(piece).__name__} is refused beside the plainest other pieces: {error}") from error


def _failures(objective: Objective) -> list[str]:
    """Returns a sentence where the piece fails, or returns something else than it should, on a plain batch."""
    try:
        laws.outcome(objective, world(7))
    except PieceError as error:
        return [f"call: {_reason(error)}"]
    # Other errors on this batch are reported by the laws.
    except Exception:
        return []
    return []


def _violations(
    attempt: Callable[[Any, Objective], Iterator[str]], piece: slots.Slot, objective: Objective
) -> list[str]:
    """Returns the sentences of one law that the piece breaks. An exception from the law counts as such a sentence."""
    try:
        return list(attempt(piece, objective))
    # User code may raise anything.
    except Exception as error:
        return [_reason(error)]


def _reason(error: Exception) -> str:
    """Returns the first line of an error's message; any other error than a failed assertion has its type in front."""
    first_line = str(error).splitlines()[0] if str(error) else "no message"
    if isinstance(error, PieceError):
        return first_line.removeprefix(f"path = {str(object_path(_PIECE))!r}: ")
    return first_line if isinstance(error, AssertionError) else f"{type(error).__name__}: {first_line}"


def _declared(piece: slots.Slot, objective: Objective) -> Iterator[str]:
    """Yields a broken law of reading: without the undeclared fields the loss is the same."""
    batch = world(11)
    expected = laws.outcome(objective, batch).value
    shift = 0.0 if objective.advantage.takes_negative else 0.5
    rollouts = batch.rollouts(
        shift=shift,
        without=OPTIONAL - objective.requires_rollouts - piece.uses,
        history_size=objective.advantage.history_size,
    )
    scored = {
        name: value
        for name, value in batch.scored().tensors().items()
        if name in objective.requires or name.startswith("auxiliary.")
    }
    try:
        plan = objective.plan(objective.prepare(rollouts, objective.init()))
        loss = objective.loss(Scored.from_tensors(scored), plan).total.detach()
    except Exception as error:
        yield f"it fails without the fields that it does not declare ({_reason(error)}); name what it reads in `reads`"
        return
    if abs(float(loss - expected)) > 1e-12 * max(1.0, abs(float(expected))):
        yield "the loss changes without the fields that it does not declare; name what it reads in `reads`"


def _rearranged(piece: slots.Slot, objective: Objective) -> Iterator[str]:
    """Yields a sentence for every rearrangement of a batch (padding, order, micro-batches, slices, processes) that
    changes the loss or a gradient.
    """
    batch = world(7)
    expected = laws.outcome(objective, batch)
    for name, (attempt, cure) in _INVARIANCES.items():
        try:
            attempt(objective, batch, expected)
        except Exception as error:
            yield f"{name} change the loss ({_reason(error)}); {cure}"


def _micro_batches_of_one(objective: Objective, batch: World, expected: laws.Outcome) -> None:
    laws.micro_batches(objective, batch, expected, 1)


_INVARIANCES: dict[str, tuple[Callable[..., None], str]] = {
    "masked decisions": (laws.padding, "read tensors through decisions.masked(...), and mask before an exponential"),
    "rows in another order": (laws.member_order, "read no member by its row"),
    "micro-batches": (_micro_batches_of_one, "state the true scope, 'member' or 'batch'"),
    "slices of decisions": (laws.slices, "state the true scope"),
    "two processes": (laws.processes, "sum over processes by the methods of the record that the piece is given"),
}


def _flat(piece: slots.Slot, objective: Objective) -> Iterator[str]:
    """Yields a broken law of flat groups: equal rewards give advantage 0 where members are compared in their group."""
    if not isinstance(piece, slots.AdvantageSlot) or not piece.group_baseline:
        return
    rewards = {"correct": torch.tensor([0.5, 0.5, 0.5, 1.0, 0.0], dtype=torch.float64)}
    group, mask = torch.tensor([0, 0, 0, 1, 1]), torch.ones(5, 2, dtype=torch.bool)
    batch = objective.prepare(Rollouts(group, mask, torch.full((5, 2), -1.0), rewards), objective.init())
    if bool(batch.advantage[:3].ne(0).any()):
        yield (
            f"members of equal rewards have the advantages {batch.advantage[:3, 0].tolist()}; return"
            " rewards.compared(...), or write group_baseline: ClassVar[bool] = False"
        )


def _groups(piece: slots.Slot, objective: Objective) -> Iterator[str]:
    """Yields a broken law of groups: what is no statistic of the whole batch depends on the member's group alone."""
    if not isinstance(piece, slots.AdvantageSlot):
        return
    summed: list[Tensor] = []

    def reduce(values: Tensor) -> Tensor:
        summed.append(values)
        return values

    history = torch.full((6, piece.history_size), 0.5, dtype=torch.float64) if piece.history_size else None
    advantages = [
        piece(replace(Grouped.of([0.5, 1.0, 0.0], other), reduce=reduce, history=history), Running())[0][:3]
        for other in ([7.0, 8.0, 9.0], [0.1, 0.2, 0.3])
    ]
    if not summed and not torch.allclose(*advantages, rtol=1e-9, atol=1e-12):
        yield (
            "a member's advantage changes with another group's rewards; compare it with rewards.mean, rewards.std(...)"
            " or rewards.by_group(function), or with the whole batch by rewards.batch_moments(...)"
        )


def _push(piece: slots.Slot, objective: Objective) -> Iterator[str]:
    """Yields a broken law of direction: at ratio one no good decision is pushed down and no bad one up."""
    if not isinstance(piece, slots.TrustSlot):
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


def _derivative(piece: slots.Slot, objective: Objective) -> Iterator[str]:
    """Yields a broken law of the derivative: the gradient is that of the value."""
    try:
        laws.derivative(objective, world(8))
    except AssertionError as error:
        yield f"{error}; for what is meant to be constant write groupwise.objective.slot.stop_gradient(...)"


def _finite(piece: slots.Slot, objective: Objective) -> Iterator[str]:
    """Yields every loss, gradient or metric that is not finite."""
    extreme_batches = extremes()
    if isinstance(piece, slots.CorrectionSlot):
        extreme_batches = [
            replace(batch, wide={**batch.wide, "behaviour": 40 * batch.wide["behaviour"]}) for batch in extreme_batches
        ]
    for name, batches in (("far out", extreme_batches), ("with one member or none", smallest())):
        for batch in batches:
            try:
                laws.finite(objective, batch)
            except Exception as error:
                yield f"{name}, {_reason(error)}; clamp in logarithms, and divide by counts that are at least 1"
                break


def _file(piece: slots.Slot, objective: Objective) -> Iterator[str]:
    """Yields a broken law of files: a configuration is read as it was written."""
    if (reread := type(piece).model_validate_json(piece.model_dump_json())) != piece:
        yield f"{piece!r} is read from its own JSON as {reread!r}"


_LAWS: dict[str, Callable[[Any, Objective], Iterator[str]]] = {
    "reads": _declared,
    "groups": _groups,
    "sums": _rearranged,
    "flat": _flat,
    "push": _push,
    "gradient": _derivative,
    "finite": _finite,
    "file": _file,
}
