"""OK-VQA and VQAv2 as their authors publish them: questions and annotations as JSON, ten answers each, and pictures of
COCO.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal, final

import numpy as np
from pydantic import Field

from groupwise.config import Config, ConfigError, read_json
from groupwise.config.errors import Count, Positive, Seed
from groupwise.config.files import check_file
from groupwise.streams import Streams
from groupwise_selection.embedder import ClipEmbedder, HashedWords
from groupwise_selection.example import Example, Query, Questions, distinct

_NUM_ANSWERS = 10

Path_ = Annotated[str, Field(min_length=1)]


class VqaFiles(Config):
    """The files of a split.

    Args:
        questions: `{"data_type": "mscoco", "data_subtype": "train2014", "questions": [{"image_id": 42, "question":
            "...", "question_id": 425}]}`; with `multiple_choices`, the answer is one of them.
        annotations: `{"data_subtype": "train2014", "annotations": [{"question_id": 425, "image_id": 42, "answers":
            [{"answer_id": 1, "answer": "..."}, ...]}]}`, ten answers each.
        images: the folder of the pictures, `COCO_train2014_000000000042.jpg`.
    """

    questions: Path_
    annotations: Path_
    images: Path_


@final
class Vqa(VqaFiles):
    """OK-VQA or VQAv2. The training questions with the answer of most annotators are the examples that may be shown.

    A question without an annotation, without exactly ten answers, or without a picture that opens is left out and
    counted. Queries, intervals and splits go by picture.

    Args:
        embedder: embeds a question with its picture (`clip`), or its words alone.
        held_out: the files of another split, whose questions are held out; unset holds out `num_held_out` of the
            questions, by picture.
        pool: `random` draws each query's pool from the training examples, `nearest` takes those nearest to it; either
            way without those of its own picture, and each text once.
        pool_size: examples in a pool.
        num_train: training questions that are used, drawn at random; unset uses all.
        num_validation: training questions kept apart, by picture.
        num_held_out: questions that are evaluated; unset takes all of `held_out`, or 200 of the training questions.
        most_faults: the highest share of questions that may be left out.
        seed: seed of draws and pools. It is not the run's seed.
    """

    kind: Literal["vqa"] = "vqa"
    embedder: Annotated[ClipEmbedder | HashedWords, Field(discriminator="kind")]
    held_out: VqaFiles | None = None
    pool: Literal["random", "nearest"] = "random"
    pool_size: Positive = 32
    num_train: Positive | None = None
    num_validation: Count = 0
    num_held_out: Positive | None = None
    most_faults: Annotated[float, Field(ge=0, lt=1)] = 0.01
    seed: Seed = 0

    def read(self) -> Questions:
        """Reads all questions, split.

        Raises:
            ConfigError: a file or an entry has another form, or too many questions cannot be used; the message names
                the file, the entry, the value and what to write.
        """
        remarks: list[str] = []
        asked = self._asked(self, "source", remarks)
        if self.held_out is not None:
            held = self._asked(self.held_out, "source.held_out", remarks)[: self.num_held_out]
            pictures = {entry.picture for entry in asked}
            if shared := next((entry for entry in held if entry.picture in pictures), None):
                raise ConfigError(
                    f"source.held_out.questions = {self.held_out.questions!r}: question {shared.id} is about a picture"
                    f" of the training questions, {shared.picture}; hold out other pictures"
                )
        else:
            held, asked = self._apart(asked, self.num_held_out or 200, "num_held_out")
        validation, asked = self._apart(asked, self.num_validation, "num_validation")
        train, validation, held = (
            self._with_pictures(part, f"{name} questions", remarks)
            for part, name in ((asked[: self.num_train], "training"), (validation, "validation"), (held, "held-out"))
        )
        everyone = [*train, *validation, *held]
        vectors = self.embedder([entry.question for entry in everyone], [entry.picture for entry in everyone])
        examples = [
            Example(entry.id, entry.question, _most(entry.answers), vector, entry.picture, entry.clusters)
            for entry, vector in zip(train, vectors, strict=False)
        ]
        queries = [
            self._with_pool(entry, vector, examples, vectors[: len(train)])
            for entry, vector in zip(everyone, vectors, strict=True)
        ]
        first, second = len(train), len(train) + len(validation)
        bank = examples if self.pool == "nearest" else ()
        return Questions(queries[:first], queries[first:second], queries[second:], remarks, bank)

    def _asked(self, files: VqaFiles, key: str, remarks: list[str]) -> list[_Asked]:
        """Joins the questions of a split with their annotations, in a random order."""
        subtype, prefix, rows = _entries(files.questions, "questions")
        other, _, annotation_rows = _entries(files.annotations, "annotations")
        if subtype != other:
            raise ConfigError(
                f"{key}: data_subtype is {subtype!r} in {files.questions} and {other!r} in {files.annotations}; give"
                " the questions and the annotations of one split"
            )
        if not Path(files.images).is_dir():
            raise ConfigError(f"{key}.images = {files.images!r} is no folder; write the one that holds {subtype}")
        annotations = _by_id(annotation_rows)
        split = rows[0][1].get("data_subtype", rows[0][1].get("split"))
        faults: list[tuple[str, str]] = []
        found: list[_Asked] = []
        for name, (place, row) in _by_id(rows).items():
            image_id = _whole(row, "image_id", place)
            if (own := row.get("data_subtype", row.get("split"))) != split:
                raise ConfigError(
                    f"{place}: its split is {own!r}, and {split!r} above; write a file for each split, and name the"
                    " other one in source.held_out"
                )
            where, annotation = annotations.pop(name, ("", None))
            if annotation is None:
                faults.append(("without an annotation", name))
                continue
            if _whole(annotation, "image_id", where) != image_id:
                raise ConfigError(
                    f"{where}: image_id is {annotation['image_id']!r}, and {row['image_id']!r} in the questions; give"
                    " the annotations of these questions"
                )
            answers, choices = _answers(annotation, where), tuple(_texts(row, "multiple_choices", place))
            if len(answers) != _NUM_ANSWERS:
                faults.append((f"without {_NUM_ANSWERS} answers", f"{name} has {len(answers)}"))
            elif choices and _most(answers) not in choices:
                faults.append(("without the answer among multiple_choices", name))
            else:
                picture = str(Path(files.images) / f"{prefix}_{subtype}_{image_id:012d}.jpg")
                found.append(_Asked(name, _text(row, "question", place), answers, picture, str(image_id), choices))
        if annotations:
            remarks.append(f"{files.annotations}: {len(annotations)} annotations have no question and are left out")
        self._leave_out(faults, len(rows), f"{key}.questions = {files.questions!r}", remarks)
        order = Streams(self.seed).numpy("vqa", key).permutation(len(found))
        return [found[place] for place in order.tolist()]

    def _apart(self, asked: list[_Asked], number: int, key: str) -> tuple[list[_Asked], list[_Asked]]:
        """Keeps the questions of some pictures apart: at least `number`, with all that are about their pictures."""
        sizes, pictures = Counter(entry.picture for entry in asked), set[str]()
        for picture in sizes:
            if sum(sizes[chosen] for chosen in pictures) >= number:
                break
            pictures.add(picture)
        apart, others = ([e for e in asked if (e.picture in pictures) == inside] for inside in (True, False))
        if number and not others:
            raise ConfigError(f"source.{key}: {number} of {len(asked)} questions are to be kept apart; keep fewer")
        return apart, others

    def _with_pictures(self, asked: list[_Asked], subject: str, remarks: list[str]) -> list[_Asked]:
        """Leaves out the questions whose picture cannot be shown; each picture is read to its end once."""
        fault = {picture: _picture_fault(picture) for picture in dict.fromkeys(entry.picture for entry in asked)}
        faults = [(fault[entry.picture], f"{entry.id}: {entry.picture}") for entry in asked if fault[entry.picture]]
        self._leave_out(faults, len(asked), f"source.images, {subject}", remarks)
        return [entry for entry in asked if not fault[entry.picture]]

    def _leave_out(self, faults: list[tuple[str, str]], total: int, subject: str, remarks: list[str]) -> None:
        """Adds a remark on questions that are left out.

        Raises:
            ConfigError: there are too many of them.
        """
        first: dict[str, str] = {}
        for kind, name in faults:
            first.setdefault(kind, name)
        counts = Counter(kind for kind, _ in faults)
        listed = ", ".join(f"{count} {kind} (first: question {first[kind]})" for kind, count in counts.items())
        if len(faults) > self.most_faults * total:
            raise ConfigError(
                f"{subject}: {len(faults)} of {total} questions cannot be used: {listed}; mend them, or write"
                f" source.most_faults = {min(0.99, len(faults) / total + 0.005):.2f} to leave them out"
            )
        if faults:
            remarks.append(f"{subject}: {len(faults)} of {total} questions are left out: {listed}")

    def _with_pool(self, entry: _Asked, vector: np.ndarray, examples: list[Example], vectors: np.ndarray) -> Query:
        query = Query(entry.id, entry.question, entry.answers, vector, (), entry.picture, entry.choices, entry.clusters)
        if self.pool == "random":
            order = Streams(self.seed).numpy("pool", entry.id).permutation(len(examples))
        else:
            order = np.argsort(-(vectors @ vector), kind="stable")
        others = (examples[place] for place in order.tolist() if examples[place].image != entry.picture)
        return replace(query, pool=tuple(islice(distinct(others, query), self.pool_size)))


@dataclass(frozen=True)
class _Asked:
    """A question with its answers in the order of the annotators."""

    id: str
    question: str
    answers: tuple[str, ...]
    picture: str
    image_id: str
    choices: tuple[str, ...]

    @property
    def clusters(self) -> dict[str, str]:
        return {"image": self.image_id}


def _entries(path: str, key: Literal["questions", "annotations"]) -> tuple[str, str, list[tuple[str, dict[str, Any]]]]:
    """Returns a file's split, the beginning of its pictures' names, and its entries by their places."""
    tree = read_json(path)
    subtype, data_type, rows = tree.get("data_subtype"), tree.get("data_type", "mscoco"), tree.get(key)
    if not isinstance(rows, list) or not rows:
        raise ConfigError(f"{path}: field {key} is {_short(rows)}; it must be a list of tables, as OK-VQA has it")
    for name, value in (("data_subtype", subtype), ("data_type", data_type)):
        if not isinstance(value, str) or not value.isidentifier():
            raise ConfigError(f"{path}: field {name} is {_short(value)}; write a name, such as train2014 or mscoco")
    places = [(f"{path}: {key}[{number}]", row) for number, row in enumerate(rows)]
    for place, row in places:
        if not isinstance(row, dict):
            raise ConfigError(f"{place} is {_short(row)}; it must be a table")
    return str(subtype), "COCO" if data_type == "mscoco" else data_type, places


def _by_id(rows: Sequence[tuple[str, dict[str, Any]]]) -> dict[str, tuple[str, dict[str, Any]]]:
    table: dict[str, tuple[str, dict[str, Any]]] = {}
    for place, row in rows:
        name = str(_whole(row, "question_id", place))
        if name in table:
            raise ConfigError(f"{place}: question_id {name} stands in {table[name][0]} too; each question has its own")
        table[name] = place, row
    return table


def _whole(row: Mapping[str, Any], key: str, place: str) -> int:
    """Returns an id, which may be written as a text of digits."""
    value = row.get(key)
    if isinstance(value, str) and value.isdecimal() and value.isascii():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 10**18:
        raise ConfigError(f"{place}: {key} is {_short(value)}; it must be a whole number from 0")
    return value


def _text(row: Mapping[str, Any], key: str, place: str) -> str:
    if not isinstance(value := row.get(key), str) or not value.strip():
        raise ConfigError(f"{place}: {key} is {_short(value)}; it must be a text")
    return value


def _texts(row: Mapping[str, Any], key: str, place: str) -> list[str]:
    values = row.get(key) or []
    if not isinstance(values, list):
        raise ConfigError(f"{place}: {key} is {_short(values)}; it must be a list of texts")
    return [_text({key: value}, key, place) for value in values]


def _answers(row: Mapping[str, Any], place: str) -> tuple[str, ...]:
    """Returns the answers that are not empty, in the order of `answer_id`."""
    answers = row.get("answers")
    answers = [] if answers is None else answers
    if not isinstance(answers, list) or not all(
        isinstance(entry, dict) and isinstance(entry.get("answer"), str) for entry in answers
    ):
        raise ConfigError(
            f'{place}: answers is {_short(answers)}; it must be a list of {{"answer_id": 1, "answer": "..."}}'
        )
    numbers = [entry.get("answer_id", number) for number, entry in enumerate(answers)]
    if not all(isinstance(number, int) for number in numbers) or len(set(numbers)) < len(numbers):
        raise ConfigError(f"{place}: answer_id are {_short(numbers)}; number the answers from 1, each once")
    ordered = sorted(zip(numbers, answers, strict=True), key=lambda pair: pair[0])
    return tuple(entry["answer"] for _, entry in ordered if entry["answer"].strip())


def _most(answers: Sequence[str]) -> str:
    """Returns the answer of most annotators; of equally frequent ones, the first."""
    return Counter(answers).most_common(1)[0][0]


def _picture_fault(path: str) -> str:
    """Says why a picture cannot be shown; empty where it can. A file that was cut off opens, and is read to its end."""
    from PIL import Image

    try:
        check_file(Path(path))
        with Image.open(path) as image:
            image.draft("RGB", (1, 1))
            image.load()
    except FileNotFoundError:
        return "without a picture"
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return "with a damaged picture"
    return ""


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
