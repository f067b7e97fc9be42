"""The end of a run on the screen: scores, texts and pictures before and after, findings, the folder, and advice."""

import shlex
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from groupwise.cli.output import console, counted, print_text, shorten, table
from groupwise.cli.trained import run_config
from groupwise.config import read_json
from groupwise.experiment.loaded_run import evaluations, read_summary
from groupwise.plugins import find
from groupwise.runs import EvaluatedOn
from groupwise.runs.folder import RunFolder

_NUM_TEXTS = 3


def print_summary(run: Path, steps: tuple[int, int]) -> None:
    """Prints the results of a run from its folder; nothing for a run that was interrupted.

    Args:
        run: the run folder.
        steps: those of the evaluations before and after.
    """

    out = console()
    if not RunFolder(run).has_ended:
        return
    summary = read_summary(run)
    config = run_config(run)
    out.print()
    headline, noticed = findings(run, config)
    for line in [*headline, *results(run, summary, config)]:
        print_text(line)
    for renderable in tables(run):
        out.print()
        out.print(renderable)
    records = evaluations(run)
    before, after = (records.get(step, []) for step in steps)
    if after:
        out.print()
        for line in texts(before, after):
            print_text(line)
    for line in pictures(run, steps):
        out.print(Text(line))
    for line in noticed:
        print_text(line)
    out.print(Text(f"\nRun folder: {run}"))
    for line in advice(run, config, after):
        out.print(Text(line))


def results(run: Path, summary: dict[str, Any], config: dict[str, Any]) -> list[str]:
    """Reports the score before and after, and that of the controls from the same start in the same time.

    Args:
        run: the run folder.
        summary: the table of `summary.json`.
        config: the resolved configuration.
    """
    from groupwise.track.tracker import read_metrics, same_decimals

    metric = summary["metric"]
    if metric is None:
        return ["No evaluation reported a metric."]
    described_gains = find("described_gains")
    over = {} if described_gains is None else described_gains(run)
    controls = config.get("controls", {})
    measured_controls = [name for name in controls if RunFolder(run).control(name).has_ended]
    ends = [read_summary(RunFolder(run).control(name).path)["after"] for name in measured_controls]
    before, after, *scores = same_decimals([summary["before"], summary["after"], *ends])
    reached = dict(zip(measured_controls, scores, strict=True))
    title = EvaluatedOn.read_folder(run).of(metric)
    lines = [f"{title[:1].upper()}{title[1:]}: {before} before, {after} after"]
    for name, control in controls.items():
        described = f"  ({control['description']})" if control["description"] else ""
        score = reached.get(name, "not measured")
        lines.append(f"  control {name}, same start and same time: {score}{described}")
        if name in over:
            lines.append(f"    {over[name]}")
    seconds = summary.get("seconds", {})
    parts = ", ".join(f"{part} {spent:.0f}" for part, spent in seconds.items() if spent >= 0.5)
    spent_on = f" ({parts})" if parts else ""
    # A run that starts from another's warm-up counts its steps on from there.
    path = RunFolder(run).metrics
    num_steps = sum("step_time" in row for row in read_metrics(path)) if path.is_file() else summary["steps"]
    return [*lines, f"{counted(num_steps, 'step')}, {sum(seconds.values()):.0f} s{spent_on}"]


def tables(run: Path) -> list[RenderableType]:
    """Returns the domain's tables as they are printed, each followed by its notes.

    Example:
        >>> tables(Path("nowhere"))
        []
    """

    return [part for path in sorted(RunFolder(run).tables.glob("*.json")) for part in printed(read_json(path))]


def printed(domain_table: dict[str, Any]) -> list[RenderableType]:
    """Returns a table of `tables/NAME.json` and its notes for the screen."""

    rows = [[_cell(cell) for cell in row] for row in domain_table["rows"]]
    return [
        table(domain_table["columns"], rows, title=domain_table["title"], numbers=domain_table["columns"][1:]),
        *(Text(note) for note in domain_table["notes"]),
    ]


def _cell(cell: Any) -> str:
    return f"{cell['mean']:.3f} [{cell['low']:.3f}, {cell['high']:.3f}]" if isinstance(cell, dict) else _number(cell)


def texts(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> list[str]:
    """Quotes the model's texts for the same prompts before and after, greedy ones where those were recorded.

    Args:
        before, after: records of two evaluations; the first may be empty.
    """

    modes = [record.get("mode") for record in after if "text" in record]
    mode = "greedy" if "greedy" in modes else next(iter(modes), "sampled")

    def first_texts(records: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
        chosen = [record for record in records if record.get("mode") == mode and "text" in record]
        return {record["key"]: record for record in chosen if record.get("sample", 0) == 0}

    before_by_key, after_by_key = first_texts(before), first_texts(after)
    lines = []
    for key in list(after_by_key)[:_NUM_TEXTS]:
        lines.append(f"prompt  {shorten(_prompt(after_by_key[key]['prompt']), 200)}")
        if key in before_by_key:
            lines.append(f"before  {shorten(before_by_key[key]['text'], 200)}   {_rewards(before_by_key[key])}")
        record = after_by_key[key]
        lines.append(f"{'after ' if before else 'writes'}  {shorten(record['text'], 200)}   {_rewards(record)}")
        lines.append("")
    return lines[:-1]


def pictures(run: Path, steps: tuple[int, int]) -> list[str]:
    """Lists the paths of the pictures of the evaluations before and after, by name."""
    before, after = (
        {path.name: path for path in sorted(RunFolder(run).evaluation_at(step).with_suffix("").glob("*.png"))}
        for step in steps
    )
    return [
        f"picture {Path(name).stem}:" + (f" before {before[name]}" if name in before else "") + f" after {after[name]}"
        for name in after
    ]


def findings(run: Path, config: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Returns the doctor's headline and the rules that hold at the end of a run, causes first; notes, which ask for no
    action, are left to `groupwise doctor`. Both are empty where nothing is wrong.
    """
    from groupwise.track.tracker import read_metrics

    path, diagnose = RunFolder(run).metrics, find("diagnose")
    if diagnose is None or not path.is_file():
        return [], []
    found = diagnose(read_metrics(path), config)
    alarms = [finding for finding in found if finding.holds and finding.severity != "note"]
    headline = [] if found.headline is None else [f"{found.headline} (groupwise doctor {shlex.quote(str(run))})", ""]
    return headline, [f"\nNoticed: {finding.rule}: {finding}" for finding in alarms]


def advice(run: Path, config: dict[str, Any], records: list[dict[str, Any]]) -> list[str]:
    """Lists commands that make sense after the run.

    Args:
        run: the run folder.
        config: the resolved configuration.
        records: the records of the last evaluation.

    Returns:
        lines to print.
    """
    from groupwise.domain.callable import DOMAINS, config_class
    from groupwise.domain.settings import DomainConfig

    place = shlex.quote(str(run))
    prompts = [record["prompt"] for record in records if isinstance(record.get("prompt"), str)]
    prompt = shlex.quote(prompts[0]) if prompts and len(prompts[0]) <= 80 and "\n" not in prompts[0] else ""
    other_method = "dapo" if config["method"] != "dapo" else "grpo"
    kind = config["domain"]["kind"]
    ask = (config_class(kind) if DOMAINS.can_read(kind) else DomainConfig).sample_hint
    warm_start = f" start={place}" if RunFolder(run).warm_up.is_dir() else ""
    steps = {
        ask: f"sample {place}" + (f" --prompt {prompt}" if prompt else ""),
        "what its metrics say": f"doctor {place}",
        "one page with its curves and groups": f"report {place}",
        "another method on the same task (`groupwise methods`)": f"train {place} method={other_method}{warm_start}",
        "which one is better, with intervals": (
            f"compare {place} --vary method={shlex.quote(config['method'])},{other_method} --seeds 3"
        ),
        "a folder that others load": f"export {place} --out {shlex.quote(str(run.name) + '-model')}",
    }
    # Commands are on separate lines, so that they can be copied from a narrow terminal.
    return [
        "Try next:",
        *(line for what, command in steps.items() for line in (f"  {what}", f"    groupwise {command}")),
    ]


def _rewards(record: dict[str, Any]) -> str:
    return ", ".join(f"{name} {_number(value)}" for name, value in record.get("rewards", {}).items())


def _prompt(prompt: Any) -> str:
    """Returns a prompt in a line: a text, or the last message of a list of messages."""
    if isinstance(prompt, list) and prompt and isinstance(prompt[-1], dict):
        return str(prompt[-1].get("content", prompt[-1]))
    return str(prompt)


def _number(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else "-" if value is None else str(value)
