"""Checks for authors: one call tests a domain, a reward, a slot or a pipeline's adapter against all laws that training
relies on, and lists the laws that are broken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from groupwise.testing.domain import check_domain
from groupwise.testing.reward import check_reward
from groupwise.testing.slot import BrokenLaws, check_slot

if TYPE_CHECKING:
    from groupwise.testing.pipeline import check_pipeline

__all__ = ["BrokenLaws", "check_domain", "check_pipeline", "check_reward", "check_slot"]


def __getattr__(name: str) -> Any:
    # The diffusion domain is loaded for those who check a pipeline alone.
    if name == "check_pipeline":
        from groupwise.testing.pipeline import check_pipeline

        return check_pipeline
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
