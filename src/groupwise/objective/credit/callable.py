"""A class of your own that spreads an advantage over decisions, by import path."""

from __future__ import annotations

from typing import ClassVar, final

from groupwise.config import FromPath
from groupwise.objective.slot import CreditSlot


@final
class CallableCredit(FromPath, CreditSlot):
    """What the class at `path` does, configured by `settings`.

    The class extends `CreditSlot`, which lists what it may state.

    Example:
        >>> CallableCredit(path="groupwise.objective.credit.inverse_step:InverseStep").piece
        InverseStep(raw=False)
    """

    base: ClassVar[type[CreditSlot]] = CreditSlot
