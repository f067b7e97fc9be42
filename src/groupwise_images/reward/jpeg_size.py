"""The size of an image as a JPEG file: a reward that shows the drift of a diffusion model without a constraint."""

import io
from collections.abc import Sequence
from typing import Annotated, Any, Literal, final

from pydantic import Field

from groupwise.reward.base import Reward, Value
from groupwise.reward.completions import Text
from groupwise.reward.image import as_pil, one_by_one

_BYTES_PER_KB = 1000


@final
class JpegSize(Reward):
    """`R = -size` (or `+size`), the size of the image as a JPEG file of the stated quality, in kB of 1000 bytes.

    The smallest possible file is a constant image, the largest is noise: without a divergence from a reference, either
    end is reached and nothing is left of what the model knew.

    Example:
        >>> import torch
        >>> flat, noise = torch.zeros(16, 16, dtype=torch.uint8), torch.randint(256, (16, 16), dtype=torch.uint8)
        >>> small, large = JpegSize(quality=75)(["", ""], [flat, noise])
        >>> small > large
        True

    Source: the compressibility rewards of DDPO, arXiv 2305.13301, section 5.1 (quality 95).
    """

    kind: Literal["jpeg_size"] = "jpeg_size"
    prefer: Literal["small", "large"] = "small"
    """The preferred files: `small` rewards compressibility, `large` incompressibility."""
    quality: Annotated[int, Field(ge=1, le=95)] = 95
    """Pillow's quality."""

    def __call__(self, prompts: Sequence[Text], completions: Sequence[Any], **columns: Sequence[Any]) -> list[Value]:
        sign = -1.0 if self.prefer == "small" else 1.0
        return one_by_one(completions, lambda image, _: sign * self.kilobytes(image), self.on_error)

    def kilobytes(self, image: Any) -> float:
        """Returns the size of the file in kB."""
        file = io.BytesIO()
        as_pil(image).save(file, format="JPEG", quality=self.quality, subsampling="4:2:0")
        return file.tell() / _BYTES_PER_KB
