"""Prompts from a data set that the `datasets` library can load, by its id or folder."""

from __future__ import annotations

from typing import Any, Literal, final

from groupwise.config import ConfigError
from groupwise.domain.language.source.base import Row, Source


@final
class Hub(Source):
    """Rows of `datasets.load_dataset(id, name, split=...)`, shuffled once by the data's seed.

    Args:
        id: id on the hub, or a local folder.
        name: configuration of the data set, where it has several.
        split: what is trained on.
        held_out_split: what is evaluated on; where absent, `num_held_out` rows are kept from `split`.
        revision: branch, tag or commit; write one for runs that must repeat.
        shuffle: whether the rows are shuffled before they are split.

    Example:
        >>> Hub(id="openai/gsm8k", name="main", held_out_split="test").split
        'train'
    """

    kind: Literal["hub"] = "hub"
    id: str
    name: str | None = None
    split: str = "train"
    held_out_split: str | None = None
    revision: str | None = None
    shuffle: bool = True

    @property
    def endless(self) -> bool:
        return False

    def rows(self, num: int | None, seed: int) -> list[Row]:
        return self._load(self.split, num, seed)

    def held_out_rows(self, num: int | None, seed: int) -> list[Row] | None:
        return None if self.held_out_split is None else self._load(self.held_out_split, num, seed)

    def _load(self, split: str, num: int | None, seed: int) -> list[Row]:
        import datasets

        try:
            dataset: Any = datasets.load_dataset(self.id, self.name, split=split, revision=self.revision)
        except Exception as error:  # whatever the library raises, from a wrong name to a missing network
            raise ConfigError(
                f"data.source: datasets cannot load {self.id!r} (name {self.name!r}, split {split!r}):"
                f" {type(error).__name__}: {error}"
            ) from error
        if self.shuffle:
            dataset = dataset.shuffle(seed=seed)
        return (dataset if num is None else dataset.select(range(min(num, len(dataset))))).to_list()
