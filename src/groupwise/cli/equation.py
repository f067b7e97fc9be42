"""The LaTeX of a method's equation as a line of plain text: what a terminal can show."""

from __future__ import annotations

import re

_SYMBOLS = {
    "sum": "Σ", "prod": "Π", "pi": "π", "varepsilon": "ε", "epsilon": "ϵ", "beta": "β", "gamma": "γ", "lambda": "λ", "mu": "μ", "sigma": "σ", "rho": "ρ",  # noqa: E501
    "tau": "τ", "varphi": "φ", "delta": "δ", "Delta": "Δ", "propto": "∝", "in": "∈", "notin": "∉", "le": "≤", "ge": "≥", "ne": "≠", "leftarrow": "←",  # noqa: E501
    "cdot": "·", "{": "{", "}": "}", "|": "|", " ": " ", ",": " ", "quad": " ", "left": "", "right": "", "textstyle": "",  # noqa: E501
}  # fmt: skip
_NAMES = ("clip", "mean", "std", "sg", "whiten", "softmax", "cov")
_RELATIONS = "=<>≤≥≠∝∈∉←"


def equation_lines(latex: str) -> list[str]:
    """Splits the equation from its definitions, which stand between quads.

    Example:
        >>> equation_lines(r"a+b,\\quad b=c")
        ['a+b', 'b=c']
    """
    return [part.strip() for part in re.split(r",\\quad", latex)]


def plain(latex: str) -> str:
    """Writes the formula in one line.

    Example:
        >>> plain(r"\\frac{1}{B}\\sum_i\\min\\left(r_{i,t}A_i,\\ 1+\\varepsilon\\right)")
        '1/B Σ_i min(r_it A_i, 1+ε)'
        >>> plain(r"w=\\begin{cases}1&A>0\\\\ r&A<0\\end{cases}")
        'w = [1 if A > 0; r if A < 0]'
    """
    rows = re.compile(r"\\begin\{cases\}(.*?)\\end\{cases\}", re.DOTALL)
    latex = rows.sub(
        lambda match: "[" + ";".join(row.replace("&", r"\text{if}") for row in match[1].split(r"\\")) + "]", latex
    )
    text = _join(_Reader(latex).atoms())
    return re.sub(r" +([,;)\]])", r"\1", re.sub(r"([(\[]) +", r"\1", re.sub(r" +", " ", text))).strip()


def _join(atoms: list[str]) -> str:
    text = ""
    for atom in atoms:
        if atom in tuple(_RELATIONS):
            text = f"{text} {atom} "
        elif text and atom and _is_word(atom[0]) and (_is_word(text[-1]) or text[-1] in ")]}"):
            text = f"{text} {atom}"
        else:
            text += ", " if atom == "," else "; " if atom == ";" else atom
    return text


def _is_word(character: str) -> bool:
    return character.isalnum() or character in "'Σ√\u0304"


class _Reader:
    """Takes LaTeX apart, one atom after the other: a symbol with its index and exponent, a fraction, a bracket."""

    def __init__(self, latex: str) -> None:
        # Whole words stand in mathrm, in text and in indices of several letters.
        self.tokens = re.findall(r"\\(?:mathrm|text)\{[^{}]*\}|(?<=_\{)[A-Za-z]+(?=\})|\\[A-Za-z]+|\\.|\d+|\S| ", latex)
        self.place = 0

    def atoms(self, end: str = "") -> list[str]:
        atoms: list[str] = []
        while self.place < len(self.tokens) and self.tokens[self.place] != end:
            token = self.tokens[self.place]
            if token in "_^" and atoms:
                self.place += 1
                inner = self.one()
                if token == "_":
                    atoms[-1] += "_" + (
                        inner.replace(", ", "")
                        if re.fullmatch(r"\w+(,\s*\w+)*", inner)
                        else f"{{{inner.replace(', ', ',')}}}"
                    )
                else:
                    atoms[-1] += "^" + _bracketed(inner)
            elif token == "'" and atoms:
                atoms[-1] += "'"
                self.place += 1
            elif token == " ":
                self.place += 1
            else:
                atoms.append(self.one())
        return [atom for atom in atoms if atom]

    def one(self) -> str:
        """Reads the next group, command or character."""
        while self.tokens[self.place] == " ":
            self.place += 1
        token = self.tokens[self.place]
        self.place += 1
        if token == "{":
            inside = _join(self.atoms("}"))
            self.place += 1
            return inside
        if not token.startswith("\\"):
            return token
        name = token[1:]
        if name == "frac":
            above, below = self.one(), self.one()
            return f"{_bracketed(above)}/{_bracketed(below)}"
        if name == "sqrt":
            return f"√{_bracketed(self.one())}"
        if name == "bar":
            return self.one() + "\u0304"
        if name == "overline":
            return f"mean({self.one()})"
        if name.startswith(("mathrm{", "text{")):
            word = name.partition("{")[2].removesuffix("}").replace("\\ ", " ")
            return word if word in _NAMES else f" {word} "
        if name in ("log", "ln", "exp") and self.tokens[self.place : self.place + 1] == ["\\frac"]:
            return f"{name}({self.one()})"
        return _SYMBOLS.get(name, name)


def _bracketed(text: str) -> str:
    return text if re.fullmatch(r"[\w'\u0304]+", text) or re.fullmatch(r"\w+(_\w+)?\([^()]*\)", text) else f"({text})"
