"""No reference: nothing is compared with an earlier policy and no memory is spent on one."""

from __future__ import annotations

from typing import ClassVar, Literal, final

from groupwise.reference.rule import ReferenceRule


@final
class AbsentReference(ReferenceRule):
    """There is no reference policy.

    Example:
        >>> AbsentReference().kind
        'absent'
    """

    present: ClassVar[bool] = False
    mixes: ClassVar[bool] = False
    kind: Literal["absent"] = "absent"
