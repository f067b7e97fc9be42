"""Checks for authors: one call tests a domain, a reward, a slot or a pipeline's adapter against all laws that training
relies on, and lists the laws that are broken.
"""

from typing import Any

from groupwise.testing.domain import check_domain
from groupwise.testing.reward import check_reward
from groupwise.testing.slot import BrokenLaws, check_slot

__all__ = [
    "BrokenLaws",
    "check_domain",
    "check_pipeline",  # pyright: ignore[reportUnsupportedDunderAll]
    "check_reward",
    "check_slot",
]


def __getattr__(name: str) -> Any:
    # It comes with `groupwise_images`, which is loaded for those who check a pipeline alone.
    if name == "check_pipeline":
        from groupwise.plugins import require

        return require(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
