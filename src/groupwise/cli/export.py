"""`groupwise export`: a trained model as a folder for other libraries, with a model card."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from groupwise.cli.arguments import RunCode
from groupwise.cli.output import console, print_text
from groupwise.cli.trained import model_of, require_new, run_config
from groupwise.config import ConfigError, flatten, read_json
from groupwise.domain.exported import Card, Export, base_model
from groupwise.extras import require
from groupwise.runs import EvaluatedOn, is_number, read_run
from groupwise.runs.folder import RunFolder

# The YAML front matter of a model card, which model hubs read.


def card_head(config: Mapping[str, Any], card: Card) -> list[str]:
    """Writes the lines of the head.

    Args:
        config: the run's resolved configuration.
        card: the domain's description of the folder.

    Example:
        >>> from groupwise.domain.exported import Card
        >>> config = {"domain": {"model": {"kind": "pretrained", "path": "models/FLUX.1-dev"}}}
        >>> print(*card_head(config, Card("", "diffusers", "text-to-image", adapter=True)), sep="\\n")
        ---
        library_name: diffusers
        pipeline_tag: text-to-image
        base_model: "models/FLUX.1-dev"
        base_model_relation: adapter
        tags: [groupwise, reinforcement-learning, lora]
        ---
    """

    base = base_model(config["domain"])
    return [
        "---",
        *([f"library_name: {card.library}"] if card.library else []),
        *([f"pipeline_tag: {card.task}"] if card.task else []),
        # JSON strings are valid YAML, so any path is quoted correctly.
        *(
            [f"base_model: {json.dumps(base)}", f"base_model_relation: {'adapter' if card.adapter else 'finetune'}"]
            if base
            else []
        ),
        f"tags: [groupwise, reinforcement-learning{', lora' if card.adapter else ''}]",
        "---",
    ]


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    out: Annotated[Path, typer.Option(help="Folder to write; it must not exist.")],
    which: Annotated[
        str, typer.Option(help="final, best, or the number of a step whose model or checkpoint was kept.")
    ] = "final",
    examples: Annotated[
        str | None,
        typer.Option(
            help=(
                "The solved examples that a selector chooses from: held_out (unless said otherwise), validation, train,"
                " or a .jsonl file."
            )
        ),
    ] = None,
    measure: Annotated[
        bool, typer.Option(help="Measure a selector's folder as it is used, for its card; the task model answers.")
    ] = True,
    push: Annotated[
        str | None,
        typer.Option(
            metavar="OWNER/NAME",
            help="Upload the folder to this repository of the Hugging Face hub, which is made private if it is new.",
        ),
    ] = None,
    run_code: RunCode = False,
) -> None:
    """Write the trained model as others load it, with a model card. The LoRA of a language model or a
    restoration network is merged into it; a diffusion model's stays an adapter; a policy of selection comes with its
    examples and selects without torch.
    """
    from groupwise.checkpoint import new_folder
    from groupwise.domain.callable import config_class

    config = run_config(run)
    try:
        domain = config_class(config["domain"].get("kind", ""))
    except ValueError as error:
        raise ConfigError(f"{run}: domain.{error}") from error
    require_new(out)
    summary = read_json(RunFolder(run).summary) if RunFolder(run).has_ended else {}
    with model_of(run, which, run_code=run_code) as model, new_folder(out) as partial:
        ended = read_run(run)
        card = domain.export(
            Export(config["domain"], model, partial, out, run, examples, measure, evaluated_on=ended.evaluated_on)
        )
        controls = {
            name: control_end["after"]
            for name, control_end in ended.controls.items()
            if is_number(control_end.get("after"))
        }
        text = model_card(out.resolve().name, config, summary, which, card, controls, ended.evaluated_on)
        (partial / "README.md").write_text(text, encoding="utf-8")
    for remark in card.remarks:
        print_text(remark)
    console().print(f"Wrote {out}", soft_wrap=True)
    console().print(f"Load it: {card.loading}", markup=False, soft_wrap=True)
    if push is not None:
        print_text(f"Uploaded: {_pushed(out, push)}")


def _pushed(folder: Path, repository: str) -> str:
    """Uploads a folder to a repository of the hub and returns its address.

    Raises:
        ConfigError: the hub refused it or cannot be reached; the folder stays.
    """
    require("language", "groupwise export --push")
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled

    hub = HfApi()
    try:
        address = hub.create_repo(repository, private=True, exist_ok=True)
        hub.upload_folder(repo_id=repository, folder_path=folder)
    except (HfHubHTTPError, HFValidationError, OfflineModeIsEnabled, OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(
            f"--push {repository}: {reason}; {folder} is written: log in (hf auth login), then"
            f" hf upload {repository} {folder}"
        ) from error
    return str(address)


def model_card(
    name: str,
    config: dict[str, Any],
    summary: dict[str, Any],
    which: str,
    card: Card,
    controls: Mapping[str, float] | None = None,
    evaluated_on: EvaluatedOn | None = None,
) -> str:
    """Writes a model card: what the model was trained for, how, with which result, and what that does not say.

    Args:
        name: the name of the model.
        config: the run's resolved configuration.
        summary: what `summary.json` holds; empty where the run has not ended.
        which: which of its models.
        card: the domain's description of the folder.
        controls: name -> score of what was trained alongside it for the same time.
        evaluated_on: whether the prompts of its evaluations were trained on.

    Returns:
        the card, Markdown with a head for model hubs.
    """
    from importlib.metadata import version

    from groupwise.objective.preset import resolved_slots

    asked = (evaluated_on or EvaluatedOn()).called(card.prompts)
    preset = resolved_slots(config["method"])
    edited = "+edited" if any(config.get(slot, value) != value for slot, value in preset.items()) else ""
    result = ["The run had not finished when this was written; nothing was measured on its last weights."]
    if summary:
        weights_note = "" if which == "final" else f" The final weights were measured; these are {which}."
        result = [
            f"| | {summary.get('metric', 'score')} on {asked} |\n|---|---|",
            *(f"| {key} | {_number(summary[key])} |" for key in ("before", "after") if summary.get(key) is not None),
            *(f"| control `{control}` | {_number(float(score))} |" for control, score in (controls or {}).items()),
            f"\n{summary.get('steps', '?')} steps.{weights_note} One run of one seed: the spread over seeds is not"
            " measured here.",
        ]
    rewards = config.get("domain", {}).get("rewards", {})
    listed = [f"- `{reward}`: {_reward(settings)}" for reward, settings in rewards.items()]
    return "\n".join(
        [
            *card_head(config, card),
            f"\n# {name}\n",
            f"Trained with Groupwise {version('groupwise')}: experiment `{config['name']}`, method"
            f" `{config['method']}{edited}`, seed {config['seed']} ({which} weights).",
            f"\n{config.get('description', '')}\n\n## Result\n",
            *result,
            *card.sections,
            "\n## Rewards\n",
            "The model was trained to raise these, and may do so in ways that were not meant:\n",
            *(listed or ["- what its domain computes"]),
            "\n## Settings\n\nEverything needed to repeat the run:\n",
            f"```json\n{json.dumps(config, indent=2)}\n```\n",
        ]
    )


def _reward(settings: dict[str, Any]) -> str:

    machinery = ("timeout_seconds", "on_error", "isolation")
    return ", ".join(
        f"{key} = {value}" for key, value in flatten(settings).items() if value is not None and key not in machinery
    )


def _number(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)
