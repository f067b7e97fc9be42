"""scikit-learn's handwritten digits: 1,797 real images of 8 x 8 pixels with their labels. Nothing is downloaded."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, final

from pydantic import Field

from groupwise.config import Config
from groupwise.domain.image_source.base import Picture, Pictures

if TYPE_CHECKING:
    import numpy as np


@final
class Digits(Config):
    """The first `num_train` images of a fixed shuffle are trained on, the others are held out.

    Example:
        >>> pictures = Digits(num_train=1200).read()
        >>> (
        ...     len(pictures.train),
        ...     len(pictures.held_out),
        ...     pictures.train[0].clean.shape,
        ...     sorted(pictures.train[0].columns),
        ... )
        (1200, 597, (1, 8, 8), ['label'])
    """

    kind: Literal["digits"] = "digits"
    num_train: Annotated[int, Field(ge=1, le=1796)] = 1200

    @property
    def channels(self) -> int:
        """1, grey."""
        return 1

    def read(self, key: str = "source") -> Pictures:
        """Reads all images.

        Args:
            key: of the configuration that holds this source, for errors.
        """
        import numpy as np

        images, labels = handwritten()
        order = np.random.default_rng(0).permutation(len(labels))
        pictures = [
            Picture(f"digit-{index}", images[index][None].copy(), columns={"label": int(labels[index])})
            for index in order.tolist()
        ]
        return Pictures(pictures[: self.num_train], pictures[self.num_train :])


# Parsing the library's text file takes longer than opening a small model.
@cache
def handwritten() -> tuple[np.ndarray, np.ndarray]:
    """Returns all images `[1797, 8, 8]` in [0, 1] and their labels; whoever changes them takes a copy."""
    from sklearn.datasets import load_digits

    digits: Any = load_digits()
    return (digits.images / 16).astype("float32"), digits.target.astype("int64")
