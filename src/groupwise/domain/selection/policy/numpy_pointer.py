"""The pointer network's forward pass in numpy: what `groupwise.domain.selection.policy.network` computes, for one
query, where there is no torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, final

import numpy as np

_LAYER_NORM_EPSILON = 1e-5
_erf = np.frompyfunc(math.erf, 1, 1)


@final
class NumpyPointer:
    """Greedy picks of a trained pointer network, in fp64 whatever its weights are.

    Args:
        weights: of the network, by name.
        num_heads: of its attention.
    """

    def __init__(self, weights: Mapping[str, np.ndarray], num_heads: int) -> None:
        self.weights = {name: np.asarray(value, dtype=np.float64) for name, value in weights.items()}
        self.num_heads = num_heads

    @property
    def embedding_size(self) -> int:
        """Numbers of an embedding."""
        return self.weights["embed.weight"].shape[1]

    @property
    def answer_size(self) -> int:
        """Features of an answer."""
        return self.weights["answer.weight"].shape[1]

    def picks(
        self, query: np.ndarray, pool: np.ndarray, answers: np.ndarray, k: int
    ) -> tuple[list[int], list[np.ndarray]]:
        """The most probable pick, `k` times, without replacement; of equals the first. Fewer where ending is more
        probable than not.

        Args:
            query: `[D]` embedding.
            pool: `[N, D]` embeddings of the examples.
            answers: `[N, A]` features of their answers.
            k: most picks, at most N.

        Returns:
            Places in the pool in the order of picking, and the logits before each decision, `[N]` (`[N + 1]` where it
            may end).
        """
        query, pool, answers = (np.asarray(value, dtype=np.float64) for value in (query, pool, answers))
        similarity = pool @ query
        start, items = self._encode(query, pool, answers, similarity)
        state, keys = start, items @ self.weights["key.weight"].T
        found: list[int] = []
        told: list[np.ndarray] = []
        for place in range(k):
            logits = self._logits(state, items, keys, similarity, found, may_end=place > 0)
            told.append(logits)
            pick = int(np.argmax(logits[: len(pool)]))
            if len(logits) > len(pool) and logits[-1] > _log_sum(logits[:-1]):
                break
            found.append(pick)
            state = self._take(items[pick], state)
        return found, told

    def _encode(
        self, query: np.ndarray, pool: np.ndarray, answers: np.ndarray, similarity: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        scaled = math.sqrt(self.embedding_size)
        asked, item = scaled * self._linear("embed", query), scaled * self._linear("embed", pool)
        joined = np.concatenate([item, item * asked, self._linear("answer", answers), similarity[:, None]], 1)
        joined = self._linear("join.2", _gelu(self._linear("join.0", joined)))
        joined = joined + self._attention("among", joined, joined)
        joined = joined + self._mix("mix", joined)
        layer = 0
        while f"more.{layer}.norm.weight" in self.weights:
            asking = self._norm(f"more.{layer}.norm", joined)
            joined = joined + self._attention(f"more.{layer}.among", asking, asking)
            joined = joined + self._mix(f"more.{layer}.mix", joined)
            layer += 1
        return self._linear("begin", asked), self._norm("items_norm", joined)

    def _logits(
        self,
        state: np.ndarray,
        items: np.ndarray,
        keys: np.ndarray,
        similarity: np.ndarray,
        chosen: list[int],
        may_end: bool,
    ) -> np.ndarray:
        looked = state + self._attention("look", self._norm("state_norm", state)[None], items)[0]
        pointer = self._linear("out", np.tanh(looked)) / math.sqrt(len(state))
        scale = float(self.weights["scale"])
        scores = scale * similarity + keys @ pointer
        scores[chosen] = -np.inf
        if "end" not in self.weights:
            return scores
        end = self.weights["end"]
        return np.append(
            scores,
            _log_sum(scores) + float(self.weights["end_level"]) + pointer @ end + end @ looked if may_end else -np.inf,
        )

    def _take(self, item: np.ndarray, state: np.ndarray) -> np.ndarray:
        """A gated recurrent unit."""
        given = self.weights["take.weight_ih"] @ item + self.weights["take.bias_ih"]
        kept = self.weights["take.weight_hh"] @ state + self.weights["take.bias_hh"]
        (reset_given, update_given, new_given), (reset_kept, update_kept, new_kept) = (
            np.split(given, 3),
            np.split(kept, 3),
        )
        reset, update = _sigmoid(reset_given + reset_kept), _sigmoid(update_given + update_kept)
        return (1 - update) * np.tanh(new_given + reset * new_kept) + update * state

    def _attention(self, name: str, asking: np.ndarray, items: np.ndarray) -> np.ndarray:
        def heads(part: str, values: np.ndarray) -> np.ndarray:
            return self._linear(f"{name}.{part}", values).reshape(len(values), self.num_heads, -1).transpose(1, 0, 2)

        ask, offer, give = heads("ask", asking), heads("find", items), heads("give", items)
        weights = ask @ offer.transpose(0, 2, 1) / math.sqrt(ask.shape[-1])
        weights = np.exp(weights - weights.max(-1, keepdims=True))
        mixed = weights / weights.sum(-1, keepdims=True) @ give
        return self._linear(f"{name}.back", mixed.transpose(1, 0, 2).reshape(len(asking), -1))

    def _mix(self, name: str, values: np.ndarray) -> np.ndarray:
        return self._linear(f"{name}.3", _gelu(self._linear(f"{name}.1", self._norm(f"{name}.0", values))))

    def _linear(self, name: str, values: np.ndarray) -> np.ndarray:
        found = values @ self.weights[f"{name}.weight"].T
        return found + self.weights[f"{name}.bias"] if f"{name}.bias" in self.weights else found

    def _norm(self, name: str, values: np.ndarray) -> np.ndarray:
        centred = values - values.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + _LAYER_NORM_EPSILON)
        return scaled * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]


def _gelu(values: np.ndarray) -> np.ndarray:
    erf: Any = _erf(values / math.sqrt(2))
    return 0.5 * values * (1 + erf.astype(np.float64))


def _log_sum(values: np.ndarray) -> float:
    highest = float(values.max())
    return highest + math.log(float(np.exp(values - highest).sum()))


def _sigmoid(values: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-values))
