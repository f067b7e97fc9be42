"""How far the reward has risen at most, beside what it could have risen by."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

from groupwise.diagnosis.series import Series
from groupwise.diagnosis.stage import Stage

_ERRORS = 2.0
SHARE = 0.1
"""Share of the spread inside groups that is no rise worth the name."""
SHARE_OF_REACH = 0.15
"""Share of what the policy could have gained with its KL that is no rise worth the name: sound runs gain a quarter to
two thirds of it.
"""


@final
@dataclass(frozen=True)
class Rise:
    """The first and the newest rewards, and the spread inside groups.

    Args:
        start, last: as many steps at either end of the stage.
        spread: the standard deviation of rewards inside groups, of the first steps.
        reach: what the policy could have gained, in units of `spread`; `None` where no KL tells.
    """

    start: Series
    last: Series
    spread: Series
    reach: float | None

    @property
    def most(self) -> float:
        """The difference of the two means with two standard errors added."""
        return self.last.mean - self.start.mean + _ERRORS * math.hypot(self.start.error, self.last.error)

    @property
    def is_none(self) -> bool:
        """Whether it is seen that the reward has not risen by anything worth the name. Not having seen a rise is less.

        A small KL leaves little to gain, so that a reward which stands then shows nothing.
        """
        share = SHARE if self.reach is None else SHARE_OF_REACH * min(self.reach, 1.0)
        return self.most < share * self.spread.mean

    @property
    def evidence(self) -> list[Series]:
        """The three series."""
        return [self.start, self.last, self.spread]


def rise(stage: Stage, count: int) -> Rise | None:
    """Returns the rise of a stage's reward; `None` where there are too few steps, or groups have no spread.

    Args:
        stage: of the rewards.
        count: steps at either end.
    """
    ends, spread = stage.ends("reward", count), stage.first("reward_std")
    return None if ends is None or spread is None or spread.mean <= 0 else Rise(*ends, spread, _reach(stage))


def _reach(stage: Stage) -> float | None:
    """Returns `sqrt(2 KL)`, with the KL of a whole member in nats: a policy that lies so far from its reference earns
    at most this many standard deviations more than it.

    The bound is that of Donsker and Varadhan for rewards whose tails are no heavier than a normal distribution's. It
    says nothing where the reference moves, or where the KL is that to the policy that sampled.
    """
    kl, length = stage.last("kl"), stage.last("completions/mean_length")
    kind = stage.setting("reference.kind")
    if kl is None or length is None or kind not in (None, "frozen"):
        return None
    if stage.setting("objective.divergence.against") == "behaviour":
        return None
    return math.sqrt(2 * max(kl.mean, 0.0) * max(length.mean, 1.0))
