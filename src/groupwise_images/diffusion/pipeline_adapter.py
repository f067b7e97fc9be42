"""The adapter of a pipeline of diffusers: the differences between one class of pipelines and the others."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
import torch
from torch import Tensor

from groupwise.config import ConfigError
from groupwise_images.diffusion.models import autoencoder
from groupwise_images.image_evaluation import as_pictures

# An image among the columns of a prompt.


@final
@dataclass(frozen=True)
class PromptImage:
    """An image that a model is conditioned on (the column `degraded`), or its target (`clean`).

    Args:
        pixels: fp32 `[C, H, W]`, white at 1; noise may leave [0, 1].

    Example:
        >>> import numpy
        >>> PromptImage(numpy.full((1, 1, 2), 0.2, "float32")).picture.tolist()
        [[51, 51]]
    """

    pixels: np.ndarray

    @cached_property
    def content(self) -> str:
        """A hash of the pixels, which is the cache key for their encodings."""
        return hashlib.blake2b(repr(self.pixels.shape).encode() + self.pixels.tobytes(), digest_size=16).hexdigest()

    @cached_property
    def picture(self) -> Tensor:
        """The image as rewards and people see it: uint8 `[H, W]` or `[H, W, 3]`."""
        return as_pictures(torch.from_numpy(self.pixels)[None])[0]


def without_images(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the columns of a prompt that can be printed.

    Example:
        >>> import numpy
        >>> without_images({"prompt": "a.png", "degraded": PromptImage(numpy.zeros((1, 1, 1), "float32"))})
        {'prompt': 'a.png'}
    """
    return {name: value for name, value in columns.items() if not isinstance(value, PromptImage)}


Tensors = Mapping[str, Tensor]
Prompts = Sequence[Mapping[str, Any]]
Negatives = Sequence[str] | None
"""A negative prompt for each prompt; None means empty ones."""
Size = tuple[int, ...]
"""Height and width in pixels; a video has the number of frames before them."""
Encoded = tuple[Tensors, Tensors | None]
"""The conditions of prompts and of their negative prompts."""

INSTRUCTION = "instruction"
"""The column with the instruction in words, where prompts are images; `prompt` is then the image's name."""

NAME = "groupwise_images.diffusion.pipeline_adapter.PipelineAdapter"
"""The path by which an author imports the base."""

GUIDE = "docs/guide/write_your_own_pipeline.md"


class PipelineAdapter(ABC):
    """The parts in which one class of diffusers' pipelines differs from the others. Guidance, precision, adapters and
    saving are the same for all of them.

    A subclass states `pipeline` and writes `latent_shape` and `encode`, mostly `forward` too. The other members have
    defaults, which are those of a model that is asked in words, makes images, is not distilled for guidance, and whose
    denoiser takes latents as the autoencoder makes them. An adapter is made without arguments and holds no state: every
    method is a function of the loaded pipeline. `groupwise.testing.check_pipeline` tests one.

    In all methods `pipe` is the loaded pipeline, and `size` height and width in pixels; of a video the number of
    frames is put before them. A prompt is a mapping of its columns, such as `prompt`.

    Example:
        >>> class Sana(PipelineAdapter):
        ...     pipeline = "SanaPipeline"
        >>> sorted(Sana.__abstractmethods__)
        ['encode', 'latent_shape']
    """

    pipeline: ClassVar[str]
    """The name of the pipeline's class, as in `_class_name` of `model_index.json`."""
    denoiser: ClassVar[str] = "transformer"
    """The component that is trained."""
    components: ClassVar[tuple[str, ...]] = ("transformer", "vae", "scheduler")
    """Components that a folder has to hold."""
    optional: ClassVar[tuple[str, ...]] = ()
    """Components that the pipeline does without, though diffusers opens no folder that lacks them."""
    video: ClassVar[bool] = False
    """Whether it makes videos."""
    takes_image: ClassVar[bool] = False
    """Whether a prompt has an image of the size that is made, which `encode` reads with `images`."""

    def load(self, folder: Path, **arguments: Any) -> Any:
        """Loads the pipeline with its `from_pretrained`; by default of the class in diffusers that `pipeline` names.

        Args:
            folder: the folder of the pipeline.
            arguments: `dtype`, `variant`, `use_safetensors`, `local_files_only`, and None for absent components.

        Raises:
            ConfigError: diffusers has no such class.
        """
        import diffusers

        pipeline_class = getattr(diffusers, self.pipeline, None)
        if pipeline_class is None:
            raise ConfigError(
                f"{type(self).__name__}.pipeline = {self.pipeline!r}: diffusers {diffusers.__version__} has no such"
                " class; install the version that has it, or write load(self, folder, **arguments)"
            )
        return pipeline_class.from_pretrained(folder, **arguments)

    def default_size(self, pipe: Any) -> tuple[int, ...]:
        """Returns the size that is made where `domain.model.size` is unset; by default the pipeline's
        `default_sample_size`, or the denoiser's `sample_size`, in pixels.

        Raises:
            ConfigError: neither is there.
        """
        size = getattr(pipe, "default_sample_size", None) or getattr(
            getattr(pipe, self.denoiser).config, "sample_size", None
        )
        if size is None:
            raise ConfigError(f"model.size: a {self.pipeline} has no size of its own; write [height, width]")
        height, width = (size, size) if isinstance(size, int) else size
        factor = pixels_a_latent(pipe)
        return height * factor, width * factor

    @abstractmethod
    def latent_shape(self, pipe: Any, size: Size) -> tuple[int, ...]:
        """Returns the shape of one latent, without the batch, as the denoiser takes it.

        Raises:
            ConfigError: images of this size cannot be made (`latent_size` refuses sides that are not multiples of it).
        """

    def check(self, pipe: Any, prompts: Prompts) -> None:
        """Refuses prompts that `encode` would refuse; by default those whose column `prompt` holds no text. Where it
        `takes_image`, those without an image, and those whose column `instruction` holds no text.

        Raises:
            ConfigError: names the column and the value.
        """
        if self.takes_image:
            images(prompts)
        texts(prompts, INSTRUCTION if self.takes_image else "prompt")

    @abstractmethod
    def encode(self, pipe: Any, prompts: Prompts, negatives: Negatives, size: Size) -> Encoded:
        """Encodes prompts, without gradient.

        Args:
            pipe, prompts, size: see the class.
            negatives: a negative prompt for each prompt; None means empty ones.

        Returns:
            names -> tensors `[P, ...]`, one row a prompt, all inputs of `forward` but latents and time; and the
            same names with the same shapes for the negative prompts, None where the model takes guidance as an input.
            A row depends on its prompt alone: texts are padded to a fixed length, not to the longest one.
        """

    def forward(self, denoiser: Any, latents: Tensor, timestep: Tensor, condition: Tensors, guidance: float) -> Tensor:
        """Computes one prediction `[N, *latent_shape]`, with gradient where it is on, each row by itself; by default
        `denoiser(latents, timestep=timestep, **condition)`.

        Args:
            denoiser: the component that is trained.
            latents: `[N, *latent_shape]`, in the dtype of the weights.
            timestep: `[N]`, as the scheduler numbers them: for flow matching 1000 is noise and 0 an image.
            condition: `N` rows of what `encode` returned.
            guidance: read only by a model that takes it as an input.

        Returns:
            what the scheduler calls the model's output; for flow matching the velocity, noise less image.
        """
        return denoiser(latents, timestep=timestep, **condition, return_dict=False)[0]

    def takes_guidance(self, pipe: Any) -> bool:
        """Tests that the denoiser was distilled for guidance and takes it as an input; False by default."""
        return False

    def guided(self, unconditional: Tensor, prompted: Tensor, guidance: float) -> Tensor:
        """Combines the predictions `u` without and `c` with the prompt; by default `u + g (c - u)`."""
        return unconditional + guidance * (prompted - unconditional)

    def without_image(self, condition: Tensors) -> Tensors:
        """Returns the condition of negative prompts with the image left out too, for `model.image_guidance`. By default
        there is none, and the pipeline cannot be guided by its image.
        """
        raise NotImplementedError

    @property
    def guided_by_image(self) -> bool:
        """Whether it writes `without_image`."""
        return type(self).without_image is not PipelineAdapter.without_image

    def shift(self, pipe: Any, latent_shape: Sequence[int]) -> float | None:
        """Computes the `mu` of schedulers whose noise levels depend on the image's size (`dynamic_shift` computes it
        from the scheduler's settings); None by default.
        """
        return None

    def unpack(self, pipe: Any, latents: Tensor, size: Size) -> Tensor:
        """Converts latents to the shape that the autoencoder takes, which they have by default. Its scale and shift are
        applied afterwards, as the autoencoder's settings define.
        """
        return latents

    def pack(self, latents: Tensor) -> Tensor:
        """Inverts `unpack`."""
        return latents

    def decode(self, pipe: Any, latents: Tensor, size: Size) -> Tensor:
        """Decodes images `[N, 3, H, W]` in [0, 1], of videos `[N, F, 3, H, W]`, without gradient; by default with the
        pipeline's `vae`. Of an autoencoder of videos that makes images, the first frame is the image.
        """
        decoded = autoencoder.decode(pipe.vae, self.unpack(pipe, latents, size))
        if decoded.dim() < 5:
            return decoded
        return decoded.transpose(1, 2) if self.video else decoded[:, :, 0]

    def call_arguments(self, pipe: Any, prompts: Prompts, negatives: Negatives, guidance: float) -> dict[str, Any]:
        """Returns arguments of the pipeline's call in place of the usual ones, for `call_pipeline`; None leaves an
        argument out. None of them by default.
        """
        return {}

    def call_pipeline(
        self,
        pipe: Any,
        prompts: Prompts,
        negatives: Negatives,
        latents: Tensor,
        guidance: float,
        num_steps: int,
        size: Size,
        **arguments: Any,
    ) -> Tensor:
        """Draws images by calling the pipeline itself, which `check_pipeline` compares with; training never does.

        Args:
            pipe, prompts, size: see the class.
            negatives: a negative prompt for each prompt, or None.
            latents: `[N, *latent_shape]`, the initial noise.
            guidance, num_steps: as the domain has them.
            arguments: the arguments of the pipeline's call, in addition to those that this method passes or instead of
                them; None leaves an argument out.

        Returns:
            `[N, 3, H, W]` in [0, 1], of videos `[N, F, 3, H, W]`.
        """
        arguments = self.call_arguments(pipe, prompts, negatives, guidance) | arguments
        asked = texts(prompts, INSTRUCTION if self.takes_image else "prompt") if "prompt" not in arguments else None
        call = {
            "prompt": asked,
            "image": images(prompts) if self.takes_image and "image" not in arguments else None,
            "negative_prompt": None if negatives is None else list(negatives),
            "height": size[-2],
            "width": size[-1],
            "num_frames": size[0] if self.video else None,
            "guidance_scale": guidance,
            "image_guidance_scale": 1.0 if self.guided_by_image else None,
            "num_inference_steps": num_steps,
            "latents": latents,
            "output_type": "np",
        }
        output = pipe(**{name: value for name, value in (call | arguments).items() if value is not None})
        return torch.from_numpy(output.frames if self.video else output.images).movedim(-1, -3)


def pixels_a_latent(pipe: Any) -> int:
    """Returns how many pixels of a side become one latent: the pipeline's `vae_scale_factor`, or that of the
    autoencoder's blocks.

    Example:
        >>> from types import SimpleNamespace
        >>> pixels_a_latent(SimpleNamespace(vae_scale_factor=8))
        8
    """
    return getattr(pipe, "vae_scale_factor", None) or 2 ** (len(pipe.vae.config.block_out_channels) - 1)


def texts(prompts: Prompts, column: str = "prompt") -> list[str]:
    """Returns the text of each prompt.

    Raises:
        ConfigError: one has none, or an empty one.

    Example:
        >>> texts([{"prompt": "a cat"}])
        ['a cat']
    """
    for columns in prompts:
        if not isinstance(columns.get(column), str) or not columns[column].strip():
            remedy = (
                "write data.source.instruction, give each row of the table one, or type it behind a file:"
                " 'photo.png: WORDS'"
                if column == INSTRUCTION
                else "give each prompt a text"
            )
            raise ConfigError(
                f"prompt {without_images(columns)}: this pipeline is asked in words, and column {column!r} holds none;"
                f" {remedy}"
            )
    return [columns[column] for columns in prompts]


def images(prompts: Prompts) -> Tensor:
    """Returns the image of each prompt, `[P, 3, H, W]` in [0, 1]; noise that leaves this range is cut off.

    Raises:
        ConfigError: a prompt has none.

    Example:
        >>> import numpy
        >>> images([{"degraded": PromptImage(numpy.full((3, 1, 1), 1.5, "float32"))}]).flatten().tolist()
        [1.0, 1.0, 1.0]
    """
    for columns in prompts:
        if not isinstance(columns.get("degraded"), PromptImage):
            raise ConfigError(
                f"prompt {columns.get('prompt')!r}: this pipeline is asked by an image, and the prompt has none; write"
                " data.source.kind = 'image_pairs'"
            )
    return torch.stack([torch.from_numpy(columns["degraded"].pixels) for columns in prompts]).clamp(0, 1)


def latent_size(size: Sequence[int], factor: int, multiple: int = 1) -> tuple[int, int]:
    """Computes the height and width, in latents, of images of `size` pixels.

    Args:
        size: ends with height and width in pixels.
        factor: pixels of a latent.
        multiple: height and width in latents must be multiples of this.

    Raises:
        ConfigError: the size is not a multiple.

    Example:
        >>> latent_size((64, 32), 8), latent_size((64, 32), 8, 2)
        ((8, 4), (8, 4))
    """
    step = factor * multiple
    if any(side % step for side in size[-2:]):
        raise ConfigError(
            f"model.size = {list(size)}: height and width must be multiples of {step} pixels for this pipeline"
        )
    return size[-2] // factor, size[-1] // factor


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
