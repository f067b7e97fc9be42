"""The diffusion model to train: a pipeline or denoiser from a folder, or a small denoiser with fresh weights. Imports
neither torch nor diffusers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, final

from pydantic import Field, field_validator, model_validator

from groupwise.config import Config, ImportPath, may_run
from groupwise.config.errors import Count, Positive, Seed, Width


@final
class SchedulerConfig(Config):
    """The noise levels of a model with fresh weights, as a scheduler class of diffusers with its settings.

    Args:
        name: `FlowMatchEulerDiscreteScheduler` makes the model a flow, `DDIMScheduler` one that predicts noise (or
            `prediction_type` of its settings).
        settings: the settings of the class; `clip_sample` is false unless it is set, and then refused: where it clips
            there is no gradient.
    """

    name: Literal["FlowMatchEulerDiscreteScheduler", "DDIMScheduler"] = "FlowMatchEulerDiscreteScheduler"
    settings: Mapping[str, Any] = Field(default_factory=dict)


@final
class Scratch(Config):
    """A small denoiser of diffusers with fresh weights, on pixels; it needs a supervised stage before it can earn a
    reward.

    Args:
        shape: arguments of the class. `num_embeds_ada_norm` (DiT) or `num_class_embeds` (UNet) is the number of
            classes; without it (UNet) none is asked for.
        scheduler: its noise levels.
        dtype: dtype of the weights.
        seed: the seed of the weights; unset takes the run's.

    Example:
        >>> Scratch(shape={"sample_size": 8, "in_channels": 1}).name
        'DiTTransformer2DModel'
    """

    kind: Literal["scratch"] = "scratch"
    name: Literal["DiTTransformer2DModel", "UNet2DModel"] = "DiTTransformer2DModel"
    shape: Mapping[str, Any]
    scheduler: SchedulerConfig = SchedulerConfig()
    dtype: Literal["float32", "float64", "bfloat16"] = "float32"
    seed: Seed | None = None


@final
class LoraConfig(Config):
    """A low-rank adapter to train instead of the whole denoiser: `W + (alpha / rank) B A` on the named layers.

    The reference policy is a copy of the adapter. Its weights are fp32 whatever the model's, and are saved as
    `pipeline.load_lora_weights` reads them.

    Args:
        rank: the rank of the update.
        alpha: its scale, divided by `rank`.
        target_modules: ends of the names of the layers; the default are the attention's projections, which every family
            has.

    Example:
        >>> LoraConfig(rank=4).alpha
        64.0
    """

    rank: Width = 32
    alpha: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 64.0
    target_modules: Annotated[tuple[str, ...], Field(min_length=1)] = ("to_q", "to_k", "to_v", "to_out.0")


@final
class Pretrained(Config):
    """A folder in diffusers' format: a pipeline, or a denoiser with a scheduler; safetensors only.

    Args:
        path: a local folder or a hub id; a folder with an adapter that a run saved is opened on the model it belongs
            to.
        dtype: dtype of the weights; `auto` takes the files'. The autoencoder computes in fp32 at least.
        variant: the variant of the weights' files, such as `fp16`.
        revision: a branch, tag or commit of a hub id.
        size: height and width of the images, in pixels, and before them the number of frames of a video; unset is the
            model's own.
        lora: an adapter to train instead of the whole denoiser.
        image_guidance: of a pipeline that is asked by an image: how far it is guided away from what it draws without
            the image (`image_guidance_scale` of diffusers), wherever `domain.guidance` is other than 1; 1 is without.
        pipeline: a pipeline adapter of your own, `package.module:Class` or the name of an entry point of
            `groupwise.pipelines`; unset is the shipped or installed one for the folder's class.

    Example:
        >>> Pretrained(path="models/small", size=(512, 512), lora=LoraConfig(rank=8)).kind
        'pretrained'
    """

    kind: Literal["pretrained"] = "pretrained"
    path: Annotated[str, Field(min_length=1)]
    dtype: Literal["auto", "float32", "bfloat16", "float16", "float64"] = "auto"
    variant: str | None = None
    revision: str | None = None
    size: Annotated[tuple[Width, ...], Field(min_length=2, max_length=3)] | None = None
    lora: LoraConfig | None = None
    image_guidance: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 1.0
    pipeline: ImportPath | None = None

    @field_validator("pipeline")
    @classmethod
    def _is_an_adapter(cls, path: ImportPath | None) -> ImportPath | None:
        if path is not None and may_run(path):
            from groupwise_images.diffusion.models.pipeline import named_adapter

            named_adapter(path, "pipeline")
        return path


ModelConfig = Annotated[Scratch | Pretrained, Field(discriminator="kind")]
"""Any diffusion model, chosen by `kind`."""


@final
class Window(Config):
    """`size` transitions next to each other are sampled with noise and trained; the others are deterministic and cost
    no training.

    Args:
        size: transitions in the window.
        low, high: the window is within transitions `low .. high - 1`; `high` unset is the last but one transition's
            end (the last is never trained).
        place: `fixed` at `low`; `random`, drawn anew every step; `progressive`, from `low` on by `stride` every
            `shift_every` steps, and from `low` again when it reaches the end.
        stride: transitions by which the progressive window moves.
        shift_every: steps between two moves.

    Example:
        >>> [Window(size=2, place="progressive", shift_every=2).start(step, 6, draw=0.0) for step in range(10)]
        [0, 0, 1, 1, 2, 2, 3, 3, 0, 0]

    Source: MixGRPO, arXiv 2507.21802 (progressive); Flow-GRPO-Fast (random).
    """

    size: Positive
    low: Count = 0
    high: Positive | None = None
    place: Literal["fixed", "random", "progressive"] = "random"
    stride: Positive = 1
    shift_every: Positive = 25

    @model_validator(mode="after")
    def _fits(self) -> Window:
        """Refuses a window that is longer than the distance from `low` to `high`."""
        if self.high is not None and self.low + self.size > self.high:
            raise ValueError(
                f"a window of size {self.size} does not fit between low = {self.low} and high = {self.high}; write high"
                f" = {self.low + self.size}"
            )
        return self

    def start(self, step: int, num_steps: int, draw: float) -> int:
        """Returns the window's first transition.

        Args:
            num_steps: transitions of a sampling run.
            draw: uniform in [0, 1), for `random`.
        """
        last = self.last(num_steps)
        places = last - self.low - self.size + 1
        if self.place == "fixed":
            return self.low
        if self.place == "random":
            return self.low + int(draw * places)
        num_stops = (places - 1) // self.stride + 1
        return self.low + self.stride * ((step // self.shift_every) % num_stops)

    def last(self, num_steps: int) -> int:
        """Returns one past the last transition that may be trained."""
        return num_steps - 1 if self.high is None else self.high

    def problem(self, num_steps: int) -> str:
        """Reports why the window does not fit `num_steps` transitions; empty where it fits."""
        if self.high is not None and self.high > num_steps - 1:
            return (
                f"high = {self.high} reaches the last of num_steps = {num_steps} transitions, which is never trained;"
                f" write high = {num_steps - 1} or less"
            )
        if self.low + self.size > self.last(num_steps):
            return (
                f"low = {self.low} and size = {self.size} do not fit into the {num_steps - 1} transitions that can be"
                " trained; write a smaller size"
            )
        return ""
