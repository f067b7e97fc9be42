"""`groupwise methods`: the published methods by slot, and one method with its equation and its paper."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

from groupwise.cli import completion

if TYPE_CHECKING:
    from groupwise.objective.preset import Method


_COLUMNS = ("advantage", "ratio", "trust", "aggregation")
_OTHERS = ("matching", "admission", "smoothing", "credit", "correction", "divergence", "entropy", "compat")
_CONSTANT = {"kind", "value"}
"""The keys of a schedule that is one number; an advantage of that kind has more."""
_NUMBERS = (
    "low",
    "high",
    "positive",
    "negative",
    "sigma",
    "eps_pos",
    "eps_neg",
    "tau_pos",
    "tau_neg",
    "threshold",
    "share",
    "maximum",
    "value",
    "beta",
)
"""Keys whose values tell one setting of a slot from another."""
_PLAIN = {"all", "identity", "uniform", "none", "0", "-"}
"""The kinds of slots that have no effect; the list leaves them out."""
_WIDTH = 120
"""Columns a table needs; a narrower terminal gets two lines a method."""
_LABEL = 11
"""Columns of the words on the left, where one method is shown."""
_AUTHORS = 6
"""Authors named for people; the citation names all."""


def methods(
    name: Annotated[
        str | None,
        typer.Argument(help="A method, overlays joined by +, for example dapo+tis.", autocompletion=completion.methods),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """List the methods by slot, or show one: equation, paper, slots, citation, difference from grpo."""
    from groupwise.objective.method import is_own
    from groupwise.objective.preset import method_names, overlay_names, read_method, read_overlay

    names = method_names() if name is None else (name,)
    if json:
        import json as library

        overlays = tuple(f"+{overlay}" for overlay in overlay_names()) if name is None else ()
        records = [_record(method_name) for method_name in (*names, *overlays)]
        typer.echo(library.dumps(records if name is None else records[0], indent=2, ensure_ascii=False))
    elif name is None:
        _list(names)
    elif name.startswith("+"):
        _show_overlay(name, read_overlay(name[1:]))
    elif is_own(name.partition("+")[0]):
        _show_own(name)
    else:
        _show(name, read_method(name.partition("+")[0]))


def _record(name: str) -> dict[str, Any]:
    """Returns a method as JSON-able values: its file, every slot resolved, its overlays, its citation, and
    key -> [grpo's value, its own].
    An overlay, `+tis`, is laid on grpo.
    """
    from groupwise.objective.method import is_own, read_own
    from groupwise.objective.preset import equation_of, read_method, read_overlay

    base, *overlays = name.split("+")
    if is_own(base):
        file, _ = read_own(base)
        return {
            "name": name,
            **file.model_dump(mode="json"),
            "objective": _slots(name),
            "overlays": [_record(f"+{overlay}") for overlay in overlays],
            "difference_from_grpo": {key: list(pair) for key, pair in _difference(name).items()},
        }
    if not base:
        overlay = read_overlay("+".join(overlays))
        differing = {key: list(pair) for key, pair in _difference(f"grpo{name}").items()}
        return {
            "name": name,
            **overlay.model_dump(mode="json"),
            "bibtex": overlay.paper.bibtex(name[1:]),
            "difference_from_grpo": differing,
        }
    method = read_method(base)
    differing = {key: list(pair) for key, pair in _difference(name).items()}
    return {
        "name": name,
        **method.model_dump(mode="json"),
        "equation": equation_of(name),
        "objective": _slots(name),
        "overlays": [_record(f"+{overlay}") for overlay in overlays],
        "bibtex": "\n".join(
            [method.paper.bibtex(base), *(read_overlay(overlay).paper.bibtex(overlay) for overlay in overlays)]
        ),
        "difference_from_grpo": differing,
    }


def people(authors: str, most: int | None = None) -> str:
    """Returns BibTeX's authors in the form in which people read them.

    Example:
        >>> people("Le Roux, Nicolas and Bellemare, Marc G. and Work, Sam", most=2)
        'Nicolas Le Roux, Marc G. Bellemare and 1 more'
        >>> people("MiniMax")
        'MiniMax'
    """
    names = [" ".join(reversed(author.split(", ", 1))) for author in authors.split(" and ")]
    if most is not None and len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return ", ".join(names)


def _list(names: tuple[str, ...]) -> None:
    from rich.text import Text

    from groupwise.cli.output import console, table
    from groupwise.objective.preset import overlay_names, read_method, read_overlay

    out, rows = console(), []
    for name in names:
        slots, paper = _slots(name), read_method(name).paper
        others = [
            f"{slot} {text}" if slot == "entropy" else text
            for slot in _OTHERS
            if (text := _brief(slots[slot])) not in _PLAIN
        ]
        rows.append((name, *(_brief(slots[column]) for column in _COLUMNS), ", ".join(others), paper.arxiv or "-"))
    if out.width >= _WIDTH:
        out.print(table(["method", *_COLUMNS, "and", "arXiv"], rows))
    else:
        for name, *slots, others, arxiv in rows:
            out.print(Text.assemble((name, "bold"), f"  {arxiv}" if arxiv != "-" else ""))
            out.print(Text("  " + " | ".join([*slots, *([others] if others else [])])))
    overlays = [
        (f"+{name}", _full(read_overlay(name).objective["correction"]), read_overlay(name).summary)
        for name in overlay_names()
    ]
    out.print()
    if out.width >= _WIDTH:
        out.print(table(["overlay", "correction", "in one line"], overlays))
    else:
        for name, slot, summary in overlays:
            out.print(Text.assemble((name, "bold"), f"  {slot}"))
            out.print(Text(f"  {summary}"))
    console().print(
        "Overlays correct for a sampler that is not the policy, and are written behind a method: dapo+tis.",
        markup=False,
    )
    console().print(
        "One in full: groupwise methods NAME. Use one: groupwise train EXPERIMENT method=NAME", markup=False
    )


def _show(name: str, method: Method) -> None:
    from rich.text import Text

    from groupwise.cli.output import console, table
    from groupwise.config import flatten
    from groupwise.objective.preset import equation_of, read_overlay

    out = console()
    slots, overlays = _slots(name), [(overlay, read_overlay(overlay)) for overlay in name.split("+")[1:]]
    _say_who(name, method)
    _say_equation("Maximises", equation_of(name))
    _say_all(method)
    for overlay, correction in overlays:
        out.print()
        _say("Overlay", f"+{overlay}: {correction.title}. {correction.summary}")
        _say_all(correction)
    out.print()
    out.print(table(["slot", "setting"], [(slot, _full(value)) for slot, value in slots.items()]))
    if name != "grpo":
        rows = [(key, _value(before), _value(after)) for key, (before, after) in _difference(name).items()]
        out.print(
            table(["key", "grpo", name], rows, title="Difference from grpo")
            if rows
            else Text("No slot differs from grpo.")
        )
    for key, cited in [(name.partition("+")[0], method), *overlays]:
        out.print(Text(cited.paper.bibtex(key)))
    keys = [key for key, value in flatten(slots).items() if isinstance(value, float) and key.startswith("trust.")]
    out.print(
        Text(
            f"\nChange a part of it: groupwise train EXPERIMENT method={name} "
            + (f"{keys[0]}=..." if keys else "trust.kind=...")
        )
    )


def _show_own(name: str) -> None:
    """Shows a user's method: the sentences of its file, every slot, its difference from the method that it changes."""
    from rich.text import Text

    from groupwise.cli.output import console, table
    from groupwise.config import difference
    from groupwise.objective.method import read_own
    from groupwise.objective.preset import lineage

    out, base = console(), name.partition("+")[0]
    file, path = read_own(base)
    below, _ = lineage(base)
    out.print(Text(f"{name}: {file.title or path.stem}, on {file.extends}", style="bold"))
    for label, text in (("", file.summary), ("Use it", file.when), ("It fails", file.failure)):
        if text:
            _say(label, text)
    if file.equation:
        _say_equation("Maximises", file.equation)
    if file.paper is not None:
        _say("Paper", f"{file.paper.title}. {people(file.paper.authors, _AUTHORS)}, {file.paper.year}.")
    for deviation in file.deviations:
        _say("Deviation", deviation)
    slots = _slots(name)
    out.print(table(["slot", "setting"], [(slot, _full(value)) for slot, value in slots.items()]))
    rows = [(key, _value(before), _value(after)) for key, (before, after) in difference(_slots(below), slots).items()]
    title = f"Difference from {below}"
    out.print(table(["key", below, name], rows, title=title) if rows else Text(f"No slot differs from {below}."))
    out.print(Text(f"\nUse it: groupwise train EXPERIMENT method={name}"))


def _show_overlay(name: str, overlay: Method) -> None:
    from rich.text import Text

    from groupwise.cli.output import console, table

    out = console()
    _say_who(name, overlay)
    _say_equation("It weighs", overlay.equation)
    _say_all(overlay)
    out.print()
    out.print(table(["slot", "setting"], [(slot, _full(value)) for slot, value in overlay.objective.items()]))
    out.print(Text(overlay.paper.bibtex(name[1:])))
    out.print(Text(f"\nLay it on a method: groupwise train EXPERIMENT method=dapo{name}"))


def _say(label: str, text: str) -> None:
    from rich.text import Text

    from groupwise.cli.output import console

    width, head = min(console().width, _WIDTH), label.ljust(_LABEL)
    console().print(
        Text(
            textwrap.fill(
                text,
                width,
                initial_indent=head,
                subsequent_indent=" " * _LABEL,
                break_long_words=False,
                break_on_hyphens=False,
            )
        )
    )


def _say_who(name: str, method: Method) -> None:
    from rich.text import Text

    from groupwise.cli.output import console

    console().print(Text(f"{name}: {method.title}", style="bold"))
    console().print(Text(textwrap.fill(method.summary, min(console().width, _WIDTH)) + "\n"))


def _say_equation(verb: str, equation: str) -> None:

    from groupwise.cli.output import console

    formula, *definitions = (plain(line) for line in equation_lines(equation))
    _say(verb, formula)
    for place, line in enumerate(definitions):
        _say("" if place else "where", line)
    console().print()


def _say_all(method: Method) -> None:
    paper = method.paper
    where = (f" arXiv {paper.arxiv}." if paper.arxiv else "") + (f" {paper.note}." if paper.note else "")
    _say("Paper", f"{paper.title}. {people(paper.authors, _AUTHORS)}, {paper.year}.{where}")
    _say("Use it", method.when)
    _say("It fails", method.failure)
    for deviation in method.deviations:
        _say("Deviation", deviation)


def _difference(name: str) -> dict[str, tuple[Any, Any]]:
    from groupwise.config import difference

    return difference(_slots("grpo"), _slots(name))


def _slots(name: str) -> dict[str, Any]:
    from groupwise.objective.preset import resolved_slots

    return resolved_slots(name)


def _brief(slot: Any) -> str:
    """Writes a slot in a few characters: its kind, and its numbers where it has some."""
    if not isinstance(slot, dict):
        return _value(slot)
    if "kind" not in slot:
        return " ".join(key for key, value in slot.items() if value is not None) or "uniform"
    if set(slot) == _CONSTANT:
        return _value(slot["value"])
    numbers = [_brief(value) for key, value in slot.items() if key in _NUMBERS and value is not None]
    return " ".join([slot["kind"], "/".join(numbers)]).strip()


def _full(slot: Any) -> str:
    if not isinstance(slot, dict):
        return _value(slot)
    head = slot.get("kind", "")
    if set(slot) == _CONSTANT:
        return _value(slot["value"])
    rest = [
        f"{key} = {_full(value) if not isinstance(value, dict) or 'kind' in value else '{' + _full(value) + '}'}"
        for key, value in slot.items()
        if key != "kind" and value is not None
    ]
    return ", ".join([head, *rest] if head else rest) or "-"


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return _full(value)
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


# The LaTeX of a method's equation as a line of plain text: what a terminal can show.

_SYMBOLS = {
    "sum": "Σ", "prod": "Π", "pi": "π", "varepsilon": "ε", "epsilon": "ϵ", "beta": "β", "gamma": "γ", "lambda": "λ", "mu": "μ", "sigma": "σ", "rho": "ρ",  # noqa: E501
    "tau": "τ", "theta": "θ", "eta": "η", "ell": "ℓ", "pm": "±", "varphi": "φ", "delta": "δ", "Delta": "Δ", "propto": "∝", "in": "∈", "notin": "∉", "le": "≤", "ge": "≥", "ne": "≠", "leftarrow": "←",  # noqa: E501
    "cdot": "·", "{": "{", "}": "}", "|": "|", " ": " ", ",": " ", "quad": " ",
}  # fmt: skip


def _fraction(match: re.Match[str]) -> str:
    above, below = (
        text if re.fullmatch(r"(\\[A-Za-z]+|\w|\d+)(_\w+)? ?", text) else f"({text})" for text in match.groups()[-2:]
    )
    whole = f"{above.strip()}/{below.strip()}"
    # The logarithm of a fraction is no fraction of a logarithm.
    return f"{match[1]}({whole})" if match[1] else f" {whole} "


_RULES: tuple[tuple[str, Any], ...] = (
    (r"\\begin\{cases\}(.*?)\\end\{cases\}", r"[\1]"),
    (r"\\\\", "; "),
    (r"&", " if "),
    (r"\\mathrm\{(clip|mean|std|sg|whiten|softmax|cov)\}", r" \1"),
    (r"\\(?:mathrm|text)\{([^{}]*)\}", r" \1 "),
    (r"_\{(\w(?:,\w)+)\}", lambda match: f"_{match[1].replace(',', '')} "),
    (r"([_^])\{(\\?\w+)\}", r"\1\2 "),
    (r"([_^])\{([^{}]*)\}", r"\1(\2)"),
    (r"(\\(?:log|ln|exp))?\s*\\frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}", _fraction),
    (r"\\sqrt\{([^{}]*)\}", r"√(\1)"),
    (r"\\overline\{([^{}]*)\}", r"mean(\1)"),
    (r"\\bar\s*\{?(\w)\}?", "\\1\u0304"),
    (r"\\hat\s*\{?(\w)\}?", "\\1\u0302"),
)
"""The commands of LaTeX, innermost first, until none is left."""
_SPACES = (
    (r"\s*([=<>≤≥≠∝∈∉←])\s*", r" \1 "),
    (r"\s*([+-])\s*", r"\1"),
    (r"\s*([,;])\s*", r"\1 "),
    (r" +", " "),
    (r"([(\[]) ", r"\1"),
    (r" ([)\]^_])", r"\1"),
    (r"(\))(?=\w)", r"\1 "),
)


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
    """
    # An index without braces is one character.
    before, latex = "", re.sub(r"_(\w)(?=[A-Za-z\\])", r"_\1 ", re.sub(r"\\(left|right|textstyle)\b", "", latex))
    while before != latex:
        before = latex
        for pattern, written in _RULES:
            latex = re.sub(pattern, written, latex, flags=re.DOTALL)
    # A command ends where no letter follows it, and what follows it is a word of its own.
    latex = re.sub(r"\\([A-Za-z]+|.)(?=([A-Za-z\\]?))", lambda match: _symbol(match[1], match[2]), latex)
    text = re.sub("[{}]", "", latex)
    for pattern, written in _SPACES:
        text = re.sub(pattern, written, text)
    return text.strip()


def _symbol(name: str, after: str) -> str:
    return _SYMBOLS.get(name, f" {name}" if name.isalpha() else name) + (" " if name.isalpha() and after else "")
