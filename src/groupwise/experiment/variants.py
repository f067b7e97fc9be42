"""The variants of a comparison: every combination of the values given for every key."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from groupwise.config import ConfigError


@final
@dataclass(frozen=True)
class Variant:
    """One way to run an experiment.

    Args:
        overrides: the `key=value` items that make it.

    Example:
        >>> Variant(("method=dapo", "trust.high=0.3")).folder
        'method=dapo__trust.high=0.3'
    """

    overrides: tuple[str, ...]

    @property
    def name(self) -> str:
        """How a table calls it."""
        return " ".join(self.overrides) or "as it is"

    @property
    def folder(self) -> str:
        """A folder name for it: the same items where a path can hold them, and otherwise close to them with a hash that
        keeps them apart.
        """
        items = "__".join(self.overrides) or "as-it-is"
        plain = re.sub(r"[^A-Za-z0-9._=+-]+", "_", items)
        if plain == items and len(items) <= 100:
            return items
        return f"{plain[:100].strip('_')}-{hashlib.sha256(items.encode()).hexdigest()[:6]}"


def variants(vary: Sequence[str]) -> list[Variant]:
    """The product of `key=a,b,c` items, in the order given; commas inside brackets or quotes do not separate.

    Args:
        vary: `key=a,b` items; none gives the one variant without changes.

    Returns:
        every combination, the last key varying fastest.

    Raises:
        ConfigError: an item without values, a key given twice, or a value given twice.

    Example:
        >>> [variant.name for variant in variants(["method=grpo,dapo", "train.group_size=4,8"])]
        ['method=grpo train.group_size=4', 'method=grpo train.group_size=8', 'method=dapo train.group_size=4', 'method=dapo train.group_size=8']
    """  # noqa: E501
    axes: dict[str, list[str]] = {}
    for item in vary:
        key, equals, text = item.partition("=")
        values = _split(text)
        if not equals or not key.strip() or not all(values):
            raise ConfigError(f"--vary {item!r} is not key=a,b; write for example --vary trust.kind=clip,gaussian")
        if key.strip() == "seed":
            raise ConfigError(
                f"--vary {item!r}: every variant is run with the same seeds, so that runs pair up; write --first-seed"
                f" {values[0]} --seeds {len(values)}"
            )
        if key in axes:
            raise ConfigError(
                f"--vary names {key!r} twice; give all its values in one, --vary"
                f" {key}={','.join([*axes[key], *values])}"
            )
        if len(set(values)) < len(values):
            raise ConfigError(f"--vary {item!r} gives a value twice; each variant is run once for each seed")
        axes[key] = values
    return [
        Variant(tuple(f"{key}={value}" for key, value in zip(axes, combination, strict=True)))
        for combination in itertools.product(*axes.values())
    ]


def _split(text: str) -> list[str]:
    """Text at its commas, except inside quotes and brackets."""
    parts, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        depth += (character in "[{") - (character in "]}") if not quote else 0
        if character == "," and depth == 0 and not quote:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]
