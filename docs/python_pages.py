"""The pages of the Python API, from signatures and docstrings."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from page_text import docstring_parts, field_table, one_line, table

PAGES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "runs": (
        "Train, resume, read a run",
        "What the command does, as functions.",
        (
            "groupwise.train",
            "groupwise.resume",
            "groupwise.from_trl",
            "groupwise.load_experiment",
            "groupwise.load_run",
            "groupwise.experiment.loaded_run.LoadedRun",
        ),
    ),
    "objective": (
        "The objective",
        "The loss for a loop of your own: plain tensors in, a loss out.",
        ("groupwise.Objective",),
    ),
    "records": (
        "Rollouts, scored decisions, losses",
        "The frozen records that travel between a sampler, the objective and a loop.",
        (
            "groupwise.Rollouts",
            "groupwise.Scored",
            "groupwise.records.Loss",
            "groupwise.records.Cotangents",
        ),
    ),
    "domain": (
        "A domain of your own",
        "The base class and the five methods to write.",
        ("groupwise.Domain:abstract",),
    ),
    "domain_defaults": (
        "A domain of your own: what has a default",
        "The methods that a domain may write, and what it may say about itself.",
        ("groupwise.Domain:defaults",),
    ),
    "domain_records": (
        "What a domain takes and gives",
        "The records of a domain's methods.",
        (
            "groupwise.domain.protocol.Prompt",
            "groupwise.domain.protocol.Samples",
            "groupwise.domain.protocol.Evaluation",
            "groupwise.domain.protocol.Table",
            "groupwise.reward.RewardTable",
            "groupwise.streams.Streams",
        ),
    ),
    "slots_of_groups": (
        "Slots of your own: groups",
        "The bases of what reads the rewards of whole groups.",
        ("groupwise.objective.slot.AdvantageSlot", "groupwise.objective.slot.AdmissionSlot"),
    ),
    "slots_of_ratios": (
        "Slots of your own: ratios",
        "The bases of what reads the ratio of two policies.",
        (
            "groupwise.objective.slot.SmoothingSlot",
            "groupwise.objective.slot.RatioSlot",
            "groupwise.objective.slot.TrustSlot",
        ),
    ),
    "slots_of_weights": (
        "Slots of your own: weights",
        "The bases of what weighs decisions.",
        (
            "groupwise.objective.slot.CreditSlot",
            "groupwise.objective.slot.CorrectionSlot",
            "groupwise.objective.slot.AggregationSlot",
            "groupwise.objective.slot.DivergenceSlot",
        ),
    ),
    "learner": (
        "The learner",
        "The owner of weights and optimiser, which training talks to.",
        ("groupwise.learner.protocol.Learner", "groupwise.learner.protocol.StepNumbers"),
    ),
    "rewards": (
        "Rewards",
        "The base class of a reward kind. A plain function needs none of it.",
        ("groupwise.reward.Reward", "groupwise.reward.Rewards"),
    ),
    "testing": (
        "Laws for your own tests",
        "One call tries a domain, a reward or a slot against everything that training relies on.",
        (
            "groupwise.testing.check_domain",
            "groupwise.testing.check_reward",
            "groupwise.testing.check_slot",
            "groupwise.testing.BrokenLaws",
        ),
    ),
    "selector": (
        "Selectors of demonstrations",
        "A trained selector in a program of your own.",
        ("groupwise.Selector",),
    ),
    "selector_elsewhere": (
        "Selectors inside LangChain and DSPy",
        "The same trained selector as these libraries call one.",
        (
            "groupwise_selection.langchain.GroupwiseExampleSelector",
            "groupwise_selection.dspy.SelectDemos",
            "groupwise_selection.dspy.FewShot",
        ),
    ),
    "trainers": (
        "Inside other trainers",
        "The same objectives inside TRL, verl and SkyRL.",
        (
            "groupwise_trainers.trl.GRPOTrainer",
            "groupwise_trainers.verl.register",
            "groupwise_trainers.skyrl.register",
        ),
    ),
    "run_folders": (
        "Run folders and reports",
        "Reads runs in whatever state they are, and writes the page about them.",
        (
            "groupwise.runs.find_runs",
            "groupwise.runs.read_run",
            "groupwise.runs.Run",
            "groupwise_look.report.write_page",
        ),
    ),
}
"""Page -> its title, one sentence, and the paths of its objects.

A class that is too long for one page stands on two: `:abstract` behind its path leaves what has to be written,
`:defaults` the rest.
"""


def python_pages() -> Iterator[tuple[str, str]]:
    """Yields the index of the API and its pages."""
    rows = [
        (f"[{title}](python/{name}.md)", ", ".join(f"`{_names(path)[1]}`" for path in paths))
        for name, (title, _, paths) in PAGES.items()
    ]
    intro = "Everything that is public, from its docstrings. The examples are tests."
    yield "reference/python.md", "\n\n".join(["# Python", intro, table(("page", "what is on it"), rows)])
    for name, (title, sentence, paths) in PAGES.items():
        yield f"reference/python/{name}.md", "\n\n".join([f"# {title}", sentence, *(_section(path) for path in paths)])


def load(path: str) -> Any:
    """Imports what a path names."""
    module, name, _ = _names(path)
    return getattr(import_module(module), name)


def _names(path: str) -> tuple[str, str, str]:
    """Returns the module, the object and the part of it that a path names."""
    path, _, part = path.partition(":")
    module, _, name = path.rpartition(".")
    return module, name, part


def _section(path: str) -> str:
    subject = load(path)
    module, name, part = _names(path)
    parts = [f"## `{module}.{name}`"]
    if not inspect.isclass(subject):
        return "\n\n".join([*parts, _signature(name, subject), *_docstring(subject)])
    if part != "defaults":
        parts += _docstring(subject)
    if hasattr(subject, "model_fields"):
        parts.append(field_table(subject))
    for name, member in _members(subject):
        if part and (part == "abstract") != (name in subject.__abstractmethods__):
            continue
        head = name if isinstance(member, property) else _signature(name, member)
        called = f"### `{name}`"
        parts += [called, *([] if isinstance(member, property) else [head]), *_docstring(member)]
    return "\n\n".join(part for part in parts if part)


def _members(subject: Any) -> Iterator[tuple[str, Any]]:
    """Yields the public methods and properties of a class that have a docstring, in the order of the source."""
    seen = set()
    for base in subject.__mro__:
        if not base.__module__.startswith("groupwise"):
            continue
        for name, member in vars(base).items():
            if name in seen or (name.startswith("_") and name != "__call__"):
                continue
            seen.add(name)
            plain = getattr(member, "__func__", member)
            if (inspect.isfunction(plain) or isinstance(plain, property)) and plain.__doc__:
                yield name, plain


def _signature(name: str, function: Any) -> str:
    signature = inspect.signature(function)
    arguments, star = [], False
    for parameter in signature.parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            arguments.append("*")
        star = star or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        arguments.append(_parameter(parameter))
    returned = signature.return_annotation
    arrow = "" if returned is signature.empty else f" -> {_annotation(returned)}"
    line = f"{name}({', '.join(arguments)}){arrow}"
    if len(line) > 90 and arguments:
        line = "\n    ".join([f"{name}(", *(f"{argument}," for argument in arguments)]) + f"\n){arrow}"
    return f"```text\n{line}\n```"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    text = f"{stars}{parameter.name}"
    if parameter.annotation is not parameter.empty:
        text += f": {_annotation(parameter.annotation)}"
    if parameter.default is not parameter.empty:
        default = repr(parameter.default)
        text += f" = {default if len(default) < 40 else '...'}"
    return text


def _annotation(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _docstring(subject: Any) -> Iterator[str]:
    """Yields the docstring as Markdown: prose, a table of the arguments, what is returned and raised, the example."""
    text = inspect.cleandoc(subject.__doc__ or "")
    yield from docstring_parts(text)
    is_config = inspect.isclass(subject) and hasattr(subject, "model_fields")
    for head, title in (("Args", "argument"), ("Returns", ""), ("Yields", ""), ("Raises", "raises")):
        match = re.search(rf"^{head}:\n((?:    .*\n?|\n)+)", text, re.MULTILINE)
        if match is None or (is_config and head == "Args"):
            continue
        body = inspect.cleandoc(match[1])
        if title:
            entries = [entry.partition(":") for entry in re.split(r"\n(?=\S)", body)]
            rows = [(f"`{one_line(name)}`", one_line(meaning)) for name, _, meaning in entries]
            if dataclasses.is_dataclass(subject):
                title = "field"
            yield table((title, "meaning"), rows)
        else:
            yield f"**{head}** {one_line(body)}"
