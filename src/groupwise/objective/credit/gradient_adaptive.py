"""Credit in proportion to a decision's effect on the policy (source 000, innovation 2.2)."""

from __future__ import annotations

from typing import ClassVar, Literal, final

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from groupwise.objective.decisions import Decisions
from groupwise.objective.slot import CreditSlot
from groupwise.objective.stop_gradient import stop_gradient
from groupwise.statistics import Statistic, Variance


@final
class GradientAdaptive(CreditSlot):
    """`c_t = n softmax_t(g_t / T)` over a member's valid decisions, detached; a member of at most one decision has
    credit 1.

    `signal = "surprisal"` is the source's proxy `g = |lp|`, for discrete decisions only: a density's logarithm depends
    on the unit it is measured in, and its size says nothing. `"score_norm"` is exact: the norm of the log-prob's
    gradient by the logits, `sqrt(1 - 2 p_y + sum p^2)`, or by the standardised mean, `|(a - mu) / sigma|`, which
    concentrates near the square root of the dimension, so `temperature` goes with the log-prob's unit. `"auto"` is the
    first where decisions are discrete and the second where they are densities; `Objective.on(density=True)` makes that
    choice, which runs do by themselves.

    Example:
        Log-probs `-ln 1`, `-ln 2`, `-ln 3`: a softmax of their sizes is 1 : 2 : 3.

        >>> import torch
        >>> log_prob = -torch.tensor([[1.0, 2.0, 3.0]]).log()
        >>> decisions = Decisions.of(torch.ones(1, 3, dtype=torch.bool), log_prob, log_prob, torch.ones(1, 3))
        >>> [round(value, 3) for value in GradientAdaptive()(decisions)[0].tolist()]
        [0.5, 1.0, 1.5]

    Source: innovation 2.2 of source 000.
    """

    kind: ClassVar[str] = "gradient_adaptive"
    signal: Literal["auto", "surprisal", "score_norm"] = "auto"
    temperature: float = Field(default=1.0, gt=0)
    """`T`, in the unit of the signal; infinity is uniform."""

    @property
    def reads(self) -> frozenset[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Fields of `Scored` beyond the log-prob."""
        return frozenset({"score_norm"} if self.signal == "score_norm" else ())

    @property
    def discrete_only(self) -> str | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Advice for densities, where the signal cannot serve them; `None` where it can."""
        if self.signal == "score_norm":
            return None
        return "write credit.gradient_adaptive.signal = 'score_norm'" + (
            ", or take objective.on(density=True)" if self.signal == "auto" else ""
        )

    def on(self, *, density: bool) -> GradientAdaptive:
        """Returns the same with `"auto"` decided.

        Args:
            density: whether decisions are densities.

        Example:
            >>> GradientAdaptive().on(density=True).signal, GradientAdaptive(signal="surprisal").on(density=True).signal
            ('score_norm', 'surprisal')
        """
        return self.model_copy(update={"signal": "score_norm"}) if density and self.signal == "auto" else self

    def _signal(self, decisions: Decisions) -> Float[Tensor, "B T"]:
        if self.signal != "score_norm":
            return stop_gradient(decisions.log_prob).abs()
        assert decisions.score_norm is not None
        return stop_gradient(decisions.score_norm)

    def __call__(self, decisions: Decisions) -> Float[Tensor, "B T"]:
        signal = self._signal(decisions) / self.temperature
        share = decisions.masked(signal, fill=torch.finfo(signal.dtype).min).softmax(1)
        # A member without a valid decision has a share everywhere.
        return share * (decisions.count * decisions.occupied)

    def measure(self, weight: Float[Tensor, "B T"], decisions: Decisions) -> dict[str, Statistic]:
        """Returns `gradient_adaptive/avg_gradient_norm` (of the signal) and `gradient_adaptive/weight_variance`."""
        log_prob = decisions.log_prob.detach()
        signal = decisions.score_norm if self.signal == "score_norm" else None
        return {
            "gradient_adaptive/avg_gradient_norm": decisions.average(log_prob.abs if signal is None else signal),
            "gradient_adaptive/weight_variance": Variance.about_one(weight, decisions.mask),
        }
