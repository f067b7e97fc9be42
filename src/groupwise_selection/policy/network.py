"""The pointer network: similarity, plus a learnt term of the query, the pool and the earlier picks."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn

from groupwise.config import ConfigError, read_json, validate
from groupwise.streams import Streams
from groupwise_selection.policy.config import POLICY, WEIGHTS, ModelConfig, Pointer, Pretrained


@final
@dataclass(frozen=True)
class Pools:
    """Queries with their pools, padded to one size.

    Args:
        query: `[P, D]` embeddings.
        pool: `[P, N, D]` embeddings of the examples.
        answers: `[P, N, A]` features of their answers.
        valid: `[P, N]` bool, false where a pool is smaller.
    """

    query: Tensor
    pool: Tensor
    answers: Tensor
    valid: Tensor


@final
@dataclass(frozen=True)
class Encoded:
    """Pools as the network encodes them.

    Args:
        query: `[P, H]`, the state before the first pick.
        items: `[P, N, H]`, the encoded examples, which enter the state when they are picked.
        keys, values: `[P, heads, N, H / heads]`, for the attention of the state over the pool.
        key: `[P, N, H]`, compared with the pointer in the logits.
        similarity: `[P, N]` cosines of query and examples.
        valid: `[P, N]`.
    """

    query: Tensor
    items: Tensor
    keys: Tensor
    values: Tensor
    key: Tensor
    similarity: Tensor
    valid: Tensor

    def of(self, row: Tensor) -> Encoded:
        """Selects the pool of each member: `row [B]` are places of queries."""
        return Encoded(*(getattr(self, field.name)[row] for field in fields(self)))


@final
class PointerNetwork(nn.Module):
    """`logit_t(i) = scale cos(q, e_i) + out(state_t) key(item_i) / sqrt(H)`, with `out` zero at the start: its
    picks are then the nearest examples, in order.

    Items are encoded together with the query (a bi-encoder: linear maps of both, and their product) and with each other
    (attention over the pool, which knows no order), demonstrations with their answers. The state starts from the query,
    attends over the items before each pick, and takes up each picked item. Nothing belongs to one example: any example
    with an embedding can be picked. There is no dropout.

    Args:
        embedding_size: `D`.
        config: sizes of the layers.
        stop: true where picking may end early; the last logit is then that of ending, `logsumexp_i logit_t(i) + b_t`,
            so that it ends with probability `sigmoid(b_t)` whatever is left in the pool. Before training that is
            `config.stop_probability` everywhere.

    Example:
        >>> network = PointerNetwork(2, Pointer(width=8, num_heads=2))
        >>> pools = Pools(
        ...     torch.tensor([[1.0, 0.0]]),
        ...     torch.tensor([[[0.6, 0.8], [1.0, 0.0]]]),
        ...     torch.zeros(1, 2, 32),
        ...     torch.ones(1, 2, dtype=torch.bool),
        ... )
        >>> encoded = network.encode(pools)
        >>> network.logits(encoded, network.start(encoded), torch.zeros(1, 2, dtype=torch.bool)).tolist()
        [[6.0, 10.0]]
    """

    def __init__(self, embedding_size: int, config: Pointer, *, stop: bool = False) -> None:
        super().__init__()
        width = config.width
        self.config, self.embedding_size, self.stops = config, embedding_size, stop
        # One map for queries and examples, whose embeddings mean the same: products of the two are then the terms of a
        # metric, from the start.
        self.embed = nn.Linear(embedding_size, width, bias=False)
        self.begin = nn.Linear(width, width)
        self.answer = nn.Linear(config.answer_size, width, bias=False)
        self.join = nn.Sequential(nn.Linear(3 * width + 1, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.among = Attention(width, config.num_heads)
        self.mix = _mix(width)
        self.items_norm, self.state_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.look = Attention(width, config.num_heads)
        self.take = nn.GRUCell(width, width)
        self.key = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width)
        self.scale = nn.Parameter(torch.tensor(float(config.scale)))
        self.end = nn.Parameter(torch.zeros(width)) if stop else None
        self.end_level = (
            nn.Parameter(torch.tensor(math.log(config.stop_probability / (1 - config.stop_probability))))
            if stop
            else None
        )
        nn.init.eye_(self.embed.weight) if embedding_size <= width else nn.init.orthogonal_(self.embed.weight)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)
        # Further layers are drawn last, so that they leave the weights of the first part unchanged.
        self.more = nn.ModuleList(Layer(width, config.num_heads) for _ in range(config.num_layers - 1))

    def encode(self, pools: Pools) -> Encoded:
        """Encodes each query and its pool, once for all members."""
        scaled = self.embedding_size**0.5
        query, examples = scaled * self.embed(pools.query), scaled * self.embed(pools.pool)
        similarity = torch.einsum("pd,pnd->pn", pools.query, pools.pool)
        answer = self.answer(pools.answers)
        joined = self.join(torch.cat([examples, examples * query[:, None], answer, similarity[..., None]], -1))
        joined = joined + self.among(joined, *self.among.offer(joined), pools.valid)
        joined = joined + self.mix(joined)
        for layer in self.more:
            joined = layer(joined, pools.valid)
        items = self.items_norm(joined)
        return Encoded(self.begin(query), items, *self.look.offer(items), self.key(items), similarity, pools.valid)

    def start(self, encoded: Encoded) -> Tensor:
        """Returns the state before the first pick, `[B, H]`."""
        return encoded.query

    def logits(self, encoded: Encoded, state: Tensor, chosen: Tensor) -> Tensor:
        """Computes the logits `[B, N]`, minus infinity for examples that are chosen already and for padding;
        `[B, N + 1]` where picking may end.

        Args:
            encoded: one pool a member.
            state: `[B, H]`.
            chosen: `[B, N]` bool, true for earlier picks.
        """
        looked = state + self.look(self.state_norm(state)[:, None], encoded.keys, encoded.values, encoded.valid)[:, 0]
        pointer = self.out(torch.tanh(looked)) / self.config.width**0.5
        scores = self.scale * encoded.similarity + (encoded.key @ pointer[:, :, None])[:, :, 0]
        scores = scores.masked_fill(chosen | ~encoded.valid, float("-inf"))
        if self.end is None:
            return scores
        ending = scores.logsumexp(1) + self.end_level + pointer @ self.end + (self.end * looked).sum(1)
        return torch.cat([scores, ending[:, None]], 1)

    def advance(self, encoded: Encoded, state: Tensor, picked: Tensor) -> Tensor:
        """Computes the state after a pick.

        Args:
            encoded: one pool a member.
            state: `[B, H]`.
            picked: `[B]` places in the pool.
        """
        picked_item = encoded.items[torch.arange(len(picked), device=picked.device), picked]
        return self.take(picked_item, state)


@final
class Attention(nn.Module):
    """Multi-head attention of `[B, S, H]` over items, of which some are padding."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.ask, self.find, self.give = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.back = nn.Linear(width, width)

    def offer(self, items: Tensor) -> tuple[Tensor, Tensor]:
        """Computes keys and values of items `[B, N, H]`, once for all queries, `[B, heads, N, H / heads]`
        each.
        """
        return self._heads(self.find(items)), self._heads(self.give(items))

    def forward(self, asking: Tensor, keys: Tensor, values: Tensor, valid: Tensor) -> Tensor:
        ask = self._heads(self.ask(asking))
        weights = (
            (ask @ keys.transpose(2, 3) / ask.shape[-1] ** 0.5)
            .masked_fill(~valid[:, None, None], float("-inf"))
            .softmax(-1)
        )
        return self.back((weights @ values).transpose(1, 2).flatten(2))

    def _heads(self, values: Tensor) -> Tensor:
        return values.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)


@final
class Layer(nn.Module):
    """A further layer: attention among the examples of a pool, then a feed-forward part for each."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.norm, self.among, self.mix = nn.LayerNorm(width), Attention(width, num_heads), _mix(width)

    def forward(self, joined: Tensor, valid: Tensor) -> Tensor:
        asking = self.norm(joined)
        joined = joined + self.among(asking, *self.among.offer(asking), valid)
        return joined + self.mix(joined)


def _mix(width: int) -> nn.Sequential:
    return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))


# The policy on disk: `policy.json` holds the sizes and the order of the picks, `model.safetensors` holds the weights.


def open_policy(
    config: ModelConfig, embedding_size: int, stop: bool, streams: Streams, device: torch.device
) -> PointerNetwork:
    """Opens the network, with fresh weights or those of a folder.

    Args:
        config: fresh sizes, or a folder.
        embedding_size: numbers of an embedding in the data.
        stop: true where picking may end early.
        streams: random streams of the run; fresh weights are drawn from them.
        device: device of the weights.

    Raises:
        ConfigError: the folder does not exist, or its policy has another embedding size or another `stop`.
    """
    if isinstance(config, Pretrained):
        return _read(Path(config.path), embedding_size, stop).to(device)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(streams.seed("model") if config.seed is None else config.seed)
        network = PointerNetwork(embedding_size, config, stop=stop)
    return network.to(device=device, dtype=getattr(torch, config.dtype))


def save(network: PointerNetwork, folder: Path, **more: Any) -> None:
    """Writes the folder that `kind = "pretrained"` loads.

    Args:
        network: the policy.
        folder: destination; created where it is missing.
        more: JSON-able entries of `policy.json` in addition to the sizes, for users of the folder.
    """
    table, weights = as_files(network, **more)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / WEIGHTS).write_bytes(weights)
    (folder / POLICY).write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")


def as_files(network: PointerNetwork, **more: Any) -> tuple[dict[str, Any], bytes]:
    """Returns the files that `save` writes: the table of `policy.json`, and `model.safetensors`.

    Args:
        network: the policy.
        more: see `save`.
    """
    from safetensors.torch import save as as_bytes

    table = {
        "policy": network.config.model_dump(mode="json"),
        "embedding_size": network.embedding_size,
        "stop": network.stops,
        **more,
    }
    weights = as_bytes(
        {name: value.detach().cpu().contiguous().clone() for name, value in network.state_dict().items()},
        metadata={"format": "pt"},
    )
    return table, weights


def _read(folder: Path, embedding_size: int, stop: bool) -> PointerNetwork:
    from safetensors.torch import load_file

    for name in (POLICY, WEIGHTS):
        if not (folder / name).is_file():
            raise ConfigError(
                f"model.path = {str(folder)!r}: no {name} in it; give a folder that Groupwise wrote (RUN/model)"
            )
    table = read_json(folder / POLICY)
    if table["embedding_size"] != embedding_size:
        raise ConfigError(
            f"model.path = {str(folder)!r}: it selects by embeddings of {table['embedding_size']} numbers, and these"
            f" data have {embedding_size}; embed them with the model it was trained with"
        )
    if table["stop"] != stop:
        write = "true" if table["stop"] else "false"
        raise ConfigError(f"model.path = {str(folder)!r}: it was trained with domain.stop = {write}; write the same")
    config = validate(Pointer, table["policy"], str(folder / POLICY))
    network = PointerNetwork(embedding_size, config, stop=table["stop"]).to(getattr(torch, config.dtype))
    network.load_state_dict(load_file(folder / WEIGHTS))
    return network
