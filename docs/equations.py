r"""Draws the equations between `\[` and `\]` as MathML, which browsers show without a script.

MathML breaks no line by itself. An equation is therefore written as several pieces, cut where a reader would cut it,
and the pieces wrap on a narrow screen.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from latex2mathml.converter import convert

_TOKEN = re.compile(r"\\left\s*.|\\right\s*.|\\begin\{\w+\}|\\end\{\w+\}|\\[A-Za-z]+|\\.|.", re.DOTALL)
_OPENING, _CLOSING = ("\\left", "\\begin", "{", "(", "["), ("\\right", "\\end", "}", ")", "]")
_RELATIONS = ("=", "+", "-", "\\le", "\\ge", "\\in", "\\propto")
_LONGEST = 24
"""Characters of LaTeX from which on a piece is cut inside its brackets too."""


def draw_equations(markdown: str) -> str:
    r"""Replaces every `\[ ... \]` of a page by its drawing."""
    return re.sub(r"^\\\[\n(.+?)\n\\\]$", lambda match: _drawn(match[1]), markdown, flags=re.MULTILINE | re.DOTALL)


def _drawn(latex: str) -> str:
    from groupwise.cli.methods import equation_lines

    lines = []
    for line in equation_lines(" ".join(latex.split())):
        pieces = "".join(_mathml(piece) for piece in pieces_of(line))
        lines.append(f'<div class="equation-line">{pieces}</div>')
    return f'<div class="equation">{"".join(lines)}</div>'


def _mathml(latex: str) -> str:
    drawn = convert(latex, display="inline").replace("<math ", '<math displaystyle="true" ', 1)
    # The name of a function keeps its distance, as LaTeX has it: mu log pi and not mulogpi.
    return re.sub(r"<mi>(log|ln)</mi>", r'<mo lspace="0.17em" rspace="0.17em">\1</mo>', drawn)


def pieces_of(latex: str) -> list[str]:
    r"""Cuts an equation before its outer relations and signs; a long piece inside its large brackets too.

    Example:
        >>> pieces_of(r"a=\frac{b+c}{d}-f(x,y)")
        ['a', '=\\frac{b+c}{d}', '-f(x,y)']
        >>> pieces_of(r"\sum_i\min\left(r_{i,t}A_i,\ \mathrm{clip}(r_{i,t},1-e,1+e)A_i\right)")
        ['\\sum_i\\min(r_{i,t}A_i,', '\\mathrm{clip}(r_{i,t},1-e,1+e)A_i)']
    """
    pieces = []
    for piece in _cut(latex, lambda open_brackets, token: not open_brackets and token in _RELATIONS):
        inner = [piece] if len(piece) < _LONGEST else _cut(piece, _inside_large_brackets)
        pieces += [_without_halves(part) for part in inner]
    return pieces


def _inside_large_brackets(open_brackets: list[str], token: str) -> bool:
    large = bool(open_brackets) and all(bracket.startswith("\\left") for bracket in open_brackets)
    outermost = len(open_brackets) == 1 and not open_brackets[0].endswith("|")
    return large and (token == "," or (token in ("+", "-") and outermost))


def _cut(latex: str, is_place: Callable[[list[str], str], bool]) -> list[str]:
    """Cuts before a sign or relation and after a comma, wherever the open brackets and the token say so."""
    open_brackets: list[str] = []
    pieces = [""]
    for token in _TOKEN.findall(latex):
        if token.startswith(_CLOSING):
            open_brackets.pop()
        is_cut = is_place(open_brackets, token)
        # A sign behind an opening bracket, a relation or a comma belongs to the number that follows it.
        before = pieces[-1].strip()
        if is_cut and token != "," and before and not before.endswith((*_RELATIONS, ",", "(", "[", "\\ ")):
            pieces.append("")
        pieces[-1] += token
        if is_cut and token == ",":
            pieces.append("")
        if token.startswith(_OPENING):
            open_brackets.append(token)
    return [piece for piece in (re.sub(r"^(?:\\ |\\,|\s)+", "", piece) for piece in pieces) if piece]


def _without_halves(latex: str) -> str:
    """Makes a plain bracket of every large one whose other half stands in another piece."""
    tokens = _TOKEN.findall(latex)
    lonely: list[int] = []
    for place, token in enumerate(tokens):
        if token.startswith("\\left"):
            lonely.append(place)
        elif token.startswith("\\right"):
            if lonely and tokens[lonely[-1]].startswith("\\left"):
                lonely.pop()
            else:
                lonely.append(place)
    return "".join(token[-1] if place in lonely else token for place, token in enumerate(tokens))
