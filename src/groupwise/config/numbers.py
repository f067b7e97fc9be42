"""Types of the numbers in a configuration. Each has an upper bound, beyond which a number is a typing error or would
never end.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

Count = Annotated[int, Field(ge=0, le=10**9)]
"""A count that may be zero."""

Positive = Annotated[int, Field(ge=1, le=10**9)]
"""A count of at least one: steps, tokens, rows."""

PerStep = Annotated[int, Field(ge=1, le=10**6)]
"""A count of objects that are in memory together: members of a group, prompts of a step, images of a prompt."""

Length = Annotated[int, Field(ge=1, le=10**4)]
"""The length of a sequence that is made piece by piece, or the number of layers of a network."""

Width = Annotated[int, Field(ge=1, le=2**20)]
"""The width of a layer or an image."""

Parallel = Annotated[int, Field(ge=1, le=1024)]
"""The number of simultaneous threads or requests."""

Mebibytes = Annotated[int, Field(ge=64, le=2**30)]
"""The memory that a program may take: no Python runs in less, and no machine has more."""

Seed = Annotated[int, Field(ge=0, lt=2**63)]
"""The seed of random draws."""

Seconds = Annotated[float, Field(gt=0, le=1e8)]
"""A limit on time: three years at most, as the clocks of the system take no more than a few hundred."""
