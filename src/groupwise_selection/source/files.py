"""Questions of the user: JSONL files of queries and of solved examples, with their embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal, TypeVar, final

import numpy as np
from pydantic import ConfigDict, Field, model_validator

from groupwise.config import Config, ConfigError, read_rows, validate
from groupwise.config.errors import Count, Positive, Seed
from groupwise_selection.embedder import HashedWords
from groupwise_selection.example import Example, Query, Questions, distinct


class Line(Config):
    """The fields that queries and examples share, as one line of a file. Further fields are ignored."""

    model_config = ConfigDict(extra="ignore")

    id: str
    question: str
    image: str | None = None
    clusters: dict[str, str] = Field(default_factory=dict)
    embedding: list[float] | None = None


class QueryLine(Line):
    """A query, as one line of a file."""

    answers: tuple[str, ...] = ()
    pool: tuple[str, ...] | None = None
    choices: tuple[str, ...] = ()
    split: Literal["train", "validation", "held_out"] | None = None


class ExampleLine(Line):
    """A solved example, as one line of a file. A missing answer is an error only where the example is in a pool; the
    check of pools then names the query.
    """

    answer: str | None = None

    def example(self, vector: np.ndarray, file: Path) -> Example:
        """Makes the example.

        Args:
            vector: its embedding, `[D]`.
            file: the file of the line; paths of pictures are relative to its folder.
        """
        return Example(self.id, self.question, self.answer or "", vector, _image(self, file), self.clusters)


_Line = TypeVar("_Line", bound=Line)


def read_lines(kind: type[_Line], path: str | Path, key: str) -> dict[str, _Line]:
    """Reads all lines of a file by their places, `FILE, line 3 ('q2')`.

    Args:
        kind: the kind of the lines.
        path: the path of the file.
        key: the key of the configuration that names it, for errors.

    Raises:
        ConfigError: a line cannot be read, or an id appears twice; the message names the line and the field.
    """
    lines: dict[str, _Line] = {}
    ids: set[str] = set()
    for where, row in read_rows(path, key):
        place = f"{where} ({row['id']!r})" if isinstance(row.get("id"), str) else where
        line = lines[place] = validate(kind, row, place)
        if line.id in ids:
            raise ConfigError(f"{place}: field id stands on an earlier line too; give each its own")
        ids.add(line.id)
    return lines


def embeddings_of(lines: Mapping[str, Line], alternative: str = "name a file in source.embeddings") -> np.ndarray:
    """Collects the `embedding` of every line, fp32 `[N, D]`.

    Args:
        lines: from `read_lines`.
        alternative: advice in the error for lines without an embedding.

    Raises:
        ConfigError: a line has no embedding, or one of another size; the message names the line.
    """
    vectors: list[list[float]] = []
    for place, line in lines.items():
        if not line.embedding:
            raise ConfigError(f"{place}: field embedding is missing; write one on every line, or {alternative}")
        if vectors and len(line.embedding) != len(vectors[0]):
            sizes = f"{len(line.embedding)} numbers, those before have {len(vectors[0])}"
            raise ConfigError(f"{place}: field embedding has {sizes}")
        vectors.append(line.embedding)
    return np.array(vectors, dtype=np.float32)


def _image(line: Line, file: Path) -> str | None:
    return None if line.image is None else str(file.parent / line.image)


Path_ = Annotated[str, Field(min_length=1)]


@final
class Files(Config):
    """One JSON object a line. A query: `id`, `question`, `answers` (one of each annotator), and optionally `pool`
    (ids of examples), `image` (a path relative to the file), `choices`, `clusters` (`{"image": "17"}`), `split`. An
    example: `id`, `question`, `answer`, and optionally `image`, `clusters`.

    Args:
        queries, examples: paths of the JSONL files.
        embeddings: a `.safetensors` file with the tensors `queries [Q, D]` and `examples [E, D]`, or a folder with
            `queries.npy` and `examples.npy`, in the order of the lines; unset, every line has its own `embedding`. Each
            is a unit vector.
        embedder: embeds the questions here, in place of `embeddings`; an exported selector then embeds by itself.
        pool_size: number of nearest examples that become the pool of a query without `pool`: without the query's own
            solved copy, under whatever id, and each text once.
        num_validation, num_held_out: queries set aside by a fixed shuffle, where the lines have no `split`.
        seed: seed of that shuffle. It is not the run's seed.
    """

    kind: Literal["files"] = "files"
    queries: Path_
    examples: Path_
    embeddings: str | None = None
    embedder: HashedWords | None = None
    pool_size: Positive | None = None
    num_validation: Count = 0
    num_held_out: Positive = 200
    seed: Seed = 0

    @model_validator(mode="after")
    def _sound(self) -> Files:
        if self.embedder is not None and self.embeddings is not None:
            raise ValueError("embeddings and embedder are both set, and either gives the vectors; remove one")
        return self

    def read(self) -> Questions:
        """Reads all queries, split.

        Raises:
            ConfigError: a file does not exist, a line cannot be read, a field is missing or of the wrong type, an id is
                unknown or appears twice, or embeddings do not fit; the message names file, line and field.
        """
        query_lines = read_lines(QueryLine, self.queries, "source.queries")
        example_lines = read_lines(ExampleLine, self.examples, "source.examples")
        query_vectors, example_vectors = self._vectors(query_lines, example_lines)
        rows = zip(example_lines.values(), example_vectors, strict=True)
        examples = [line.example(vector, Path(self.examples)) for line, vector in rows]
        by_id = {example.id: example for example in examples}
        queries = []
        for (place, line), vector in zip(query_lines.items(), query_vectors, strict=True):
            image = _image(line, Path(self.queries))
            query = Query(line.id, line.question, line.answers, vector, (), image, line.choices, line.clusters)
            if line.pool is None:
                pool = self._nearest(place, query, examples, example_vectors)
            elif unknown := next((name for name in line.pool if name not in by_id), None):
                message = f"field pool names {unknown!r}, which is no example of {self.examples}"
                raise ConfigError(f"{place}: query {line.id!r}: {message}")
            else:
                pool = tuple(by_id[name] for name in line.pool)
            queries.append(replace(query, pool=pool))
        # Where no query names a pool, all choose from one bank: the whole file.
        shared = all(line.pool is None for line in query_lines.values())
        bank = [example for example in examples if shared and example.answer.strip()]
        return replace(self._split(query_lines, queries), bank=bank)

    def _vectors(
        self, query_lines: Mapping[str, Line], example_lines: Mapping[str, Line]
    ) -> tuple[np.ndarray, np.ndarray]:
        if self.embedder is not None:
            questions = ([line.question for line in lines.values()] for lines in (query_lines, example_lines))
            queries, examples = map(self.embedder, questions)
            return queries, examples
        if self.embeddings is None:
            return embeddings_of(query_lines), embeddings_of(example_lines)
        path = Path(self.embeddings)
        where = f"source.embeddings = {self.embeddings!r}"
        try:
            if path.is_dir():
                tensors = {name: np.load(path / f"{name}.npy", allow_pickle=False) for name in ("queries", "examples")}
            else:
                from safetensors.numpy import load_file

                tensors = dict(load_file(path))
        except Exception as error:
            reason = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
            raise ConfigError(
                f"{where}: {reason}; give a .safetensors file with queries and examples, or a folder with queries.npy"
                " and examples.npy"
            ) from error
        for name, lines in (("queries", query_lines), ("examples", example_lines)):
            if name not in tensors:
                raise ConfigError(f"{where}: it has no tensor {name!r}; it has {sorted(tensors)}")
            if tensors[name].ndim != 2 or len(tensors[name]) != len(lines):
                raise ConfigError(
                    f"{where}: {name} is {list(tensors[name].shape)}, and the file has {len(lines)} lines; give one row"
                    " [D] a line, in their order"
                )
        return tensors["queries"].astype(np.float32), tensors["examples"].astype(np.float32)

    def _nearest(
        self, place: str, query: Query, examples: Sequence[Example], vectors: np.ndarray
    ) -> tuple[Example, ...]:
        """Returns the pool of a query that names none: the examples nearest to it."""
        if self.pool_size is None:
            raise ConfigError(
                f"{place}: query {query.id!r} has no field pool; give it one, or write source.pool_size = 32 to take"
                " its nearest examples"
            )
        if vectors.shape[1] != len(query.embedding):
            raise ConfigError(
                f"{place}: query {query.id!r}: field embedding has {len(query.embedding)} numbers, those of the"
                f" examples have {vectors.shape[1]}"
            )
        order = np.argsort(-(vectors @ query.embedding), kind="stable").tolist()
        nearest = (examples[index] for index in order if examples[index].id != query.id)
        return tuple(islice(distinct(nearest, query), self.pool_size))

    def _split(self, lines: Mapping[str, QueryLine], queries: Sequence[Query]) -> Questions:
        splits = {place: line.split for place, line in lines.items()}
        if any(splits.values()):
            if lacking := next((place for place, split in splits.items() if split is None), None):
                raise ConfigError(f"{lacking}: field split is missing; other queries have one")
            by_split: dict[str | None, list[Query]] = {"train": [], "validation": [], "held_out": []}
            for split, query in zip(splits.values(), queries, strict=True):
                by_split[split].append(query)
            return Questions(by_split["train"], by_split["validation"], by_split["held_out"])
        apart = self.num_held_out + self.num_validation
        if len(queries) <= apart:
            raise ConfigError(
                f"source.queries = {self.queries!r}: {len(queries)} queries, and {apart} are to be kept apart"
                " (num_held_out, num_validation); give more, or keep fewer"
            )
        order = np.random.default_rng(self.seed).permutation(len(queries)).tolist()
        held_out, validation = order[: self.num_held_out], order[self.num_held_out : apart]
        return Questions(
            [queries[place] for place in sorted(order[apart:])],
            *([queries[place] for place in sorted(places)] for places in (validation, held_out)),
        )
