"""The deviation of a prediction from its target on noised copies of a sample: the input of `matching`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from jaxtyping import Float
from torch import Tensor


@final
@dataclass(frozen=True)
class Deviation:
    """Predictions minus their target, on `N` noised copies `a x0 + b e` of samples with `D` elements each.

    The target is the one of supervised training: `e - x0` for a flow, `e`, `a e - b x0` or `x0` otherwise.

    Args:
        live: `[N, D]`, of the policy being trained, with gradient.
        old: `[N, D]`, of the policy that sampled, without gradient.
        time: `[N]` in (0, 1], the noise level of a flow, the share of the training steps otherwise.
        clean_scale: `[N]`, the change of the predicted sample `x0` for a change of the prediction by one: `b` for a
            flow and `a e - b x0`, `b / a` for `e`, 1 for `x0`.

    Example:
        >>> import torch
        >>> zeros = torch.zeros(1, 2)
        >>> Deviation(zeros + 1.0, zeros, torch.tensor([0.5]), torch.tensor([0.5])).clean().tolist()
        [[0.5, 0.5]]
    """

    live: Float[Tensor, "N D"]
    old: Float[Tensor, "N D"]
    time: Float[Tensor, " N"]
    clean_scale: Float[Tensor, " N"]

    def clean(self, share: float = 1.0) -> Float[Tensor, "N D"]:
        """Returns the deviation of the predicted sample `x0`, up to its sign, of the prediction `share` of the way from
        the old policy's to the live one's. A share below 0 lies on the other side of the old policy.
        """
        return self.clean_scale[:, None] * (share * self.live + (1 - share) * self.old)
