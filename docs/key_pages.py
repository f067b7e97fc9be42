"""The pages of keys: of an experiment, of the objective's slots, of rewards, and of other systems."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any, get_args

from page_text import docstring_parts, field_table, model_section, one_line, table, toml_text

_LONGEST = 7_500
"""Characters of Markdown that a page of tables has at most, so that nobody scrolls through more than 8,000 pixels."""

SCHEDULES = "groupwise.schedule."
"""The kinds of a schedule stand in so many keys that they have one page."""


def system_pages(name: str, system: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields where the keys of another system went: one page, or a page a section where there are many keys."""
    sections = [_system_section(system["name"], section) for section in system["section"]]
    head = [f"# {system['title']}", system["text"].strip()]
    if sum(map(len, sections)) < _LONGEST:
        yield f"tables/{name}.md", "\n\n".join([*head, *sections])
        return
    titles = [section["title"] for section in system["section"]]
    links = "\n".join(f"- [{title}]({name}/{_file_name(title)}.md)" for title in titles)
    yield f"tables/{name}.md", "\n\n".join([*head, links])
    for title, section in zip(titles, sections, strict=True):
        yield f"tables/{name}/{_file_name(title)}.md", section.replace(f"## {title}", f"# {system['name']}: {title}", 1)


def _file_name(title: str) -> str:
    return re.sub(r"\W+", "_", title.lower()).strip("_")


def _system_section(system: str, section: dict[str, Any]) -> str:
    rows = []
    for key in section["key"]:
        ours = "<br>".join(f"`{path}={toml_text(value)}`" for path, value in key.get("set", {}).items())
        ours = ours or (
            f"`{key['ours']}`" if "ours" in key else ", ".join(f"`{name}`" for name in key.get("metrics", [])) or "none"
        )
        rows.append((f"`{key['theirs']}`", ours, key.get("note", "")))
    text = [section["text"].strip()] if "text" in section else []
    return "\n\n".join([f"## {section['title']}", *text, table((system, "Groupwise", "note"), rows)])


def objective_pages() -> Iterator[tuple[str, str]]:
    """Yields the index of the slots and a page for each slot, with its kinds and their parameters."""
    from groupwise.config import attribute_docs
    from groupwise.objective import Objective

    slots = {name: field for name, field in Objective.model_fields.items() if name != "name"}
    docs = attribute_docs(Objective)
    rows = [
        (f"[`{slot}`](objective/{slot}.md)", _kinds(field.annotation), one_line(docs.get(slot, "")))
        for slot, field in slots.items()
    ]
    yield (
        "reference/objective.md",
        "\n\n".join(
            [
                "# The objective",
                "One loss made of orthogonal slots. A slot's `kind` chooses what is computed; changing the kind starts"
                " that slot from its own defaults.",
                table(("slot", "kinds", "meaning"), rows),
            ]
        ),
    )
    for slot, field in slots.items():
        parts = [f"# `{slot}`", one_line(docs.get(slot) or "A slot of [the objective](../objective.md).")]
        models = [model for model in configurations(field.annotation) if not _is_schedule(model)]
        if len(models) < len(configurations(field.annotation)):
            parts.append("Its value is a number or a [schedule](../experiment/schedules.md).")
        sections = {_kind_names([model]).strip("`"): model_section(model, 2) for model in models}
        if sum(map(len, sections.values())) < _LONGEST:
            yield f"reference/objective/{slot}.md", "\n\n".join([*parts, *sections.values()])
            continue
        lines = [
            (f"[`{kind}`]({slot}/{kind}.md)", _first_line(model)) for kind, model in zip(sections, models, strict=True)
        ]
        yield f"reference/objective/{slot}.md", "\n\n".join([*parts, table(("kind", "in one line"), lines)])
        for kind, section in sections.items():
            text = section.replace(f"## `{kind}`", f"# `{slot}.kind = {kind}`", 1)
            yield f"reference/objective/{slot}/{kind}.md", text


def reward_pages() -> Iterator[tuple[str, str]]:
    """Yields the index of the rewards and a page for each kind."""
    from groupwise.reward import Reward
    from groupwise.reward.config import REWARDS

    models = {kind: REWARDS.config(kind) for kind in REWARDS.names()}
    rows = [(f"[`{kind}`](rewards/{kind}.md)", _first_line(model)) for kind, model in models.items()]
    yield (
        "reference/rewards.md",
        "\n\n".join(
            [
                "# Rewards",
                table(("kind", "in one line"), rows),
                "Every reward has these keys; each kind adds its own.",
                field_table(Reward),
            ]
        ),
    )
    for kind, model in models.items():
        sections = [model_section(inner, 2) for inner in _nested(model)]
        page = model_section(model, 1, without=set(Reward.model_fields))
        everywhere = "It also has [the keys of every reward](../rewards.md)."
        yield f"reference/rewards/{kind}.md", "\n\n".join([page, everywhere, *sections])


def experiment_pages() -> Iterator[tuple[str, str]]:
    """Yields the page of the experiment's own keys and a page for each of its tables."""
    from groupwise.domain.callable import DOMAINS
    from groupwise.experiment.schema import Experiment
    from groupwise.objective.objective import Slots
    from groupwise.plugins import is_shipped
    from groupwise.schedule import AnySchedule

    tables: dict[str, tuple[str, list[Any]]] = {}
    for name, field in Experiment.model_fields.items():
        models = [] if name in ("domain", *Slots.model_fields) else configurations(field.annotation)
        if models:
            tables[name] = (f"`[{name}]`", models)
    for kind in DOMAINS.names():
        domain = DOMAINS.config(kind)
        if not is_shipped(domain.__module__):
            continue
        tables[f"domain_{kind}"] = (f"`[domain]` of kind `{kind}`", [domain])
        for name, field in domain.model_fields.items():
            models = [model for model in configurations(field.annotation) if name != "rewards"]
            if models and name != "sampling_schedule":
                tables[f"domain_{kind}_{name}"] = (f"`[domain.{name}]` of kind `{kind}`", models)
    tables["schedules"] = ("Schedules", configurations(AnySchedule))
    listed = [(f"[{title}](experiment/{name}.md)", _kind_names(models)) for name, (title, models) in tables.items()]
    yield (
        "reference/experiment.md",
        "\n\n".join(
            [
                "# The experiment",
                "Every key of an experiment file. `groupwise schema` writes the same for editors.",
                field_table(Experiment, without=set(Slots.model_fields)),
                "## Its tables",
                "The slots of [the objective](objective.md) and [the rewards](rewards.md) have pages of their own.",
                table(("table", "kinds"), listed),
            ]
        ),
    )
    for name, (title, models) in tables.items():
        alone = len(models) == 1 and name.startswith("domain_") and models[0].__name__.endswith("Config")
        sections = [model_section(model, 2) for model in models]
        if not alone:
            inner = [
                inside
                for model in models
                for inside in _nested(model)
                if name == "schedules" or not _is_schedule(inside)
            ]
            sections += [model_section(model, 2) for model in dict.fromkeys(inner) if model not in models]
        yield f"reference/experiment/{name}.md", "\n\n".join([f"# {title}", *sections])


def configurations(annotation: Any) -> list[Any]:
    """Returns the configurations that an annotation names, in order."""
    from groupwise.config import Config

    if inspect.isclass(annotation) and issubclass(annotation, Config):
        return [annotation]
    models: list[Any] = []
    for part in get_args(annotation):
        models += [model for model in configurations(part) if model not in models]
    return models


def _nested(model: Any) -> list[Any]:
    """Returns the configurations inside a configuration, each before those inside it."""
    from groupwise.reward import Reward

    models: list[Any] = []
    for field in model.model_fields.values():
        for inner in configurations(field.annotation):
            if not _is_schedule(inner) and not issubclass(inner, Reward):
                models += [nested for nested in (inner, *_nested(inner)) if nested not in models]
    return models


def _is_schedule(model: Any) -> bool:
    return model.__module__.startswith(SCHEDULES)


def _kinds(annotation: Any) -> str:
    return _kind_names(configurations(annotation))


def _kind_names(models: list[Any]) -> str:
    kinds = [model.model_fields["kind"].default for model in models if "kind" in model.model_fields]
    return ", ".join(f"`{kind}`" for kind in kinds if isinstance(kind, str))


def _first_line(model: Any) -> str:
    return one_line(next(iter(docstring_parts(inspect.cleandoc(model.__doc__ or ""))), "").split("\n\n")[0])
