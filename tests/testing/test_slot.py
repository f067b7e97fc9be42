"""`check_slot` on faults that authors make, each named; the shipped pieces pass it."""

from __future__ import annotations

from typing import ClassVar

import pytest
import torch
from pydantic import Field
from torch import Tensor

from groupwise.objective.batch import Grouped, Running
from groupwise.objective.decisions import Counts, Decisions, Surrogate
from groupwise.objective.divergence import Penalty
from groupwise.objective.slot import (
    AdmissionSlot,
    AdvantageSlot,
    AggregationSlot,
    CorrectionSlot,
    CreditSlot,
    RatioSlot,
    Slot,
    SmoothingSlot,
    TrustSlot,
)
from groupwise.testing import BrokenLaws, check_slot


def straight(log_ratio: Tensor, decisions: Decisions) -> Surrogate:
    return Surrogate(log_ratio.exp() * decisions.advantage, torch.ones_like(decisions.mask))


class Sound(TrustSlot):
    scope: ClassVar[str] = "decision"
    slope: float = Field(default=1.0, gt=0)

    def __call__(self, log_ratio: Tensor, decisions: Decisions) -> Surrogate:
        return straight(log_ratio, decisions)


class Undeclared(TrustSlot):
    """Reads what it does not name."""

    scope: ClassVar[str] = "decision"

    def __call__(self, log_ratio: Tensor, decisions: Decisions) -> Surrogate:
        weight = decisions.acted.behaviour_log_prob.exp().clamp(max=2)
        return Surrogate(weight * log_ratio.exp() * decisions.advantage, torch.ones_like(decisions.mask))


class WrongSign(TrustSlot):
    """Punishes what was good."""

    scope: ClassVar[str] = "decision"

    def __call__(self, log_ratio: Tensor, decisions: Decisions) -> Surrogate:
        return Surrogate(-log_ratio.exp() * decisions.advantage, torch.ones_like(decisions.mask))


class WholeBatch(TrustSlot):
    """Is centred over the batch, and says that it reads one decision."""

    scope: ClassVar[str] = "decision"

    def __call__(self, log_ratio: Tensor, decisions: Decisions) -> Surrogate:
        value = log_ratio.exp() * decisions.advantage
        return Surrogate(value * (1 + value.detach().std()), torch.ones_like(decisions.mask))


class Detached(TrustSlot):
    """Holds a part constant without saying so."""

    scope: ClassVar[str] = "decision"

    def __call__(self, log_ratio: Tensor, decisions: Decisions) -> Surrogate:
        ratio = log_ratio.exp()
        return Surrogate(ratio * ratio.detach() * decisions.advantage, torch.ones_like(decisions.mask))


class Overflows(TrustSlot):
    """Squares the exponential of an exponential."""

    scope: ClassVar[str] = "decision"

    def __call__(self, log_ratio: Tensor, decisions: Decisions) -> Surrogate:
        return Surrogate(log_ratio.exp().exp() * decisions.advantage, torch.ones_like(decisions.mask))


class BatchMean(RatioSlot):
    """Takes a level that the neighbours make."""

    scope: ClassVar[str] = "member"

    def __call__(self, log_ratio: Tensor, decisions: Decisions) -> Tensor:
        return log_ratio - log_ratio.mean()


class Unmasked(SmoothingSlot):
    """Averages with what was padded."""

    scope: ClassVar[str] = "member"

    def __call__(self, decisions: Decisions) -> Tensor:
        return 0.5 * (decisions.log_ratio + decisions.log_ratio.mean(1, keepdim=True))


class FirstMember(AdvantageSlot):
    """Compares with the first row of the batch."""

    def __call__(self, rewards: Grouped, running: Running) -> tuple[Tensor, Running]:
        return rewards.compared(rewards.value - rewards.value[:1].sum()), running


class NotFlat(AdvantageSlot):
    """Gives a group of equal rewards advantages."""

    def __call__(self, rewards: Grouped, running: Running) -> tuple[Tensor, Running]:
        return torch.where(rewards.present, rewards.value, 0.0), running


class OneProcess(AdvantageSlot):
    """Scales by the members of this process alone."""

    def __call__(self, rewards: Grouped, running: Running) -> tuple[Tensor, Running]:
        spread = torch.where(rewards.present, rewards.value, 0.0).abs().sum() + 1
        return rewards.compared((rewards.value - rewards.mean) / spread), running


class OwnPast(AdvantageSlot):
    """Compares with what this process alone has seen in earlier batches, of which the first has none."""

    group_baseline: ClassVar[bool] = False

    def __call__(self, rewards: Grouped, running: Running) -> tuple[Tensor, Running]:
        mean = float(rewards.value.sum() / rewards.present.sum().clamp(min=1))
        advantage = torch.where(rewards.present, rewards.value - running.mean, 0.0)
        return advantage, running.follow(mean, 1.0, 1.0, 0.5)


class Remembers(AdvantageSlot):
    """Compares with the earlier rewards of the prompt."""

    history_size: ClassVar[int] = 3
    reads: ClassVar[frozenset[str]] = frozenset({"reward_history"})
    group_baseline: ClassVar[bool] = False

    def __call__(self, rewards: Grouped, running: Running) -> tuple[Tensor, Running]:
        assert rewards.history is not None
        past = rewards.history.nan_to_num().sum(1, keepdim=True) / (~rewards.history.isnan()).sum(1, keepdim=True)
        return torch.where(rewards.present, rewards.value - past, 0.0), running


class Sums(TrustSlot):
    """Sums over processes, and says that it reads one decision."""

    scope: ClassVar[str] = "decision"

    def __call__(self, log_ratio: Tensor, decisions: Decisions) -> Surrogate:
        count = decisions.reduce(decisions.mask.sum())
        return Surrogate(log_ratio.exp() * decisions.advantage * (count > 0), torch.ones_like(decisions.mask))


class NotTheLast(AdmissionSlot):
    """Admits by the place of a group in the batch."""

    def __call__(self, rewards: Grouped) -> Tensor:
        return torch.arange(rewards.num_groups) < rewards.num_groups - 1


class Backwards(CreditSlot):
    """Falls over the row, padding included."""

    def __call__(self, decisions: Decisions) -> Tensor:
        width = decisions.mask.shape[1]
        return torch.linspace(1, 0, width, dtype=decisions.log_prob.dtype) * decisions.mask


class LocalMean(AggregationSlot):
    """Divides by the decisions of this process."""

    def __call__(self, counts: Counts) -> Tensor:
        return counts.mask.double() / counts.mask.sum().clamp(min=1)


class MedianOfAll(AdvantageSlot):
    """Compares a member with members of other groups."""

    def __call__(self, rewards: Grouped, running: Running) -> tuple[Tensor, Running]:
        return rewards.compared(rewards.value - rewards.value.median()), running


class MedianOfGroup(AdvantageSlot):
    """Compares a member with its group."""

    def __call__(self, rewards: Grouped, running: Running) -> tuple[Tensor, Running]:
        return rewards.compared(rewards.value - rewards.by_group(torch.median)), running


class NoLimit(CorrectionSlot):
    """Gives what is nowhere a number."""

    def __call__(self, log_weight: Tensor, mask: Tensor) -> Tensor:
        return (10 * log_weight).exp()


class LogOfAPadding(Penalty):
    """Is NaN where nothing was decided."""

    def __call__(self, decisions: Decisions, reference_log_prob: Tensor, exact: Tensor | None) -> Tensor:
        return (-decisions.log_prob).log().square()


FAULTS = [
    (Undeclared, "reads: it fails without the fields that it does not declare"),
    (WrongSign, "push: at ratio one a good decision is pushed down"),
    (WholeBatch, "sums: micro-batches change the loss"),
    (Detached, "gradient: the gradient along a direction is"),
    (Overflows, "finite: far out, "),
    (BatchMean, "sums: micro-batches change the loss"),
    (Unmasked, "sums: masked decisions change the loss"),
    (FirstMember, "sums: rows in another order change the loss"),
    (MedianOfAll, "groups: a member's advantage changes with another group's rewards; compare it with rewards.mean"),
    (NotFlat, "flat: members of equal rewards have the advantages [0.5, 0.5, 0.5]"),
    (OneProcess, "sums: two processes change the loss"),
    (OwnPast, "sums: two processes change the loss (processes: running.mean_sum is"),
    (Sums, "call: __call__ raised TypeError: it sums over processes, and its scope is not the whole update; write sc"),
    (NotTheLast, "sums: two processes change the loss"),
    (Backwards, "sums: masked decisions change the loss"),
    (LocalMean, "sums: two processes change the loss"),
    (NoLimit, "finite: far out, "),
    (LogOfAPadding, "finite: "),
]


# One for each law that is broken, where it costs least.
QUICK = (Undeclared, WrongSign, WholeBatch, Detached, Unmasked, NotFlat, NoLimit)


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [pytest.param(*case, marks=() if case[0] in QUICK else pytest.mark.slow, id=case[0].__name__) for case in FAULTS],
)
def test_a_planted_fault_is_named(fault: type[Slot], sentence: str) -> None:
    with pytest.raises(BrokenLaws) as caught:
        check_slot(fault())
    assert sentence in str(caught.value)
    assert "docs/guide/write_your_own_method.md" in str(caught.value)


class BareNumbers(TrustSlot):
    """Returns its values without what they say of the decisions."""

    scope: ClassVar[str] = "decision"

    def __call__(self, log_ratio: Tensor, decisions: Decisions) -> Surrogate:
        return log_ratio.exp() * decisions.advantage  # pyright: ignore[reportReturnType]


def test_a_piece_that_fails_whatever_it_is_given_is_named_once() -> None:
    with pytest.raises(BrokenLaws) as caught:
        check_slot(BareNumbers())
    (sentence,) = caught.value.broken
    assert sentence.startswith("call: it returned a Tensor; return groupwise.objective.slot.Surrogate")


class Listed(TrustSlot):
    """Names the fields that it reads in a list."""

    scope: ClassVar[str] = "decision"
    reads: ClassVar[frozenset[str]] = ["behaviour_log_prob"]  # pyright: ignore[reportAssignmentType]

    def __call__(self, log_ratio: Tensor, decisions: Decisions) -> Surrogate:
        return straight(log_ratio, decisions)


class Refusing(Sound):
    """Says no in what is no list of sentences, or fails to."""

    answer: str = ""

    def refuses(self, objective: object) -> object:  # pyright: ignore[reportIncompatibleMethodOverride]
        return {"text": "no", "none": None}[self.answer]


@pytest.mark.parametrize(
    ("piece", "told"),
    [
        (Listed(), "trust: its class says reads = ['behaviour_log_prob'], and it must be a frozenset of fields among"),
        (Refusing(answer="text"), "trust: refuses(objective) of its class returned 'no'; write yield, one sentence"),
        (Refusing(answer="none"), "trust: refuses(objective) of its class returned None; write yield, one sentence"),
        (Refusing(answer="neither"), "trust: refuses(objective) of its class raised KeyError: 'neither' (at "),
    ],
)
def test_a_member_of_another_type_is_refused_in_words(piece: Slot, told: str) -> None:
    with pytest.raises(ValueError, match="is refused beside the plainest other pieces") as caught:
        check_slot(piece)
    assert told in str(caught.value)


def test_a_sound_piece_of_ones_own_passes() -> None:
    check_slot(MedianOfGroup())
    check_slot(Sound())
    check_slot(Remembers())


def test_an_object_that_is_no_slot_is_refused() -> None:
    with pytest.raises(ValueError, match="is no slot; pass an object whose class extends one of"):
        check_slot(Counts)  # type: ignore[arg-type]
