"""The policy on disk: `policy.json` says the sizes and the order of the picks, `model.safetensors` holds
the weights.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from groupwise.config import ConfigError, read_json, validate
from groupwise.streams import Streams
from groupwise_selection.policy.config import ModelConfig, Pointer, Pretrained
from groupwise_selection.policy.network import PointerNetwork

POLICY = "policy.json"
WEIGHTS = "model.safetensors"


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
        more: JSON-able entries of `policy.json` beside the sizes, for users of the folder.
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
