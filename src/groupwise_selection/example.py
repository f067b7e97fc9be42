"""The records of selection: examples, which may be shown, and queries with their pools, which are to be answered."""

import hashlib
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, final

import numpy as np

from groupwise.runs import EvaluatedOn

LENGTH_TOLERANCE = 1e-3


@final
@dataclass(frozen=True, eq=False)
class Example:
    """A solved case that may be shown as a demonstration.

    Args:
        id: name, unique among all examples.
        question: text of the question.
        answer: text of the answer.
        embedding: fp32 `[D]`, of length 1.
        image: picture that the task model reads with the text: a `uint8` array `[H, W]` or `[H, W, 3]`, or the path
            of a file.
        clusters: groups of examples and queries that share an image or a rule: name -> key.

    Example:
        >>> import numpy as np
        >>> Example("a", "2 + 2?", "4", np.ones(1, np.float32))
        Example(id='a', question='2 + 2?', answer='4')
    """

    id: str
    question: str
    answer: str
    embedding: np.ndarray = field(repr=False)
    image: Any = field(default=None, repr=False)
    clusters: Mapping[str, str] = field(default_factory=dict, repr=False)

    @cached_property
    def text(self) -> tuple[str, str]:
        """Question and answer, equal however white space, capitals of the question and accents are written."""
        return _spelled(self.question).casefold(), _spelled(self.answer)

    @cached_property
    def picture(self) -> Any:
        """The content of the image, equal for the same picture in another file; None without one."""
        return content(self.image)


@final
@dataclass(frozen=True, eq=False)
class Query:
    """A question to be answered with the help of demonstrations out of its own pool.

    Args:
        id: name, unique among all queries.
        question: text of the question.
        answers: answers of the annotators, one text each.
        embedding: fp32 `[D]`, of length 1.
        pool: the examples that may be shown for it.
        image: picture, as in `Example`.
        choices: the closed set of answers, where there is one; otherwise the task model writes its answer.
        clusters: groups of queries that share an image or a rule, for intervals: name -> key.

    Example:
        >>> import numpy as np
        >>> Query("q", "2 + 2?", ("4", "5", "4"), np.ones(1, np.float32), ()).answer
        '4'
    """

    id: str
    question: str
    answers: tuple[str, ...]
    embedding: np.ndarray
    pool: tuple[Example, ...]
    image: Any = None
    choices: tuple[str, ...] = ()
    clusters: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def answer(self) -> str:
        """The answer of most annotators; of equally frequent answers, the first."""
        return Counter(self.answers).most_common(1)[0][0]

    @cached_property
    def content(self) -> str:
        """A hash of the question, the answers, the image and the pool: equal for the same query under another id."""
        pool = [(example.question, example.answer) for example in self.pool]
        return hashlib.blake2b(
            repr((self.question, self.answers, self.picture, pool)).encode("utf-8", "surrogatepass"), digest_size=16
        ).hexdigest()

    @cached_property
    def texts(self) -> frozenset[tuple[str, str]]:
        """The question with each of its answers, as `Example.text` writes them."""
        return frozenset((_spelled(self.question).casefold(), _spelled(answer)) for answer in self.answers)

    @cached_property
    def picture(self) -> Any:
        """The content of the image, as in `Example`."""
        return content(self.image)

    def is_solved_by(self, example: Example) -> bool:
        """Tests whether an example is this query with one of its answers, whatever its id."""
        return example.text in self.texts and example.picture == self.picture


def embedding_fault(embedding: np.ndarray, size: int) -> str:
    """Reports why an embedding cannot be compared with others of `size` numbers; empty where it can."""
    if embedding.shape != (size,) or size == 0:
        return f"has the shape {list(embedding.shape)}, others have [{size}]; embed all with one model"
    if not np.isfinite(embedding).all():
        place = int(np.flatnonzero(~np.isfinite(embedding))[0])
        return f"holds {embedding[place]} at [{place}]; an embedding is finite"
    length = float(np.linalg.norm(embedding.astype(np.float64)))
    if abs(length - 1) > LENGTH_TOLERANCE:
        return f"has the length {length:.4g}, and similarity is the product of unit vectors; divide each by its length"
    return ""


def distinct(examples: Iterable[Example], query: Query | None = None) -> Iterator[Example]:
    """Yields examples, each text (with its picture) once, and without the solved copies of a query.

    Example:
        >>> import numpy as np
        >>> same, other = (Example(id, "2 + 2?", "4", np.ones(1, np.float32)) for id in "ab")
        >>> [example.id for example in distinct([same, other])]
        ['a']
    """
    shown: dict[tuple[str, str], list[Example]] = {}
    for example in examples:
        if query is not None and query.is_solved_by(example):
            continue
        earlier = shown.setdefault(example.text, [])
        # Pictures are read only where texts are equal.
        if not any(other.picture == example.picture for other in earlier):
            earlier.append(example)
            yield example


def _spelled(text: str) -> str:
    return unicodedata.normalize("NFC", " ".join(text.split()))


def content(image: Any) -> Any:
    """Returns what is equal for the same picture in another file; None without one."""
    if isinstance(image, str | Path):
        return _file_content(str(image))
    return None if image is None else (image.shape, hashlib.blake2b(image.tobytes(), digest_size=16).digest())


@cache
def _file_content(path: str) -> Any:
    # An unreadable file is no error here: the error comes, with the file's name, where the picture is shown.
    try:
        return hashlib.blake2b(Path(path).read_bytes(), digest_size=16).digest()
    except OSError:
        return path


@final
@dataclass(frozen=True)
class Questions:
    """The queries of a source in their splits.

    Args:
        validation: queries for choosing between models and settings; they serve neither training nor the reported
            result.
        held_out: queries of the reported result.
        remarks: sentences on queries and examples that were left out.
        bank: the solved examples that all pools are the nearest of, where there is such a bank; empty where every query
            has a pool of its own.
    """

    train: Sequence[Query]
    validation: Sequence[Query]
    held_out: Sequence[Query]
    remarks: Sequence[str] = ()
    bank: Sequence[Example] = ()

    @property
    def evaluated_on(self) -> EvaluatedOn:
        """A statement on whether queries of the reported result are trained on too."""
        trained, evaluated = (frozenset(query.content for query in queries) for queries in (self.train, self.held_out))
        return EvaluatedOn.among(trained, evaluated)
