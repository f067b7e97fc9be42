"""Questions of the user: JSONL files of queries and of solved examples, with their embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, final

from pydantic import Field, model_validator

from groupwise.config import Config, ConfigError, read_json_lines
from groupwise.config.errors import Count, Positive, Seed
from groupwise_selection.embedder import HashedWords
from groupwise_selection.example import Example, Query, Questions, distinct

if TYPE_CHECKING:
    import numpy as np


# Lines of JSONL files of queries and examples: fields read with errors that name the place.


@final
class Line:
    """One line of a file, whose fields are read with errors that name it.

    Args:
        row: the JSON object of the line.
        where: the file and the line, for errors.
    """

    def __init__(self, row: dict[str, Any], where: str) -> None:
        self.row, self.where = row, where

    def text(self, field: str, default: str | None = None) -> str:
        value = self.row.get(field, default)
        if not isinstance(value, str):
            have = "is missing" if value is None else f"is {value!r} ({type(value).__name__})"
            raise ConfigError(f"{self.where}{self._name()}: field {field} {have}; write a text")
        return value

    def texts(self, field: str) -> tuple[str, ...]:
        value = self.row.get(field, [])
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            raise ConfigError(f"{self.where}{self._name()}: field {field} is {value!r}; write a list of texts")
        return tuple(value)

    def clusters(self) -> dict[str, str]:
        value = self.row.get("clusters", {})
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value.values()):
            raise ConfigError(
                f'{self.where}{self._name()}: field clusters is {value!r}; write names and keys, {{"image": "17"}}'
            )
        return value

    def image(self, file: Path) -> str | None:
        return None if self.row.get("image") is None else str(file.parent / self.text("image"))

    def _name(self) -> str:
        return f" ({self.row['id']!r})" if isinstance(self.row.get("id"), str) else ""


def inline(lines: Sequence[Line], alternative: str = "name a file in source.embeddings") -> np.ndarray:
    """Reads the `embedding` of every line, fp32 `[N, D]`.

    Args:
        lines: all lines of a file.
        alternative: advice in the error for lines without an embedding.

    Raises:
        ConfigError: a line has no embedding, or one of another size; the message names the line.
    """
    import numpy as np

    size = None
    for line in lines:
        value = line.row.get("embedding")
        if (
            not isinstance(value, list)
            or not all(isinstance(number, int | float) and not isinstance(number, bool) for number in value)
            or not value
        ):
            have = "is missing" if value is None else "is no list of numbers"
            raise ConfigError(
                f"{line.where} ({line.row.get('id')!r}): field embedding {have}; write one on every line, or"
                f" {alternative}"
            )
        size = len(value) if size is None else size
        if len(value) != size:
            raise ConfigError(
                f"{line.where} ({line.row.get('id')!r}): field embedding has {len(value)} numbers, those before have"
                f" {size}"
            )
    try:
        return np.array([line.row["embedding"] for line in lines], dtype=np.float32)
    except OverflowError:
        raise ConfigError(
            f"{lines[0].where.rpartition(', ')[0]}: field embedding holds a whole number beyond all floats; an"
            " embedding has length 1"
        ) from None


def example_of(line: Line, vector: np.ndarray, file: Path) -> Example:
    """Reads a solved example from its line.

    Args:
        line: the line of the example.
        vector: embedding of the example, `[D]`.
        file: path of the file; paths of pictures are relative to its folder.

    Raises:
        ConfigError: a field is missing or of the wrong type; the message names the field.
    """
    # A missing answer is an error only where the example is in a pool; the check of pools then names the query.
    answer = "" if line.row.get("answer") is None else line.text("answer")
    return Example(line.text("id"), line.text("question"), answer, vector, line.image(file), line.clusters())


Path_ = Annotated[str, Field(min_length=1)]
_SPLITS = ("train", "validation", "held_out")


@final
class Files(Config):
    """One JSON object a line. A query: `id`, `question`, `answers` (one of each annotator), and optionally `pool`
    (ids of examples), `image` (a path, beside the file), `choices`, `clusters` (`{"image": "17"}`), `split`. An
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
        for name in ("queries", "examples"):
            if not getattr(self, name).endswith(".jsonl"):
                raise ValueError(
                    f"{name} = {getattr(self, name)!r}: write a file that ends in .jsonl, one JSON object a line"
                )
        if self.embedder is not None and self.embeddings is not None:
            raise ValueError("embeddings and embedder are both set, and either gives the vectors; remove one")
        return self

    def read(self) -> Questions:
        """Reads all queries, split.

        Raises:
            ConfigError: a file does not exist, a line cannot be read, a field is missing or of the wrong type, an id is
                unknown or stands twice, or embeddings do not fit; the message names file, line and field.
        """
        query_lines, example_lines = (
            [Line(row, where) for where, row in read_json_lines(getattr(self, name), f"source.{name}")]
            for name in ("queries", "examples")
        )
        query_vectors, example_vectors = self._vectors(query_lines, example_lines)
        examples = [
            example_of(line, vector, Path(self.examples))
            for line, vector in zip(example_lines, example_vectors, strict=True)
        ]
        examples_by_id: dict[str, Example] = {}
        for line, example in zip(example_lines, examples, strict=True):
            if examples_by_id.setdefault(example.id, example) is not example:
                raise ConfigError(
                    f"{line.where}: field id: {example.id!r} stands on an earlier line too; give each example its own"
                )
        queries = [
            _query(
                line, vector, self._pool(line, vector, examples_by_id, examples, example_vectors), Path(self.queries)
            )
            for line, vector in zip(query_lines, query_vectors, strict=True)
        ]
        # Where no query names a pool, all choose from one bank: the whole file.
        shared = not any("pool" in line.row for line in query_lines)
        return replace(
            self._split(query_lines, queries),
            bank=[example for example in examples if shared and example.answer.strip()],
        )

    def _vectors(self, query_lines: Sequence[Line], example_lines: Sequence[Line]) -> tuple[np.ndarray, np.ndarray]:
        if self.embedder is not None:
            return self.embedder([line.text("question") for line in query_lines]), self.embedder(
                [line.text("question") for line in example_lines]
            )
        if self.embeddings is None:
            return inline(query_lines), inline(example_lines)
        import numpy as np

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

    def _pool(
        self,
        line: Line,
        vector: np.ndarray,
        examples_by_id: Mapping[str, Example],
        examples: Sequence[Example],
        vectors: np.ndarray,
    ) -> tuple[Example, ...]:
        import numpy as np

        query_id = line.text("id")
        if "pool" in line.row:
            ids = line.texts("pool")
            for example_id in ids:
                if example_id not in examples_by_id:
                    raise ConfigError(
                        f"{line.where}: query {query_id!r}: field pool names {example_id!r}, which is no example of"
                        f" {self.examples}"
                    )
            return tuple(examples_by_id[example_id] for example_id in ids)
        if self.pool_size is None:
            raise ConfigError(
                f"{line.where}: query {query_id!r} has no field pool; give it one, or write source.pool_size = 32 to"
                " take its nearest examples"
            )
        if vectors.shape[1] != vector.shape[0]:
            raise ConfigError(
                f"{line.where}: query {query_id!r}: field embedding has {len(vector)} numbers, those of the examples"
                f" have {vectors.shape[1]}"
            )
        order = np.argsort(-(vectors @ vector), kind="stable").tolist()
        query = Query(
            query_id, line.text("question"), line.texts("answers"), vector, (), line.image(Path(self.queries))
        )
        nearest = (examples[place] for place in order if examples[place].id != query_id)
        return tuple(islice(distinct(nearest, query), self.pool_size))

    def _split(self, lines: Sequence[Line], queries: Sequence[Query]) -> Questions:
        has_split = ["split" in line.row for line in lines]
        if any(has_split):
            queries_by_split: dict[str, list[Query]] = {name: [] for name in _SPLITS}
            for line, query in zip(lines, queries, strict=True):
                split = line.text("split")
                if split not in queries_by_split:
                    raise ConfigError(
                        f"{line.where}: query {query.id!r}: field split is {split!r}; write one of {', '.join(_SPLITS)}"
                    )
                queries_by_split[split].append(query)
            return Questions(queries_by_split["train"], queries_by_split["validation"], queries_by_split["held_out"])
        apart = self.num_held_out + self.num_validation
        if len(queries) <= apart:
            raise ConfigError(
                f"source.queries = {self.queries!r}: {len(queries)} queries, and {apart} are to be kept apart"
                " (num_held_out, num_validation); give more, or keep fewer"
            )
        import numpy as np

        order = np.random.default_rng(self.seed).permutation(len(queries)).tolist()
        held_out, validation = order[: self.num_held_out], order[self.num_held_out : apart]
        return Questions(
            [queries[place] for place in sorted(order[apart:])],
            *([queries[place] for place in sorted(places)] for places in (validation, held_out)),
        )


def _query(line: Line, vector: np.ndarray, pool: tuple[Example, ...], file: Path) -> Query:
    return Query(
        line.text("id"),
        line.text("question"),
        line.texts("answers"),
        vector,
        pool,
        line.image(file),
        line.texts("choices"),
        line.clusters(),
    )
