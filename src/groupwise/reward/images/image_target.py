"""Rewards that compare an image with its target: one number an image, or one a pixel."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from groupwise.reward.base import Reward, RewardFunction
from groupwise.reward.error import RewardError
from groupwise.reward.image import as_array, one_by_one, through_jpeg
from groupwise.reward.text import Text

if TYPE_CHECKING:
    import numpy as np


class TargetReward(Reward):
    """The common part of the rewards that compare with a target: the column of the target, an optional codec before the
    comparison, and the choice of a number or a map. Missing where a row has no target.
    """

    column: str = "clean"
    """The data column with the target image."""
    jpeg_quality: Annotated[int, Field(ge=1, le=95)] | None = None
    """The image is stored as JPEG of this quality and read again before it is compared: what arrives is what counts."""
    result: Literal["number", "map"] = "number"
    """One value an image, or one a pixel, from which decisions that are blocks of pixels get advantages of their own.
    """

    @property
    def needs(self) -> tuple[str, ...]:
        return (self.column,)

    def open(self) -> RewardFunction:
        # The import runs in the thread that opens the reward: two rewards that import the library at the same time in
        # their own threads can deadlock.
        import torchmetrics.functional.image  # noqa: F401

        return self

    def __call__(self, prompts: Sequence[Text], completions: Sequence[Any], **columns: Sequence[Any]) -> Any:
        targets = columns[self.column]
        return one_by_one(completions, lambda image, member: self._compared(image, targets[member]), self.on_error)

    @abstractmethod
    def number(self, image: np.ndarray, target: np.ndarray) -> float:
        """Computes the reward of `[C, H, W]` images in [0, 1]."""

    @abstractmethod
    def pixels(self, image: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Computes the reward at every pixel, `[H, W]`."""

    def _compared(self, image: Any, target: Any) -> Any:
        if target is None:
            return None
        image_pixels, target_pixels = as_array(image), as_array(target)
        if image_pixels.shape != target_pixels.shape:
            raise RewardError(
                f"the image is {list(image_pixels.shape[:2])} pixels and its target (column {self.column!r})"
                f" {list(target_pixels.shape[:2])}"
            )
        if all(getattr(pixels, "ndim", 3) == 2 for pixels in (image, target)):
            # Grey images stay at one channel: this saves two thirds of the work, and matches the file in which a grey
            # image would be stored.
            image_pixels, target_pixels = image_pixels[:, :, :1], target_pixels[:, :, :1]
        if self.jpeg_quality is not None:
            stored = through_jpeg(
                image_pixels if image_pixels.shape[2] == 3 else image_pixels[:, :, 0], self.jpeg_quality
            )
            image_pixels = stored if stored.ndim == 3 else stored[:, :, None]
        image_channels, target_channels = (
            pixels.transpose(2, 0, 1).astype("float64") / 255 for pixels in (image_pixels, target_pixels)
        )
        return (
            self.number(image_channels, target_channels)
            if self.result == "number"
            else self.pixels(image_channels, target_channels)
        )
