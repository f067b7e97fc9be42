"""`groupwise evaluate`: a trained model on the prompts of an experiment's evaluation."""

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from groupwise.cli.arguments import RunCode, Threads
from groupwise.cli.output import console, table
from groupwise.cli.summary import printed, texts
from groupwise.cli.trained import ExperimentOption, Place, Which, trained
from groupwise.runs import EvaluatedOn

if TYPE_CHECKING:
    from groupwise.domain.protocol import Evaluation


def evaluate(
    place: Place,
    experiment: ExperimentOption = None,
    which: Which = "final",
    out: Annotated[Path | None, typer.Option(help="A folder for pictures and for the records of every prompt.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
    threads: Threads = 1,
    run_code: RunCode = False,
) -> None:
    """Evaluate a run's model, or any model folder, on the prompts of an experiment's evaluation: held-out ones, where
    it keeps some apart. The folder of an exported selector is measured as it is used.
    """
    import torch

    from groupwise.domain.protocol import Deploys, Tabulates
    from groupwise.domain.returned import checked_evaluation, checked_tables, naming_failed_method
    from groupwise.experiment.runner import open_domain
    from groupwise.streams import Streams
    from groupwise.training.run.rollout_records import as_json, with_files, write_pictures, write_tables
    from groupwise.training.run.run_folder import write_records

    torch.set_num_threads(threads or 1)
    with trained(place, experiment, which, run_code=run_code) as loaded:
        domain = open_domain(loaded)
    with closing(domain), torch.no_grad(), naming_failed_method(domain):
        domain.learner.eval()
        used = domain.deployed(place) if isinstance(domain, Deploys) else None
        if used is not None:
            evaluation, tables = used
        else:
            evaluation = checked_evaluation(domain.evaluate(streams=Streams(loaded.seed)))
            tables = (
                checked_tables(domain.tables(streams=Streams(loaded.seed))) if isinstance(domain, Tabulates) else []
            )
    if out is not None:
        write_pictures(out, evaluation.pictures)
        write_records(out / "records.jsonl", with_files(evaluation.records, out / "members", out))
        write_tables(out / "tables", tables)
    records = [
        {key: value for key, value in record.items() if not isinstance(value, torch.Tensor)}
        for record in evaluation.records
    ]
    json_tables = [as_json(domain_table) for domain_table in tables]
    if json:
        import json as library
        from dataclasses import asdict

        events = [asdict(event) for event in evaluation.events]
        lists = {"records": records, "tables": json_tables, "events": events}
        print(library.dumps({"metrics": dict(evaluation.metrics), **lists}, ensure_ascii=False))
        return
    evaluated_on = EvaluatedOn.among(domain.trained_on, domain.evaluated_on)
    console().print(
        Text(f"{place} {'' if used is None else 'as it is used, '}on the {evaluated_on.prompts} of {loaded.name}")
    )
    _show(evaluation, json_tables, records)
    if out is not None:
        console().print(Text(f"Records{' and pictures' if evaluation.pictures else ''}: {out}"))


def _show(evaluation: "Evaluation", tables: list[dict[str, Any]], records: list[dict[str, Any]]) -> None:

    metrics = [(name, f"{value:.4g}") for name, value in evaluation.metrics.items()]
    console().print(table(["metric", "value"], metrics, numbers=["value"]))
    for part in [part for domain_table in tables for part in printed(domain_table)]:
        console().print(part)
    for line in texts([], records):
        console().print(Text(line))
    for event in evaluation.events:
        detail = f", {event.detail}" if event.detail else ""
        console().print(
            Text(
                f"reward {event.reward!r}: {event.name} for {event.count}"
                f" samples{detail}{'' if event.scored else '; left out of its mean'}"
            )
        )
