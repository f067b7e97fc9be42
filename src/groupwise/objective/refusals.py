"""Settings that contradict each other, or that would change nothing: refused when the configuration is read, each with
its reason and what to write.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from groupwise.config import ConfigError, PieceFromPath, why_failed
from groupwise.objective.acted import OPTIONAL
from groupwise.records import Scored

if TYPE_CHECKING:
    from groupwise.objective.objective import Objective
    from groupwise.objective.slot import Slot

PIECES = (
    *("advantage", "admission", "matching", "smoothing", "ratio", "trust"),
    *("correction", "aggregation", "divergence"),
)
"""The slots that hold one piece each; the credit is a chain."""


def refusals(objective: Objective) -> Iterator[str]:
    """Yields the reasons why an objective is refused, in sentences; nothing where it is sound.

    Args:
        objective: an objective whose slots are valid one by one.

    Example:
        >>> from groupwise import Objective
        >>> list(refusals(Objective.preset("grpo")))
        []
    """
    ratio, credit, trust = objective.ratio, objective.credit, objective.trust
    # A score function times a detached ratio keeps each decision's own gradient at every level.
    if credit.spreads and ratio.shared_gradient and not trust.score_function:
        names = ", ".join(link.kind for link in credit.links() if not link.masks)
        yield (
            f"credit ({names}) is ineffective under ratio.kind = {ratio.kind!r} with ratio.gradient = 'sequence': all"
            " decisions of a member share one gradient, so a credit of mean one cancels; write ratio.gradient ="
            " 'token', or leave the credit out"
        )
    yield from _trust_refusals(objective)
    yield from _unknown_fields(objective)
    for place, piece in _pieces(objective).items():
        yield from _sentences(place, piece, "refuses", objective)
    coefficients = {
        "entropy": objective.entropy,
        "policy_weight": objective.policy_weight,
        **{f"auxiliary.{name}": schedule for name, schedule in objective.auxiliary.items()},
    }
    for name, schedule in coefficients.items():
        if (lowest := schedule.extremes()[0]) < 0:
            yield f"{name} comes down to {lowest:g}, and below 0 the term would be unlearned; write numbers from 0 up"
    if objective.compat is not None:
        from groupwise.objective.compat import incompatible

        yield from incompatible(objective)


def _unknown_fields(objective: Objective) -> Iterator[str]:
    """Yields a sentence for every piece that reads a field which neither rollouts nor scores have."""
    fields = {*OPTIONAL, "reward_history", *(field.name for field in dataclasses.fields(Scored))} - {"auxiliary"}
    for place, piece in _pieces(objective).items():
        for name in ("reads", "uses"):
            read = getattr(piece, name)
            if not isinstance(read, frozenset) or (unknown := sorted(read - fields)):
                value = repr(unknown[0]) if isinstance(read, frozenset) else repr(read)
                yield (
                    f"{place}: its class says {name} = {value}, and it must be a frozenset of fields among"
                    f" {', '.join(sorted(fields))}"
                )


def _trust_refusals(objective: Objective) -> Iterator[str]:
    trust, ratio, smoothing = objective.trust, objective.ratio, objective.smoothing
    if trust.per_decision is not None and not smoothing.neutral:
        yield (
            f"trust.kind = {trust.kind!r} reads each decision's own {trust.per_decision}, which smoothing.kind ="
            f" {smoothing.kind!r} would replace; write smoothing.kind = 'identity'"
        )
    if trust.per_decision is not None and not ratio.plain:
        yield (
            f"trust.kind = {trust.kind!r} reads each decision's own {trust.per_decision}, and ratio.kind is"
            f" {ratio.kind!r}; write ratio.kind = 'token'"
        )
    if trust.whole_member and objective.credit.spreads:
        yield (
            f"credit is ineffective under trust.kind = {trust.kind!r}: all decisions of a member share one gradient, so"
            " a credit of mean one cancels; leave the credit out"
        )
    if trust.weighs_behaviour and not objective.correction.neutral:
        yield (
            f"trust.kind = {trust.kind!r} weighs by the sampler's own probabilities, so correction.kind ="
            f" {objective.correction.kind!r} would count the mismatch twice; write correction.kind = 'none'"
        )
    if ratio.ignores_smoothing and not smoothing.neutral:
        yield (
            f"smoothing.kind = {smoothing.kind!r} is ineffective under ratio.kind = {ratio.kind!r}, which does not read"
            " log-ratios; write smoothing.kind = 'identity'"
        )


def warnings(objective: Objective, updates_per_batch: int, chosen: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yields a sentence for each legal setting that is rarely intended. A run prints them once, at its start.

    Args:
        objective: a sound objective.
        updates_per_batch: optimiser steps on each batch of rollouts.
        chosen: dotted keys that the user set by hand.
    """
    if updates_per_batch == 1 and any(key.startswith("objective.trust.") for key in chosen):
        yield (
            f"trust.kind = {objective.trust.kind!r} was set, but every batch of rollouts gets one update, on-policy:"
            " the ratio is always 1 and no trust region can act; set train.updates_per_batch above 1 to see it"
        )
    for name in PIECES:
        yield from _sentences(name, getattr(objective, name), "advises", objective)


def _pieces(objective: Objective) -> dict[str, Slot]:
    """Returns every piece of an objective by its place, those of the credit's chain included."""
    pieces: dict[str, Slot] = {name: getattr(objective, name) for name in PIECES}
    return pieces | {f"credit.{link.kind}": link for link in objective.credit.links()}


def _sentences(place: str, piece: Slot, method: str, objective: Objective) -> list[str]:
    """Returns the sentences that a piece yields; where a user's class fails or returns something else, one that says
    so.
    """
    try:
        sentences: Any = getattr(piece, method)(objective)
        if isinstance(sentences, Iterable) and not isinstance(sentences, str):
            return [str(sentence) for sentence in sentences]
    except ConfigError:
        raise
    except Exception as error:
        if not isinstance(piece, PieceFromPath):
            raise
        return [f"{place}: {method}(objective) of its class raised {why_failed(error)}"]
    return [f"{place}: {method}(objective) of its class returned {sentences!r}; write yield, one sentence each"]
