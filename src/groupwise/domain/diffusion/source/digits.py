"""scikit-learn's handwritten digits: 1,797 real images of 8 x 8 pixels; a prompt is a class. Nothing is downloaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, final

from pydantic import Field

from groupwise.config import Config
from groupwise.config.numbers import Seed
from groupwise.domain.diffusion.source.base import Content
from groupwise.domain.image_source.digits import handwritten

if TYPE_CHECKING:
    import numpy as np


@final
class Digits(Config):
    """Ten prompts, one a digit, and the images with their labels.

    Args:
        wrong_labels: share of the images that are shown under another digit's prompt, drawn at random: a base model
            that often gives the wrong digit.
        seed: of the wrong labels; it is not the run's seed.

    Example:
        >>> content = Digits(wrong_labels=0.4).read()
        >>> len(content.prompts), content.prompts[3]["prompt"], content.images.shape
        (10, 'the digit 3', (1797, 1, 8, 8))
    """

    kind: Literal["digits"] = "digits"
    wrong_labels: Annotated[float, Field(ge=0, le=1)] = 0.0
    seed: Seed = 0

    def read(self) -> Content:
        """Reads the prompts, with the columns `prompt` and `label`, and the images."""
        images, labels = load()
        return Content(
            [{"prompt": f"the digit {digit}", "label": digit} for digit in range(10)],
            images[:, None],
            spoil(labels, self.wrong_labels, self.seed),
        )


def load() -> tuple[np.ndarray, np.ndarray]:
    """Loads all images `[1797, 8, 8]` in [0, 1], and their true labels."""
    images, labels = handwritten()
    return images.copy(), labels.copy()


def spoil(labels: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Replaces exactly `round(share * N)` of the labels by another digit; all nine others are equally likely.

    Example:
        >>> import numpy as np
        >>> int((spoil(np.arange(10), 0.4, 0) != np.arange(10)).sum())
        4
    """
    import numpy as np

    random = np.random.default_rng(seed)
    spoiled = random.choice(len(labels), size=round(share * len(labels)), replace=False)
    wrong = labels.copy()
    wrong[spoiled] = (labels[spoiled] + random.integers(1, 10, size=len(spoiled))) % 10
    return wrong
