"""How a run ends on the screen: what it was worth, what the model writes now, where everything is, and what to try."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupwise.runs.folder import RunFolder

if TYPE_CHECKING:
    from rich.console import RenderableType

_NUM_TEXTS = 3


def ending(run: Path, steps: tuple[int, int]) -> None:
    """Prints the end of a run from its folder; one that was interrupted has said already how it goes on.

    Args:
        run: the run folder.
        steps: those of the evaluations before and after.
    """
    from rich.text import Text

    from groupwise.cli.output import console, say
    from groupwise.cli.run_folder import run_config
    from groupwise.experiment.held_out import evaluations, read_summary

    out = console()
    if not RunFolder(run).has_ended:
        return
    summary = read_summary(run)
    config = run_config(run)
    out.print()
    for line in results(run, summary, config):
        say(line)
    for made in tables(run):
        out.print()
        out.print(made)
    records = evaluations(run)
    before, after = (records.get(step, []) for step in steps)
    if after:
        out.print()
        for line in texts(before, after):
            say(line)
    for line in pictures(run, steps):
        out.print(Text(line))
    for line in findings(run):
        say(line)
    out.print(Text(f"\nRun folder: {run}"))
    for line in advice(run, config, after):
        out.print(Text(line))


def results(run: Path, summary: dict[str, Any], config: dict[str, Any]) -> list[str]:
    """The score before and after, and what the controls reached from the same start in the same time.

    Args:
        run: the run folder.
        summary: what `summary.json` holds.
        config: the resolved configuration.
    """
    from groupwise.cli.output import counted
    from groupwise.experiment.controls import gains, told
    from groupwise.experiment.held_out import read_summary
    from groupwise.runs import EvaluatedOn
    from groupwise.track.alike import alike

    metric = summary["metric"]
    if metric is None:
        return ["No evaluation reported a metric."]
    over = gains({summary.get("seed", 0): run})
    controls = config.get("controls", {})
    measured = [name for name in controls if RunFolder(run).control(name).has_ended]
    before, after, *each = alike(
        [
            summary["before"],
            summary["after"],
            *(read_summary(RunFolder(run).control(name).path)["after"] for name in measured),
        ]
    )
    ends = dict(zip(measured, each, strict=True))
    evaluated_on = EvaluatedOn.read_folder(run)
    title = evaluated_on.of(metric)
    lines = [f"{title[:1].upper()}{title[1:]}: {before} before, {after} after"]
    for name, control in controls.items():
        reached = ends.get(name, "not measured")
        lines.append(
            f"  control {name}, same start and same time: {reached}"
            + (f"  ({control['description']})" if control["description"] else "")
        )
        if name in over:
            lines.append(f"    {told(over[name], evaluated_on.prompts)}")
    seconds = summary.get("seconds", {})
    parts = ", ".join(f"{part} {spent:.0f}" for part, spent in seconds.items() if spent >= 0.5)
    lines.append(
        f"{counted(summary['steps'], 'step')}, {sum(seconds.values()):.0f} s" + (f" ({parts})" if parts else "")
    )
    return lines


def tables(run: Path) -> list[RenderableType]:
    """The tables that the domain made, as they are printed, each followed by its notes.

    Args:
        run: the run folder.

    Example:
        >>> tables(Path("nowhere"))
        []
    """
    from groupwise.config import read_json

    return [part for path in sorted(RunFolder(run).tables.glob("*.json")) for part in printed(read_json(path))]


def printed(made: dict[str, Any]) -> list[RenderableType]:
    """A table of `tables/NAME.json` for the screen.

    Args:
        made: what the file holds.
    """
    from rich.text import Text

    from groupwise.cli.output import table

    rows = [[_cell(cell) for cell in row] for row in made["rows"]]
    return [
        table(made["columns"], rows, title=made["title"], numbers=made["columns"][1:]),
        *(Text(note) for note in made["notes"]),
    ]


def _cell(cell: Any) -> str:
    return (
        f"{cell['mean']:.3f} [{cell['low']:.3f}, {cell['high']:.3f}]"
        if isinstance(cell, dict)
        else cell
        if isinstance(cell, str)
        else _number(cell)
    )


def texts(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> list[str]:
    """What the model wrote for the same prompts before and after, greedily where that was recorded.

    Args:
        before, after: records of two evaluations; the first may be empty.
    """
    from groupwise.cli.output import shorten

    modes = [record.get("mode") for record in after if "text" in record]
    mode = "greedy" if "greedy" in modes else next(iter(modes), "sampled")
    first, last = (
        {
            record["key"]: record
            for record in records
            if record.get("mode") == mode and record.get("sample", 0) == 0 and "text" in record
        }
        for records in (before, after)
    )
    lines = []
    for key in list(last)[:_NUM_TEXTS]:
        lines.append(f"prompt  {shorten(_prompt(last[key]['prompt']), 200)}")
        if key in first:
            lines.append(f"before  {shorten(first[key]['text'], 200)}   {_rewards(first[key])}")
        lines.append(f"{'after ' if before else 'writes'}  {shorten(last[key]['text'], 200)}   {_rewards(last[key])}")
        lines.append("")
    return lines[:-1]


def pictures(run: Path, steps: tuple[int, int]) -> list[str]:
    """Where the pictures of the evaluations before and after are, by name."""
    before, after = (
        {path.name: path for path in sorted(RunFolder(run).evaluation_at(step).with_suffix("").glob("*.png"))}
        for step in steps
    )
    return [
        f"picture {Path(name).stem}:" + (f" before {before[name]}" if name in before else "") + f" after {after[name]}"
        for name in after
    ]


def findings(run: Path) -> list[str]:
    """What the rules noticed in the run's metrics and what held to its end; notes, which need nothing to be done, are
    left to `groupwise doctor`.

    Args:
        run: the run folder.
    """
    from groupwise.cli.run_folder import run_config
    from groupwise.diagnosis import diagnose
    from groupwise.track.metrics import read_metrics

    path = RunFolder(run).metrics
    found = diagnose(read_metrics(path), run_config(run)) if path.is_file() else []
    return [
        f"\nNoticed: {finding.rule}: {finding}" for finding in found if finding.holds and finding.severity != "note"
    ]


def advice(run: Path, config: dict[str, Any], records: list[dict[str, Any]]) -> list[str]:
    """Commands that make sense now.

    Args:
        run: the run folder.
        config: the resolved configuration.
        records: of the last evaluation.

    Returns:
        lines to print.
    """
    from groupwise.domain.kinds import DOMAINS, config_class
    from groupwise.domain.settings import DomainConfig

    place = shlex.quote(str(run))
    # A run folder is an experiment too: with a model, prompts or a budget of one's own it is what the commands below go
    # on with.
    name = config["name"] if _as_shipped(config) else place
    prompts = [record["prompt"] for record in records if isinstance(record.get("prompt"), str)]
    prompt = shlex.quote(prompts[0]) if prompts and len(prompts[0]) <= 80 and "\n" not in prompts[0] else ""
    other = "dapo" if config["method"] != "dapo" else "grpo"
    kind = config["domain"]["kind"]
    ask = (config_class(kind) if DOMAINS.can_read(kind) else DomainConfig).sample_hint
    steps = {
        ask: f"sample {place}" + (f" --prompt {prompt}" if prompt else ""),
        "what its metrics say": f"doctor {place}",
        "one page with its curves and groups": f"report {place}",
        "another method on the same task (`groupwise methods`)": f"train {name} method={other}",
        "which one is better, with intervals": (
            f"compare {name} --vary method={shlex.quote(config['method'])},{other} --seeds 3"
        ),
        "a folder that others load": f"export {place} --out {shlex.quote(str(run.name) + '-model')}",
    }
    # A command has a line of its own, so that it can be copied from a narrow terminal.
    return [
        "Try next:",
        *(line for what, command in steps.items() for line in (f"  {what}", f"    groupwise {command}")),
    ]


def _as_shipped(config: dict[str, Any]) -> bool:
    """Whether a shipped experiment's name says all that a run was: nothing but its method and its seed was changed."""
    from groupwise.config import ConfigError
    from groupwise.experiment import load_experiment
    from groupwise.experiment.catalogue import shipped

    if config["name"] not in shipped():
        return False
    try:
        table = load_experiment(config["name"], [f"method={config['method']}"]).table()
    except ConfigError:
        return False
    return {**table, "seed": 0} == {**config, "seed": 0}


def _rewards(record: dict[str, Any]) -> str:
    return ", ".join(f"{name} {_number(value)}" for name, value in record.get("rewards", {}).items())


def _prompt(prompt: Any) -> str:
    """A prompt in a line: a text, or the last message of a list of messages."""
    if isinstance(prompt, list) and prompt and isinstance(prompt[-1], dict):
        return str(prompt[-1].get("content", prompt[-1]))
    return str(prompt)


def _number(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else "-" if value is None else str(value)
