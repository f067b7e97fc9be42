"""What every divergence penalty shares: its coefficient, what it is measured against, and where it acts."""

from __future__ import annotations

from typing import Literal

from groupwise.config import Config
from groupwise.schedule import AnySchedule, Constant


class Penalty(Config):
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
    def reads(self) -> frozenset[str]:
        """Fields beyond the log-probs of the two policies that every loss has."""
        return frozenset({"reference_log_prob"} if self.against == "reference" and self.beta.may_be_positive() else ())
