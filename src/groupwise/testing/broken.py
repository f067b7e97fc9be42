"""The error that names the laws which something of an author's breaks."""

from __future__ import annotations

from collections.abc import Sequence


class BrokenLaws(AssertionError):
    """The laws that a piece of an author's breaks.

    Args:
        broken: one sentence a law, which begins with the part that is to be mended.
        piece: what was tried.
        guide: the page that explains the laws.

    Example:
        >>> print(BrokenLaws(["repeat: it gave two values"], "a reward", "docs/guide/rewards.md"))
        1 of the laws of a reward are broken (docs/guide/rewards.md):
        - repeat: it gave two values
    """

    def __init__(
        self, broken: Sequence[str], piece: str = "a domain", guide: str = "docs/guide/write_your_own_domain.md"
    ) -> None:
        self.broken = list(broken)
        super().__init__(
            "\n".join(
                [
                    f"{len(self.broken)} of the laws of {piece} are broken ({guide}):",
                    *(f"- {sentence}" for sentence in self.broken),
                ]
            )
        )
