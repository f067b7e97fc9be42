"""Copies of what a reward is given, so that one that changes it in place changes nothing of the others, of the rollouts
and of the data.
"""

from __future__ import annotations

import copy
from typing import Any

_UNCHANGING = frozenset({type(None), bool, int, float, complex, str, bytes})


def own_copy(value: Any, copied: dict[int, Any] | None = None) -> Any:
    """Copies lists, dicts, sets, arrays, tensors and pictures, at every depth. Anything else is given as it is: what
    never changes, and objects whose copies only their class could make.

    Args:
        copied: of what was copied before, by identity: what members share is copied once.

    Example:
        >>> row = {"answer": [4], "key": "a"}
        >>> first, second = own_copy([row, row])
        >>> first == row, first is row, first["answer"] is row["answer"], first is second
        (True, False, False, True)
    """
    copied = {} if copied is None else copied
    if id(value) in copied:
        return copied[id(value)]
    if isinstance(value, list | tuple | set) and _UNCHANGING.issuperset(map(type, value)):
        own: Any = copy.copy(value)
    elif isinstance(value, list):
        own = copied[id(value)] = copy.copy(value)
        own[:] = [own_copy(element, copied) for element in value]
    elif isinstance(value, dict):
        own = copied[id(value)] = copy.copy(value)
        for key, element in value.items():
            own[key] = own_copy(element, copied)
    elif type(value) is tuple:
        own = tuple(own_copy(element, copied) for element in value)
    elif hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
        array: Any = value
        own = array.clone() if hasattr(array, "clone") else array.copy()
    else:
        own = copy.copy(value) if isinstance(value, set | bytearray) else value
    copied[id(value)] = own
    return own
