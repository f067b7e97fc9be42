"""Rows that a library makes slowly: those that were made are kept, and more are made from where they end."""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

from groupwise.checkpoint.atomic import StorageError, write_file
from groupwise.checkpoint.cache import cache_folder, content_key
from groupwise.domain.language.source.base import Row, new_rows
from groupwise.processes import is_first_process

log = logging.getLogger("groupwise")

WORTH_SECONDS = 1.0
"""Seconds of making rows from which on they are written to the cache."""
MOST_ROWS = 200_000
"""Lists of more rows are not written."""
_LISTS_IN_MEMORY = 4
_SILENT_SECONDS = 5.0


@dataclass
class _Made:
    """The distinct rows of an endless list up to one of its entries.

    Args:
        rows: the rows, in the order of the list.
        next_entry: the place in the list of the first entry that was not read.
        exhausted: whether so many entries gave no new row that there are no others.
        said: whether this process has said that making them takes long.
    """

    rows: list[Row] = field(default_factory=list)
    next_entry: int = 0
    exhausted: bool = False
    said: bool = False


_in_memory: OrderedDict[str, _Made] = OrderedDict()


def kept_rows(
    inputs: Mapping[str, Any],
    make: Callable[[int], Iterator[Row]],
    identity: Callable[[Row], str],
    num: int | None,
    *,
    what: str,
) -> list[Row]:
    """Returns the first `num` rows of an endless list that differ; fewer where the list has fewer different ones.

    Rows that took longer than a second to make are kept in `$GROUPWISE_CACHE/rows`, and the next call, of this process
    or another, makes only those that are missing.

    Args:
        inputs: all that the list depends on, as JSON can hold it.
        make: returns the entries of the list from a place on; they are of JSON's types.
        identity: returns the text by which two rows are the same.
        num: the number of rows; None takes all, until a thousand entries give no new one.
        what: who makes what, for the line that says once that it takes long.

    Example:
        >>> def thirds(start):
        ...     return ({"prompt": place // 3} for place in range(start, 9))
        >>> kept_rows({"list": "thirds"}, thirds, str, 2, what="this example makes thirds")
        [{'prompt': 0}, {'prompt': 1}]
    """
    key = content_key(inputs)
    path = cache_folder() / "rows" / f"{key}.jsonl"
    made = _in_memory.get(key) or _read(path) or _Made()
    _in_memory[key] = made
    _in_memory.move_to_end(key)
    if len(_in_memory) > _LISTS_IN_MEMORY:
        _in_memory.popitem(last=False)
    if not made.exhausted and (num is None or len(made.rows) < num):
        start = perf_counter()
        _extend(made, make(made.next_entry), identity, num, what)
        if perf_counter() - start > WORTH_SECONDS and len(made.rows) <= MOST_ROWS and is_first_process():
            _write(path, made)
    return [dict(row) for row in made.rows[:num]]


def _extend(made: _Made, entries: Iterator[Row], identity: Callable[[Row], str], num: int | None, what: str) -> None:
    names = {identity(row) for row in made.rows}
    num_before, start = len(made.rows), perf_counter()

    def counted() -> Iterator[Row]:
        for entry in entries:
            made.next_entry += 1
            yield entry

    fresh = new_rows(counted(), identity, names)
    while num is None or len(made.rows) < num:
        if (row := next(fresh, None)) is None:
            made.exhausted = True
            return
        made.rows.append(row)
        seconds = perf_counter() - start
        if seconds > _SILENT_SECONDS and not made.said and is_first_process():
            num_made = len(made.rows)
            remaining = num and seconds * (num - num_made) / (num_made - num_before)
            of_all = "" if remaining is None else f" of {num:,}; about {remaining:.0f} s more"
            log.warning("%s, which are kept for the next run: %s%s", what, f"{num_made:,}", of_all)
            made.said = True


def _read(path: Path) -> _Made | None:
    """Returns what a file holds; None where there is none, or it is damaged."""
    try:
        head, *rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        if head["rows"] != len(rows) or not all(isinstance(row, dict) for row in rows):
            raise ValueError(f"{len(rows)} rows of {head['rows']}")
        return _Made(rows, int(head["next_entry"]), bool(head["exhausted"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("%s cannot be read (%s); its rows are made again", path, error)
        return None


def _write(path: Path, made: _Made) -> None:
    head = {"next_entry": made.next_entry, "exhausted": made.exhausted, "rows": len(made.rows)}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, "".join(f"{json.dumps(line)}\n" for line in (head, *made.rows)), durable=False)
    except (OSError, StorageError) as error:
        log.warning("rows that were made are not kept: %s", error)
