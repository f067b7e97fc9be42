"""`groupwise export`: a trained model as a folder that others load, with a card that says where it comes from."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from groupwise.cli.card_head import base_model, card_head
from groupwise.runs import EvaluatedOn


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    out: Annotated[Path, typer.Option(help="Folder to write; it must not exist.")],
    which: Annotated[str, typer.Option(help="final, best, or the number of a step whose model was kept.")] = "final",
    examples: Annotated[
        str | None,
        typer.Option(
            help=(
                "Selection: the solved examples to choose from: held_out (unless said otherwise), validation, train, or"
                " a .jsonl file."
            )
        ),
    ] = None,
    measure: Annotated[
        bool, typer.Option(help="Selection: measure the folder as it is used, for its card; the task model answers.")
    ] = True,
) -> None:
    """Write the trained model as others load it, with a model card. A language model's LoRA is merged into it; an image
    model's stays an adapter; a policy of selection comes with its examples and selects without torch.
    """
    import shutil

    from groupwise.checkpoint import new_folder
    from groupwise.cli.output import console
    from groupwise.cli.run_folder import model_folder, require_new, run_config
    from groupwise.config import ConfigError, read_json
    from groupwise.runs import is_number, read_run

    config = run_config(run)
    selects = config["domain"].get("kind") == "selection"
    if examples is not None and not selects:
        raise ConfigError(
            f"--examples {examples}: the {config['domain'].get('kind', 'language')} domain exports no examples; leave"
            " it out"
        )
    model = model_folder(run, which)
    require_new(out)
    summary = read_json(run / "summary.json") if (run / "summary.json").is_file() else {}
    with new_folder(out) as partial:
        used: dict[str, Any] = {}
        if selects:
            used = _write_selector(run, model, partial, examples or "held_out", measure)
        else:
            shutil.copytree(model, partial, dirs_exist_ok=True)
        ended = read_run(run)
        controls = {name: each["after"] for name, each in ended.controls.items() if is_number(each.get("after"))}
        card = model_card(out.resolve().name, config, summary, which, controls, ended.evaluated_on, used)
        (partial / "README.md").write_text(card, encoding="utf-8")
    console().print(f"Wrote {out}", soft_wrap=True)
    console().print(f"Load it: {_loading(config, out, run)}", markup=False, soft_wrap=True)


def _write_selector(run: Path, model: Path, folder: Path, examples: str, measure: bool) -> dict[str, Any]:
    """What the card says of the folder: its store, and its accuracy as it is used."""
    from groupwise.cli.output import console
    from groupwise.domain.selection.config import SelectionConfig
    from groupwise.domain.selection.export import write_selector
    from groupwise.domain.selection.store import contradictions
    from groupwise.experiment.loading import read_experiment

    config = read_experiment(run).domain
    assert isinstance(config, SelectionConfig)
    selector = write_selector(config, model, folder, examples)
    told: dict[str, Any] = {
        "examples": len(selector.examples),
        "of": examples,
        "pool": min(selector.trained.pool_size, len(selector.examples)),
    }
    if against := contradictions(selector.examples):
        console().print(
            f"{against} question{'s stand' if against > 1 else ' stands'} in the folder with more than one answer: the"
            " task model reads both"
        )
    if measure:
        import torch

        from groupwise.domain.selection.deployed import accuracy
        from groupwise.domain.selection.measure import Measures

        torch.set_num_threads(1)
        held_out = config.source.read().held_out
        found = accuracy(selector, held_out, Measures(config.task_model.open("cpu"), config.accuracy))
        told |= {
            "accuracy": [sum(column) / len(held_out) for column in zip(*found, strict=True)],
            "queries": len(held_out),
        }
    return told


def _loading(config: dict[str, Any], out: Path, run: Path) -> str:
    kind = config["domain"].get("kind", "language")
    if kind == "language":
        return f'transformers.AutoModelForCausalLM.from_pretrained("{out}")'
    if kind == "selection":
        return f'groupwise.Selector.load("{out}").select(QUERY, {config["domain"]["shots"]})'
    if kind == "restoration":
        return f'groupwise.domain.restoration.loading.load("{out}")'
    if (out / "pytorch_lora_weights.safetensors").is_file():
        return (
            f'diffusers.DiffusionPipeline.from_pretrained("{base_model(config)}"), and then'
            f' pipeline.load_lora_weights("{out}")'
        )
    if (out / "model_index.json").is_file():
        return f'diffusers.DiffusionPipeline.from_pretrained("{out}")'
    return f"groupwise evaluate {shlex.quote(str(out))} --experiment {shlex.quote(str(run))}"


def model_card(
    name: str,
    config: dict[str, Any],
    summary: dict[str, Any],
    which: str,
    controls: Mapping[str, float] | None = None,
    evaluated_on: EvaluatedOn | None = None,
    used: Mapping[str, Any] | None = None,
) -> str:
    """A model card: what the model was trained for, how, with which result, and what that does not say.

    Args:
        name: of the model.
        config: the run's resolved configuration.
        summary: what `summary.json` holds; empty where the run has not ended.
        which: which of its models.
        controls: name -> score of what was trained beside it for the same time.
        evaluated_on: whether the prompts of its evaluations were trained on.
        used: of a selector's folder: `examples` (how many) and `of` (which), `pool`, and where it was measured its
            `accuracy` on `queries`, by demonstrations.

    Returns:
        the card, Markdown with a head for model hubs.
    """
    from importlib.metadata import version

    asked = (evaluated_on or EvaluatedOn()).called(
        "queries" if config["domain"].get("kind") == "selection" else "prompts"
    )
    objective, selects = config["objective"], config["domain"].get("kind") == "selection"
    lines = [
        *card_head(config),
        "",
        f"# {name}",
        "",
        (
            f"Trained with Groupwise {version('groupwise')}: experiment `{config['name']}`, method"
            f" `{objective['name']}`, seed {config['seed']} ({which} weights)."
        ),
        "",
        config.get("description", ""),
        "",
        "## Result",
        "",
    ]
    if summary:
        lines += ["| | " + f"{summary.get('metric', 'score')} on {asked} |", "|---|---|"]
        lines += [f"| {key} | {_number(summary[key])} |" for key in ("before", "after") if summary.get(key) is not None]
        lines += [f"| control `{control}` | {_number(float(score))} |" for control, score in (controls or {}).items()]
        measured = "" if which == "final" else f" The final weights were measured; these are {which}."
        lines += [
            "",
            (
                f"{summary.get('steps', '?')} steps.{measured} One run of one seed: the spread over seeds is not"
                " measured here."
            ),
        ]
    else:
        lines.append("The run had not finished when this was written; nothing was measured on its last weights.")
    if selects:
        lines += ["", "## As it is used", "", *_as_used(used or {}, config["domain"]["shots"], asked)]
        lines += ["", "## What is in the folder", "", *_SELECTOR_FOLDER]
    lines += [
        "",
        "## Rewards",
        "",
        "The model was trained to raise these, and may do so in ways that were not meant:",
        "",
    ]
    rewards = config.get("domain", {}).get("rewards", {})
    lines += [f"- `{reward}`: {_reward(settings)}" for reward, settings in rewards.items()] or ["- none"]
    lines += ["", "## Settings", "", "Everything needed to repeat the run:", "", "```json", _json(config), "```", ""]
    return "\n".join(lines)


def _as_used(used: Mapping[str, Any], shots: int, asked: str) -> list[str]:
    """What a selector does out of its own folder, where the result above chose out of pools that were laid out for each
    query.
    """
    if "accuracy" not in used:
        return [
            "The folder was not measured as it is used; `groupwise evaluate FOLDER --experiment RUN` does it. The"
            " result above chose out of the run's pools."
        ]
    scores = used["accuracy"]
    source = (
        f"solved examples of {used['of']}"
        if used["of"].endswith(".jsonl")
        else f"solved examples of {used['of'].replace('_', '-')} queries"
    )
    return [
        (
            f"Each of {used['queries']} {asked} chose among the {used['pool']} nearest of the {used['examples']}"
            f" {source} in this folder, as"
        ),
        (
            "`Selector.select` does; the result above chose out of the run's pools. VQA accuracy of the task model's"
            " answers:"
        ),
        "",
        "| demonstrations | " + " | ".join(map(str, range(1, shots + 1))) + " | mean |",
        "|---|" + "---|" * (shots + 1),
        "| as exported | " + " | ".join(_number(float(score)) for score in [*scores, sum(scores) / shots]) + " |",
        "",
        "`groupwise evaluate FOLDER --experiment RUN` measures it again, after examples came or went too.",
    ]


_SELECTOR_FOLDER = (
    (
        "A policy that chooses demonstrations for a frozen task model, and the solved examples it chooses from, with"
        " their answers: whoever has the folder can"
    ),
    (
        "read them (`examples.jsonl`). It selects in numpy (`groupwise.Selector`), for LangChain"
        " (`groupwise.integrations.langchain`) and for DSPy"
    ),
    (
        "(`groupwise.integrations.dspy`). It was trained for one task model, one template and one embedder, named in"
        " `selector.json`; with others it is untested."
    ),
)


def _reward(settings: dict[str, Any]) -> str:
    from groupwise.config import flatten

    machinery = ("timeout_seconds", "on_error", "isolation")
    return ", ".join(
        f"{key} = {value}" for key, value in flatten(settings).items() if value is not None and key not in machinery
    )


def _number(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _json(config: dict[str, Any]) -> str:
    import json

    return json.dumps(config, indent=2)
