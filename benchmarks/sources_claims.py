"""Claims of the guide as data: `claims/000.toml` to `claims/004.toml`, one file a source, read and unfolded."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import final

from pages import last_digit, numbers, same_text, sections, tables, value
from pydantic import Field

from groupwise.config import Config, ConfigError, read_toml, validate

HERE = Path(__file__).resolve().parent
GUIDE = HERE.parent / "docs" / "guide"
Reading = tuple[str | float, ...]
"""Where a number stands in what a run left: keys from the outside to the inside, as `sources_read` follows them."""


@final
class Column(Config):
    """A column of a page's table, a claim for each number that is read.

    Its bounds are the number up to `within` and `relative`, or stand where `bounds` says: in the same cell behind the
    number (`brackets`), in the same cell as the lowest and the highest (`range`), in the next cell (`interval`), or
    they are three standard deviations over the seeds that `benchmarks/results/` holds (a file's name).
    """

    head: str | None = None
    """The column's head, where it is not the name of this table."""
    right: int = 0
    """How many columns to the right of that head."""
    read: tuple[Reading, ...]
    """Readings of the cell's numbers, in their order; an empty one leaves a number out."""
    within: float | tuple[float, ...] | None = None
    """How far the result may lie from the number; one for all readings, or one a reading."""
    relative: float = 0.0
    """The same as a share of the number."""
    bounds: str | None = None
    most: float | None = None
    """What the quantity can be at most: 1 for a share of right answers."""


@final
class Table(Config):
    """Claims that stand in a table of a page."""

    at: str
    """page.md#anchor."""
    number: int = 1
    """Which table of the section."""
    name: str = ""
    """Begins the claims' names where a run serves several tables."""
    rows: dict[str, Reading]
    """The row's label, and where its numbers are read."""
    columns: dict[str, Column]
    equal: tuple[str, ...] = ()
    """Rows that are the same run as the one they are compared with: their difference is 0, to the last bit."""
    scale: dict[str, float] = Field(default_factory=dict)
    """What the readings of a column are multiplied by."""


@final
class Statement(Config):
    """A claim that stands in a sentence."""

    name: str
    at: str
    says: str
    """The sentence, or a part of it, word for word."""
    value: str | None = None
    """The number in it, as it is written."""
    read: Reading
    minus: Reading = ()
    """A second reading, which is taken away from the first."""
    scale: float = 1.0
    """What the reading is multiplied by: 100 for points, -1 for what the run reports with the other sign."""
    within: float | None = None
    low: float | None = None
    high: float | None = None


@final
class Run(Config):
    """A command, and the claims that it measures."""

    id: str
    command: str
    minutes: float = Field(gt=0)
    """Of one processor, roughly; the cheapest run is made first."""
    then: str | None = None
    """A benchmark that reads the run's folder and prints a table."""
    bounds: str
    """Where the bounds come from, for the reader of the table."""
    tables: tuple[Table, ...] = ()
    claims: tuple[Statement, ...] = ()


@final
class Unrun(Config):
    """A claim that no command here measures."""

    name: str
    at: str
    says: str
    why: str


@final
class ClaimsFile(Config):
    """Everything that one source is said to do."""

    title: str
    runs: tuple[Run, ...] = ()
    unrun: tuple[Unrun, ...] = ()


@final
@dataclass(frozen=True)
class Claim:
    """A number or a statement of the guide.

    Args:
        id: its run and its place there.
        at: page and anchor.
        says: the sentence, or the table's row and column.
        stated: the number as it is written, or the lowest and the highest; empty where the claim is a statement.
        low, high: the bounds in which the result agrees; none where there is none.
        read, minus: where the result stands in what the run left.
        scale: what it is multiplied by.
        interval: of a difference, the 95 % interval over seeds that the page gives.
        sign: the sign of a difference that the page tells from 0; 0 where it tells none.
        is_difference: whether its sign says which of two is better.
    """

    id: str
    at: str
    says: str
    stated: str
    low: float | None
    high: float | None
    read: Reading
    minus: Reading = ()
    scale: float = 1.0
    interval: tuple[float, float] | None = None
    sign: int = 0
    is_difference: bool = False

    @property
    def is_smoke_test(self) -> bool:
        """True for a difference whose bounds hold either sign: they see that something broke, and test no claim."""
        return self.is_difference and self.low is not None and self.high is not None and self.low < 0 < self.high

    def over_seeds(self, mean: float, interval: Sequence[float]) -> bool:
        """Returns whether a difference over several seeds says what the page says: its mean lies in the page's
        interval, and its own interval tells the same sign, or none where the page tells none.

        Args:
            mean: the difference.
            interval: its own.
        """
        assert self.interval is not None
        return self.interval[0] <= mean <= self.interval[1] and _sign(interval) == _sign(self.interval)

    def agrees(self, result: float) -> bool:
        """Returns whether a result lies within the bounds."""
        written = numbers(self.stated)
        # What is equal is equal, however few digits are written.
        rounding = last_digit(written[0]) if written and not self.low == self.high == 0 else 0.0
        if self.sign * result < 0:
            return False
        above = self.low is None or result >= self.low - rounding
        return above and (self.high is None or result <= self.high + rounding)


def load(folder: Path = HERE / "claims") -> dict[str, ClaimsFile]:
    """Returns the claims of every source by the source's number.

    Args:
        folder: of `000.toml` and its like.

    Raises:
        ConfigError: a file cannot be read, or a run's name stands twice.
    """
    files = {
        path.stem: validate(ClaimsFile, read_toml(path), source=f"claims/{path.name}")
        for path in sorted(folder.glob("*.toml"))
    }
    names: set[str] = set()
    for source, file in files.items():
        for run in file.runs:
            if run.id in names:
                raise ConfigError(f"claims/{source}.toml: {run.id} is the name of two runs; call one of them otherwise")
            names.add(run.id)
    return files


def claims(run: Run) -> list[Claim]:
    """Returns the claims of a run: those of its tables, number by number, then its statements.

    Raises:
        ConfigError: a page, an anchor, a table, a row, a column or a sentence does not exist, a number has no bounds,
            or two claims have one name.
    """
    try:
        unfolded = [claim for table in run.tables for claim in _of_table(run, table)]
        unfolded += [_of_statement(run, statement) for statement in run.claims]
    except ValueError as error:
        raise ConfigError(f"the claims of {run.id}: {error}") from None
    for name, count in Counter(claim.id for claim in unfolded).items():
        if count > 1:
            raise ConfigError(
                f"the claims of {run.id}: {count} are called {name}; give a table or a claim another name"
            )
    return unfolded


def experiment_of(run: Run) -> str:
    """Returns the experiment that the run's command names."""
    return shlex.split(run.command)[2]


def section(at: str) -> str:
    """Returns the text of a section.

    Args:
        at: page.md#anchor, of a page of the guide.

    Raises:
        ValueError: the page or the anchor does not exist.
    """
    page, _, name = at.partition("#")
    if not (GUIDE / page).is_file():
        raise ValueError(f"docs/guide has no page {page!r}")
    texts = _sections(page)
    if name not in texts:
        raise ValueError(f"{page} has no anchor {name!r}; anchors are {', '.join(texts)}")
    return texts[name]


def check_says(at: str, says: str) -> None:
    """Refuses a sentence that its page does not hold.

    Raises:
        ValueError: it does not stand there.
    """
    if not same_text(says, section(at)):
        raise ValueError(f"{at} does not say {says!r}; write what stands there")


@cache
def _sections(page: str) -> Mapping[str, str]:
    return sections((GUIDE / page).read_text(encoding="utf-8"))


def _of_table(run: Run, table: Table) -> Iterator[Claim]:
    choices = tables(section(table.at))
    if not 1 <= table.number <= len(choices):
        raise ValueError(f"{table.at} has {len(choices)} tables, and not one of number {table.number}")
    page_table = choices[table.number - 1]
    for label, start in table.rows.items():
        cells = page_table.row(label)
        for name, column in table.columns.items():
            place = page_table.column(column.head or name) + column.right
            for index, reading in enumerate(column.read):
                written = numbers(cells[place])
                # The first row of a comparison has no difference.
                if not reading or not written:
                    continue
                if index >= len(written):
                    raise ValueError(f"{table.at}, {label}, {name}: {cells[place]!r} has no number {index + 1}")
                path = (*start, *reading)
                low, high = _bounds(cells, place, index, column, path)
                interval = None
                if is_difference := path[-2:] == ("difference", "mean"):
                    edges = tuple(value(number) for number in numbers(cells[place + 1]))
                    interval = (edges[0], edges[1]) if len(edges) == 2 else None
                # Where p is corrected for a table's comparisons, a star marks what is told.
                is_told = "p, corrected" not in page_table.heads or "*" in cells[place]
                sign = _sign(interval) if interval and is_told else 0
                low, high = (0.0, 0.0) if label in table.equal and is_difference else _told(low, high, sign)
                high = high if high is None or column.most is None else min(high, column.most)
                nth = f" {index + 1}" if sum(map(bool, column.read)) > 1 else ""
                claim_id = "/".join(part for part in (run.id, table.name, label.strip("`"), name + nth) if part)
                stated = cells[place] if column.bounds == "range" else written[index]
                scale = table.scale.get(name, 1.0)
                says = f"{label}, {name}{nth}"
                more = {"scale": scale, "interval": interval, "sign": sign, "is_difference": is_difference}
                yield Claim(claim_id, table.at, says, stated, low, high, path, **more)


def _sign(interval: Sequence[float]) -> int:
    """Returns the sign that an interval tells; 0 where it holds 0."""
    return int(interval[0] > 0) - int(interval[1] < 0)


def _told(low: float | None, high: float | None, sign: int) -> tuple[float | None, float | None]:
    """Returns bounds on the side of 0 that the page tells."""
    if sign > 0:
        return max(low or 0.0, 0.0), high
    return (low, min(high or 0.0, 0.0)) if sign < 0 else (low, high)


def _bounds(cells: tuple[str, ...], place: int, index: int, column: Column, path: Reading) -> tuple[float, float]:
    written = [value(number) for number in numbers(cells[place])]
    match column.bounds:
        case None if column.within is not None or column.relative:
            within = column.within[index] if isinstance(column.within, tuple) else column.within or 0.0
            margin = within + column.relative * abs(written[index])
            return written[index] - margin, written[index] + margin
        case "brackets":
            return written[index + 1], written[index + 2]
        case "range":
            return min(written), max(written)
        case "interval":
            low, high = (value(number) for number in numbers(cells[place + 1]))
            return low, high
        case None:
            raise ValueError(f"{cells[0]}, {cells[place]} has no bounds; write within, relative or bounds")
    deviation = _deviation(column.bounds, path)
    return written[index] - 3 * deviation, written[index] + 3 * deviation


def _deviation(file: str, path: Reading) -> float:
    """Computes the standard deviation over seeds from the variance of their mean that a comparison recorded. It
    records that of the score that decides, which stands for another share of the same run as well.
    """
    if not (HERE / "results" / file).is_file():
        raise ValueError(f"benchmarks/results has no {file!r}; bounds are brackets, range, interval or a file there")
    results = json.loads((HERE / "results" / file).read_text(encoding="utf-8"))
    row = next((row for row in results["rows"] if row["variant"] == path[0]), None)
    if row is None:
        raise ValueError(f"results/{file} has no variant {path[0]!r}")
    spread = row["after" if path[1] == "end" else path[1]]["spread"]
    return (spread["seeds"] * spread["num_seeds"]) ** 0.5


def _of_statement(run: Run, statement: Statement) -> Claim:
    check_says(statement.at, statement.says)
    low, high = statement.low, statement.high
    if statement.value is not None and statement.value not in numbers(statement.says):
        raise ValueError(f"{statement.name}: {statement.value} is no number of {statement.says!r}")
    if statement.within is not None:
        if statement.value is None:
            raise ValueError(f"{statement.name}: within asks for a value; write the number that stands in its sentence")
        stated = value(statement.value)
        low, high = stated - statement.within, stated + statement.within
    if low is None and high is None:
        raise ValueError(f"{statement.name} has no bounds; write within, low or high")
    is_difference = bool(statement.minus) or "above" in statement.read or "difference" in statement.read
    interval, sign = None, 0
    if is_difference and (bracket := re.search(r"(\S+) \[([-.\d]+), ([-.\d]+)\]", statement.says)):
        interval = (value(bracket[2]), value(bracket[3]))
        sign = _sign(interval)
        low, high = _told(low, high, sign)
    return Claim(
        f"{run.id}/{statement.name}",
        statement.at,
        statement.says,
        statement.value or "",
        low,
        high,
        statement.read,
        statement.minus,
        statement.scale,
        interval,
        sign,
        is_difference,
    )
