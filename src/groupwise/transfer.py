"""Moves many tensors to or from a device in one transfer. Each transfer waits until the device has done all before it,
so that a step that reads its numbers one by one leaves the device idle between them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

_Record = TypeVar("_Record")

CPU = torch.device("cpu")


def moved(record: _Record, device: torch.device = CPU) -> _Record:
    """Returns a record with all its tensors on a device, without their graphs. Those that lie elsewhere are moved
    together, as bytes; they must all lie on one device.

    Args:
        record: a tensor, or a mapping or a dataclass of them; what else it holds stays.
        device: where the tensors go.

    Example:
        >>> moved({"tokens": torch.tensor([1, 2]), "text": "ab"})
        {'tokens': tensor([1, 2]), 'text': 'ab'}
    """
    away: dict[int, Tensor] = {}

    def note(tensor: Tensor) -> Tensor:
        if tensor.device != device:
            away[id(tensor)] = tensor.detach()
        return tensor

    _changed(record, note)
    if not away:
        return record
    # Wide numbers come first, so that each tensor begins at a multiple of its own width.
    keys = sorted(away, key=lambda key: -away[key].element_size())
    flat = [away[key].contiguous().view(-1).view(torch.uint8) for key in keys]
    parts = torch.cat(flat).to(device).split([len(part) for part in flat])
    arrived = {key: part.view(away[key].dtype).view(away[key].shape) for key, part in zip(keys, parts, strict=True)}
    return _changed(record, lambda tensor: arrived.get(id(tensor), tensor))


def _changed(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Returns the value with other tensors, and itself where nothing changes."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, Mapping):
        changed = {name: _changed(entry, change) for name, entry in value.items()}
        return changed if any(changed[name] is not value[name] for name in changed) else value
    if is_dataclass(value) and not isinstance(value, type):
        entries = {entry.name: getattr(value, entry.name) for entry in fields(value) if entry.init}
        changed = {name: _changed(entry, change) for name, entry in entries.items()}
        changed = {name: entry for name, entry in changed.items() if entry is not entries[name]}
        return replace(value, **changed) if changed else value
    return value
