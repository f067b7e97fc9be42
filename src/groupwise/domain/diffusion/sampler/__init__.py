"""Samplers of one transition, one a file; adding a file to this union is the whole registration."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from groupwise.domain.diffusion.sampler.auto import Auto
from groupwise.domain.diffusion.sampler.cps import CPS
from groupwise.domain.diffusion.sampler.dance_sde import DanceSDE
from groupwise.domain.diffusion.sampler.ddim import DDIM
from groupwise.domain.diffusion.sampler.flow_sde import FlowSDE
from groupwise.domain.diffusion.sampler.ode import ODE
from groupwise.domain.diffusion.sampler.step import Spread, Step

Sampler = Annotated[Auto | DDIM | FlowSDE | DanceSDE | CPS | ODE, Field(discriminator="kind")]
"""Any sampler, told apart by `kind`."""

__all__ = ["CPS", "DDIM", "ODE", "Auto", "DanceSDE", "FlowSDE", "Sampler", "Spread", "Step"]
