"""Laws that training relies on, for authors: one call tries a domain or a reward of one's own against all of them and
names those that it breaks.
"""

from __future__ import annotations

from groupwise.testing.broken import BrokenLaws
from groupwise.testing.domain import check_domain
from groupwise.testing.reward import check_reward

__all__ = ["BrokenLaws", "check_domain", "check_reward"]
