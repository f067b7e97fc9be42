"""Ratio level: the smoothed ratio as one number a decision, or one a member broadcast over its decisions. Works on
log-ratios.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from groupwise.objective.ratio.arithmetic import Arithmetic
from groupwise.objective.ratio.callable import CallableRatio
from groupwise.objective.ratio.geometric import Geometric
from groupwise.objective.ratio.product import Product
from groupwise.objective.ratio.token import Token
from groupwise.objective.ratio.transition import Transition

__all__ = ["Arithmetic", "CallableRatio", "Geometric", "Product", "Ratio", "Token", "Transition"]

Ratio = Annotated[
    Token | Geometric | Arithmetic | Product | Transition | CallableRatio,
    Field(discriminator="kind"),
]
