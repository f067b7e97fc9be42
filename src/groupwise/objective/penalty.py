"""The base of divergence penalties: the coefficient, the policy compared with, and the place in loss or reward."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from groupwise.objective.slot import DivergenceSlot
from groupwise.schedule import AnySchedule, Constant

if TYPE_CHECKING:
    from groupwise.objective.objective import Objective


class Penalty(DivergenceSlot):
    """The base of the divergence estimators. `D` is `[B, T]`, in nats, and 0 where both log-probs are 0; the loss adds
    `beta sum w D`.
    """

    beta: AnySchedule = Constant(value=0.04)
    """The coefficient, a number or a schedule; adaptive kinds follow the measured divergence, once per update."""
    against: Literal["reference", "behaviour"] = "reference"
    """The reference policy, or the policy that acted (source 002's form: it pulls towards where the update started)."""
    place: Literal["loss", "reward"] = "loss"
    """In the loss, or subtracted from the reward as `beta sum_t (lp_old - lp_ref)` before advantages."""

    @property
    def reads(self) -> frozenset[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Fields beyond the log-probs of the two policies that every loss has."""
        return frozenset({"reference_log_prob"} if self.against == "reference" and self.beta.may_be_positive() else ())

    def refuses(self, objective: Objective) -> Iterator[str]:
        """Yields a sentence for each setting under which the penalty cannot act, and for a negative coefficient."""
        kind = objective.divergence.kind
        if self.place == "reward":
            if not self.fits_reward:
                yield (
                    f"divergence.place = 'reward' takes the k1 estimator, and divergence.kind is {kind!r}; write"
                    " divergence.kind = 'k1', or divergence.place = 'loss'"
                )
            if not objective.advantage.takes_negative:
                yield (
                    f"advantage.kind = {objective.advantage.kind!r} takes no negative reward, and divergence.place ="
                    " 'reward' makes rewards negative; write divergence.place = 'loss', or advantage.kind = 'centred'"
                )
            if self.against == "behaviour":
                yield (
                    "divergence.against = 'behaviour' is ineffective in the reward, where it is 0; write"
                    " divergence.against = 'reference'"
                )
        if self.needs_reference and self.against == "behaviour":
            yield (
                f"divergence.kind = {kind!r} is measured against the reference; write divergence.against ="
                " 'reference', or another divergence.kind"
            )
        if (lowest := self.beta.extremes()[0]) < 0:
            yield f"divergence.beta comes down to {lowest:g}, and a penalty is not negative; write numbers from 0 up"
