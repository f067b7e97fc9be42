"""Types of the numbers in a configuration, each with the most that is honest: what lies beyond it is a slip of the pen
or a machine that would never end.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

Count = Annotated[int, Field(ge=0, le=10**9)]
"""How many, or none."""

Positive = Annotated[int, Field(ge=1, le=10**9)]
"""How many, at least one: steps, tokens, rows."""

PerStep = Annotated[int, Field(ge=1, le=10**6)]
"""How many are made at once and held in memory together: members of a group, prompts of a step, images of a prompt."""

Length = Annotated[int, Field(ge=1, le=10**4)]
"""How long something is that is made piece by piece, or how many layers a network has."""

Width = Annotated[int, Field(ge=1, le=2**20)]
"""How wide a layer or an image is."""

Parallel = Annotated[int, Field(ge=1, le=1024)]
"""How many threads or requests there are at a time."""

Seed = Annotated[int, Field(ge=0, lt=2**63)]
"""Of random draws."""

Seconds = Annotated[float, Field(gt=0, le=1e8)]
"""A limit on time: three years at most, as the clocks of the system take no more than a few hundred."""
