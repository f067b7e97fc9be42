"""The group's mean as baseline, the whole batch's standard deviation as scale (Lite PPO, Flow-GRPO's code)."""

from __future__ import annotations

from typing import Literal, final

from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from groupwise.objective.bounded import bounded
from groupwise.objective.grouped import Grouped
from groupwise.objective.running import Running
from groupwise.objective.slot import AdvantageSlot


@final
class BatchStd(AdvantageSlot):
    """`A_i = (R_i - mean(R)) / max(std_batch(R), min_std)`: the group's mean, the standard deviation of all rewards of
    the batch.

    Global over processes, taken before sharding. With `of = "advantage"` the scale is the standard deviation of the
    centred rewards. A flat group gives exactly 0. Shift-invariant; scale-invariant above `min_std`.

    Example:
        The four rewards spread by `sqrt(1/6) = 0.408`; 1 is half a point above its group.

        >>> advantage, _ = BatchStd()(Grouped.of([1.0, 0.0], [0.5, 0.5]), Running())
        >>> [round(value, 3) for value in advantage[:, 0].tolist()]
        [1.225, -1.225, 0.0, 0.0]

    Source: Lite PPO, arXiv 2508.08221, section 4.
    """

    kind: Literal["batch_std"] = "batch_std"
    of: Literal["reward", "advantage"] = "reward"
    """The standard deviation that scales: the rewards', or the centred rewards'."""
    ddof: Literal[0, 1] = 1
    """1 for the unbiased standard deviation, 0 for the population's (Flow-GRPO's code)."""
    min_std: float = Field(default=1e-6, gt=0)
    """Floor under the standard deviation, in units of reward."""
    clip: float | None = Field(default=None, gt=0)
    """Largest absolute advantage, after scaling."""

    def __call__(self, rewards: Grouped, running: Running) -> tuple[Float[Tensor, "B K"], Running]:
        centred = rewards.value - rewards.mean
        _, _, std = rewards.batch_moments(
            rewards.value if self.of == "reward" else rewards.compared(centred), self.ddof
        )
        return bounded(rewards.compared(centred / std.clamp(min=self.min_std)), self.clip), running
