"""Writes configurations, docstrings and values as Markdown."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Collection, Iterator
from typing import Any


def model_section(model: Any, level: int = 3, without: Collection[str] = ()) -> str:
    """Writes the section of a configuration: its docstring and its keys."""
    kind = model.model_fields.get("kind")
    name = f"`{kind.default}`" if kind is not None else f"`{model.__name__}`"
    sections = docstring_parts(inspect.cleandoc(model.__doc__ or ""))
    return "\n\n".join(part for part in (f"{'#' * level} {name}", *sections, field_table(model, without)) if part)


def field_table(model: Any, without: Collection[str] = ()) -> str:
    """Writes the keys of a configuration with their defaults and meanings."""
    from groupwise.config import attribute_docs

    rows, docs = [], attribute_docs(model)
    for name, field in model.model_fields.items():
        if name == "kind" or name in without:
            continue
        rows.append((f"`{name}`", default_text(field), one_line(docs.get(name) or argument_text(model, name))))
    return table(("key", "default", "meaning"), rows) if rows else ""


def default_text(field: Any) -> str:
    """Writes the default of a field; of a table its kind alone, for its keys have a page."""
    if field.is_required():
        return "required"
    if field.default_factory is not None:
        return "computed"
    value = field.get_default(call_default_factory=False)
    if hasattr(value, "model_dump"):
        value = value.model_dump(mode="json")
        if "kind" not in value:
            return "its defaults"
        return setting(value if value["kind"] == "constant" else {"kind": value["kind"]})
    return setting(value)


def docstring_parts(text: str) -> Iterator[str]:
    """Yields a docstring as Markdown: prose as it is, the example as code, no lists of arguments."""
    for section in re.split(r"\n\n(?=\w+:)", text):
        head, _, body = section.partition("\n")
        if head == "Example:":
            example = re.sub(r" *# (?:doctest:|noqa).*", "", inspect.cleandoc(body))
            yield f"```pycon\n{example}\n```" if example.startswith(">>>") else example
        elif head not in ("Args:", "Returns:", "Raises:"):
            yield section


def argument_text(model: Any, name: str) -> str:
    """Returns what the docstring of a class says of an argument."""
    said, inside = [], False
    for line in inspect.cleandoc(model.__doc__ or "").splitlines():
        if line.startswith("    ") and not line.startswith("     "):
            names, found, rest = line.strip().partition(": ")
            inside = bool(found) and name in names.split(", ")
            said += [rest] if inside else []
        elif inside and line.startswith("     "):
            said.append(line.strip())
        else:
            inside = False
    return one_line(" ".join(said))


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Writes a Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(
        lines + ["| " + " | ".join(one_line(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
    )


def one_line(text: str) -> str:
    """Joins the lines of a text."""
    return " ".join(str(text).split())


def setting(value: Any) -> str:
    """Writes a value as code; a table as its kind and its keys."""
    if not isinstance(value, dict):
        return "unset" if value is None else f"`{toml_text(value)}`"
    if value.get("kind") == "constant":
        return setting(value["value"])
    kind = f"**{value['kind']}**" if "kind" in value else ""
    rest = ", ".join(f"{key} {setting(inner)}" for key, inner in value.items() if key != "kind" and inner is not None)
    return " ".join(part for part in (kind, rest) if part) or "none"


def toml_text(value: Any) -> str:
    """Writes a value as TOML has it; a text without its quotes where it is not empty."""
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)


def arxiv_link(number: str | None) -> str:
    """Links the number of a paper."""
    return f"[{number}](https://arxiv.org/abs/{number})" if number else ""
