"""Any task of the reasoning-gym library, by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, final

from pydantic import Field

from groupwise.config import ConfigError, Problem, nearest
from groupwise.domain.language.source.base import Row, Source, distinct


@final
class ReasoningGym(Source):
    """Entries of a reasoning-gym task: columns `prompt` (and `question`), `answer`, `metadata`.

    Score them with a reward of kind `reasoning_gym`, which applies the task's own rule.

    Args:
        task: name of the task, such as `countdown` or `knights_knaves`.
        parameters: the task's own parameters by name.

    Example:
        >>> source = ReasoningGym(task="basic_arithmetic", parameters={"max_terms": 2})
        >>> sorted(source.rows(1, seed=0)[0])
        ['answer', 'metadata', 'prompt', 'question']
    """

    kind: Literal["reasoning_gym"] = "reasoning_gym"
    task: str
    parameters: Mapping[str, Any] = Field(default_factory=dict)

    def rows(self, num: int | None, seed: int) -> list[Row]:
        return distinct(self._draw(seed), self.identity, num)

    def _draw(self, seed: int) -> Iterator[Row]:
        # Here, because the library's import takes longer than listing all experiments.
        import reasoning_gym
        from reasoning_gym.factory import DATASETS

        if self.task not in DATASETS:
            raise ConfigError(
                Problem(f"data.source.task = {self.task!r}", "is no task of reasoning-gym", tuple(sorted(DATASETS)), nearest(self.task, list(DATASETS)))
            )
        try:
            # The size only bounds the index; entries are made one at a time.
            entries = reasoning_gym.create_dataset(self.task, seed=seed, size=1 << 30, **self.parameters)
        except (TypeError, AssertionError, ValueError) as error:
            raise ConfigError(
                f"data.source.parameters = {dict(self.parameters)} is refused by reasoning-gym's task {self.task!r}: {error or type(error).__name__}"
            ) from error
        index = 0
        while True:
            entry = entries[index]
            metadata = plain(entry["metadata"])
            # Where an entry stands in the endless list says nothing about the puzzle.
            metadata.pop("source_index", None)
            yield {"prompt": str(entry["question"]), "question": str(entry["question"]), "answer": plain(entry["answer"]), "metadata": metadata}
            index += 1


def plain(value: Any) -> Any:
    """The same value in JSON's types: numpy's scalars and strings, tuples and sets become plain ones, anything else its text.

    Example:
        >>> plain({"a": (1, {2})})
        {'a': [1, [2]]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if value is None or isinstance(value, bool):
        return value
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)
    return plain(value.item()) if hasattr(value, "item") and getattr(value, "shape", None) == () else str(value)
