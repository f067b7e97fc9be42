"""Queries and pools as tensors: every example is stored once, and a pool is a row of places in the table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np
import torch
from torch import Tensor

from groupwise.domain.selection.example import Example, Query
from groupwise.domain.selection.policy.answer_features import answer_features
from groupwise.domain.selection.policy.network import Pools


@final
class QueryTable:
    """All queries of a run, by number; pools are padded to the largest.

    Args:
        queries: queries with pools of any sizes.
        answer_size: number of hashed features of an answer.
        device, dtype: place and type of the tensors.

    Example:
        >>> import numpy as np
        >>> example = Example("e", "?", "a", np.ones(1, np.float32))
        >>> table = QueryTable(
        ...     [Query("q", "?", ("a",), np.ones(1, np.float32), (example,))], 4, torch.device("cpu"), torch.float32
        ... )
        >>> table.pools(torch.tensor([0])).pool.shape
        torch.Size([1, 1, 1])
    """

    def __init__(self, queries: Sequence[Query], answer_size: int, device: torch.device, dtype: torch.dtype) -> None:
        self.queries = list(queries)
        self.number = {query.id: place for place, query in enumerate(self.queries)}
        examples: dict[str, Example] = {example.id: example for query in self.queries for example in query.pool}
        place = {name: index for index, name in enumerate(examples)}
        self.width = max(len(query.pool) for query in self.queries)
        members = np.zeros((len(self.queries), self.width), dtype=np.int64)
        valid = np.zeros((len(self.queries), self.width), dtype=bool)
        for row, query in enumerate(self.queries):
            members[row, : len(query.pool)] = [place[example.id] for example in query.pool]
            valid[row, : len(query.pool)] = True
        features = {
            answer: answer_features(answer, answer_size)
            for answer in dict.fromkeys(example.answer for example in examples.values())
        }

        def tensor(values: np.ndarray) -> Tensor:
            return torch.from_numpy(values).to(device=device, dtype=dtype)

        self._members, self._valid = torch.from_numpy(members).to(device), torch.from_numpy(valid).to(device)
        self._query = tensor(np.stack([query.embedding for query in self.queries]))
        self._example = tensor(np.stack([example.embedding for example in examples.values()]))
        self._answer = tensor(np.stack([features[example.answer] for example in examples.values()]))

    def pools(self, numbers: Tensor) -> Pools:
        """Looks up the pools of some queries.

        Args:
            numbers: `[P]` places of the queries in the table.
        """
        members = self._members[numbers]
        return Pools(self._query[numbers], self._example[members], self._answer[members], self._valid[numbers])
