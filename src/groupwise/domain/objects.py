"""Python objects that a program hands over for a domain, as a domain's configuration refers to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from groupwise.config import ImportPath


@final
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


@final
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
