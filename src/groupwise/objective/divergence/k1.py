"""The plain difference of log-probs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Literal, final

from jaxtyping import Float
from torch import Tensor

from groupwise.objective.decisions import Decisions
from groupwise.objective.penalty import Penalty

if TYPE_CHECKING:
    from groupwise.objective.objective import Objective


@final
class K1(Penalty):
    """`D = lp - lp_ref`, and `D = lp_old - lp` with `against = "behaviour"`.

    Unbiased in value for KL(pi || ref), but in the loss its mean gradient on-policy is exactly 0 although the KL's is
    not: it warns there. Its place is the reward (`place = "reward"`). Against the policy that acted, whose samples
    these are, it is unbiased for KL(old || pi): source 002's form.

    Example:
        A decision the reference finds half as likely.

        >>> import torch
        >>> log_prob = torch.full((1, 1), -1.0)
        >>> decisions = Decisions.of(torch.ones(1, 1, dtype=torch.bool), log_prob, log_prob, torch.ones(1, 1))
        >>> round(float(K1()(decisions, log_prob - 0.6931, None)), 4)
        0.6931

    Source: Schulman 2020, "Approximating KL divergence".
    """

    fits_reward: ClassVar[bool] = True
    kind: Literal["k1"] = "k1"

    def advises(self, objective: Objective) -> Iterator[str]:
        """Yields that the estimator has no gradient on average in the loss."""
        if self.place == "loss":
            yield (
                f"divergence.kind = 'k1' in the loss against the {self.against} policy: its mean gradient on-policy is"
                " exactly 0, so it only adds variance; write divergence.kind = 'k3_unbiased', or divergence.place ="
                " 'reward'"
            )

    def __call__(
        self, decisions: Decisions, reference_log_prob: Float[Tensor, "B T"], exact: Float[Tensor, "B T"] | None
    ) -> Float[Tensor, "B T"]:
        gap = decisions.log_prob - reference_log_prob
        return -gap if self.against == "behaviour" else gap
