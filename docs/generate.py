"""Pages that are read off the code and its data, so that they cannot differ from it: a hook of mkdocs, run by `make
docs`.

One page a method (`presets/methods/*.toml`), one table a source of keys (`presets/keys/*.toml`), what the original's
order costs (`docs/ordering.py`), and references of slots, rewards and experiments. Nothing is written into the tree.
Equations become MathML, which browsers draw without a script.
"""

from __future__ import annotations

import inspect
import json
import re
import tomllib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, get_args

import conformance
import ordering
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

DOCS = Path(__file__).resolve().parent
KEYS = DOCS.parent / "src" / "groupwise" / "presets" / "keys"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The method pages join the navigation."""
    from groupwise.objective.preset import method_names, overlay_names

    pages = [{"All methods": "methods/index.md"}, *({name: f"methods/{name}.md"} for name in method_names())]
    pages += [{f"+{name}": f"methods/{name}.md"} for name in overlay_names()]
    config.nav = [
        {"Methods": pages} if isinstance(entry, dict) and "Methods" in entry else entry for entry in config.nav or []
    ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The generated pages join those that were written."""
    for path, text in pages():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    r"""Equations between `\[` and `\]` become MathML, one line a part."""
    return re.sub(r"^\\\[\n(.+?)\n\\\]$", lambda found: _equation(found[1]), markdown, flags=re.MULTILINE | re.DOTALL)


def _equation(latex: str) -> str:
    from groupwise.cli.equation import equation_lines

    # A part too wide for the page scrolls; a phone shows the rest of the page unmoved.
    drawn = "".join(convert(line, display="block") for line in equation_lines(latex.replace("\n", " ")))
    # The name of a function keeps its distance, as LaTeX has it: mu log pi and not mulogpi.
    drawn = re.sub(r"<mi>(log|ln)</mi>", r'<mo lspace="0.17em" rspace="0.17em">\1</mo>', drawn)
    return (
        f'<div class="equation" style="display: grid; row-gap: 0.8em; overflow-x: auto; padding: 0.3em 0">{drawn}</div>'
    )


def pages() -> Iterator[tuple[str, str]]:
    """Path and Markdown of every generated page."""
    from groupwise.objective.preset import method_names, overlay_names

    yield "methods/index.md", method_index()
    for name in method_names():
        yield f"methods/{name}.md", method_page(name)
    for name in overlay_names():
        yield f"methods/{name}.md", overlay_page(name)
    for table in sorted(KEYS.glob("*.toml")):
        yield f"tables/{table.stem}.md", key_table(tomllib.loads(table.read_text(encoding="utf-8")))
    yield "guide/order_of_weights.md", ordering.page()
    yield "guide/conformance.md", conformance.page()
    yield "reference/objective.md", objective_reference()
    yield "reference/rewards.md", reward_reference()
    yield "reference/experiment.md", experiment_reference()


# Methods


def method_index() -> str:
    """All methods in one table."""
    from groupwise.objective.preset import method_names, overlay_names, read_method, read_overlay

    rows = []
    for name in method_names():
        method = read_method(name)
        rows.append((f"[`{name}`]({name}.md)", method.summary, _arxiv(method.paper.arxiv)))
    overlays = [(name, read_overlay(name)) for name in overlay_names()]
    return "\n\n".join(
        [
            "# Methods",
            (
                "Every method is data: a file that names its paper and states every slot of the objective. Choose one"
                " with `method=NAME`, change a part of it with `slot.key=value`, lay an overlay on it with"
                " `method=NAME+OVERLAY`. `groupwise methods NAME` prints the same as its page."
            ),
            _table(("method", "in one line", "arXiv"), rows),
            "## Overlays\n\nThey correct for a sampler that is not the policy.",
            _table(
                ("overlay", "in one line", "arXiv"),
                [(f"[`+{name}`]({name}.md)", each.summary, _arxiv(each.paper.arxiv)) for name, each in overlays],
            ),
        ]
    )


def method_page(name: str) -> str:
    """One method: equation, paper, slots, how it fails, how it is used."""
    from groupwise.config import difference
    from groupwise.objective import Objective
    from groupwise.objective.preset import read_method

    method = read_method(name)
    slots = Objective.preset(name).model_dump(mode="json", exclude={"name"})
    plain = Objective.preset("grpo").model_dump(mode="json", exclude={"name"})
    parts = _about(name, method, "It maximises")
    parts += [
        "## Slots",
        _table(("slot", "setting"), [(f"`{slot}`", _setting(value)) for slot, value in slots.items()]),
    ]
    if name != "grpo":
        rows = [
            (f"`{key}`", _setting(before), _setting(after)) for key, (before, after) in difference(plain, slots).items()
        ]
        parts += ["## Difference from grpo", _table(("key", "grpo", name), rows) if rows else "None."]
    parts += [
        "## Metrics",
        *_metrics(own_metrics(name)),
        "## Use",
        f"```bash\ngroupwise train language method={name}\n```",
        f'```python\nfrom groupwise import Objective\n\nobjective = Objective.preset("{name}")\n```',
        "## Citation",
        f"```bibtex\n{method.paper.bibtex(name)}\n```",
    ]
    return "\n\n".join(parts)


def overlay_page(name: str) -> str:
    """One overlay: what it multiplies by what, paper, slot, how it fails, how it is used."""
    from groupwise.cli.equation import equation_lines
    from groupwise.objective.preset import equation_of, read_overlay

    overlay = read_overlay(name)
    parts = _about(f"+{name}", overlay, "Laid on a method, it weighs the surrogate of each decision")
    parts += [
        f"With GRPO:\n\n\\[\n{equation_lines(equation_of(f'grpo+{name}'))[0]}\n\\]",
        "## Slots",
        _table(("slot", "setting"), [(f"`{slot}`", _setting(value)) for slot, value in overlay.objective.items()]),
        "## Metrics",
        *_metrics({"correction/mean": _meanings()["correction/mean"]}),
        "## Use",
        f"```bash\ngroupwise train language method=dapo+{name} domain.sampling.top_p=0.9\n```",
        f'```python\nfrom groupwise import Objective\n\nobjective = Objective.preset("dapo+{name}")\n```',
        "## Citation",
        f"```bibtex\n{overlay.paper.bibtex(name)}\n```",
    ]
    return "\n\n".join(parts)


def _about(name: str, method: Any, verb: str) -> list[str]:
    from groupwise.cli.methods import people

    paper = method.paper
    where = (f" {_arxiv(paper.arxiv)}." if paper.arxiv else "") + (f" {paper.note}." if paper.note else "")
    parts = [
        f"# {name}",
        f"**{method.title}.** {method.summary}",
        f"{verb}\n\n\\[\n{method.equation}\n\\]",
        f"**Paper.** {paper.title}. {people(paper.authors)}, {paper.year}.{where}",
        f"**When to use it.** {method.when}",
        f"**How it fails.** {method.failure}",
    ]
    if method.deviations:
        parts.append("**Where it differs from the paper.**\n\n" + "\n".join(f"- {line}" for line in method.deviations))
    return parts


def _metrics(own: dict[str, str]) -> Iterator[str]:
    every = "[those of every method](../guide/metrics.md)"
    yield f"Beside {every}:" if own else f"Only {every}."
    if own:
        yield _table(("metric", "meaning"), [(f"`{metric}`", meaning) for metric, meaning in own.items()])


def own_metrics(name: str) -> dict[str, str]:
    """What a method measures that a region without bounds does not, from a small batch, with the meanings of the page
    of metrics.
    """
    from groupwise.objective import Objective

    bare = Objective.preset("bnpo", **{"trust.kind": "unbounded"})
    meanings = _meanings()
    return {metric: meanings[metric] for metric in sorted(_measured(Objective.preset(name)) - _measured(bare))}


def _measured(objective: Any) -> set[str]:
    import torch

    from groupwise import Rollouts, Scored
    from groupwise.statistics import finish

    wide = torch.full((4, 2), -1.0, dtype=torch.float64)
    mask = torch.ones(4, 2, dtype=torch.bool)
    rewards = {"first": [1.0, 0.0, 1.0, 0.0], "second": [0.0, 1.0, 2.0, 0.0]}
    rollouts = Rollouts(
        torch.tensor([0, 0, 1, 1]),
        mask,
        wide,
        rewards,
        behaviour_log_prob=wide,
        reference_log_prob=wide,
        step_size=-wide,
    )
    batch = objective.prepare(rollouts, objective.init())
    scored = Scored(wide + 0.1, entropy=-wide, exact_divergence=-wide, score_norm=-wide, mean_shift=wide)
    return set(finish(batch.statistics)) | set(finish(objective.loss(scored, objective.plan(batch)).statistics))


def _meanings() -> dict[str, str]:
    """Metric -> meaning, from the table of the page of metrics; a cell may hold several names."""
    rows = re.findall(
        r"^\| (`.+?) \| (.+?) \|", (DOCS / "guide" / "metrics.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    return {metric: meaning for cell, meaning in rows for metric in re.findall(r"`([^`]+)`", cell)}


# Keys of other systems


def key_table(table: dict[str, Any]) -> str:
    """What a key of another system is called here."""
    parts = [f"# {table['title']}", table["text"].strip()]
    for section in table["section"]:
        rows = []
        for key in section["key"]:
            ours = "<br>".join(f"`{path}={_toml(value)}`" for path, value in key.get("set", {}).items())
            ours = ours or (
                f"`{key['ours']}`"
                if "ours" in key
                else ", ".join(f"`{name}`" for name in key.get("metrics", [])) or "none"
            )
            rows.append((f"`{key['theirs']}`", ours, key.get("note", "")))
        parts += [
            f"## {section['title']}",
            *([section["text"].strip()] if "text" in section else []),
            _table((table["name"], "Groupwise", "note"), rows),
        ]
    return "\n\n".join(parts)


# References


def objective_reference() -> str:
    """Every slot with its kinds and their parameters."""
    from groupwise.objective import Objective

    parts = [
        "# The objective",
        (
            "One loss made of orthogonal slots. A slot's `kind` chooses what is computed; changing the kind starts that"
            " slot from its own defaults."
        ),
    ]
    for slot, field in Objective.model_fields.items():
        if slot == "name":
            continue
        parts.append(f"## `{slot}`")
        if field.description:
            parts.append(_line(field.description))
        parts += [_model(model) for model in _models(field.annotation)]
    return "\n\n".join(parts)


def reward_reference() -> str:
    """Every reward with its parameters."""
    from groupwise.reward import Reward
    from groupwise.reward.config import REWARDS

    parts = ["# Rewards", "Every reward has these keys; each kind adds its own.", _fields(Reward)]
    seen: list[Any] = []
    for kind in REWARDS.names():
        model = REWARDS.config(kind)
        parts.append(_model(model, without=set(Reward.model_fields)))
        for inner in _inner(model):
            if inner not in seen:
                seen.append(inner)
                parts.append(_model(inner, level=4))
    return "\n\n".join(parts)


def _inner(model: Any) -> list[Any]:
    """The configurations inside a configuration, each before those inside it."""
    found: list[Any] = []
    for field in model.model_fields.values():
        for inner in _models(field.annotation):
            found += [each for each in (inner, *_inner(inner)) if each not in found]
    return found


def experiment_reference() -> str:
    """Every table of an experiment that is not a slot or a reward."""
    from groupwise.experiment.schema import Experiment
    from groupwise.objective import Objective
    from groupwise.reward import Reward

    parts = [
        "# The experiment",
        "Every key of an experiment file. `groupwise schema` writes the same for editors.",
        _model(Experiment, level=2),
    ]
    seen: set[type] = {Experiment, Objective}
    queue = [model for field in Experiment.model_fields.values() for model in _models(field.annotation)]
    while queue:
        model = queue.pop(0)
        if (
            model in seen
            or issubclass(model, Reward)
            or model.__module__.startswith(("groupwise.objective.", "groupwise.experiment."))
        ):
            continue
        seen.add(model)
        parts.append(_model(model, level=2))
        queue += [inner for field in model.model_fields.values() for inner in _models(field.annotation)]
    return "\n\n".join(parts)


def _models(annotation: Any) -> list[Any]:
    """The configurations that an annotation names, in order."""
    from groupwise.config import Config

    if inspect.isclass(annotation) and issubclass(annotation, Config):
        return [annotation]
    found: list[Any] = []
    for part in get_args(annotation):
        found += [model for model in _models(part) if model not in found]
    return found


def _model(model: Any, level: int = 3, without: Collection[str] = ()) -> str:
    kind = model.model_fields.get("kind")
    name = f"`{kind.default}`" if kind is not None else f"`{model.__name__}`"
    sections = _docstring(inspect.cleandoc(model.__doc__ or ""))
    return "\n\n".join(part for part in (f"{'#' * level} {name}", *sections, _fields(model, without)) if part)


def _fields(model: Any, without: Collection[str] = ()) -> str:
    rows = []
    for name, field in model.model_fields.items():
        if name == "kind" or name in without:
            continue
        rows.append((f"`{name}`", _default(field), _line(field.description or _argument(model, name))))
    return _table(("key", "default", "meaning"), rows) if rows else ""


def _default(field: Any) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=False)
    return (
        _setting(value.model_dump(mode="json") if hasattr(value, "model_dump") else value)
        if field.default_factory is None
        else "computed"
    )


def _docstring(text: str) -> Iterator[str]:
    """A docstring as Markdown: prose as it is, the example as code; the arguments stand in the table of fields."""
    for section in re.split(r"\n\n(?=\w+:)", text):
        head, _, body = section.partition("\n")
        if head == "Example:":
            example = inspect.cleandoc(body)
            yield f"```pycon\n{example}\n```" if example.startswith(">>>") else example
        elif head not in ("Args:", "Returns:", "Raises:"):
            yield section


def _argument(model: Any, name: str) -> str:
    """What the class's docstring says of an argument."""
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
    return _line(" ".join(said))


# Markdown


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(
        lines + ["| " + " | ".join(_line(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
    )


def _line(text: str) -> str:
    return " ".join(str(text).split())


def _setting(value: Any) -> str:
    if not isinstance(value, dict):
        return "unset" if value is None else f"`{_toml(value)}`"
    if value.get("kind") == "constant":
        return _setting(value["value"])
    kind = f"**{value['kind']}**" if "kind" in value else ""
    rest = ", ".join(f"{key} {_setting(inner)}" for key, inner in value.items() if key != "kind" and inner is not None)
    return " ".join(part for part in (kind, rest) if part) or "none"


def _toml(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _arxiv(number: str | None) -> str:
    return f"[{number}](https://arxiv.org/abs/{number})" if number else ""
