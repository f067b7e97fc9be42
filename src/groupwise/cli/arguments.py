"""Arguments that several verbs share, and what they do to an experiment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from groupwise.experiment import Experiment

ExperimentName = Annotated[
    str, typer.Argument(metavar="EXPERIMENT", help="A shipped name (`groupwise experiments`), a .toml file, a run folder, or its config.json.")
]
Overrides = Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Changes, for example method=dapo trust.high=0.3 train.group_size=16.")]
Model = Annotated[str | None, typer.Option(help="A model folder or hub id, in place of the experiment's model.")]
Prompts = Annotated[
    str | None,
    typer.Option(help="A file with one prompt a line (or .jsonl) for an image model; `diffusion` then runs `diffusion_prompts`, whose reward suits any."),
]
Seed = Annotated[int | None, typer.Option(help="Seed of everything random, in place of the experiment's.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads on a CPU; one is usually the fastest.")]


def load(
    name: str,
    overrides: Sequence[str] | None,
    *,
    model: str | None = None,
    prompts: str | None = None,
    seed: int | None = None,
    threads: int | None = None,
) -> Experiment:
    """The experiment a command line names, with its options as the uppermost layer.

    With prompts of its own, an experiment that comes with a twin `NAME_prompts` is that twin: its rewards and stages depend on no data but the prompts.

    Args:
        name: the experiment.
        overrides: `key=value` items.
        model: a model folder or hub id in place of the experiment's.
        seed: of the run.
        threads: threads on a CPU.

    Returns:
        the experiment.

    Raises:
        ConfigError: anything that is wrong with it.
    """
    import json

    from groupwise.experiment.catalogue import find, shipped

    # A name that does not exist is said before anything heavy is imported.
    find(name)
    if prompts is not None and f"{name.partition('_')[0]}_prompts" in shipped() and name in shipped():
        name = f"{name.partition('_')[0]}_prompts"
    from groupwise.experiment import load_experiment

    items = list(overrides or ())
    if model is not None:
        items += ["domain.model.kind=pretrained", f"domain.model.path={json.dumps(model)}"]
    if prompts is not None:
        items += ["domain.data.source.kind=prompts", f"domain.data.source.path={json.dumps(prompts)}"]
    if seed is not None:
        items.append(f"seed={seed}")
    if threads is not None:
        items.append(f"train.num_threads={threads}")
    return load_experiment(name, items)
