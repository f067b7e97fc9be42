"""The order in which people sort names with numbers."""

from __future__ import annotations

import re
from pathlib import Path


def natural(path: Path) -> tuple[tuple[int, int | str], ...]:
    """Returns a sort key by which `step-9` comes before `step-10`.

    Args:
        path: a path; its last name is compared.

    Returns:
        the texts and numbers of the name, in turn.

    Example:
        >>> [path.name for path in sorted([Path("step-10"), Path("step-9")], key=natural)]
        ['step-9', 'step-10']
    """
    return tuple((0, int(part)) if part.isdecimal() else (1, part) for part in re.split(r"(\d+)", path.name) if part)
