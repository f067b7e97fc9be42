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
        has_target: false where nobody gave a target; `clean` is then the degraded image once more.
    """

    key: str
    clean: np.ndarray
    degraded: np.ndarray | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)
    file: str = ""
    has_target: bool = True

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

    @staticmethod
    def spread(pictures: Sequence[Picture], num_held_out: int, remarks: Sequence[str] = ()) -> Pictures:
        """Holds out `num_held_out` pictures, spread evenly over all of them.

        Example:
            >>> pixels = __import__("numpy").zeros((1, 2, 2))
            >>> pictures = Pictures.spread([Picture(str(place), pixels) for place in range(6)], 2)
            >>> [picture.key for picture in pictures.held_out]
            ['1', '4']
        """
        spacing = len(pictures) / num_held_out
        places = {round((number + 0.5) * spacing - 0.5) for number in range(num_held_out)}
        train = [picture for place, picture in enumerate(pictures) if place not in places]
        return Pictures(train, [pictures[place] for place in sorted(places)], remarks)
