"""Candidates recorded by source 004's project: beams of a search, or pointer candidates with their measurements.

Two JSON files are read. Keys are queries' ids; keys that begin with `_` hold remarks of the recorder and are skipped.

    beams       {"17": {"id_list": [[3, 8, 17], [8, 3, 17]], "score_list": [0.046, 0.037]}}
    candidates  {"17": {"pointer_candidates": [{"pointer": [3, 8], "pointer_pos": [0, 4], "vqa_correct": 1,
    "vqa_acc_score": 0.9, "log_probs": [-1.2, -0.7], ...}]}}

`log_probs` are the nats of each pick under the policy that drew it, in the order of `pointer`; beside `id_list`, a
list of such lists. All candidates of a file have them, or none.

A beam ends with the query itself and is written in the order of the prompt: its last example is next to the query.
A score is an information gain, the more the better, and the best beam comes first. `pointer` names examples of the
whole data set, `pointer_pos` places in the pool. Candidates carry `vqa_correct`, `vqa_acc_score`, `vqa_gt_prob`,
`vqa_rel_score`, `beam_score` and `logprob_score`; those marked `eval_failed`, or judged by a fallback, are left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, final

from groupwise.config import Config, ConfigError, read_json

FIELD_NAMES = {
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
        picks: places in the query's pool, in the order of the prompt: the last is next to the query.
        fields: measured field -> value, by the column names of rewards; `quality` and `info` are a beam's score.
        log_probs: nats of each pick under the policy that drew it; `None` where they were not recorded.

    Example:
        >>> Candidate((4, 0), {"correct": 1.0}).picks
        (4, 0)
    """

    picks: tuple[int, ...]
    fields: Mapping[str, float]
    log_probs: tuple[float, ...] | None = None


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
        score: `higher` is better, or `lower` (a loss). `auto` takes beams whose scores fall, the best first, and
            refuses others.
        prefix: prefix of the ids in the data: the number 17 is the example `f"{prefix}17"`.
    """

    kind: Literal["recorded"] = "recorded"
    path: str
    ids: Literal["global", "local"] = "global"
    score: Literal["auto", "higher", "lower"] = "auto"
    prefix: str = ""

    def read(self, pools: Mapping[str, Sequence[str]], max_picks: int) -> Recording:
        """Reads and checks the candidates of the queries in `pools`.

        Args:
            pools: query id -> ids of its pool's examples, in order.
            max_picks: highest number of picks in a choice.

        Returns:
            candidates by query, with remarks on those that are left out.

        Raises:
            ConfigError: the file has another format; a number is not an example of the pool; a query is among its
                examples; an example appears twice; scores are not numbers or have no clear direction; no query is of
                the data. The message names the query and the entry.
        """
        tree = read_json(Path(self.path))
        entries = {str(key): value for key, value in tree.items() if not str(key).startswith("_")}
        known = {query: value for key, value in entries.items() if (query := f"{self.prefix}{key}") in pools}
        if not known:
            data_ids, file_keys = ", ".join(list(pools)[:_NUM_NAMED]), ", ".join(list(entries)[:_NUM_NAMED]) or "none"
            raise ConfigError(
                f"{self.path}: no query of the data is in it (data: {data_ids}, ...; file: {file_keys}, ...); write"
                " prefix, or the file of this data"
            )
        remarks: list[str] = []
        if len(known) < len(entries):
            remarks.append(
                f"{self.path}: {len(entries) - len(known)} of {len(entries)} queries are none of the data's"
                " training queries and are left out"
            )
        candidates: dict[str, list[Candidate]] = {}
        num_failed = 0
        first: _Row | None = None
        for query, entry in known.items():
            rows, failed = self._rows(query, entry)
            num_failed += failed
            for row in rows:
                first = first or row
                if (row.log_probs is None) != (first.log_probs is None):
                    lacking, other = (row, first) if row.log_probs is None else (first, row)
                    raise ConfigError(
                        f"{lacking.where} has no log_probs, and {other.where} has some; all candidates of a file have"
                        " them or none: record these, or remove the others"
                    )
                candidate = Candidate(self._places(row, pools[query], max_picks), row.fields, row.log_probs)
                candidates.setdefault(query, []).append(candidate)
        if num_failed:
            remarks.append(f"{self.path}: {num_failed} candidates whose evaluation failed or fell back are left out")
        if not candidates:
            raise ConfigError(f"{self.path}: no candidate is left, {num_failed} had failed; record them again")
        return Recording(candidates, tuple(remarks))

    def _rows(self, query: str, entry: Any) -> tuple[list[_Row], int]:
        """Returns the candidates of a query, and the number of those whose evaluation failed."""
        where = f"{self.path}: query {query!r}"
        keys = sorted(entry) if isinstance(entry, Mapping) else [type(entry).__name__]
        lists = ["pointer_candidates"] if "pointer_candidates" in keys else ["id_list", "score_list"]
        if not set(lists) <= set(keys):
            raise ConfigError(f"{where} has {keys}; allowed: id_list with score_list, or pointer_candidates")
        for name in lists:
            if not isinstance(entry[name], list):
                raise ConfigError(f"{where}: {name} is {entry[name]!r}; it must be a list")
        if "pointer_candidates" not in keys:
            return self._beams(query, entry, where), 0
        rows = []
        for number, candidate in enumerate(entry["pointer_candidates"]):
            place = f"{where}: pointer_candidates[{number}]"
            if not isinstance(candidate, Mapping):
                raise ConfigError(f"{place} is {candidate!r}; it must be a table")
            if not candidate.get("eval_failed") and candidate.get("vqa_eval_mode") not in ("fallback", "error"):
                rows.append(self._pointer(query, candidate, place))
        return rows, len(entry["pointer_candidates"]) - len(rows)

    def _beams(self, query: str, entry: Mapping[str, Any], where: str) -> list[_Row]:
        beams, scores, log_probs = entry["id_list"], entry["score_list"], entry.get("log_probs")
        if log_probs is not None and (not isinstance(log_probs, list) or len(log_probs) != len(beams)):
            raise ConfigError(f"{where}: log_probs is {log_probs!r}; write one list for each of {len(beams)} beams")
        if len(beams) != len(scores):
            raise ConfigError(
                f"{where}: id_list has {len(beams)} beams and score_list {len(scores)} scores; they belong together one"
                " by one"
            )
        values = [_finite(score, f"{where}: score_list[{number}]") for number, score in enumerate(scores)]
        if self.score == "auto" and values != sorted(values, reverse=True):
            raise ConfigError(
                f"{where}: score_list = {values} does not fall, while beams come best first: is it a cost? Write"
                ' score = "lower", or "higher"'
            )
        rows = []
        for number, (beam, value) in enumerate(zip(beams, values, strict=True)):
            name = f"{where}: id_list[{number}]"
            numbers = _integers(beam, name)
            if f"{self.prefix}{numbers[-1]}" != query:
                raise ConfigError(
                    f"{name} = {numbers} does not end with the query's own id; a beam is [example, ..., query], and"
                    " its last example stands next to the query"
                )
            quality, own = self._oriented(value), None if log_probs is None else log_probs[number]
            row_log_probs = _log_probs(own, len(numbers) - 1, f"{where}: log_probs[{number}]")
            rows.append(_Row(query, name, numbers[:-1], {"quality": quality, "info": quality}, row_log_probs))
        return rows

    def _pointer(self, query: str, entry: Mapping[str, Any], where: str) -> _Row:
        fields = {
            ours: _finite(entry[theirs], f"{where}: {theirs}")
            for theirs, ours in FIELD_NAMES.items()
            if entry.get(theirs) is not None
        }
        if entry.get("logprob_score") is not None and "quality" not in fields:
            # Recorders wrote the log-prob or its negative; only one of the two can be above 0.
            fields["quality"] = -abs(_finite(entry["logprob_score"], f"{where}: logprob_score"))
        if "quality" in fields:
            fields["quality"] = self._oriented(fields["quality"])
        if entry.get("beam_score") is not None:
            fields["info"] = fields["quality"]
        names = [name for name in ("pointer", "pointer_pos") if name in entry]
        if not names:
            raise ConfigError(f"{where} has neither pointer nor pointer_pos, the examples it is of")
        numbers = [_integers(entry[name], f"{where}: {name}") for name in names]
        log_probs = _log_probs(entry.get("log_probs"), len(numbers[0]), f"{where}: log_probs")
        return _Row(query, where, numbers[0], fields, log_probs, numbers[-1], "pointer" not in entry)

    def _oriented(self, score: float) -> float:
        return -score if self.score == "lower" else score

    def _places(self, row: _Row, pool: Sequence[str], max_picks: int) -> tuple[int, ...]:
        """Returns a choice as places in its query's pool."""
        place_of = {name: index for index, name in enumerate(pool)}
        is_global = self.ids == "global" and not row.has_places_alone
        places = []
        for number in row.numbers:
            name = f"{self.prefix}{number}"
            place = place_of.get(name) if is_global else number if 0 <= number < len(pool) else None
            if is_global and name == row.query:
                raise ConfigError(
                    f"{row.where}: the query itself is among its examples, and its answer with it; leave this candidate"
                    " out"
                )
            if place is None:
                kind, other = ("example", "local") if is_global else ("place", "global")
                raise ConfigError(
                    f"{row.where}: {number} is no {kind} of the query's pool; the file is of other pools, or its"
                    f' numbers are {other}: write ids = "{other}"'
                )
            places.append(place)
        if len(set(places)) < len(places):
            raise ConfigError(f"{row.where} = {row.numbers} has an example twice; picks are made without replacement")
        if not 1 <= len(places) <= max_picks:
            raise ConfigError(
                f"{row.where} has {len(places)} examples, and a choice has 1 to domain.shots = {max_picks}; write"
                f" domain.shots = {len(places)}"
            )
        # Some files repeat the ids in `pointer_pos`.
        if row.places not in (None, places, row.numbers):
            raise ConfigError(
                f"{row.where}: pointer = {row.numbers} and pointer_pos = {row.places} are different choices; the pools"
                " are not those the file was recorded with"
            )
        return tuple(places)


@final
@dataclass(frozen=True)
class _Row:
    """One candidate in the form of the file; `places` is its `pointer_pos`."""

    query: str
    where: str
    numbers: list[int]
    fields: dict[str, float]
    log_probs: tuple[float, ...] | None
    places: list[int] | None = None
    has_places_alone: bool = False


def _integers(values: Any, where: str) -> list[int]:
    if (
        not isinstance(values, list)
        or not values
        or not all(isinstance(value, int) and not isinstance(value, bool) for value in values)
    ):
        raise ConfigError(f"{where} is {values!r}; it must be a list of whole numbers")
    return values


def _finite(value: Any, where: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise ConfigError(f"{where} is {value!r}; it must be a finite number")
    return float(value)


def _log_probs(values: Any, num_picks: int, where: str) -> tuple[float, ...] | None:
    """Returns the log-probs of a candidate's picks; `None` where it has none."""
    if values is None:
        return None
    if not isinstance(values, list) or len(values) != num_picks:
        raise ConfigError(f"{where} is {values!r}; write a list of {num_picks} numbers, one a pick")
    numbers = tuple(_finite(value, f"{where}[{place}]") for place, value in enumerate(values))
    if max(numbers) > 0:
        raise ConfigError(f"{where} is {values!r}; a log-prob is at most 0: write nats, and no probabilities")
    return numbers
