"""The variants of a comparison: every combination of the values of its keys."""

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
    """A set of changes with which a comparison runs an experiment.

    Args:
        overrides: the changes, `key=value` items.

    Example:
        >>> Variant(("method=dapo", "trust.high=0.3")).folder
        'method=dapo__trust.high=0.3'
    """

    overrides: tuple[str, ...]

    @property
    def name(self) -> str:
        """The variant's name in tables."""
        return " ".join(self.overrides) or "as it is"

    @property
    def folder(self) -> str:
        """The name of the variant's folder: the items where a path can hold them, and otherwise a similar text with a
        hash of the items.
        """
        items = "__".join(self.overrides) or "as-it-is"
        plain = re.sub(r"[^A-Za-z0-9._=+-]+", "_", items)
        if plain == items and len(items) <= 100:
            return items
        return f"{plain[:100].strip('_')}-{hashlib.sha256(items.encode()).hexdigest()[:6]}"


def variants(vary: Sequence[str]) -> list[Variant]:
    """Returns the product of `key=a,b,c` items, in their order; commas inside brackets or quotes do not separate.

    Args:
        vary: `key=a,b` items; without any, the only variant has no changes.

    Returns:
        every combination, the last key varying fastest.

    Raises:
        ConfigError: an item has no values, or a key or a value appears twice.

    Example:
        >>> [variant.name for variant in variants(["method=grpo,dapo", "train.group_size=4,8"])]
        ['method=grpo train.group_size=4', 'method=grpo train.group_size=8', 'method=dapo train.group_size=4', 'method=dapo train.group_size=8']
    """  # noqa: E501
    axes: dict[str, list[str]] = {}
    for assignment in vary:
        key, equals, text = assignment.partition("=")
        values = _split(text)
        if not equals or not key.strip() or not all(values):
            raise ConfigError(
                f"--vary {assignment!r} is not key=a,b; write for example --vary trust.kind=clip,gaussian"
            )
        if key.strip() == "seed":
            raise ConfigError(
                f"--vary {assignment!r}: every variant is run with the same seeds, so that runs pair up; write"
                f" --first-seed {values[0]} --seeds {len(values)}"
            )
        if key in axes:
            raise ConfigError(
                f"--vary names {key!r} twice; give all its values in one, --vary"
                f" {key}={','.join([*axes[key], *values])}"
            )
        if len(set(values)) < len(values):
            raise ConfigError(f"--vary {assignment!r} gives a value twice; each variant is run once for each seed")
        axes[key] = values
    return [
        Variant(tuple(f"{key}={value}" for key, value in zip(axes, combination, strict=True)))
        for combination in itertools.product(*axes.values())
    ]


def _split(text: str) -> list[str]:
    """Splits a text at its commas, except inside quotes and brackets."""
    values, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        depth += (character in "[{") - (character in "]}") if not quote else 0
        if character == "," and depth == 0 and not quote:
            values.append("")
        else:
            values[-1] += character
    return [value.strip() for value in values]
