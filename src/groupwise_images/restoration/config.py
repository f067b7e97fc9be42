"""The restoration domain as configuration: network, images, degradation, policy, rewards, evaluation. Imports neither
torch nor libraries for images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, final

from pydantic import Field, model_validator

from groupwise.config import Config, ConfigError, InModule, Problem, user_callable
from groupwise.config.errors import Count, PerStep, Positive, Seed, Width
from groupwise.domain.exported import Card, Export
from groupwise.domain.settings import DomainConfig
from groupwise.reward import RewardConfig
from groupwise.schedule import Schedule
from groupwise_images.degradation import Degradation, GaussianNoise, call_own
from groupwise_images.image_source import Folder, SourceConfig
from groupwise_images.restoration.model import ModelConfig, Network
from groupwise_images.restoration.policy import Gates, Pixels, PolicyConfig

if TYPE_CHECKING:
    from torch import Tensor

    from groupwise.streams import Streams
    from groupwise_images.restoration.domain import RestorationDomain

Distance = Literal["l1", "l2"]


@final
class DifferentiableLoss(Config):
    """`weight` times the result of a function `loss(images, **columns) -> [N]`, added to the distance of `supervised`.

    The images `[N, C, H, W]` are the network's output with its gradient. Of the source's columns the function is given
    those that it has parameters for. It is a control for rewards: what a gradient through the reader achieves.

    Args:
        path: `package.module:function`; the module may be in the working directory.
        arguments: further arguments of the function, by name.
        weight: factor.

    Raises:
        ConfigError: the function cannot be loaded or fails, or its result is not one finite number an image.
    """

    path: InModule
    arguments: Mapping[str, Any] = Field(default_factory=dict)
    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0

    def __call__(self, images: Tensor, columns: Mapping[str, Sequence[Any]]) -> Tensor:
        from groupwise.reward.scoring.table import arguments_for

        key = "differentiable.path"
        place, loss = f"{key} = {str(self.path)!r}", user_callable(self.path, key)
        values = call_own(lambda: loss(images, **arguments_for(loss, columns), **self.arguments), place)
        if not isinstance(values, type(images)) or values.shape != images.shape[:1]:
            shape = list(values.shape) if isinstance(values, type(images)) else type(values).__name__
            raise ConfigError(Problem(place, f"it gave {shape}; give a tensor of {[len(images)]}, a number an image"))
        if not values.requires_grad and images.requires_grad:
            raise ConfigError(Problem(place, "its result has no gradient; compute it from the images with torch"))
        if not values.isfinite().all():
            raise ConfigError(Problem(place, "it gave values that are not finite; give a finite number an image"))
        return self.weight * values


@final
class TileConfig(Config):
    """The tiles in which large images are restored; they overlap and are blended, and `evaluate` and the shipped
    network show no seams.

    Args:
        size: the size of a tile, pixels; an image no larger is restored whole.
        overlap: the overlap of neighbouring tiles, pixels; at four times what a pixel of the output depends on to one
            side, no seam is left at all.
        multiple: sides of what the network is given are made multiples of this by repeating the edge, and what comes
            out is cut again; for networks that halve an image several times.
    """

    size: Annotated[Width, Field(ge=8)] = 256
    overlap: Count = 32
    multiple: Positive = 1

    @model_validator(mode="after")
    def _smaller(self) -> TileConfig:
        if self.size % self.multiple:
            raise ValueError(
                f"size = {self.size} is no multiple of multiple = {self.multiple}; write size ="
                f" {-(-self.size // self.multiple) * self.multiple}"
            )
        if self.overlap * 2 > self.size:
            raise ValueError(
                f"overlap = {self.overlap} is more than half of size = {self.size}; write at most {self.size // 2}"
            )
        return self


@final
class EvaluationConfig(Config):
    """The evaluation of the network: on held-out images, degraded the same way every time and in every run.

    Args:
        num_images: of the held-out images, the first so many; unset takes all.
        repeats: how often each image is degraded anew.
        num_columns: images in the picture (rows: degraded, restored, clean); 0 makes none.
        num_records: images written down one by one.
        batch_size: images (or tiles) restored at once; unset takes as many as were measured to fit, at most 64.
    """

    num_images: Positive | None = None
    repeats: PerStep = 1
    num_columns: Count = 12
    num_records: Count = 4
    batch_size: Positive | None = None


@final
class RestorationConfig(DomainConfig):
    """A network that restores images, its images, and how its output is drawn and rewarded.

    Args:
        model: the network, with fresh weights or from a checkpoint.
        source: images.
        degradation: what is done to a clean image; only where the source has no degraded ones.
        fresh: true degrades an image anew at each step, false always the same way.
        patch: side of a square cut out of each clean image at random, pixels; unset takes whole images, which must then
            be of one size.
        num_train: images trained on; unset takes all that are not held out.
        seed: the seed of the degradations that stay the same. It is not the run's seed, so that runs with different
            seeds are judged on the same images.
        rewards: name -> reward. Those with `role = "judge"` are measured in evaluation only. Rewards find the target as
            the column `clean`.
        policy: what is drawn: pixels, or the network's control parameters.
        sampling_schedule: a schedule over the steps for `sigma`; the value used is stored with the rollouts.
        supervised: distance of the output to the target, the auxiliary term `supervised`: `l1` is the mean absolute
            error, `l2` the mean squared error.
        differentiable: a loss with a gradient that is added to this distance, such as that of a reader of words
            (`groupwise_images.restoration.word_reader:reading_loss`).
        consistency: distance of the output to the reference's, the auxiliary term `consistency`.
        tile: how large images are cut for evaluation.
        evaluation: how the network is evaluated.
    """

    extra: ClassVar[str] = "restoration"
    spreads: ClassVar[bool] = False
    """Its models fit one device."""

    whole_run: ClassVar[frozenset[str]] = frozenset({"model"})
    """Keys that no stage may change."""

    sample_hint: ClassVar[str] = "restore an image of the evaluation"

    kind: Literal["restoration"] = "restoration"
    model: ModelConfig
    source: SourceConfig
    degradation: Degradation | None = None
    fresh: bool = True
    patch: Width | None = None
    num_train: Positive | None = None
    seed: Seed = 0
    rewards: Mapping[str, RewardConfig] = Field(default_factory=dict)
    policy: PolicyConfig = Pixels()
    sampling_schedule: Mapping[Literal["sigma"], Schedule] = Field(default_factory=dict)
    supervised: Distance = "l1"
    differentiable: DifferentiableLoss | None = None
    consistency: Distance = "l1"
    tile: TileConfig = TileConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    @model_validator(mode="after")
    def _sound(self) -> RestorationConfig:
        if not any(reward.trains for reward in self.rewards.values()):
            raise ValueError(
                'rewards names nothing to train on; write for example [domain.rewards.psnr] with kind = "psnr"'
            )
        paired = isinstance(self.source, Folder) and self.source.degraded is not None
        if paired and self.degradation is not None:
            raise ValueError("degradation: the source gives degraded images of its own; remove one of the two")
        if isinstance(self.source, Folder) and not paired and self.source.degraded_name != "{name}":
            raise ValueError("source.degraded_name: source.degraded is unset, so there are no pairs; give both")
        if self.sampling_schedule and isinstance(self.policy, Gates):
            raise ValueError('sampling_schedule.sigma: policy.kind = "gates" has no sigma; remove it')
        for name, schedule in self.sampling_schedule.items():
            if schedule.extremes()[0] <= 0:
                raise ValueError(
                    f"sampling_schedule.{name} comes to {schedule.extremes()[0]:g}: it must be above 0 at every step"
                )
        if isinstance(self.source, Folder) and self.source.scale > 1 and not paired:
            raise ValueError(
                f"source.scale = {self.source.scale} is that of pairs, and source.degraded is unset; give both folders,"
                f' or write degradation = {{ kind = "downscale", factor = {self.source.scale} }}'
            )
        if self.patch is not None and self.patch % self.factor:
            raise ValueError(
                f"patch = {self.patch} is no multiple of {self.factor}, by which images are smaller than their targets;"
                f" write patch = {-(-self.patch // self.factor) * self.factor}"
            )
        if isinstance(self.model, Network):
            network = self.model.network
            self.check_scale(network.scale)
            if network.channels != self.source.channels:
                have = self.source.channels
                raise ValueError(
                    f"model.network.channels = {network.channels}, and the images have {have}; write channels = {have}"
                )
            if isinstance(self.policy, Gates) and not network.num_controls:
                raise ValueError(
                    f'policy.kind = "gates": network.kind = {network.kind!r} has no control parameters; write'
                    ' network.kind = "gated"'
                )
        return self

    @property
    def degrade(self) -> Degradation | None:
        """The degradation of clean images: Gaussian noise where none is configured; None where the source has degraded
        images.
        """
        if isinstance(self.source, Folder) and self.source.degraded is not None:
            return None
        return GaussianNoise() if self.degradation is None else self.degradation

    @property
    def factor(self) -> int:
        """The factor by which the sides of the network's input are smaller than those of its target."""
        if isinstance(self.source, Folder) and self.source.degraded is not None:
            return self.source.scale
        return 1 if self.degradation is None else self.degradation.factor

    def check_scale(self, scale: int) -> None:
        """Refuses a network whose enlargement factor differs from the factor by which its inputs are smaller.

        Args:
            scale: the scale of the network.

        Raises:
            ValueError: it is another one.
        """
        if scale == self.factor:
            return
        if self.factor == 1:
            raise ValueError(
                f"model.network.scale = {scale}: the network enlarges images, and these are as large as their targets;"
                f' write degradation = {{ kind = "downscale", factor = {scale} }}, source.scale for pairs, or a network'
                " that keeps the size"
            )
        remedy = (
            f'network.kind = "upscaling" with scale = {self.factor}'
            if scale == 1
            else f"model.network.scale = {self.factor}"
        )
        raise ValueError(
            f"model.network: images are {self.factor} times smaller than their targets, and the network enlarges them"
            f" by {scale}; write {remedy}"
        )

    def to_sample(self, *, data: bool) -> RestorationConfig:
        """Returns the settings that `groupwise sample` opens: the network and the images it restores.

        Args:
            data: whether training prompts are asked for; without them there is nothing to restore.
        """
        return self.model_copy(update={"rewards": {}})

    @classmethod
    def card(cls, request: Export) -> Card:
        """Describes a network that this package loads."""
        return Card(loading=f'groupwise_images.restoration.loading.load("{request.out}")')

    def open(self, *, streams: Streams, device: str = "cpu") -> RestorationDomain:
        """Opens the domain: images read and split, the network loaded.

        Raises:
            ConfigError: images or a network that cannot be used.
        """
        from groupwise_images.restoration.domain import RestorationDomain

        return RestorationDomain(self, streams=streams, device=device)
