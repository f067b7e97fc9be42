"""The table of `results/doctor_bench.md`, from the lines that `doctor_bench.py` left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from doctor_bench_faults import Case
from resumable import table_row

from groupwise_look.diagnosis.rule import RULES

Row = Mapping[str, Any]
_STEPS = {rule.name: rule.steps for rule in RULES if rule.steps is not None}


def opposite(row: Row) -> bool:
    """Returns whether a run was advised both smaller and larger steps."""
    return len({_STEPS[rule] for rule in row["alarms"] if rule in _STEPS}) > 1


def headline_right(case: Case, row: Row) -> bool:
    """Returns whether the headline names the planted cause."""
    return row["headline"] in case.names


def named(case: Case, row: Row) -> bool:
    """Returns whether any finding names the planted cause."""
    return bool({*row["alarms"], *row.get("notes", ())}.intersection(case.names))


def line(case: Case, row: Row, *, judged: bool = True) -> str:
    """Returns a run in one line, for the terminal."""
    text = f"{case.name}-{row['seed']}  exit {row['exit']}  {row['cpu_seconds']:.0f} CPU s  {row.get('error', '')}"
    if not judged:
        return text
    if case.is_fault:
        verdict = "right" if headline_right(case, row) else "named" if named(case, row) else "MISSED"
    else:
        verdict = "FALSE ALARM" if row["alarms"] else "silent"
    return f"{text}  {verdict}: {row['headline']}; {', '.join(row['alarms'])}"


def document(known: Mapping[str, Case], rows: Sequence[Row]) -> str:
    """Returns the whole file."""
    by_name = {name: [row for row in rows if row["name"] == name] for name in known}
    lines = [
        "# The doctor's bench",
        "",
        "Written by `python benchmarks/doctor_bench.py`. Faults of the file `author` were planted by the author of the",
        "rules, those of the others from descriptions alone by somebody who had not read the rules, in `hostile` to",
        "break the rules as they were. Which findings count as naming a fault was written after the faults, for",
        "`hostile` and `outsider_4` before their runs; rules that came later and say the same were added.",
        "`by the earlier rules`: by those that were there before the faults of the file, a held-out score. The present",
        "rules were written with the faults at hand, so that their score is none.",
        "",
    ]
    heads = ["planted by", "faults", "runs", "headline right", "named at all", "headline right by the earlier rules"]
    lines += [table_row(heads), "|" + "---|" * len(heads)]
    for who in dict.fromkeys(case.planted_by for case in known.values() if case.is_fault):
        lines.append(_summary(who, [case for case in known.values() if case.planted_by == who], by_name))
    lines.append(_summary("all", [case for case in known.values() if case.is_fault], by_name))
    healthy = [case for case in known.values() if not case.is_fault]
    runs = [row for case in healthy for row in by_name[case.name]]
    alarms = sum(bool(row["alarms"]) for row in runs)
    lines += ["", f"False alarms: {alarms} in {len(runs)} healthy runs of {len(healthy)} kinds."]
    lines.append(f"Runs that were advised opposite things: {sum(map(opposite, rows))} of {len(rows)}.")
    lines += [
        "",
        "## Planted faults",
        "",
        table_row(
            ["fault", "planted by", "what was done", "counts as named", "headlines, a seed each", "other findings"]
        ),
        "|---|---|---|---|---|---|",
    ]
    for case in known.values():
        if case.is_fault:
            lines.append(_fault(case, by_name[case.name]))
    lines += ["", "## Healthy runs", "", table_row(["run", "how", "runs", "false alarms"]), "|---|---|---|---|"]
    for case in healthy:
        of_case = by_name[case.name]
        said = ", ".join(sorted({rule for row in of_case for rule in row["alarms"]})) or "none"
        lines.append(table_row([case.name, case.description or f"`{case.base.experiment}`", str(len(of_case)), said]))
    return "\n".join(lines) + "\n"


def _summary(who: str, group: Sequence[Case], by_name: Mapping[str, Sequence[Row]]) -> str:
    pairs = [(case, row) for case in group for row in by_name[case.name]]
    right, any_named = (sum(test(case, row) for case, row in pairs) for test in (headline_right, named))
    first = [(case, row["first"]) for case, row in pairs if "first" in row]
    earlier = sum(headline_right(case, row) for case, row in first)
    num_run = len({case.name for case, _ in pairs})
    cells = [who, f"{num_run} of {len(group)}", str(len(pairs)), _share(right, len(pairs))]
    return table_row([*cells, _share(any_named, len(pairs)), _share(earlier, len(first), of=True)])


def _share(count: int, total: int, *, of: bool = False) -> str:
    return f"{count}{f' of {total}' if of else ''} ({count / total:.0%})" if total else "not kept" if of else "0"


def _fault(case: Case, rows: Sequence[Row]) -> str:
    if not rows:
        return table_row([case.name, case.planted_by, case.description, ", ".join(case.names), "not run yet", ""])
    headlines = ", ".join(
        f"{row['headline'] or 'none'}{'' if headline_right(case, row) else ' (wrong)'}" for row in rows
    )
    others = sorted({rule for row in rows for rule in row["alarms"]} - {row["headline"] for row in rows})
    cells = [case.name, case.planted_by, case.description, ", ".join(case.names), headlines, ", ".join(others)]
    return table_row(cells)
