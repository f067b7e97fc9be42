"""How a claim's number is read from what its run left."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, final

from command import environment
from pages import numbers, tables, value
from seeds_run import diagnosed, ends
from sources_claims import Claim, Reading

from groupwise.runs import read_lines


@final
class Outcome:
    """What a finished command left.

    A reading begins with a name: of a variant (`groupwise compare`: a row of `results.json`), or `start`, `end`,
    `controls` (`groupwise train`: held-out scores); `findings` (how many rules of the doctor hold; with a rule's name,
    1 where that one holds); `metrics` with a metric, a stage and two shares of its steps (the mean between them);
    `printed` with a row, a column and the place of a number in the cell (what the second command printed).

    Args:
        folder: of the run or the comparison.
        printed: what the second command printed.
    """

    def __init__(self, folder: Path, printed: str = "") -> None:
        self.folder = folder
        self.printed = printed
        self.scores = _scores(folder)

    def measure(self, claim: Claim) -> float:
        """Returns the claim's number.

        Raises:
            ValueError: the run left no such number.
        """
        result = self.read(claim.read)
        return claim.scale * (result - self.read(claim.minus) if claim.minus else result)

    def read(self, reading: Reading) -> float:
        """Returns the number at a place.

        Raises:
            ValueError: there is none.
        """
        match reading:
            case ("findings", *rules):
                findings = self._findings()
                return float(rules[0] in findings) if rules else float(len(findings))
            case ("metrics", *words):
                names = [word for word in words if isinstance(word, str)]
                first, last = (word for word in words if not isinstance(word, str))
                return self._mean(names, first, last)
            case ("printed", str(row), str(head), *place):
                table = tables(self.printed)[0]
                written = numbers(table.row(row)[table.column(head)])
                return value(written[int(place[0]) if place else 0])
        place: Any = self.scores
        for key in reading:
            keys = place if isinstance(place, Mapping) else range(len(place)) if isinstance(place, Sequence) else ()
            key = int(key) if isinstance(key, float) else key
            if key not in keys:
                raise ValueError(f"the run left no {key!r} at {reading}; it left {', '.join(map(str, keys)) or place}")
            place = place[key]
        if isinstance(place, bool) or not isinstance(place, int | float):
            raise ValueError(f"{reading} is {place!r}, and no number")
        return float(place)

    def _findings(self) -> list[str]:
        return diagnosed(self.folder, environment(self.folder.with_name("cache")))[1]

    def _mean(self, names: Sequence[str], first: float, last: float) -> float:
        """Returns the mean of a metric over a share of a stage's steps; the two names stand in either order."""
        lines = read_lines(self.folder / "metrics.jsonl").rows
        stages = {line.get("stage") for line in lines}
        stage = next((name for name in names if name in stages), None)
        metric = next(name for name in reversed(names) if name != stage)
        values = [line[metric] for line in lines if line.get("stage") == stage and line.get(metric) is not None]
        chosen = values[round(first * len(values)) : round(last * len(values))]
        if not chosen:
            raise ValueError(f"metrics.jsonl has no numbers for {' and '.join(names)}; its stages are {stages}")
        return sum(chosen) / len(chosen)


def _scores(folder: Path) -> dict[str, Any]:
    results = folder / "results.json"
    if not results.is_file():
        return ends(folder)
    table = json.loads(results.read_text(encoding="utf-8"))
    return {row["variant"]: row for row in table["rows"]}
