"""Laws that training relies on, for authors: one call tries a domain of one's own against all of them and names those
that it breaks.
"""

from __future__ import annotations

from groupwise.testing.domain import BrokenLaws, check_domain

__all__ = ["BrokenLaws", "check_domain"]
