"""Candidates recorded by source 004's project: beams of a search, or pointer candidates with their measurements.

Two JSON files are read. Keys are queries' ids; keys that begin with `_` hold remarks of the recorder and are skipped.

    beams       {"17": {"id_list": [[3, 8, 17], [8, 3, 17]], "score_list": [0.046, 0.037]}}
    candidates  {"17": {"pointer_candidates": [{"pointer": [3, 8], "pointer_pos": [0, 4], "vqa_correct": 1,
    "vqa_acc_score": 0.9, ...}]}}

A beam ends with the query itself and is written in the order of the prompt: its last example stands next to the query.
A score is an information gain, the more the better, and the best beam comes first. `pointer` names examples of the
whole data set, `pointer_pos` places in the pool. Candidates carry `vqa_correct`, `vqa_acc_score`, `vqa_gt_prob`,
`vqa_rel_score`, `beam_score` and `logprob_score`; those marked `eval_failed`, or judged by a fallback, are left out.

Some files hold places in the place of ids, or costs in the place of scores. Where the file shows which it is, the
numbers are converted with a remark; otherwise the file is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, final

from groupwise.config import Config, ConfigError, read_json

_FIELDS = {
    "vqa_correct": "correct",
    "vqa_acc_score": "accuracy",
    "vqa_gt_prob": "probability",
    "vqa_rel_score": "relevance",
    "beam_score": "quality",
}
_NUM_NAMED = 3


@final
@dataclass(frozen=True)
class Candidate:
    """An ordered choice for a query, with its recorded fields.

    Args:
        picks: places in the query's pool, in the order of the prompt: the last stands next to the query.
        fields: measured field -> value, by the column names of rewards; of a beam, `quality` and `info` are its score.

    Example:
        >>> Candidate((4, 0), {"correct": 1.0}).picks
        (4, 0)
    """

    picks: tuple[int, ...]
    fields: Mapping[str, float]


@final
@dataclass(frozen=True)
class Recording:
    """The content of a file.

    Args:
        candidates: query id -> its candidates, in the order of the file.
        remarks: sentences on entries that were converted or left out.
    """

    candidates: Mapping[str, Sequence[Candidate]]
    remarks: Sequence[str] = ()


@final
class Recorded(Config):
    """Candidates from a file of source 004's project, beams (`id_list`, `score_list`) or `pointer_candidates`.

    Args:
        path: the JSON file.
        ids: meaning of the numbers of a choice: `global` are ids of examples, `local` places in the query's pool.
            `auto` takes the meaning that every number of the file fits, and refuses the file where both fit.
        score: `higher` is better, or `lower` (a loss). `auto` infers it from the order of beams, the best first, and
            refuses beams without an order.
        prefix: prefix of the ids in the data: the number 17 is the example `f"{prefix}17"`.
    """

    kind: Literal["recorded"] = "recorded"
    path: str
    ids: Literal["auto", "global", "local"] = "auto"
    score: Literal["auto", "higher", "lower"] = "auto"
    prefix: str = ""

    def read(self, pools: Mapping[str, Sequence[str]], max_picks: int) -> Recording:
        """Reads and checks the candidates of the queries in `pools`.

        Args:
            pools: query id -> ids of its pool's examples, in order.
            max_picks: highest number of picks in a choice.

        Returns:
            candidates by query, with remarks on conversions.

        Raises:
            ConfigError: the file has another format; ids fit neither meaning, or both; a query is among its examples;
                an example stands twice; scores have no clear direction or are no numbers; no query is of the data. The
                message names the query and the entry.
        """
        tree = read_json(Path(self.path))
        entries = {str(key): value for key, value in tree.items() if not str(key).startswith("_")}
        remarks: list[str] = []
        matching_entries = {
            f"{self.prefix}{key}": value for key, value in entries.items() if f"{self.prefix}{key}" in pools
        }
        if not matching_entries:
            data_ids, file_keys = ", ".join(list(pools)[:_NUM_NAMED]), ", ".join(list(entries)[:_NUM_NAMED]) or "none"
            raise ConfigError(
                f"{self.path}: no query of the data is in it (data: {data_ids}, ...; file: {file_keys}, ...); write"
                " prefix, or the file of this data"
            )
        if len(matching_entries) < len(entries):
            remarks.append(
                f"{self.path}: {len(entries) - len(matching_entries)} of {len(entries)} queries are none of the data's"
                " training queries and are left out"
            )
        rows, failed = self._rows(matching_entries)
        if failed:
            remarks.append(f"{self.path}: {failed} candidates whose evaluation failed or fell back are left out")
        places = self._places(rows, pools, max_picks, remarks)
        self._orient(rows, remarks)
        candidates: dict[str, list[Candidate]] = {}
        for row, picks in zip(rows, places, strict=True):
            candidates.setdefault(row.query, []).append(Candidate(picks, row.fields))
        if not candidates:
            raise ConfigError(f"{self.path}: no candidate is left, {failed} had failed; record them again")
        return Recording(candidates, tuple(remarks))

    def _rows(self, entries: Mapping[str, Any]) -> tuple[list[_Row], int]:
        """Returns the candidates of all queries, and the number of candidates whose evaluation failed.

        Raises:
            ConfigError: an entry has neither of the two formats.
        """
        rows: list[_Row] = []
        failed = 0
        for query, entry in entries.items():
            where = f"{self.path}: query {query!r}"
            if not isinstance(entry, Mapping) or not (
                "pointer_candidates" in entry or {"id_list", "score_list"} <= set(entry)
            ):
                keys = sorted(entry) if isinstance(entry, Mapping) else type(entry).__name__
                raise ConfigError(f"{where} has {keys}; allowed: id_list with score_list, or pointer_candidates")
            lists = ["pointer_candidates"] if "pointer_candidates" in entry else ["id_list", "score_list"]
            for name in lists:
                if not isinstance(entry[name], list):
                    raise ConfigError(f"{where}: {name} is {entry[name]!r}; it must be a list")
            if "pointer_candidates" in entry:
                for number, candidate in enumerate(entry["pointer_candidates"]):
                    if not isinstance(candidate, Mapping):
                        raise ConfigError(f"{where}: pointer_candidates[{number}] is {candidate!r}; it must be a table")
                    if candidate.get("eval_failed") or candidate.get("vqa_eval_mode") in ("fallback", "error"):
                        failed += 1
                    else:
                        rows.append(_pointer(query, number, candidate, f"{where}: pointer_candidates[{number}]"))
            else:
                rows += _beams(query, entry, where, self.prefix)
        return rows, failed

    def _places(
        self, rows: Sequence[_Row], pools: Mapping[str, Sequence[str]], max_picks: int, remarks: list[str]
    ) -> list[tuple[int, ...]]:
        """Returns each row's choice as places in its query's pool, whether the file counts by ids or by places. Adds a
        remark where `ids = "auto"` takes the numbers for places.

        Raises:
            ConfigError: the numbers of a row fit neither meaning, or both.
        """

        def as_global(row: _Row, numbers: Sequence[int]) -> list[int | None]:
            place = {name: index for index, name in enumerate(pools[row.query])}
            return [place.get(f"{self.prefix}{number}") for number in numbers]

        def as_local(row: _Row, numbers: Sequence[int]) -> list[int | None]:
            return [number if 0 <= number < len(pools[row.query]) else None for number in numbers]

        readings: dict[str, Callable[[_Row, Sequence[int]], list[int | None]]] = {
            "global": as_global,
            "local": as_local,
        }
        kind = self.ids if self.ids != "auto" else self._kind(rows, readings)
        if kind == "local" and self.ids == "auto":
            remarks.append(
                f"{self.path}: its numbers are places in the pool, not ids of examples (none fits as an id), and are"
                " read so"
            )
        pool_places = []
        for row in rows:
            places = readings[kind](row, row.numbers)
            _check(row, places, max_picks, kind, self.prefix)
            if row.places is not None:
                self._agree(row, places, pools[row.query], remarks)
            pool_places.append(tuple(place for place in places if place is not None))
        return pool_places

    def _kind(
        self, rows: Sequence[_Row], readings: Mapping[str, Callable[[_Row, Sequence[int]], list[int | None]]]
    ) -> str:
        """Returns the meaning, `global` or `local`, that all numbers of the file fit.

        Raises:
            ConfigError: both meanings fit, and they name different examples.
        """
        fits = {name: all(None not in read(row, row.numbers) for row in rows) for name, read in readings.items()}
        if fits["global"] and fits["local"]:
            same = all(readings["global"](row, row.numbers) == readings["local"](row, row.numbers) for row in rows)
            if same:
                return "global"
            raise ConfigError(
                f"{self.path}: its numbers are ids of examples in the pools, and could be places in them too; write ids"
                ' = "global", or "local" for places'
            )
        # Where neither meaning fits all numbers, the documented one is taken, and its error names the number.
        return "local" if fits["local"] else "global"

    def _agree(self, row: _Row, places: Sequence[int | None], pool: Sequence[str], remarks: list[str]) -> None:
        """Checks that `pointer_pos` states the choice of `pointer` as places, or (in some files) repeats its ids."""
        assert row.places is not None
        if list(row.places) == list(places):
            return
        if list(row.places) == list(row.numbers):
            remark = (
                f"{self.path}: pointer_pos repeats the ids of pointer, where places in the pool belong; pointer is used"
            )
            if remark not in remarks:
                remarks.append(remark)
            return
        pool_ids = [pool[place] if 0 <= place < len(pool) else None for place in row.places]
        raise ConfigError(
            f"{row.where}: pointer = {list(row.numbers)} and pointer_pos = {list(row.places)} (in this data {pool_ids})"
            " are different choices; the pools are not those the file was recorded with"
        )

    def _orient(self, rows: Sequence[_Row], remarks: list[str]) -> None:
        """Turns scores so that more is better."""
        scored = [row for row in rows if "quality" in row.fields]
        if not scored or self.score == "higher":
            return
        if self.score == "auto":
            beams: dict[str, list[float]] = {}
            for row in scored:
                if row.ranked:
                    beams.setdefault(row.query, []).append(row.fields["quality"])
            ordered = [scores for scores in beams.values() if len(set(scores)) > 1]
            falling = sum(scores == sorted(scores, reverse=True) for scores in ordered)
            rising = sum(scores == sorted(scores) for scores in ordered)
            if not ordered or falling == len(ordered):
                return
            if rising != len(ordered):
                directions = (
                    f"the scores of {falling} queries fall along the list, those of {rising} rise, and those of"
                    f" {len(ordered) - falling - rising} do neither"
                )
                raise ConfigError(
                    f"{self.path}: {directions}, so their sign cannot be told from beams that come best first; write"
                    " score ="
                    ' "higher" or "lower"'
                )
            remarks.append(
                f"{self.path}: scores rise along every list, while beams come best first: they are costs, and their"
                " sign is turned"
            )
        for row in scored:
            row.fields.update({name: -row.fields[name] for name in ("quality", "info") if name in row.fields})


@final
@dataclass(frozen=True)
class _Row:
    """One candidate in the form of the file."""

    query: str
    where: str
    numbers: Sequence[int]
    fields: dict[str, float]
    places: Sequence[int] | None = None
    ranked: bool = field(default=False)


def _beams(query: str, entry: Mapping[str, Any], where: str, prefix: str) -> list[_Row]:
    beams, scores = entry["id_list"], entry["score_list"]
    if len(beams) != len(scores):
        raise ConfigError(
            f"{where}: id_list has {len(beams)} beams and score_list {len(scores)} scores; they belong together one"
            " by one"
        )
    rows = []
    for number, (beam, score) in enumerate(zip(beams, scores, strict=True)):
        beam_name = f"{where}: id_list[{number}]"
        numbers = _integers(beam, beam_name)
        if f"{prefix}{numbers[-1]}" != query:
            raise ConfigError(
                f"{beam_name} = {numbers} does not end with the query's own id; a beam is [example, ..., query], and"
                " its last example stands next to the query"
            )
        value = _finite(score, f"{where}: score_list[{number}]")
        rows.append(_Row(query, beam_name, numbers[:-1], {"quality": value, "info": value}, ranked=True))
    return rows


def _pointer(query: str, number: int, entry: Mapping[str, Any], where: str) -> _Row:
    if "pointer" not in entry and "pointer_pos" not in entry:
        raise ConfigError(f"{where} has neither pointer nor pointer_pos, the examples it is of")
    fields = {
        ours: _finite(entry[theirs], f"{where}: {theirs}")
        for theirs, ours in _FIELDS.items()
        if entry.get(theirs) is not None
    }
    if entry.get("logprob_score") is not None and "quality" not in fields:
        # Recorders wrote the log-prob or its negative; only one of the two can be above 0.
        score = _finite(entry["logprob_score"], f"{where}: logprob_score")
        fields["quality"] = -score if score > 0 else score
    places = _integers(entry["pointer_pos"], f"{where}: pointer_pos") if "pointer_pos" in entry else None
    numbers = _integers(entry["pointer"], f"{where}: pointer") if "pointer" in entry else places
    assert numbers is not None
    return _Row(query, where, numbers, fields, places if "pointer" in entry else None)


def _check(row: _Row, places: Sequence[int | None], max_picks: int, kind: str, prefix: str) -> None:
    for number, place in zip(row.numbers, places, strict=True):
        if f"{prefix}{number}" == row.query and kind == "global":
            raise ConfigError(
                f"{row.where}: the query itself is among its examples, and its answer with it; leave this candidate out"
            )
        if place is None:
            mismatch = "no example of the query's pool" if kind == "global" else "no place in the query's pool"
            other_kind = "local" if kind == "global" else "global"
            raise ConfigError(
                f"{row.where}: {number} is {mismatch}; the file is of other pools, or its numbers are {other_kind}:"
                " write ids ="
                f' "{other_kind}"'
            )
    if len(set(places)) < len(places):
        raise ConfigError(f"{row.where} = {list(row.numbers)} has an example twice; picks are made without replacement")
    if not 1 <= len(places) <= max_picks:
        raise ConfigError(
            f"{row.where} has {len(places)} examples, and a choice has 1 to domain.shots = {max_picks}; write"
            f" domain.shots = {len(places)}"
        )


def _integers(values: Any, where: str) -> list[int]:
    if (
        not isinstance(values, list)
        or not values
        or not all(isinstance(value, int) and not isinstance(value, bool) for value in values)
    ):
        raise ConfigError(f"{where} is {values!r}; it must be a list of whole numbers")
    return values


def _finite(value: Any, where: str) -> float:
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise ConfigError(f"{where} is {value!r}; it must be a finite number")
    return float(value)
