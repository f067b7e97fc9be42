"""The contents of a source: images, some trained on and some held out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    import numpy as np


def as_float(pixels: np.ndarray) -> np.ndarray:
    """Converts pixels of a picture, or of a part of it, to fp32 in [0, 1].

    Example:
        >>> import numpy
        >>> as_float(numpy.array([0, 51, 255], dtype="uint8")).tolist()
        [0.0, 0.20000000298023224, 1.0]
    """
    return pixels.astype("float32") / 255 if pixels.dtype == "uint8" else pixels


@final
@dataclass(frozen=True)
class Picture:
    """An image to restore, with its name and its columns for rewards.

    Args:
        key: its name, stable over runs.
        clean: `[C, H, W]`, the target: fp32 in [0, 1], or uint8 as a file holds it, a quarter of the memory; `as_float`
            reads both.
        degraded: as `clean`, where the source has one; otherwise a degradation makes it.
        columns: JSON-able, for rewards (`label`, ...).
        file: where it was read, for messages; empty where it lies in no file of its own.
    """

    key: str
    clean: np.ndarray
    degraded: np.ndarray | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)
    file: str = ""

    @cached_property
    def content(self) -> str:
        """A hash of the target, by which the same image is recognised under another name."""
        return hashlib.blake2b(
            repr((self.clean.shape, self.clean.dtype)).encode() + self.clean.tobytes(), digest_size=16
        ).hexdigest()


@final
@dataclass(frozen=True)
class Pictures:
    """The images of a source.

    Args:
        train: trained on.
        held_out: evaluated, never trained on.
        remarks: what was left out, in sentences.
    """

    train: Sequence[Picture]
    held_out: Sequence[Picture]
    remarks: Sequence[str] = ()
