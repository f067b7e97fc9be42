"""One HTML page about one run or several, complete in itself: it loads nothing from any network.

Everything that a run wrote is treated as data: it reaches the page as escaped text or as JSON that no parser can take
for markup, and scripts only set it as text. A policy inside the page allows exactly the scripts and styles that this
package ships.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from groupwise.config.tables import visible
from groupwise.runs import EvaluatedOn, Run
from groupwise_look.diagnosis import diagnose
from groupwise_look.report.axes import axes
from groupwise_look.report.charts import sections, stages, time_split
from groupwise_look.report.groups import Recorded, browse, scan, shortened
from groupwise_look.report.pictures import Pictures
from groupwise_look.report.results import Variant, differences, group_runs, results
from groupwise_look.report.tables import domain_tables, held_out, write_whole

if TYPE_CHECKING:
    from jinja2 import Template

TEXT_BYTES, PICTURE_BYTES, HELD_OUT_BYTES, EXHIBIT_BYTES = 9_000_000, 5_000_000, 1_000_000, 2_000_000
"""Bytes of a page, all runs together, for members' texts, members' pictures, members of evaluations (half for texts,
half for pictures) and evaluations' pictures. The remainder is small: a page stays under 20 MB.
"""
MOST_GROUPS = 300
"""Groups of one run that a page shows."""
MOST_EXHIBITS = 4
"""Evaluations of one run whose pictures a page shows."""

MOST_EXAMPLES = 3
"""Prompts whose answers before and after stand above everything else."""

_HERE = Path(__file__).parent
_SCRIPTS = ("chart.js", "view.js", "groups.js", "live.js", "page.js")


def write_page(runs: Sequence[Run], out: Path, *, most_groups: int = MOST_GROUPS) -> Path:
    """Writes the page of one or several runs.

    Args:
        runs: runs that `read_run` read; those that differ by their seed alone are drawn as one.
        out: path of the HTML file.
        most_groups: groups shown of one run; fewer where the budget of text or pictures is spent.

    Returns:
        `out`.

    Raises:
        ConfigError: the file cannot be written.
    """
    return write_whole(out, render(runs, most_groups=most_groups), "file")


def render(runs: Sequence[Run], *, most_groups: int = MOST_GROUPS, live: str = "") -> bytes:
    """Returns the page of one or several runs, in UTF-8.

    Args:
        most_groups: limit on the groups of one run.
        live: the version of a page that is served and asks its server for newer ones; empty for a file.
    """
    from markupsafe import Markup

    variants = group_runs(runs)
    named = list(zip(_run_names(variants), (run for variant in variants for run in variant.runs), strict=True))
    recorded = {id(run): scan(run) for run in runs}
    drawn, constants = sections(
        variants, [_join_rollouts([recorded[id(run)] for run in variant.runs]) for variant in variants]
    )
    browsed = _browsed(named, recorded, most_groups)
    table = results(variants)
    style = (_HERE / "page.css").read_text(encoding="utf-8")
    script = "\n".join((_HERE / name).read_text(encoding="utf-8") for name in _SCRIPTS)
    connect = "connect-src 'self'; " if live else ""
    diagnosed = _diagnosed(named)
    page_data = {
        "variants": [variant.name for variant in variants],
        "runs": [
            {"name": name, "variant": _variant_index(variants, run), "path": str(run.path)} for name, run in named
        ],
        "browsed": [{"name": name} for name, _ in browsed],
        "sections": drawn,
        "stages": stages(variants),
        "axes": axes(variants),
        "time": time_split(variants),
    }
    page = _template().render(
        title=", ".join(dict.fromkeys(run.name for run in runs)),
        description=_description(runs),
        version=metadata.version("groupwise"),
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        variants=list(zip(variants, table, strict=True)),
        runs=named,
        evaluated_on=EvaluatedOn.together(run.evaluated_on for run in runs),
        metric=next((row.metric for row in table if row.metric), None),
        has_controls=any(row.controls for row in table),
        metrics_agree=len({row.metric for row in table if row.metric}) < 2,
        findings=_findings(diagnosed),
        headlines=[(name, text) for name, _, text in diagnosed if text],
        remarks=[(name, [*run.remarks, *recorded[id(run)].remarks, *_start_remarks(run)]) for name, run in named],
        differences=differences(variants),
        constants=constants,
        pictures=_evaluation_pictures(named),
        examples=_before_and_after(browsed),
        tables=[(name, tables) for name, run in named if (tables := domain_tables(run))],
        live=live,
        policy=Markup(
            f"default-src 'none'; {connect}img-src data:; style-src {_digest(style)}; script-src {_digest(script)}"
        ),
        style=Markup(style),
        script=Markup(script),
        data=Markup(_embedded(page_data)),
        groups=[Markup(_embedded(run_groups)) for _, run_groups in browsed],
        has_groups=any(run_groups["groups"] for _, run_groups in browsed),
    )
    # JSON can hold a lone surrogate, which UTF-8 cannot encode.
    return page.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode("utf-8")


def _template() -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "visible": visible,
        "number": format_number,
        "seconds": format_seconds,
        "signed": format_difference,
        "pretty": format_table,
    }
    return environment.get_template("page.html")


def _browsed(
    named: Sequence[tuple[str, Run]], recorded: Mapping[int, Recorded], most_groups: int
) -> list[tuple[str, dict[str, Any]]]:
    """Returns the groups that a reader can browse, of the rollouts of every run and then of their evaluations; the runs
    share the page's bytes.
    """
    text_bytes, picture_bytes = TEXT_BYTES // len(named), PICTURE_BYTES // len(named)
    budget = {"most_groups": most_groups, "text_bytes": text_bytes, "picture_bytes": picture_bytes}
    browsed = [(name, browse(run, recorded[id(run)], **budget)) for name, run in named]
    share = HELD_OUT_BYTES // 2 // len(named)
    for name, run in named:
        if evaluation_prompts := held_out(run, text_bytes=share, picture_bytes=share):
            browsed.append((f"{run.evaluated_on.prompts.capitalize()}: {name}", evaluation_prompts))
    return browsed


def _before_and_after(browsed: Sequence[tuple[str, dict[str, Any]]]) -> dict[str, Any] | None:
    """Returns the first prompts of the first run's evaluations with their answers before and after: in the order in
    which they were recorded, so that no answer is chosen for its score.
    """
    name, data = next(((name, data) for name, data in browsed if "held" in data), ("", {}))
    rows = []
    for group in data.get("groups", []):
        if group["mode"] != data["groups"][0]["mode"]:
            break
        first_answers = {
            member["when"]: member for member in reversed(group["members"]) if "t" in member or "m" in member
        }
        if {"before", "after"} & data["held"].keys() <= first_answers.keys() and len(rows) < MOST_EXAMPLES:
            prompt = group["prompt"] if isinstance(group["prompt"], str) else group["prompt"][-1][1]
            answers = [
                (_answer(first_answers[when]), first_answers[when]["r"])
                for when in ("before", "after")
                if when in first_answers
            ]
            rows.append({"prompt": shortened(prompt, 300), "answers": answers})
    if not rows:
        return None
    held = data["held"]
    when = [f"{when.capitalize()} (step {held[when]:,})" for when in ("before", "after") if when in held]
    return {"says": f"{name}; the first that were recorded, with their scores.", "when": when, "rows": rows}


def _answer(member: Mapping[str, Any]) -> str:
    text = member["t"] if "t" in member else (member["m"] or [["", ""]])[-1][1]
    return shortened(text, 300) or "(empty)"


def format_number(value: object) -> str:
    """Formats a number with four significant digits, and `None` as a dash.

    Args:
        value: a number; any other value is converted to text.

    Example:
        >>> [format_number(value) for value in (0.98765432, 12, None, "text")]
        ['0.9877', '12', '–', 'text']
    """
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}".replace("-", "\u2212")
    return visible(json.dumps(value) if isinstance(value, list | dict | bool) else value)


def format_table(table: Mapping[str, Any]) -> str:
    """Formats a table as indented JSON.

    Example:
        >>> print(format_table({"seed": 0}))
        {
          "seed": 0
        }
    """
    return visible(json.dumps(table, indent=2, ensure_ascii=False, default=str))


def format_difference(value: float) -> str:
    """Formats a difference with its sign.

    Example:
        >>> format_difference(0.25), format_difference(-0.25)
        ('+0.25', '−0.25')
    """
    return f"{value:+.4g}".replace("-", "\u2212")


def format_seconds(value: float | None) -> str:
    """Formats a duration in seconds for a reader.

    Example:
        >>> [format_seconds(value) for value in (0.25, 75, 7300, None)]
        ['0.2 s', '1 min 15 s', '2 h 1 min', '–']
    """
    if value is None:
        return "–"
    if value < 60:
        return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _start_remarks(run: Run) -> list[str]:
    """Returns the remarks of the run's rewards on the machine, from the latest start of the run."""
    remarks = run.starts[-1].get("remarks") if run.starts else None
    return [remark for remark in remarks if isinstance(remark, str)] if isinstance(remarks, list) else []


def _embedded(value: Any) -> str:
    """Returns JSON that can be inside a page: without `<`, no element can begin or end in it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str).replace("<", "\\u003c")


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _variant_index(variants: Sequence[Variant], run: Run) -> int:
    return next(
        index for index, variant in enumerate(variants) if any(variant_run is run for variant_run in variant.runs)
    )


def _run_names(variants: Sequence[Variant]) -> list[str]:
    """Returns one name a run, in the order of variants and seeds: its seed, or its folder where seeds repeat."""
    names = []
    for variant in variants:
        seeds = [run.seed for run in variant.runs]
        for run in variant.runs:
            own = f"seed {run.seed}" if run.seed is not None and seeds.count(run.seed) == 1 else str(run.path)
            names.append(variant.name if len(seeds) == 1 else f"{variant.name}, {own}")
    return names


def _description(runs: Sequence[Run]) -> str:
    texts = {str(run.config.get("description") or "") for run in runs}
    return texts.pop() if len(texts) == 1 else ""


def _join_rollouts(recorded: Sequence[Recorded]) -> Recorded:
    """Joins the recorded advantages and rewards of one variant's runs, step by step."""

    def joined(field: str) -> dict[int, np.ndarray]:
        steps = sorted({step for rollouts in recorded for step in getattr(rollouts, field)})
        return {
            step: np.concatenate(
                [by_step[step] for rollouts in recorded if step in (by_step := getattr(rollouts, field))]
            )
            for step in steps
        }

    return Recorded(advantages=joined("advantages"), rewards=joined("rewards"))


def _diagnosed(named: Sequence[tuple[str, Run]]) -> list[tuple[str, list[dict[str, Any]], str]]:
    """Returns of every run its name, the records of its findings and its headline, which is empty where nothing is
    wrong. Where the rules cannot read a run, a note says so and the page is written all the same.
    """
    diagnosed = []
    for name, run in named:
        try:
            findings = diagnose(run.rows, run.config)
            headline = "" if findings.headline is None else str(findings.headline)
            diagnosed.append((name, [finding.record() for finding in findings], headline))
        except (ValueError, TypeError, KeyError, ArithmeticError, AttributeError) as error:
            what = f"The rules could not read this run ({error})."
            unread = {"rule": "not_judged", "severity": "note", "what": what, "means": "", "advice": ""}
            diagnosed.append((name, [unread], ""))
    return diagnosed


def _findings(diagnosed: Sequence[tuple[str, list[dict[str, Any]], str]]) -> list[dict[str, Any]]:
    """Returns the findings of the diagnosis, each rule once with the runs that it concerns, causes first."""
    findings: dict[tuple[str, str], dict[str, Any]] = {}
    for name, records, _ in diagnosed:
        for record in records:
            finding = findings.setdefault((record["severity"], record["rule"]), {**record, "runs": []})
            finding["runs"].append({"name": name, **record})
    return list(findings.values())


def _evaluation_pictures(named: Sequence[tuple[str, Run]]) -> list[dict[str, Any]]:
    """Returns the pictures of up to four evaluations spread over the run, with the first and the last among them."""
    # A reader of few runs reads the captions inside the pictures, which need more pixels; of many runs, one compares.
    budget = Pictures(EXHIBIT_BYTES, most_pixels=1280 if len(named) <= 3 else 640)
    exhibits = []
    for name, run in named:
        evaluations = [(step, paths) for step in run.evaluations if (paths := run.pictures(step))]
        places = np.linspace(0, len(evaluations) - 1, MOST_EXHIBITS).round().astype(int).tolist()
        chosen = [evaluations[place] for place in dict.fromkeys(places)] if evaluations else []
        for picture in dict.fromkeys(picture for _, paths in chosen for picture in paths):
            indexed_steps = [
                (step, budget.add(run.path, os.path.relpath(paths[picture], run.path)))
                for step, paths in chosen
                if picture in paths
            ]
            addresses = [(step, budget.addresses[index]) for step, index in indexed_steps if index is not None]
            if addresses:
                exhibits.append({"run": name, "name": picture.replace("_", " "), "shown": addresses})
    return exhibits
