"""`groupwise methods`: the methods by need, and one method with its equation and its paper."""

import json as library
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from groupwise.cli import completion
from groupwise.cli.output import console, table
from groupwise.config import difference
from groupwise.objective import preset
from groupwise.objective.method import Method, MethodFile, is_own, read_own

_CONSTANT = {"kind", "value"}
"""The keys of a schedule that is one number; an advantage of that kind has more."""
_WIDTH = 120
"""The width of a text, in columns."""
_AUTHORS = 6
"""The number of authors that are named in a listing; the citation names all."""


def methods(
    name: Annotated[
        str | None,
        typer.Argument(help="A method, overlays joined by +, for example dapo+tis.", autocompletion=completion.methods),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """List the methods by need, or show one: equation, paper, slots, citation, difference from grpo."""
    if json:
        overlays = [f"+{overlay}" for overlay in preset.overlay_names()]
        records = _record(name) if name else list(map(_record, [*preset.method_names(), *overlays]))
        typer.echo(library.dumps(records, indent=2, ensure_ascii=False))
    elif name is None:
        _list()
    else:
        _show(name)


def _files(name: str) -> tuple[Method | MethodFile, list[tuple[str, Method]]]:
    """Returns the file of a method, or of an overlay such as `+tis`, and the overlays after the method."""
    base, *overlays = name.split("+")
    if not base:
        return preset.read_overlay("+".join(overlays)), []
    file = read_own(base)[0] if is_own(base) else preset.read_method(base)
    return file, [(overlay, preset.read_overlay(overlay)) for overlay in overlays]


def _on_grpo(name: str) -> str:
    return f"grpo{name}" if name.startswith("+") else name


def _difference(below: str, name: str) -> dict[str, tuple[Any, Any]]:
    return difference(preset.resolved_slots(below), preset.resolved_slots(_on_grpo(name)))


def _record(name: str) -> dict[str, Any]:
    """Returns a method as JSON-able values: its file, every slot resolved, its overlays, its citation, and
    key -> [grpo's value, its own]. An overlay, `+tis`, is compared as part of `grpo+tis`.
    """
    file, overlays = _files(name)
    record = {"name": name, **file.model_dump(mode="json")}
    if not name.startswith("+"):
        records = [_record(f"+{overlay}") for overlay, _ in overlays]
        record |= {"objective": preset.resolved_slots(name), "overlays": records}
    if isinstance(file, Method):
        cited = [(name.strip("+").partition("+")[0], file), *overlays]
        record |= {"bibtex": "\n".join(each.paper.bibtex(key) for key, each in cited)}
    return {**record, "difference_from_grpo": {key: list(pair) for key, pair in _difference("grpo", name).items()}}


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


def _list() -> None:
    overlays = {f"+{name}": preset.read_overlay(name) for name in preset.overlay_names()}
    blocks = {
        **preset.methods_by_need(),
        "A sampler that is not the policy; written behind a method: dapo+tis": overlays,
    }
    out, width = console(), max(map(len, preset.method_names()))
    for need, members in blocks.items():
        rows = Table.grid(padding=(0, 2))
        rows.add_column(min_width=width)
        for name, file in members.items():
            rows.add_row(Text(name), Text(file.summary), Text(file.paper.arxiv or ""))
        out.print(Text(need, style="bold"), rows)
    out.print("One in full: groupwise methods NAME. Use one: groupwise train EXPERIMENT method=NAME", markup=False)


def _show(name: str) -> None:
    """Prints a published method, an overlay, or a method of a user's own."""

    out, base = console(), name.partition("+")[0]
    file, overlays = _files(name)
    own, overlay = isinstance(file, MethodFile), name.startswith("+")
    title = f"{file.title or base}, on {file.extends}" if isinstance(file, MethodFile) else file.title
    out.print(Text(f"{name}: {title}", style="bold"))
    _print_texts([("", file.summary), *_equation("It weighs" if overlay else "Maximises", file), *_texts(file)])
    for key, correction in overlays:
        said = f"+{key}: {correction.title}. {correction.summary}"
        _print_texts([("Overlay", said), *_equation("It weighs", correction), *_texts(correction)])
    slots = file.objective if overlay else preset.resolved_slots(name)
    out.print(table(["slot", "setting"], [(slot, _full(value)) for slot, value in slots.items()]))
    below = preset.lineage(base)[0] if own else "grpo"
    if name != below and not overlay:
        rows = [(key, _full(before), _full(after)) for key, (before, after) in _difference(below, name).items()]
        out.print(table(["key", below, name], rows, title=f"Difference from {below}"))
    for key, cited in [(name.strip("+").partition("+")[0], file), *overlays]:
        if cited.paper is not None:
            out.print(Text(cited.paper.bibtex(key)))
    out.print(Text(f"\nUse it: groupwise train EXPERIMENT method={f'dapo{name}' if overlay else name}"))


def equation_lines(latex: str) -> list[str]:
    """Splits the equation from its definitions, which are between quads.

    Example:
        >>> equation_lines(r"a+b,\\quad b=c")
        ['a+b', 'b=c']
    """
    return [part.strip() for part in latex.split(r",\quad")]


def _equation(label: str, file: Method | MethodFile) -> list[tuple[str, str]]:
    formula, *definitions = equation_lines(file.equation)
    return [(label, formula), *(("where", line) for line in definitions)]


def _texts(file: Method | MethodFile) -> list[tuple[str, str]]:
    paper = file.paper
    cited = ""
    if paper is not None:
        where = (f" arXiv {paper.arxiv}." if paper.arxiv else "") + (f" {paper.note}." if paper.note else "")
        cited = f"{paper.title}. {people(paper.authors, _AUTHORS)}, {paper.year}.{where}"
    deviations = [("Deviation", text) for text in file.deviations]
    return [("Paper", cited), ("Use it", file.when), ("It fails", file.failure), *deviations]


def _print_texts(rows: list[tuple[str, str]]) -> None:
    """Prints labelled texts that are not empty, wrapped to the right of their labels."""

    grid = Table.grid(padding=(0, 2, 0, 0))
    for label, text in rows:
        if text:
            grid.add_row(label, Text(text))
    console().print(grid, width=min(console().width, _WIDTH))
    console().print()


def _full(slot: Any) -> str:
    """Writes all settings of a slot, or a single value."""
    if not isinstance(slot, dict):
        return "-" if slot is None else f"{slot:g}" if isinstance(slot, float) else str(slot)
    if set(slot) == _CONSTANT:
        return _full(slot["value"])
    rest = [
        f"{key} = {_full(value) if not isinstance(value, dict) or 'kind' in value else '{' + _full(value) + '}'}"
        for key, value in slot.items()
        if key != "kind" and value is not None
    ]
    return ", ".join([slot["kind"], *rest] if slot.get("kind") else rest) or "-"
