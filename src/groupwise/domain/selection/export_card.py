"""The export of a selector by `groupwise export`, and the sections of its card: its examples and its use."""

from __future__ import annotations

from collections.abc import Sequence

from groupwise.domain.exported import Card, Export
from groupwise.domain.selection.config import SelectionConfig
from groupwise.domain.selection.export import write_selector
from groupwise.domain.selection.selector import Selector
from groupwise.domain.selection.store import contradictions

_FOLDER = (
    "A policy that chooses demonstrations for a frozen task model, and the solved examples it chooses from, with"
    " their answers: whoever has the folder can",
    "read them (`examples.jsonl`). It selects in numpy (`groupwise.Selector`), for LangChain"
    " (`groupwise.integrations.langchain`) and for DSPy",
    "(`groupwise.integrations.dspy`). It was trained for one task model, one template and one embedder, named in"
    " `selector.json`; with others it is untested.",
)


def export(config: SelectionConfig, request: Export) -> Card:
    """Writes the selector, and measures it in use where `request.measure` is set.

    Args:
        config: configuration of the run.
        request: the policy and the destination.

    Returns:
        the sections of its card.

    Raises:
        ConfigError: as `write_selector`.
    """
    examples = request.examples or "held_out"
    selector = write_selector(config, request.model, request.folder, examples)
    contradicted = contradictions(selector.examples)
    remarks = (
        [
            f"{contradicted} question{'s stand' if contradicted > 1 else ' stands'} in the folder with more than one"
            " answer: the task model reads both"
        ]
        if contradicted
        else []
    )
    use_section = _use_section(config, selector, examples, request) if request.measure else _UNMEASURED
    return Card(
        loading=f'groupwise.Selector.load("{request.out}").select(QUERY, {config.shots})',
        prompts="queries",
        sections=["", "## As it is used", "", *use_section, "", "## What is in the folder", "", *_FOLDER],
        remarks=remarks,
    )


_UNMEASURED = (
    "The folder was not measured as it is used; `groupwise evaluate FOLDER --experiment RUN` does it. The"
    " result above chose out of the run's pools.",
)


def _use_section(config: SelectionConfig, selector: Selector, examples: str, request: Export) -> Sequence[str]:
    """Measures a selector on the examples of its folder, for a section of the card."""
    import torch

    from groupwise.domain.selection.measurement import Measures
    from groupwise.domain.selection.selector_evaluation import accuracy

    torch.set_num_threads(1)
    held_out = config.source.read().held_out
    columns = zip(
        *accuracy(selector, held_out, Measures(config.task_model.open("cpu"), config.accuracy, config.answers)),
        strict=True,
    )
    scores = [float(sum(column)) / len(held_out) for column in columns]
    pool = min(selector.trained.pool_size, len(selector.examples))
    source = (
        f"solved examples of {examples}"
        if examples.endswith(".jsonl")
        else f"solved examples of {examples.replace('_', '-')} queries"
    )
    return [
        f"Each of {len(held_out)} {request.evaluated_on.called('queries')} chose among the {pool} nearest of the"
        f" {len(selector.examples)} {source} in this folder, as",
        "`Selector.select` does; the result above chose out of the run's pools. VQA accuracy of the task model's"
        " answers:",
        "",
        "| demonstrations | " + " | ".join(map(str, range(1, config.shots + 1))) + " | mean |",
        "|---|" + "---|" * (config.shots + 1),
        "| as exported | " + " | ".join(f"{score:.3f}" for score in [*scores, sum(scores) / config.shots]) + " |",
        "",
        "`groupwise evaluate FOLDER --experiment RUN` measures it again, after examples came or went too.",
    ]
