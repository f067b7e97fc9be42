"""Questions of the user: JSONL files of queries and of solved examples, with their embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, final

from pydantic import Field, model_validator

from groupwise.config import Config, ConfigError, read_json_lines
from groupwise.config.numbers import Count, Positive, Seed
from groupwise.domain.selection.embedder import HashedWords
from groupwise.domain.selection.example import Example, Query, Questions
from groupwise.domain.selection.source.json_lines import Line, example_of, inline

if TYPE_CHECKING:
    import numpy as np

Path_ = Annotated[str, Field(min_length=1)]
_SPLITS = ("train", "validation", "held_out")


@final
class Files(Config):
    """One JSON object a line. A query: `id`, `question`, `answers` (what each annotator said), and where wanted `pool`
    (ids of examples), `image` (a path, beside the file), `choices`, `clusters` (`{"image": "17"}`), `split`. An
    example: `id`, `question`, `answer`, and where wanted `image`, `clusters`.

    Args:
        queries, examples: the files.
        embeddings: a `.safetensors` file with the tensors `queries [Q, D]` and `examples [E, D]`, or a folder with
            `queries.npy` and `examples.npy`, in the order of the lines; unset, every line has its own `embedding`. Each
            is a unit vector.
        embedder: embeds the questions here, in place of `embeddings`; an exported selector then embeds by itself.
        pool_size: where a query has no `pool`, as many of its nearest examples are one.
        num_validation, num_held_out: queries kept apart, by a fixed shuffle, where the lines have no `split`.
        seed: of that shuffle. It is not the run's seed.
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
        """All queries, split.

        Raises:
            ConfigError: a file that is not there, a line that cannot be read, a field that is missing or of the wrong
                type, an id that is not known or stands twice, embeddings that do not fit; names file, line and field.
        """
        asked, solved = (
            [Line(row, where) for where, row in read_json_lines(getattr(self, name), f"source.{name}")]
            for name in ("queries", "examples")
        )
        query_vectors, example_vectors = self._vectors(asked, solved)
        examples = [
            example_of(line, vector, Path(self.examples)) for line, vector in zip(solved, example_vectors, strict=True)
        ]
        known: dict[str, Example] = {}
        for line, example in zip(solved, examples, strict=True):
            if known.setdefault(example.id, example) is not example:
                raise ConfigError(
                    f"{line.where}: field id: {example.id!r} stands on an earlier line too; give each example its own"
                )
        queries = [
            _query(line, vector, self._pool(line, vector, known, examples, example_vectors), Path(self.queries))
            for line, vector in zip(asked, query_vectors, strict=True)
        ]
        # Where no query names a pool, all choose from one bank: the whole file.
        shared = not any("pool" in line.row for line in asked)
        return replace(
            self._split(asked, queries), bank=[example for example in examples if shared and example.answer.strip()]
        )

    def _vectors(self, asked: Sequence[Line], solved: Sequence[Line]) -> tuple[np.ndarray, np.ndarray]:
        if self.embedder is not None:
            return self.embedder([line.text("question") for line in asked]), self.embedder(
                [line.text("question") for line in solved]
            )
        if self.embeddings is None:
            return inline(asked), inline(solved)
        import numpy as np

        path = Path(self.embeddings)
        where = f"source.embeddings = {self.embeddings!r}"
        try:
            if path.is_dir():
                found = {name: np.load(path / f"{name}.npy", allow_pickle=False) for name in ("queries", "examples")}
            else:
                from safetensors.numpy import load_file

                found = dict(load_file(path))
        except Exception as error:
            why = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
            raise ConfigError(
                f"{where}: {why}; give a .safetensors file with queries and examples, or a folder with queries.npy and"
                " examples.npy"
            ) from error
        for name, lines in (("queries", asked), ("examples", solved)):
            if name not in found:
                raise ConfigError(f"{where}: it has no tensor {name!r}; it has {sorted(found)}")
            if found[name].ndim != 2 or len(found[name]) != len(lines):
                raise ConfigError(
                    f"{where}: {name} is {list(found[name].shape)}, and the file has {len(lines)} lines; give one row"
                    " [D] a line, in their order"
                )
        return found["queries"].astype(np.float32), found["examples"].astype(np.float32)

    def _pool(
        self,
        line: Line,
        vector: np.ndarray,
        known: Mapping[str, Example],
        examples: Sequence[Example],
        vectors: np.ndarray,
    ) -> tuple[Example, ...]:
        import numpy as np

        name = line.text("id")
        if "pool" in line.row:
            ids = line.texts("pool")
            for each in ids:
                if each not in known:
                    raise ConfigError(
                        f"{line.where}: query {name!r}: field pool names {each!r}, which is no example of"
                        f" {self.examples}"
                    )
            return tuple(known[each] for each in ids)
        if self.pool_size is None:
            raise ConfigError(
                f"{line.where}: query {name!r} has no field pool; give it one, or write source.pool_size = 32 to take"
                " its nearest examples"
            )
        if vectors.shape[1] != vector.shape[0]:
            raise ConfigError(
                f"{line.where}: query {name!r}: field embedding has {len(vector)} numbers, those of the examples have"
                f" {vectors.shape[1]}"
            )
        order = np.argsort(-(vectors @ vector), kind="stable").tolist()
        return tuple([examples[place] for place in order if examples[place].id != name][: self.pool_size])

    def _split(self, lines: Sequence[Line], queries: Sequence[Query]) -> Questions:
        named = ["split" in line.row for line in lines]
        if any(named):
            found: dict[str, list[Query]] = {name: [] for name in _SPLITS}
            for line, query in zip(lines, queries, strict=True):
                split = line.text("split")
                if split not in found:
                    raise ConfigError(
                        f"{line.where}: query {query.id!r}: field split is {split!r}; write one of {', '.join(_SPLITS)}"
                    )
                found[split].append(query)
            return Questions(found["train"], found["validation"], found["held_out"])
        apart = self.num_held_out + self.num_validation
        if len(queries) <= apart:
            raise ConfigError(
                f"source.queries = {self.queries!r}: {len(queries)} queries, and {apart} are to be kept apart"
                " (num_held_out, num_validation); give more, or keep fewer"
            )
        import numpy as np

        order = np.random.default_rng(self.seed).permutation(len(queries)).tolist()
        held, aside = order[: self.num_held_out], order[self.num_held_out : apart]
        return Questions(
            [queries[place] for place in sorted(order[apart:])],
            *([queries[place] for place in sorted(part)] for part in (aside, held)),
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
