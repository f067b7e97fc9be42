"""The head of a model card: what hubs read of it, YAML between two lines of dashes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from groupwise.domain.exported import Card


def card_head(config: Mapping[str, Any], card: Card) -> list[str]:
    """Writes the lines of the head.

    Args:
        config: the run's resolved configuration.
        card: what the domain says of the folder.

    Example:
        >>> from groupwise.domain.exported import Card
        >>> config = {"domain": {"model": {"kind": "pretrained", "path": "models/FLUX.1-dev"}}}
        >>> print(*card_head(config, Card("", "diffusers", "text-to-image", adapter=True)), sep="\\n")
        ---
        library_name: diffusers
        pipeline_tag: text-to-image
        base_model: "models/FLUX.1-dev"
        base_model_relation: adapter
        tags: [groupwise, reinforcement-learning, lora]
        ---
    """
    from groupwise.domain.exported import base_model

    base = base_model(config["domain"])
    return [
        "---",
        *([f"library_name: {card.library}"] if card.library else []),
        *([f"pipeline_tag: {card.task}"] if card.task else []),
        # A text of JSON is one of YAML, whatever stands in a path.
        *(
            [f"base_model: {json.dumps(base)}", f"base_model_relation: {'adapter' if card.adapter else 'finetune'}"]
            if base
            else []
        ),
        f"tags: [groupwise, reinforcement-learning{', lora' if card.adapter else ''}]",
        "---",
    ]
