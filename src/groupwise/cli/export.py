"""`groupwise export`: a trained model as a folder that others load, with a card that says where it comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    out: Annotated[Path, typer.Option(help="Folder to write; it must not exist.")],
    which: Annotated[str, typer.Option(help="final, best, or the number of a step whose model was kept.")] = "final",
) -> None:
    """Write the trained model as others load it, with a model card. A language model's LoRA is merged into it; an image model's stays an adapter; a policy of
    selection comes with its examples and selects without torch."""
    import shutil

    from groupwise.checkpoint import new_folder
    from groupwise.cli.output import console
    from groupwise.cli.run_folder import model_folder, require_new, run_config
    from groupwise.config import read_json

    config = run_config(run)
    model = model_folder(run, which)
    require_new(out)
    summary = read_json(run / "summary.json") if (run / "summary.json").is_file() else {}
    with new_folder(out) as partial:
        if config["domain"].get("kind") == "selection":
            _write_selector(run, model, partial)
        else:
            shutil.copytree(model, partial, dirs_exist_ok=True)
        (partial / "README.md").write_text(model_card(out.resolve().name, config, summary, which), encoding="utf-8")
    console().print(f"Wrote {out}", soft_wrap=True)
    console().print(f"Load it: {_loading(config, out)}", markup=False, soft_wrap=True)


def _write_selector(run: Path, model: Path, folder: Path) -> None:
    from groupwise.domain.selection.config import SelectionConfig
    from groupwise.domain.selection.export import write_selector
    from groupwise.experiment import load_experiment

    config = load_experiment(run).domain
    assert isinstance(config, SelectionConfig)
    write_selector(config, model, folder)


# What loads a domain's folder, and what hubs call it.
_LIBRARIES = {"language": ("transformers", "text-generation"), "diffusion": ("diffusers", "text-to-image")}


def _loading(config: dict[str, Any], out: Path) -> str:
    kind = config["domain"].get("kind", "language")
    if kind == "language":
        return f'transformers.AutoModelForCausalLM.from_pretrained("{out}")'
    if kind == "selection":
        return f'groupwise.Selector.load("{out}").select(QUERY, {config["domain"]["shots"]})'
    if kind == "restoration":
        return f'groupwise.domain.restoration.loading.load("{out}")'
    if (out / "pytorch_lora_weights.safetensors").is_file():
        return f'diffusers.DiffusionPipeline.from_pretrained(BASE), and then pipeline.load_lora_weights("{out}")'
    if (out / "model_index.json").is_file():
        return f'diffusers.DiffusionPipeline.from_pretrained("{out}")'
    return f"groupwise evaluate {out} --experiment {config['name']}"


def model_card(name: str, config: dict[str, Any], summary: dict[str, Any], which: str) -> str:
    """A model card: what the model was trained for, how, with which result, and what that does not say.

    Args:
        name: of the model.
        config: the run's resolved configuration.
        summary: what `summary.json` holds; empty where the run has not ended.
        which: which of its models.

    Returns:
        the card, Markdown with a head for model hubs.
    """
    from importlib.metadata import version

    objective, selects = config["objective"], config["domain"].get("kind") == "selection"
    library = _LIBRARIES.get(config["domain"].get("kind", "language"))
    lines = [
        "---",
        *([f"library_name: {library[0]}", f"pipeline_tag: {library[1]}"] if library else []),
        "tags: [groupwise, reinforcement-learning]",
        "---",
        "",
        f"# {name}",
        "",
        f"Trained with Groupwise {version('groupwise')}: experiment `{config['name']}`, method `{objective['name']}`, seed {config['seed']} ({which} weights).",
        "",
        config.get("description", ""),
        "",
        "## Result",
        "",
    ]
    if summary:
        lines += ["| | " + f"{summary.get('metric', 'score')} on held-out {'queries' if selects else 'prompts'} |", "|---|---|"]
        lines += [f"| {key} | {_number(summary[key])} |" for key in ("before", "after", "baseline") if summary.get(key) is not None]
        lines += ["", f"{summary.get('steps', '?')} steps. One run of one seed: the spread over seeds is not measured here."]
    else:
        lines.append("The run had not finished when this was written; nothing was measured on its last weights.")
    if selects:
        lines += ["", "## What is in the folder", "", *_SELECTOR_FOLDER]
    lines += ["", "## Rewards", "", "The model was trained to raise these, and may do so in ways that were not meant:", ""]
    rewards = config.get("domain", {}).get("rewards", {})
    lines += [f"- `{reward}`: {_reward(settings)}" for reward, settings in rewards.items()] or ["- none"]
    lines += ["", "## Settings", "", "Everything needed to repeat the run:", "", "```json", _json(config), "```", ""]
    return "\n".join(lines)


_SELECTOR_FOLDER = (
    "A policy that chooses demonstrations for a frozen task model, and the solved examples it chooses from, with their answers: whoever has the folder can",
    "read them (`examples.jsonl`). It selects in numpy (`groupwise.Selector`), for LangChain (`groupwise.integrations.langchain`) and for DSPy",
    "(`groupwise.integrations.dspy`). It was trained for one task model, one template and one embedder, named in `selector.json`; with others it is untested.",
)


def _reward(settings: dict[str, Any]) -> str:
    from groupwise.config import flatten

    machinery = ("timeout_seconds", "on_error", "isolation")
    return ", ".join(f"{key} = {value}" for key, value in flatten(settings).items() if value is not None and key not in machinery)


def _number(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _json(config: dict[str, Any]) -> str:
    import json

    return json.dumps(config, indent=2)
