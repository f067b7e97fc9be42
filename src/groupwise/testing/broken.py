"""The error that lists the laws which an author's domain, reward or slot breaks."""

from __future__ import annotations

from collections.abc import Sequence


class BrokenLaws(AssertionError):
    """The error of a check: the laws that an author's piece breaks.

    Args:
        broken: one sentence a broken law, which begins with the method or the aspect to be mended.
        piece: kind of the piece, such as `a reward`.
        guide: path of the page that explains the laws.

    Example:
        >>> print(BrokenLaws(["repeat: it gave two values"], "a reward", "docs/guide/rewards.md"))
        1 law of a reward is broken (docs/guide/rewards.md):
        - repeat: it gave two values
    """

    def __init__(
        self, broken: Sequence[str], piece: str = "a domain", guide: str = "docs/guide/write_your_own_domain.md"
    ) -> None:
        self.broken = list(broken)
        super().__init__(
            "\n".join(
                [
                    f"{_counted(len(self.broken), piece)} broken ({guide}):",
                    *(f"- {sentence}" for sentence in self.broken),
                ]
            )
        )


def _counted(count: int, piece: str) -> str:
    return f"1 law of {piece} is" if count == 1 else f"{count} laws of {piece} are"
