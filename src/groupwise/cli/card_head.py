"""The head of a model card: what hubs read of it, YAML between two lines of dashes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_LIBRARIES = {"language": ("transformers", "text-generation"), "diffusion": ("diffusers", "text-to-image")}
"""What loads a domain's folder, and what hubs call its task."""


def card_head(config: Mapping[str, Any]) -> list[str]:
    """The lines of the head.

    Args:
        config: the run's resolved configuration.

    Example:
        >>> config = {
        ...     "domain": {
        ...         "kind": "diffusion",
        ...         "model": {"kind": "pretrained", "path": "models/FLUX.1-dev", "lora": {"rank": 4}},
        ...     }
        ... }
        >>> print(*card_head(config), sep="\\n")
        ---
        library_name: diffusers
        pipeline_tag: text-to-image
        base_model: "models/FLUX.1-dev"
        base_model_relation: adapter
        tags: [groupwise, reinforcement-learning, lora]
        ---
    """
    kind = config["domain"].get("kind", "language")
    base, adapter = base_model(config), stays_adapter(config)
    return [
        "---",
        *(
            [f"library_name: {_LIBRARIES[kind][0]}", f"pipeline_tag: {_LIBRARIES[kind][1]}"]
            if kind in _LIBRARIES
            else []
        ),
        # A text of JSON is one of YAML, whatever stands in a path.
        *(
            [f"base_model: {json.dumps(base)}", f"base_model_relation: {'adapter' if adapter else 'finetune'}"]
            if base
            else []
        ),
        f"tags: [groupwise, reinforcement-learning{', lora' if adapter else ''}]",
        "---",
    ]


def base_model(config: Mapping[str, Any]) -> str:
    """The hub id or folder that training began from; empty where the weights began fresh.

    Args:
        config: the run's resolved configuration.

    Example:
        >>> base_model({"domain": {"model": {"kind": "scratch"}}})
        ''
    """
    model = config["domain"].get("model")
    named = model.get("path") if isinstance(model, Mapping) and model.get("kind") == "pretrained" else None
    return named if isinstance(named, str) else ""


def stays_adapter(config: Mapping[str, Any]) -> bool:
    """Whether what is exported needs its base model: a language model's adapter is merged, an image model's is not.

    Args:
        config: the run's resolved configuration.

    Example:
        >>> stays_adapter(
        ...     {"domain": {"kind": "language", "model": {"kind": "pretrained", "path": "a", "lora": {"r": 2}}}}
        ... )
        False
    """
    model = config["domain"].get("model")
    return config["domain"].get("kind") == "diffusion" and isinstance(model, Mapping) and bool(model.get("lora"))
