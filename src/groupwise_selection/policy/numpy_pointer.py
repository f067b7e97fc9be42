"""The pointer network's forward pass in numpy: the computation of `groupwise_selection.policy.network` for
one query, without torch.
"""

import math
from collections.abc import Mapping
from typing import Any, final

import numpy as np

_LAYER_NORM_EPSILON = 1e-5
_erf = np.frompyfunc(math.erf, 1, 1)


@final
class NumpyPointer:
    """Greedy picks of a trained pointer network, in fp64 for weights of any dtype.

    Args:
        weights: weights of the network, by name.
        num_heads: number of its attention heads.
    """

    def __init__(self, weights: Mapping[str, np.ndarray], num_heads: int) -> None:
        self.weights = {name: np.asarray(value, dtype=np.float64) for name, value in weights.items()}
        self.num_heads = num_heads

    @property
    def embedding_size(self) -> int:
        """The number of components of an embedding."""
        return self.weights["embed.weight"].shape[1]

    @property
    def answer_size(self) -> int:
        """The number of features of an answer."""
        return self.weights["answer.weight"].shape[1]

    def picks(
        self, query: np.ndarray, pool: np.ndarray, answers: np.ndarray, k: int
    ) -> tuple[list[int], list[np.ndarray]]:
        """Takes the most probable pick, `k` times, without replacement; of equals the first. There are fewer picks
        where ending is more probable than not.

        Args:
            query: `[D]` embedding.
            pool: `[N, D]` embeddings of the examples.
            answers: `[N, A]` features of their answers.
            k: highest number of picks, at most N.

        Returns:
            places in the pool in the order of picking, and the logits before each decision, `[N]` (`[N + 1]` where it
            may end).
        """
        query, pool, answers = (np.asarray(value, dtype=np.float64) for value in (query, pool, answers))
        similarity = pool @ query
        start, items = self._encode(query, pool, answers, similarity)
        state, keys = start, items @ self.weights["key.weight"].T
        picks: list[int] = []
        step_logits: list[np.ndarray] = []
        for place in range(k):
            logits = self._logits(state, items, keys, similarity, picks, may_end=place > 0)
            step_logits.append(logits)
            pick = int(np.argmax(logits[: len(pool)]))
            if len(logits) > len(pool) and logits[-1] > _log_sum(logits[:-1]):
                break
            picks.append(pick)
            state = self._take(items[pick], state)
        return picks, step_logits

    def _encode(
        self, query: np.ndarray, pool: np.ndarray, answers: np.ndarray, similarity: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        scaled = math.sqrt(self.embedding_size)
        query_vector, examples = scaled * self._linear("embed", query), scaled * self._linear("embed", pool)
        joined = np.concatenate(
            [examples, examples * query_vector, self._linear("answer", answers), similarity[:, None]], 1
        )
        joined = self._linear("join.2", _gelu(self._linear("join.0", joined)))
        joined = joined + self._attention("among", joined, joined)
        joined = joined + self._mix("mix", joined)
        layer = 0
        while f"more.{layer}.norm.weight" in self.weights:
            asking = self._norm(f"more.{layer}.norm", joined)
            joined = joined + self._attention(f"more.{layer}.among", asking, asking)
            joined = joined + self._mix(f"more.{layer}.mix", joined)
            layer += 1
        return self._linear("begin", query_vector), self._norm("items_norm", joined)

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

    def _take(self, picked_item: np.ndarray, state: np.ndarray) -> np.ndarray:
        """Updates the state by a gated recurrent unit, as `torch.nn.GRUCell`."""
        input_gates = self.weights["take.weight_ih"] @ picked_item + self.weights["take.bias_ih"]
        state_gates = self.weights["take.weight_hh"] @ state + self.weights["take.bias_hh"]
        (reset_input, update_input, new_input), (reset_state, update_state, new_state) = (
            np.split(input_gates, 3),
            np.split(state_gates, 3),
        )
        reset, update = _sigmoid(reset_input + reset_state), _sigmoid(update_input + update_state)
        return (1 - update) * np.tanh(new_input + reset * new_state) + update * state

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
        product = values @ self.weights[f"{name}.weight"].T
        return product + self.weights[f"{name}.bias"] if f"{name}.bias" in self.weights else product

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
