"""No reference: nothing is compared with an earlier policy and no memory is spent on one."""

from __future__ import annotations

from typing import Literal, final

from groupwise.config import Config


@final
class AbsentReference(Config):
    """There is no reference policy.

    Example:
        >>> AbsentReference().kind
        'absent'
    """

    kind: Literal["absent"] = "absent"
