"""Arguments that several verbs share, and what they do to an experiment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from groupwise.cli import completion

if TYPE_CHECKING:
    from groupwise.experiment import Experiment
    from groupwise.experiment.catalogue import Source


def _complete_change(ctx: typer.Context, incomplete: str) -> list[str]:
    words = [ctx.params.get("experiment"), *(ctx.params.get("overrides") or ())]
    return completion.changes([str(word) for word in words if word is not None], incomplete)


ExperimentName = Annotated[
    str,
    typer.Argument(
        metavar="EXPERIMENT",
        help="A shipped name (`groupwise experiments`), a .toml file, a run folder, or its config.json.",
        autocompletion=completion.experiments,
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...",
        help="Changes, for example method=dapo trust.high=0.3 train.group_size=16.",
        autocompletion=_complete_change,
    ),
]
Model = Annotated[str | None, typer.Option(help="A model folder or hub id, in place of the experiment's model.")]
Prompts = Annotated[
    str | None,
    typer.Option(
        help=(
            "A file with one prompt a line (or .jsonl) for an image model; an experiment with a twin NAME_prompts then"
            " runs that, whose reward suits any."
        )
    ),
]
Seed = Annotated[int | None, typer.Option(help="Seed of everything random, in place of the experiment's.")]
RunCode = Annotated[
    bool,
    typer.Option("--run-code", help="Let the code run that a run folder names."),
]
Threads = Annotated[int | None, typer.Option(min=1, max=1024, help="Threads on a CPU; one is usually the fastest.")]


def load(
    name: str,
    overrides: Sequence[str] | None,
    *,
    model: str | None = None,
    prompts: str | None = None,
    seed: int | None = None,
    threads: int | None = None,
    run_code: bool = False,
) -> Experiment:
    """Loads the experiment that a command line names, with its options as the uppermost layer.

    With prompts of its own, an experiment that comes with a twin `NAME_prompts` is that twin: its rewards and stages
    depend on no data but the prompts.

    Args:
        name: the experiment.
        overrides: `key=value` items.
        model: a model folder or hub id in place of the experiment's.
        seed: of the run.
        threads: threads on a CPU.
        run_code: the code that a run folder names may run.

    Returns:
        the experiment.

    Raises:
        ConfigError: anything that is wrong with it.
    """
    import json

    from groupwise.experiment.catalogue import find, shipped

    # An unknown name is reported before anything heavy is imported.
    source = find(name)
    if prompts is not None and f"{name.partition('_')[0]}_prompts" in shipped() and name in shipped():
        name = f"{name.partition('_')[0]}_prompts"
    from groupwise.experiment import load_experiment

    items = list(overrides or ())
    if model is not None:
        items += [f"domain.{key}={json.dumps(value)}" for key, value in _on_model(source, model).items()]
    if prompts is not None:
        items += ["domain.data.source.kind=prompts", f"domain.data.source.path={json.dumps(prompts)}"]
    if seed is not None:
        items.append(f"seed={seed}")
    if threads is not None:
        items.append(f"train.num_threads={threads}")
    return load_experiment(name, items, run_code=run_code)


def _on_model(source: Source, model: str) -> dict[str, Any]:
    """Returns the keys that put the experiment's domain on a model, as its kind calls them."""
    from groupwise.config import flatten
    from groupwise.domain.callable import DOMAINS
    from groupwise.domain.settings import DomainConfig

    kind = source.tree.get("domain", {}).get("kind")
    config: Any = DOMAINS.config(kind) if isinstance(kind, str) and DOMAINS.can_read(kind) else DomainConfig
    return flatten(config.on_model(model))
