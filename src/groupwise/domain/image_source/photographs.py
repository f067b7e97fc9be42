"""Real photographs that lie inside the installed packages scikit-image and scikit-learn, cut into patches. Nothing is
downloaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, final

from pydantic import Field

from groupwise.config import Config
from groupwise.config.numbers import PerStep, Width
from groupwise.domain.image_source.base import Picture, Pictures

if TYPE_CHECKING:
    import numpy as np

_TRAIN = ("astronaut", "coffee", "rocket", "flower")
_HELD_OUT = ("cat", "china")


@final
class Photographs(Config):
    """Patches of four photographs are trained on, patches of two others are held out: no photograph is in both.

    Trained on: astronaut, coffee and rocket (scikit-image), flower (scikit-learn). Held out: cat (scikit-image) and
    china (scikit-learn).

    Args:
        size: of a patch, pixels; patches of one photograph do not overlap.
        num_train, num_held_out: patches, spread evenly over the photographs.
        grey: their brightness alone (ITU-R 601, as JPEG has it), one channel.

    Example:
        >>> pictures = Photographs(size=64, num_train=8, num_held_out=4).read()
        >>> len(pictures.train), pictures.held_out[0].clean.shape, pictures.held_out[0].key
        (8, (3, 64, 64), 'cat-0-0')
    """

    kind: Literal["photographs"] = "photographs"
    size: Annotated[Width, Field(ge=8)] = 48
    num_train: PerStep = 128
    num_held_out: PerStep = 48
    grey: bool = False

    @property
    def channels(self) -> int:
        """3, colour, or 1."""
        return 1 if self.grey else 3

    def read(self, key: str = "source") -> Pictures:
        """Cuts patches out of all photographs.

        Args:
            key: of the configuration that holds this source, for errors.

        Raises:
            ValueError: there are fewer patches than asked for.
        """
        return Pictures(
            self._patches(_TRAIN, self.num_train, f"{key}.num_train"),
            self._patches(_HELD_OUT, self.num_held_out, f"{key}.num_held_out"),
        )

    def _patches(self, names: tuple[str, ...], number: int, key: str) -> list[Picture]:
        photographs: list[list[Picture]] = []
        for name in names:
            image = _brightness(_photograph(name)) if self.grey else _photograph(name)
            rows, columns = image.shape[1] // self.size, image.shape[2] // self.size
            corners = [(row * self.size, column * self.size) for row in range(rows) for column in range(columns)]
            photographs.append(
                [
                    Picture(f"{name}-{top}-{left}", image[:, top : top + self.size, left : left + self.size])
                    for top, left in corners
                ]
            )
        num_patches = sum(len(patches) for patches in photographs)
        if number > num_patches:
            raise ValueError(
                f"{key} = {number}: the photographs have {num_patches} patches of {self.size} pixels; write at"
                f" most {num_patches}, or a smaller size"
            )
        chosen: list[Picture] = []
        for place, patches in enumerate(photographs):
            share = min(len(patches), -(-(number - len(chosen)) // (len(photographs) - place)))
            step = len(patches) / share if share else 1
            chosen += [patches[int(index * step)] for index in range(share)]
        # A photograph with few patches leaves its share to the others.
        chosen_keys = {picture.key for picture in chosen}
        chosen += [picture for patches in photographs for picture in patches if picture.key not in chosen_keys][
            : number - len(chosen)
        ]
        return chosen


def _brightness(image: np.ndarray) -> np.ndarray:
    """Computes `0.299 R + 0.587 G + 0.114 B`, `[1, H, W]`."""
    return (0.299 * image[:1] + 0.587 * image[1:2] + 0.114 * image[2:]).astype("float32")


def _photograph(name: str) -> np.ndarray:
    import numpy as np

    if name in ("flower", "china"):
        from sklearn.datasets import load_sample_image

        image = load_sample_image(f"{name}.jpg")
    else:
        from skimage import data

        image = getattr(data, name)()
    return (np.asarray(image)[:, :, :3].astype("float32") / 255).transpose(2, 0, 1)
