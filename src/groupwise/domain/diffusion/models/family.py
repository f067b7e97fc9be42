"""The differences between the pipelines of diffusers: their parts, the encoding of prompts, and the call of their
denoiser.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from torch import Tensor

from groupwise.config import ConfigError

Tensors = dict[str, Tensor]


class Family(Protocol):
    """One class of pipelines. A family is a set of functions of the loaded pipeline and holds no state.

    `pipeline` is the name of diffusers' class, `denoiser` of the component that is trained, `components` of those that
    it needs, `optional` of those that the pipeline does without, though diffusers opens no folder that lacks them.
    A family extends this class: the defaults are those of a model that is asked in words, is not distilled for guidance
    and whose denoiser takes latents as the autoencoder makes them.
    """

    pipeline: str
    denoiser: str
    components: tuple[str, ...]
    optional: tuple[str, ...] = ()

    def latent_shape(self, pipe: Any, size: tuple[int, int] | None) -> tuple[int, ...]:
        """Returns the shape of one latent as the denoiser takes it, for images of `size` (height, width; None is the
        model's own).

        Raises:
            ConfigError: images of this size cannot be made.
        """
        ...

    def check(self, pipe: Any, prompts: Sequence[Mapping[str, Any]]) -> None:
        """Refuses prompts that `encode` would refuse; by default those that are no text.

        Raises:
            ConfigError: names the column and the value.
        """
        texts(prompts)

    def encode(
        self, pipe: Any, prompts: Sequence[Mapping[str, Any]], negatives: Sequence[str] | None, size: tuple[int, int]
    ) -> tuple[Tensors, Tensors | None]:
        """Encodes prompts, and negative ones (None: the empty prompt), one row each; no second condition where the
        model takes guidance as an input.
        """
        ...

    def takes_guidance(self, pipe: Any) -> bool:
        """Tests that the denoiser was distilled for guidance and takes it as an input; False by default."""
        return False

    def forward(
        self, denoiser: Any, latents: Tensor, timestep: Tensor, condition: Mapping[str, Tensor], guidance: float
    ) -> Tensor:
        """Computes one prediction, in the weights' dtype."""
        ...

    def shift(self, pipe: Any, latent_shape: Sequence[int]) -> float | None:
        """Computes the `mu` of schedulers whose noise levels depend on the image's size; None by default."""
        return None

    def unpack(self, pipe: Any, latents: Tensor, size: tuple[int, int]) -> Tensor:
        """Converts latents to the autoencoder's shape, `[N, C, h, w]`, which they have by default."""
        return latents

    def pack(self, latents: Tensor) -> Tensor:
        """Inverts `unpack`."""
        return latents


def texts(prompts: Sequence[Mapping[str, Any]], column: str = "prompt") -> list[str]:
    """Returns the text of each prompt.

    Raises:
        ConfigError: one has none, or an empty one.

    Example:
        >>> texts([{"prompt": "a cat"}])
        ['a cat']
    """
    for columns in prompts:
        if not isinstance(columns.get(column), str) or not columns[column].strip():
            raise ConfigError(
                f"prompt {dict(columns)}: this pipeline is asked in words, and column {column!r} holds none; give each"
                " prompt a text"
            )
    return [columns[column] for columns in prompts]


def image_size(
    size: tuple[int, int] | None, default: int | Sequence[int], factor: int, multiple: int = 1
) -> tuple[int, int]:
    """Computes height and width in latents, of images of `size` pixels.

    Args:
        size: height and width in pixels; None is the model's own.
        default: the model's own size, in latents.
        factor: pixels of a latent.
        multiple: height and width in latents must be multiples of this.

    Raises:
        ConfigError: the size is no multiple.

    Example:
        >>> image_size((64, 32), 16, 8), image_size(None, 16, 8)
        ((8, 4), (16, 16))
    """
    height, width = (default, default) if isinstance(default, int) else default
    if size is None:
        return height, width
    step = factor * multiple
    if any(side % step for side in size):
        raise ConfigError(
            f"model.size = {list(size)}: height and width must be multiples of {step} pixels for this pipeline"
        )
    return size[0] // factor, size[1] // factor


def dynamic_shift(scheduler: Any, num_tokens: int, highest: float = 1.15) -> float:
    """Computes `mu`, linear in the number of image tokens, from the scheduler's settings.

    Example:
        >>> from types import SimpleNamespace
        >>> dynamic_shift(SimpleNamespace(config={}), 256), dynamic_shift(SimpleNamespace(config={}), 4096)
        (0.5, 1.15)
    """
    config = scheduler.config
    tokens = (config.get("base_image_seq_len", 256), config.get("max_image_seq_len", 4096))
    ends = (config.get("base_shift", 0.5), config.get("max_shift", highest))
    slope = (ends[1] - ends[0]) / (tokens[1] - tokens[0])
    return num_tokens * slope + (ends[0] - slope * tokens[0])
