"""Checks for authors: one call tests a domain, a reward or a slot against all laws that training relies on, and lists
the laws that are broken.
"""

from __future__ import annotations

from groupwise.testing.broken import BrokenLaws
from groupwise.testing.domain import check_domain
from groupwise.testing.reward import check_reward
from groupwise.testing.slot import check_slot

__all__ = ["BrokenLaws", "check_domain", "check_reward", "check_slot"]
