"""A key-value cache with room: the prompt's keys and values once for each member of its group, then a slot a step,
written in place.

The growing cache of transformers copies itself at every token; this one is allocated for the whole completion.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer


class RoomyLayer(DynamicLayer):
    """One layer's keys and values in buffers ``[B, heads, capacity, dim]`` of which the first `length` slots are
    filled.
    """

    def __init__(self, keys: Tensor, values: Tensor, repeats: int, extra: int) -> None:
        super().__init__()
        self.dtype, self.device, self.is_initialized = keys.dtype, keys.device, True
        self.length = keys.shape[-2]
        self._key_buffer, self._value_buffer = with_room(keys, repeats, extra), with_room(values, repeats, extra)
        self._show()

    def _show(self) -> None:
        self.keys, self.values = self._key_buffer[:, :, : self.length], self._value_buffer[:, :, : self.length]

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        stop = self.length + key_states.shape[-2]
        self._key_buffer[:, :, self.length : stop] = key_states
        self._value_buffer[:, :, self.length : stop] = value_states
        self.length = stop
        self._show()
        return filled(self.keys), filled(self.values)

    def batch_select_indices(self, indices: Tensor) -> None:
        self._key_buffer, self._value_buffer = self._key_buffer[indices], self._value_buffer[indices]
        self._show()


def filled(states: Tensor | None) -> Tensor:
    """Returns a layer's keys or values, which exist from the first forward pass on."""
    assert states is not None, "the cache is used before the prompts were forwarded"
    return states


def with_room(states: Tensor, repeats: int, extra: int) -> Tensor:
    """Copies ``[P, heads, n, dim]`` once for each of `repeats` members and adds `extra` empty slots: ``[P repeats,
    heads, n + extra, dim]``.
    """
    members, heads, length, dim = states.shape
    buffer = states.new_empty(members * repeats, heads, length + extra, dim)
    buffer.view(members, repeats, heads, length + extra, dim)[:, :, :, :length] = states.unsqueeze(1)
    return buffer


def prompt_cache(config: Any) -> DynamicCache:
    """Makes an empty cache for the prompts, with the layer kinds of the model."""
    return DynamicCache(config=config)


def expand(cache: DynamicCache, repeats: int, extra: int) -> bool:
    """Gives every prompt `repeats` members and room for `extra` tokens, in place.

    Returns:
        Whether every layer is full attention, so that a ready-made mask is right for all of them.
    """
    plain = True
    for index, layer in enumerate(cache.layers):
        if type(layer) is DynamicLayer:
            cache.layers[index] = RoomyLayer(filled(layer.keys), filled(layer.values), repeats, extra)
        else:
            plain = False
            layer.batch_repeat_interleave(repeats)  # type: ignore[union-attr]
    return plain


def keeps_keys(cache: DynamicCache) -> bool:
    """Tests that every layer of a used cache holds keys and values, and nothing else. A state-space layer holds a
    state, in some models beside keys and values.
    """
    return bool(cache.layers) and all(
        isinstance(layer, DynamicLayer) and layer.keys is not None and not hasattr(layer, "recurrent_states")
        for layer in cache.layers
    )


def full_layers(cache: DynamicCache) -> list[DynamicLayer]:
    """Lists the layers that keep every token: all layers of the cache, or none where one layer keeps fewer."""
    layers = [layer for layer in cache.layers if type(layer) is DynamicLayer]
    return layers if len(layers) == len(cache.layers) else []


def select(cache: DynamicCache, rows: Tensor) -> None:
    """Keeps the members `rows`, in that order."""
    for layer in cache.layers:
        layer.batch_select_indices(rows)  # type: ignore[union-attr]
