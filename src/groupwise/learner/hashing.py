"""A hash of weights, which keys the caches of models that are trained from them."""

from __future__ import annotations

import hashlib

import torch
from torch import nn


def hash_weights(module: nn.Module) -> str:
    """Returns a hash of every tensor of the module's state, by name and bytes.

    Example:
        >>> module = nn.Linear(2, 1)
        >>> before = hash_weights(module)
        >>> _ = nn.init.zeros_(module.weight)
        >>> before == hash_weights(module)
        False
    """
    digest = hashlib.blake2b(digest_size=16)
    for name, value in module.state_dict().items():
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
