"""Trust region: `(rho, A) -> S`, a bound on one update, and the decisions that still carry gradient."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from groupwise.objective.trust.aspo import Aspo
from groupwise.objective.trust.asymmetric_clip import AsymmetricClip
from groupwise.objective.trust.callable import CallableTrust
from groupwise.objective.trust.cispo import Cispo
from groupwise.objective.trust.clip import Clip
from groupwise.objective.trust.clip_cov import ClipCov
from groupwise.objective.trust.dppo import Dppo
from groupwise.objective.trust.dual_clip import DualClip
from groupwise.objective.trust.gaussian import Gaussian
from groupwise.objective.trust.gaussian_kl import GaussianKl
from groupwise.objective.trust.gmpo import Gmpo
from groupwise.objective.trust.kl_cov import KlCov
from groupwise.objective.trust.sapo import Sapo
from groupwise.objective.trust.topr import Topr
from groupwise.objective.trust.unbounded import Unbounded
from groupwise.objective.trust.vespo import Vespo

__all__ = [
    "Aspo",
    "AsymmetricClip",
    "CallableTrust",
    "Cispo",
    "Clip",
    "ClipCov",
    "Dppo",
    "DualClip",
    "Gaussian",
    "GaussianKl",
    "Gmpo",
    "KlCov",
    "Sapo",
    "Topr",
    "Trust",
    "Unbounded",
    "Vespo",
]

Trust = Annotated[
    Unbounded
    | Clip
    | AsymmetricClip
    | DualClip
    | Gaussian
    | GaussianKl
    | Cispo
    | Sapo
    | Topr
    | Dppo
    | Gmpo
    | Vespo
    | Aspo
    | ClipCov
    | KlCov
    | CallableTrust,
    Field(discriminator="kind"),
]
