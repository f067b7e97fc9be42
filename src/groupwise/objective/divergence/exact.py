"""The exact divergence of a decision, computed by the domain."""

from __future__ import annotations

from typing import ClassVar, Literal, final

from jaxtyping import Float
from torch import Tensor

from groupwise.objective.decisions import Decisions
from groupwise.objective.penalty import Penalty


@final
class Exact(Penalty):
    """`D` as the domain gives it in `Scored.exact_divergence`: `|mu - mu_ref|^2 / (2 sigma^2)` for Gaussians, the
    categorical KL over the remaining picks, ...

    A domain that cannot supply it is refused before the first step.
    """

    needs_reference: ClassVar[bool] = True
    kind: Literal["exact"] = "exact"

    @property
    def reads(self) -> frozenset[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return frozenset({"exact_divergence"} if self.beta.may_be_positive() else ())

    def __call__(
        self, decisions: Decisions, reference_log_prob: Float[Tensor, "B T"], exact: Float[Tensor, "B T"] | None
    ) -> Float[Tensor, "B T"]:
        assert exact is not None
        return exact
