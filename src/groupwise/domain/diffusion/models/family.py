"""What differs between the pipelines of diffusers: which parts they have, how prompts are encoded, and how their
denoiser is called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from torch import Tensor

from groupwise.config import ConfigError

Tensors = dict[str, Tensor]


class Family(Protocol):
    """One class of pipelines. A family is a set of functions of the loaded pipeline and holds no state.

    `pipeline` is the name of diffusers' class, `denoiser` of the component that is trained, `parts` of those that must
    be there, `optional` of those that the pipeline does without, though diffusers opens no folder that lacks them.
    """

    pipeline: str
    denoiser: str
    parts: tuple[str, ...]
    optional: tuple[str, ...]

    def latent_shape(self, pipe: Any, size: tuple[int, int] | None) -> tuple[int, ...]:
        """Shape of one latent as the denoiser takes it, for images of `size` (height, width; None is the model's own).

        Raises:
            ConfigError: images of this size cannot be made.
        """
        ...

    def check(self, pipe: Any, prompts: Sequence[Mapping[str, Any]]) -> None:
        """Refuses prompts that `encode` would refuse.

        Raises:
            ConfigError: names the column and the value.
        """
        ...

    def encode(
        self, pipe: Any, prompts: Sequence[Mapping[str, Any]], negatives: Sequence[str] | None, size: tuple[int, int]
    ) -> tuple[Tensors, Tensors | None]:
        """Conditions of prompts, and of negative ones (None: the empty prompt), one row each; no second where the model
        takes guidance as an input.
        """
        ...

    def takes_guidance(self, pipe: Any) -> bool:
        """Whether the denoiser was distilled for guidance and takes it as an input."""
        ...

    def forward(
        self, denoiser: Any, latents: Tensor, timestep: Tensor, given: Mapping[str, Tensor], guidance: float
    ) -> Tensor:
        """One prediction, in the weights' dtype."""
        ...

    def shift(self, pipe: Any, latent_shape: Sequence[int]) -> float | None:
        """The `mu` of schedulers whose noise levels depend on the image's size."""
        ...

    def unpack(self, pipe: Any, latents: Tensor, size: tuple[int, int]) -> Tensor:
        """Latents as the autoencoder takes them, `[N, C, h, w]`."""
        ...

    def pack(self, latents: Tensor) -> Tensor:
        """The inverse of `unpack`."""
        ...


def texts(prompts: Sequence[Mapping[str, Any]], column: str = "prompt") -> list[str]:
    """The text of each prompt.

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
    size: tuple[int, int] | None, own: int | Sequence[int], factor: int, multiple: int = 1
) -> tuple[int, int]:
    """Height and width in latents, of images of `size` pixels.

    Args:
        size: height and width in pixels; None is the model's own.
        own: the model's own, in latents.
        factor: pixels of a latent.
        multiple: what height and width in latents must be multiples of.

    Raises:
        ConfigError: the size is no multiple.

    Example:
        >>> image_size((64, 32), 16, 8), image_size(None, 16, 8)
        ((8, 4), (16, 16))
    """
    height, width = (own, own) if isinstance(own, int) else own
    if size is None:
        return height, width
    step = factor * multiple
    if any(each % step for each in size):
        raise ConfigError(
            f"model.size = {list(size)}: height and width must be multiples of {step} pixels for this pipeline"
        )
    return size[0] // factor, size[1] // factor


def dynamic_shift(scheduler: Any, num_tokens: int, highest: float = 1.15) -> float:
    """`mu`, linear in the number of image tokens, as the scheduler's settings say.

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
