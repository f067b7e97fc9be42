"""Refuses quantised weights before they are read: for none of their kinds is training known to be right."""

from collections.abc import Mapping
from typing import Any

from groupwise.config import ConfigError

_KEYS = ("quantization_config", "compression_config")
"""The keys of a `config.json` under which transformers and diffusers describe quantised weights."""


def refuse_quantised(config: Any, place: str) -> None:
    """Refuses a model whose configuration states that its weights are quantised, by whatever method.

    Args:
        config: the configuration of transformers, or the table of a `config.json`.
        place: what the error calls the model.

    Raises:
        ConfigError: the weights are quantised.

    Example:
        >>> refuse_quantised({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "path = 'm'")
        Traceback (most recent call last):
        groupwise.config.errors.ConfigError: path = 'm': its weights are quantised (gptq), which Groupwise does not read; give the model as it was before it was quantised, where memory is short with dtype = "bfloat16" and an adapter (lora)
    """  # noqa: E501
    settings = next(
        (found for table in (config, _entry(config, "text_config")) for key in _KEYS if (found := _entry(table, key))),
        None,
    )
    if settings is None:
        return
    method = _entry(settings, "quant_method") or ("bitsandbytes" if _entry(settings, "load_in_4bit") else None)
    name = str(getattr(method, "value", method) or "quantization_config")
    raise ConfigError(
        f"{place}: its weights are quantised ({name}), which Groupwise does not read; give the model as it"
        ' was before it was quantised, where memory is short with dtype = "bfloat16" and an adapter (lora)'
    )


def _entry(table: Any, key: str) -> Any:
    return table.get(key) if isinstance(table, Mapping) else getattr(table, key, None)
