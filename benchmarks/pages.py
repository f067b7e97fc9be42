"""Sections and tables of a Markdown page, for the claims that stand in them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:e-?\d+)?")


@final
@dataclass(frozen=True)
class PageTable:
    """A table of a page.

    Args:
        heads: its first row.
        rows: the others, cell by cell.
    """

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def row(self, label: str) -> tuple[str, ...]:
        """Returns the first row one of whose first two cells is this label.

        Raises:
            ValueError: there is none.
        """
        for row in self.rows:
            if label in row[:2]:
                return row
        raise ValueError(f"no row is called {label!r}; rows are called {', '.join(row[0] for row in self.rows)}")

    def column(self, head: str) -> int:
        """Returns the place of the first column with this head.

        Raises:
            ValueError: there is none.
        """
        if head not in self.heads:
            raise ValueError(f"no column is called {head!r}; columns are called {', '.join(self.heads)}")
        return self.heads.index(head)


def anchor(heading: str) -> str:
    """Returns the anchor that a heading gets on its page.

    Example:
        >>> anchor("Diffusion: what a KL is for")
        'diffusion-what-a-kl-is-for'
    """
    return re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip())


def sections(page: str) -> dict[str, str]:
    """Returns the text below each heading by its anchor, with the sections that stand under it.

    Args:
        page: Markdown; lines inside fences are no headings.

    Example:
        >>> sections("# A\\none\\n## B\\ntwo\\n")
        {'a': 'one\\n## B\\ntwo', 'b': 'two'}
    """
    lines, fenced = page.splitlines(), False
    headings: list[tuple[int, int, str]] = []
    for place, line in enumerate(lines):
        fenced ^= line.startswith("```")
        if not fenced and (match := re.match(r"(#+) (.*)", line)):
            headings.append((place, len(match[1]), match[2]))
    texts = {}
    for index, (place, depth, heading) in enumerate(headings):
        end = next((later for later, level, _ in headings[index + 1 :] if level <= depth), len(lines))
        texts[anchor(heading)] = "\n".join(lines[place + 1 : end])
    return texts


def tables(text: str) -> list[PageTable]:
    """Returns the tables of a text in their order.

    Example:
        >>> tables("| a | b |\\n|---|---|\\n| x | 1 |\\n")
        [PageTable(heads=('a', 'b'), rows=(('x', '1'),))]
    """
    blocks: list[list[str]] = [[]]
    for line in text.splitlines():
        if line.startswith("|"):
            blocks[-1].append(line)
        elif blocks[-1]:
            blocks.append([])
    return [
        PageTable(_cells(lines[0]), tuple(_cells(line) for line in lines[2:])) for lines in blocks if len(lines) > 2
    ]


def numbers(text: str) -> list[str]:
    """Returns the numbers of a cell or a sentence as they are written.

    Example:
        >>> numbers("**+.099 [.058, .148]**"), numbers("9e-4, -.0025"), numbers("1,200 steps of pass@4")
        (['+.099', '.058', '.148'], ['9e-4', '-.0025'], ['1,200'])
    """
    return _NUMBER.findall(text.replace("@", "_"))


def value(number: str) -> float:
    """Returns what a written number is.

    Example:
        >>> value("+.099"), value("1,200")
        (0.099, 1200.0)
    """
    return float(number.replace(",", ""))


def last_digit(number: str) -> float:
    """Returns half of a unit of the last digit that is written, which rounding leaves open.

    Example:
        >>> last_digit(".44"), last_digit("9e-4"), last_digit("81")
        (0.005, 5e-05, 0.5)
    """
    mantissa, _, exponent = number.partition("e")
    return 0.5 * 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))


def same_text(part: str, text: str) -> bool:
    """Returns whether a sentence stands in a text, however its lines are broken."""
    return " ".join(part.split()) in " ".join(text.split())


def _cells(line: str) -> tuple[str, ...]:
    cells: Sequence[str] = re.split(r"(?<!\\)\|", line.strip().strip("|"))
    return tuple(cell.strip() for cell in cells)
