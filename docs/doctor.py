"""The list of rules in `guide/doctor.md`, from the code: `python docs/doctor.py` writes it anew."""

from __future__ import annotations

from pathlib import Path

from groupwise_look.diagnosis import RULES
from groupwise_look.diagnosis.rule.base import Rule

PAGE = Path(__file__).resolve().parent / "guide" / "doctor.md"
BEGIN, END = "<!-- rules: python docs/doctor.py -->", "<!-- end of the rules -->"


def entries() -> str:
    """One folded entry a rule: its question and name, what shows it, what it means, what to do."""
    return "\n\n".join(map(_entry, RULES))


def _entry(rule: Rule) -> str:
    metrics = ", ".join(f"`{metric}`" for metric in rule.reads)
    return "\n\n".join(
        (
            '<details class="rule" markdown>',
            f"<summary>{rule.question} <code>{rule.name}</code> {rule.severity}</summary>",
            f"**What shows it.** {_sentence(rule.speaks)} Read from {metrics}.",
            f"**What it means.** {rule.means}",
            f"**What to do.** {rule.advice}",
            "</details>",
        )
    )


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def written(page: str) -> str:
    """The page with the rules as they are now."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n\n{entries()}\n\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
