"""Trust region: `(rho, A) -> S`, how far one update may go, and which decisions still carry gradient."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from groupwise.objective.trust.asymmetric_clip import AsymmetricClip
from groupwise.objective.trust.cispo import Cispo
from groupwise.objective.trust.clip import Clip
from groupwise.objective.trust.dual_clip import DualClip
from groupwise.objective.trust.gaussian import Gaussian
from groupwise.objective.trust.unbounded import Unbounded

__all__ = ["AsymmetricClip", "Cispo", "Clip", "DualClip", "Gaussian", "Trust", "Unbounded"]

Trust = Annotated[Unbounded | Clip | AsymmetricClip | DualClip | Gaussian | Cispo, Field(discriminator="kind")]
