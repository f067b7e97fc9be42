"""One HTML page about one run or several: everything is inside it, and it asks nothing of any network.

What runs wrote is data: it reaches the page as escaped text or as JSON that no parser can take for markup, and is only
ever set as text. A policy inside the page allows exactly the scripts and styles that this package ships.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from groupwise.config import ConfigError
from groupwise.diagnosis import SEVERITIES, diagnose
from groupwise.report.browser import browse
from groupwise.report.charts import sections, stages, time_split
from groupwise.report.groups import Recorded, scan
from groupwise.report.held_out import held_out
from groupwise.report.pictures import Pictures
from groupwise.report.results import results
from groupwise.report.variants import Variant, differences, group_runs
from groupwise.runs import EvaluatedOn, Run

TEXT_BYTES, PICTURE_BYTES, HELD_OUT_BYTES, EXHIBIT_BYTES = 9_000_000, 5_000_000, 1_000_000, 2_000_000
"""What members' texts, their pictures, members of evaluations (texts and pictures, half of it each) and evaluations'
pictures may take of a page, all runs together. The rest is small, and the whole under 20 MB.
"""
MOST_GROUPS = 300
"""Groups of one run."""
MOST_EXHIBITS = 4
"""Evaluations of one run whose pictures are shown."""

_HERE = Path(__file__).parent
_SCRIPTS = ("chart.js", "groups.js", "page.js")


def write_page(runs: Sequence[Run], out: Path, *, most_groups: int = MOST_GROUPS) -> Path:
    """Writes the page of some runs.

    Args:
        runs: as they were read; those that differ by their seed alone are drawn as one.
        out: the file.
        most_groups: of one run; fewer where the budget of text or pictures is spent.

    Returns:
        `out`.

    Raises:
        ConfigError: the file cannot be written.
    """
    page = render(runs, most_groups=most_groups)
    partial = out.with_name(f".{out.name}.partial")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(page)
        os.replace(partial, out)
    except OSError as error:
        raise ConfigError(f"{out} cannot be written ({error.strerror}); give another file with --out") from None
    return out


def render(runs: Sequence[Run], *, most_groups: int = MOST_GROUPS) -> bytes:
    """The page of some runs, UTF-8.

    Args:
        runs: at least one.
        most_groups: of one run.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    variants = group_runs(runs)
    recorded = {id(run): scan(run) for run in runs}
    drawn, constants = sections(
        variants, [_together([recorded[id(run)] for run in variant.runs]) for variant in variants]
    )
    ordered = [run for variant in variants for run in variant.runs]
    text_bytes, picture_bytes = TEXT_BYTES // len(ordered), PICTURE_BYTES // len(ordered)
    groups = [
        browse(run, recorded[id(run)], most_groups=most_groups, text_bytes=text_bytes, picture_bytes=picture_bytes)
        for run in ordered
    ]
    names = _run_names(variants)
    browsed = [*zip(names, groups, strict=True)]
    share = HELD_OUT_BYTES // 2 // len(ordered)
    for name, run in zip(names, ordered, strict=True):
        if shown := held_out(run, text_bytes=share, picture_bytes=share):
            browsed.append((f"{run.evaluated_on.prompts.capitalize()}: {name}", shown))
    table = results(variants)
    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "visible": visible,
        "number": written,
        "seconds": seconds,
        "signed": signed,
        "pretty": pretty,
    }
    style = (_HERE / "page.css").read_text(encoding="utf-8")
    script = "\n".join((_HERE / name).read_text(encoding="utf-8") for name in _SCRIPTS)
    page = environment.get_template("page.html").render(
        title=", ".join(dict.fromkeys(run.name for run in runs)),
        description=_description(runs),
        version=metadata.version("groupwise"),
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        variants=list(zip(variants, table, strict=True)),
        runs=list(zip(names, ordered, strict=True)),
        evaluated_on=EvaluatedOn.together(run.evaluated_on for run in runs),
        metric=next((each.metric for each in table if each.metric), None),
        has_controls=any(row.controls for row in table),
        metrics_agree=len({each.metric for each in table if each.metric}) < 2,
        findings=_findings(variants, names),
        remarks=[
            (name, [*run.remarks, *recorded[id(run)].remarks, *_said_at_the_start(run)])
            for name, run in zip(names, ordered, strict=True)
        ],
        differences=differences(variants),
        constants=constants,
        pictures=_evaluations(ordered, names),
        policy=Markup(f"default-src 'none'; img-src data:; style-src {_digest(style)}; script-src {_digest(script)}"),
        style=Markup(style),
        script=Markup(script),
        data=Markup(
            _embedded(
                {
                    "variants": [variant.name for variant in variants],
                    "runs": [
                        {"name": name, "variant": _place(variants, run), "path": str(run.path)}
                        for name, run in zip(names, ordered, strict=True)
                    ],
                    "browsed": [{"name": name} for name, _ in browsed],
                    "sections": drawn,
                    "stages": stages(variants),
                    "time": time_split(variants),
                }
            )
        ),
        groups=[Markup(_embedded(each)) for _, each in browsed],
        has_groups=any(each["groups"] for _, each in browsed),
    )
    # A lone surrogate, which JSON can hold, has no bytes.
    return page.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode("utf-8")


def visible(value: object) -> str:
    """A text in which control characters show as their pictures, so that nothing is hidden and no terminal code
    survives a copy.

    Args:
        value: any.

    Example:
        >>> visible("a\\x00b\\x1b[1m")
        'a\u2400b\u241b[1m'
    """
    return "".join(
        chr(0x2400 + ord(char)) if char < " " and char not in "\n\t" else "\u2421" if char == "\x7f" else char
        for char in str(value)
    )


def written(value: object) -> str:
    """A number for people, four significant digits; a dash for none.

    Args:
        value: a number, or anything else, which is written as it is.

    Example:
        >>> [written(value) for value in (0.98765432, 12, None, "text")]
        ['0.9877', '12', '–', 'text']
    """
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}".replace("-", "\u2212")
    return visible(json.dumps(value) if isinstance(value, list | dict | bool) else value)


def pretty(table: Mapping[str, Any]) -> str:
    """A table as indented JSON.

    Args:
        table: any.

    Example:
        >>> print(pretty({"seed": 0}))
        {
          "seed": 0
        }
    """
    return visible(json.dumps(table, indent=2, ensure_ascii=False, default=str))


def signed(value: float) -> str:
    """A difference for people, with its sign.

    Args:
        value: a number.

    Example:
        >>> signed(0.25), signed(-0.25)
        ('+0.25', '−0.25')
    """
    return f"{value:+.4g}".replace("-", "\u2212")


def seconds(value: float | None) -> str:
    """A span of time for people.

    Args:
        value: seconds.

    Example:
        >>> [seconds(value) for value in (0.25, 75, 7300, None)]
        ['0.2 s', '1 min 15 s', '2 h 1 min', '–']
    """
    if value is None:
        return "–"
    if value < 60:
        return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _said_at_the_start(run: Run) -> list[str]:
    """What the run's rewards said of the machine at its latest start."""
    remarks = run.starts[-1].get("remarks") if run.starts else None
    return [remark for remark in remarks if isinstance(remark, str)] if isinstance(remarks, list) else []


def _embedded(value: Any) -> str:
    """JSON inside a page: without `<`, no element can begin or end in it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str).replace("<", "\\u003c")


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _place(variants: Sequence[Variant], run: Run) -> int:
    return next(place for place, variant in enumerate(variants) if any(each is run for each in variant.runs))


def _run_names(variants: Sequence[Variant]) -> list[str]:
    """One name a run, in the order of variants and seeds; the folder where the seed says nothing."""
    names = []
    for variant in variants:
        seeds = [run.seed for run in variant.runs]
        for run in variant.runs:
            apart = seeds.count(run.seed) == 1 and run.seed is not None
            names.append(
                variant.name
                if len(variant.runs) == 1
                else f"{variant.name}, seed {run.seed}"
                if apart
                else f"{variant.name}, {run.path}"
            )
    return names


def _description(runs: Sequence[Run]) -> str:
    texts = {str(run.config.get("description") or "") for run in runs}
    return texts.pop() if len(texts) == 1 else ""


def _together(parts: Sequence[Recorded]) -> Recorded:
    """What the runs of one variant recorded, step by step."""

    def joined(field: str) -> dict[int, np.ndarray]:
        steps = sorted({step for part in parts for step in getattr(part, field)})
        return {
            step: np.concatenate([own[step] for part in parts if step in (own := getattr(part, field))])
            for step in steps
        }

    return Recorded(advantages=joined("advantages"), rewards=joined("rewards"))


def _findings(variants: Sequence[Variant], names: Sequence[str]) -> list[dict[str, Any]]:
    """What the rules say, each rule once with the runs it speaks of, the worst first.

    A rule that cannot read what a run wrote is no reason to show nothing.
    """
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for name, run in zip(names, (run for variant in variants for run in variant.runs), strict=True):
        try:
            said = [finding.record() for finding in diagnose(run.rows, run.config)]
        except (ValueError, TypeError, KeyError, ArithmeticError, AttributeError) as error:
            said = [
                {
                    "rule": "not_judged",
                    "severity": "note",
                    "what": f"The rules could not read this run ({error}).",
                    "means": "",
                    "advice": "",
                }
            ]
        for each in said:
            entry = found.setdefault((each["severity"], each["rule"]), {**each, "runs": []})
            entry["runs"].append({"name": name, **each})
    return sorted(found.values(), key=lambda each: SEVERITIES.index(each["severity"]))


def _evaluations(runs: Iterable[Run], names: Sequence[str]) -> list[dict[str, Any]]:
    """The pictures that evaluations left, up to four of them over the run, the first and the last among them."""
    # One run is looked at closely, and its captions read; of many, what differs.
    budget = Pictures(EXHIBIT_BYTES, most_pixels=1280 if len(names) <= 3 else 640)
    found = []
    for name, run in zip(names, runs, strict=True):
        left = [(step, shown) for step in run.evaluations if (shown := run.pictures(step))]
        some = (
            [
                left[place]
                for place in dict.fromkeys(np.linspace(0, len(left) - 1, MOST_EXHIBITS).round().astype(int).tolist())
            ]
            if left
            else []
        )
        for picture in dict.fromkeys(each for _, shown in some for each in shown):
            places = [
                (step, budget.add(run.path, os.path.relpath(shown[picture], run.path)))
                for step, shown in some
                if picture in shown
            ]
            addresses = [(step, budget.addresses[place]) for step, place in places if place is not None]
            if addresses:
                found.append({"run": name, "name": picture.replace("_", " "), "shown": addresses})
    return found
