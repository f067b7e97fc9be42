"""Laws that training relies on, for authors: one call tries a domain, a reward or a slot of one's own against all of
them and names those that it breaks.
"""

from __future__ import annotations

from groupwise.testing.broken import BrokenLaws
from groupwise.testing.domain import check_domain
from groupwise.testing.reward import check_reward
from groupwise.testing.slot import check_slot

__all__ = ["BrokenLaws", "check_domain", "check_reward", "check_slot"]
