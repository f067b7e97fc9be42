"""The table of `benchmarks/results/sources.md`, from the lines that `sources.py` left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from resumable import table_row
from sources_claims import Claim, ClaimsFile, Run, claims

Line = Mapping[str, Any]
VERDICTS = ("agrees", "smoke test", "does not agree", "failed", "not run yet", "not run")


def document(files: Mapping[str, ClaimsFile], lines: Mapping[str, Line]) -> str:
    """Returns the whole file: a row a source, then a table for each of its commands.

    Args:
        files: the claims of each source.
        lines: the current line of each claim that was measured.
    """
    head = [
        "# What the guide says of the sources, measured again",
        "",
        "Written by `make sources`. A claim is a number or a statement of `docs/guide/results.md`, `study.md` or",
        "`selection_findings.md`; its command was run with one seed. A result agrees where it lies within the bounds",
        "beside it, up to the rounding of the number that is stated; each command says where its bounds come from.",
        "Numbers of the guide are often means over several seeds, so one seed may lie outside by chance. A difference",
        "that the page tells from 0 has to have its sign. Of one that it does not tell, either sign lies within the",
        "bounds: that is a *smoke test*, which says that nothing broke. `--seeds 10` measures differences over seeds:",
        "the mean has to lie in the page's interval, and its own interval has to tell what the page's tells.",
        "",
        table_row(["source", "", "claims", *VERDICTS]),
        "|" + "---|" * (3 + len(VERDICTS)),
    ]
    for source, file in files.items():
        counts = Counter(verdict(claim, lines.get(claim.id)) for run in file.runs for claim in claims(run))
        counts["not run"] += len(file.unrun)
        head.append(table_row([source, file.title, str(counts.total()), *(str(counts[name]) for name in VERDICTS)]))
    codes = sorted({f"{line['code']}" for line in lines.values()})
    head += ["", f"Measured on {', '.join(codes)}." if codes else "Nothing was measured yet."]
    text = [*head, *_disagreements(files, lines)]
    for source, file in files.items():
        text += ["", f"## {source}: {file.title}"]
        for run in file.runs:
            text += ["", *_run(run, lines)]
        if file.unrun:
            text += ["", "### Not run", "", table_row(["claim", "where", "why not"]), "|---|---|---|"]
            text += [table_row([_short(claim.says), _link(claim.at), claim.why]) for claim in file.unrun]
    return "\n".join(text) + "\n"


def verdict(claim: Claim, line: Line | None) -> str:
    """Returns what a line says of a claim, one of `VERDICTS`."""
    if line is None:
        return "not run yet"
    if line["result"] is None:
        return "failed"
    if claim.interval is not None and line.get("interval"):
        return "agrees" if claim.over_seeds(line["result"], line["interval"]) else "does not agree"
    if not claim.agrees(line["result"]):
        return "does not agree"
    return "smoke test" if claim.is_smoke_test else "agrees"


def progress(claim: Claim, line: Line) -> str:
    """Returns a claim's result as a line of progress."""
    result = line.get("error") if line["result"] is None else f"{number(line['result'])}, {bounds(claim)}"
    return f"  {verdict(claim, line)}: {claim.id}  stated {claim.stated or 'in words'}, measured {result}"


def bounds(claim: Claim) -> str:
    """Returns the bounds of a claim in words.

    Example:
        >>> bounds(Claim("a", "p.md#a", "s", ".5", 0.4, None, ("end",)))
        'at least 0.4'
    """
    if claim.low is None:
        return f"at most {number(claim.high)}"
    return f"at least {number(claim.low)}" if claim.high is None else f"{number(claim.low)} to {number(claim.high)}"


def number(value: float | None) -> str:
    """Returns a number in four digits.

    Example:
        >>> number(0.98213), number(-8.1e-06), number(0.0)
        ('0.9821', '-8.1e-06', '0')
    """
    return "" if value is None else f"{value:.4g}"


def _disagreements(files: Mapping[str, ClaimsFile], lines: Mapping[str, Line]) -> list[str]:
    """Returns the claims that do not agree, or failed, on one place."""
    rows = [
        _claim(claim, lines.get(claim.id), [run.id])
        for file in files.values()
        for run in file.runs
        for claim in claims(run)
        if verdict(claim, lines.get(claim.id)) in ("does not agree", "failed")
    ]
    if not rows:
        return []
    heads = ["run", "claim", "where", "stated", "agrees within", "measured", "verdict"]
    return ["", "## What does not agree", "", table_row(heads), "|" + "---|" * len(heads), *rows]


def _run(run: Run, lines: Mapping[str, Line]) -> list[str]:
    heads = ["claim", "where", "stated", "agrees within", "measured", "verdict"]
    unfolded = claims(run)
    line = next((lines[claim.id] for claim in unfolded if claim.id in lines), None)
    then = f", then `{run.then} RUN`" if run.then else ""
    spent = f" {line['cpu_seconds']:.0f} CPU seconds on {line['date']}, {line['code']}." if line else " Not run yet."
    return [
        f"### {run.id}",
        "",
        f"`{run.command}`{then}.{spent}",
        f"Bounds: {run.bounds}.",
        "",
        table_row(heads),
        "|" + "---|" * len(heads),
        *(_claim(claim, lines.get(claim.id), []) for claim in unfolded),
    ]


def _claim(claim: Claim, line: Line | None, before: Sequence[str]) -> str:
    measured = "" if line is None else line.get("error") or number(line["result"])
    cells = [*before, _short(claim.says), _link(claim.at), claim.stated, bounds(claim), measured, verdict(claim, line)]
    return table_row(cells)


def _link(at: str) -> str:
    return f"[{at.partition('#')[0]}](../../docs/guide/{at})"


def _short(says: str) -> str:
    line = " ".join(says.split()).replace("**", "")
    return line if len(line) <= 120 else f"{line[:117]}..."
