"""A selector over support tickets with a policy of random weights, made in a moment."""

from __future__ import annotations

import json

import torch
from safetensors.torch import save

from groupwise_selection.policy.config import Pointer
from groupwise_selection.policy.network import PointerNetwork
from groupwise_selection.policy.numpy_pointer import NumpyPointer
from groupwise_selection.selector import Selector, Trained
from groupwise_selection.source.tickets import Tickets
from groupwise_selection.task_model.config import TEMPLATE

SOURCE = Tickets(num_train=30, num_validation=2, num_held_out=10)
QUESTION = "north gold web kim new atlas"


def small_network(seed: int = 0, stop: bool = False) -> PointerNetwork:
    torch.manual_seed(seed)
    network = PointerNetwork(SOURCE.embedder.size, Pointer(width=16, num_heads=2), stop=stop)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return network


def small_selector(network: PointerNetwork | None = None, order: str = "first_pick_last") -> Selector:
    network = network or small_network()
    queries = SOURCE.read().train
    examples = {example.id: example for query in queries for example in query.pool}
    table = {
        "policy": network.config.model_dump(mode="json"),
        "embedding_size": network.embedding_size,
        "stop": network.stops,
    }
    trained = Trained(4, order, 24, SOURCE.embedder.model_dump(mode="json"), TEMPLATE.model_dump(mode="json"), "f00")
    weights = save({name: value.contiguous() for name, value in network.state_dict().items()})
    policy = NumpyPointer(
        {name: value.numpy() for name, value in network.state_dict().items()}, network.config.num_heads
    )
    return Selector(policy, json.loads(json.dumps(table)), trained, list(examples.values()), weights, SOURCE.embedder)
