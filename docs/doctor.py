"""The table of rules in `guide/doctor.md`, from the code: `python docs/doctor.py` writes it anew."""

from __future__ import annotations

from pathlib import Path

from groupwise.diagnosis import RULES

PAGE = Path(__file__).resolve().parent / "guide" / "doctor.md"
BEGIN, END = "<!-- rules: python docs/doctor.py -->", "<!-- end of the rules -->"


def table() -> str:
    """One row a rule: its name and question, what shows it, what it means, what to set."""
    rows = ["| rule | question | what shows it | what it means | what to do |", "|---|---|---|---|---|"]
    for rule in RULES:
        metrics = ", ".join(f"`{metric}`" for metric in rule.reads)
        cells = (
            f"`{rule.name}` ({rule.severity})",
            rule.question,
            f"{rule.speaks}: {metrics}",
            rule.means,
            rule.advice,
        )
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows)


def written(page: str) -> str:
    """The page with the table as it is now."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
