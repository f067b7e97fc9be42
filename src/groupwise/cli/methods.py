"""`groupwise methods`: the published methods by slot, and one method with its equation and its paper."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from groupwise.objective.preset import Method

_COLUMNS = ("advantage", "ratio", "trust", "aggregation")
_OTHERS = ("admission", "smoothing", "credit", "correction", "divergence", "entropy", "compat")
_CONSTANT = {"kind", "value"}
"""The keys of a schedule that is one number; an advantage of that kind has more."""
_NUMBERS = ("low", "high", "positive", "negative", "sigma", "eps_pos", "eps_neg", "tau_pos", "tau_neg", "threshold", "share", "maximum", "value", "beta")
"""Keys whose values tell one setting of a slot from another."""
_PLAIN = {"all", "identity", "uniform", "none", "0", "-"}
"""What a slot says when it does nothing; the list leaves it out."""
_WIDTH = 120
"""Columns a table needs; a narrower terminal gets two lines a method."""
_LABEL = 11
"""Columns of the words on the left, where one method is shown."""
_AUTHORS = 6
"""Authors named for people; the citation names all."""


def methods(
    name: Annotated[str | None, typer.Argument(help="A method, overlays joined by +, for example dapo+tis.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """List the methods by slot, or show one: equation, paper, slots, citation, difference from grpo."""
    from groupwise.objective.preset import method_names, read_method

    names = method_names() if name is None else (name,)
    if json:
        import json as library

        records = [_record(each) for each in names]
        typer.echo(library.dumps(records if name is None else records[0], indent=2, ensure_ascii=False))
    elif name is None:
        _list(names)
    else:
        _show(name, read_method(name.partition("+")[0]))


def _record(name: str) -> dict[str, Any]:
    """A method as JSON: its file, every slot resolved, its citation, and key -> [grpo's value, its own]."""
    from groupwise.objective.preset import read_method

    base = name.partition("+")[0]
    method = read_method(base)
    differing = {key: list(pair) for key, pair in _difference(name).items()}
    return {"name": name, **method.model_dump(mode="json"), "objective": _slots(name), "bibtex": method.paper.bibtex(base), "difference_from_grpo": differing}


def people(authors: str, most: int | None = None) -> str:
    """BibTeX's authors as people read them.

    Example:
        >>> people("Le Roux, Nicolas and Bellemare, Marc G. and Work, Sam", most=2)
        'Nicolas Le Roux, Marc G. Bellemare and 1 more'
        >>> people("MiniMax")
        'MiniMax'
    """
    names = [" ".join(reversed(each.split(", ", 1))) for each in authors.split(" and ")]
    if most is not None and len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return ", ".join(names)


def _list(names: tuple[str, ...]) -> None:
    from rich.text import Text

    from groupwise.cli.output import console, table
    from groupwise.objective.preset import overlay_names, read_method

    out, rows = console(), []
    for name in names:
        slots, paper = _slots(name), read_method(name).paper
        others = [f"{slot} {text}" if slot == "entropy" else text for slot in _OTHERS if (text := _brief(slots[slot])) not in _PLAIN]
        rows.append((name, *(_brief(slots[column]) for column in _COLUMNS), ", ".join(others), paper.arxiv or "-"))
    if out.width >= _WIDTH:
        out.print(table(["method", *_COLUMNS, "and", "arXiv"], rows))
    else:
        for name, *slots, others, arxiv in rows:
            out.print(Text.assemble((name, "bold"), f"  {arxiv}" if arxiv != "-" else ""))
            out.print(Text("  " + " | ".join([*slots, *([others] if others else [])])))
    console().print(f"Overlays, written behind a method: {', '.join('+' + name for name in overlay_names())} (dapo+tis).", markup=False)
    console().print("One in full: groupwise methods NAME. Use one: groupwise train EXPERIMENT method=NAME", markup=False)


def _show(name: str, method: Method) -> None:
    from rich.text import Text

    from groupwise.cli.equation import equation_lines, plain
    from groupwise.cli.output import console, table
    from groupwise.config import flatten

    out = console()
    paper, slots = method.paper, _slots(name)

    def say(label: str, text: str) -> None:
        width, head = min(out.width, _WIDTH), label.ljust(_LABEL)
        out.print(Text(textwrap.fill(text, width, initial_indent=head, subsequent_indent=" " * _LABEL, break_long_words=False, break_on_hyphens=False)))

    out.print(Text(f"{name}: {method.title}", style="bold"))
    out.print(Text(textwrap.fill(method.summary, min(out.width, _WIDTH)) + "\n"))
    first, *others = (plain(line) for line in equation_lines(method.equation))
    say("Maximises", first)
    for place, line in enumerate(others):
        say("" if place else "where", line)
    out.print()
    where = (f" arXiv {paper.arxiv}." if paper.arxiv else "") + (f" {paper.note}." if paper.note else "")
    say("Paper", f"{paper.title}. {people(paper.authors, _AUTHORS)}, {paper.year}.{where}")
    say("Use it", method.when)
    say("It fails", method.failure)
    for deviation in method.deviations:
        say("Deviation", deviation)
    for overlay in name.split("+")[1:]:
        say("Overlay", _overlay_summary(overlay))
    out.print()
    out.print(table(["slot", "setting"], [(slot, _full(value)) for slot, value in slots.items()]))
    if name != "grpo":
        rows = [(key, _value(before), _value(after)) for key, (before, after) in _difference(name).items()]
        out.print(table(["key", "grpo", name], rows, title="Difference from grpo") if rows else Text("No slot differs from grpo."))
    out.print(Text(paper.bibtex(name.partition("+")[0])))
    keys = [key for key, value in flatten(slots).items() if isinstance(value, float) and key.startswith("trust.")]
    out.print(Text(f"\nChange a part of it: groupwise train EXPERIMENT method={name} " + (f"{keys[0]}=..." if keys else "trust.kind=...")))


def _overlay_summary(name: str) -> str:
    from importlib.resources import files

    from groupwise.config import read_toml

    return read_toml(str(files("groupwise") / "presets" / "overlays" / f"{name}.toml"))["summary"]


def _difference(name: str) -> dict[str, tuple[Any, Any]]:
    from groupwise.config import difference

    return difference(_slots("grpo"), _slots(name))


def _slots(name: str) -> dict[str, Any]:
    from groupwise.objective import Objective

    return Objective.preset(name).model_dump(mode="json", exclude={"name"})


def _brief(slot: Any) -> str:
    """A slot in a few characters: its kind, with its numbers where there are any of its own."""
    if not isinstance(slot, dict):
        return _value(slot)
    if "kind" not in slot:
        return " ".join(key for key, value in slot.items() if value is not None) or "uniform"
    if set(slot) == _CONSTANT:
        return _value(slot["value"])
    shown = [_brief(value) for key, value in slot.items() if key in _NUMBERS and value is not None]
    return " ".join([slot["kind"], "/".join(shown)]).strip()


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
