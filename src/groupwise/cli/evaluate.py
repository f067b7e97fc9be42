"""`groupwise evaluate`: a trained model on the held-out prompts."""

from __future__ import annotations

from typing import Annotated

import typer

from groupwise.cli.arguments import Threads
from groupwise.cli.trained import ExperimentOption, Place, Which


def evaluate(
    place: Place,
    experiment: ExperimentOption = None,
    which: Which = "final",
    json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
    threads: Threads = 1,
) -> None:
    """Evaluate a run's model, or any model folder, on an experiment's held-out prompts."""
    import torch
    from rich.text import Text

    from groupwise.cli.ending import texts
    from groupwise.cli.output import console, table
    from groupwise.cli.trained import trained
    from groupwise.experiment.runner import open_domain
    from groupwise.streams import Streams

    torch.set_num_threads(threads or 1)
    loaded = trained(place, experiment, which)
    domain = open_domain(loaded)
    domain.module.eval()
    with torch.no_grad():
        found = domain.evaluate(streams=Streams(loaded.seed))
    if json:
        import json as library

        print(library.dumps({"metrics": dict(found.metrics), "records": [dict(record) for record in found.records]}, ensure_ascii=False))
        return
    console().print(Text(f"{place} on the held-out prompts of {loaded.name}"))
    console().print(table(["metric", "value"], [(name, f"{value:.4g}") for name, value in found.metrics.items()], numbers=["value"]))
    for line in texts([], [dict(record) for record in found.records]):
        console().print(Text(line))
