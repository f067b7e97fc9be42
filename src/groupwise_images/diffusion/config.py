"""The diffusion domain as configuration: model, prompts, rewards, sampler, evaluation. Imports neither torch nor
diffusers.

What the pipelines' adapter adds of its own belongs into `model.Pretrained` (LoRA, variants, guidance of its own); the
rest is here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, final

from pydantic import Field, model_validator

from groupwise.config import Config
from groupwise.config.errors import Count, Length, PerStep, Positive, Seed
from groupwise.domain.exported import Card, Export, base_model
from groupwise.domain.settings import DomainConfig
from groupwise.reward import RewardConfig
from groupwise.schedule import Schedule
from groupwise_images.diffusion.model import ModelConfig, Pretrained, Window
from groupwise_images.diffusion.sampler import ODE, Auto, Sampler
from groupwise_images.diffusion.source import Nothing, SourceConfig

if TYPE_CHECKING:
    from groupwise.streams import Streams
    from groupwise_images.diffusion.domain import DiffusionDomain

Reduce = Literal["mean", "sum", "sqrt", "per_element"]


@final
class DataConfig(Config):
    """The prompts: where they come from, and how many are held out for evaluation.

    Args:
        source: classes of handwritten digits, a file of prompts, texts, or images as prompts, which hold out their own.
        num_train: prompts trained on; unset takes all that are not held out.
        num_held_out: prompts that are evaluated and never trained on; 0 evaluates the training prompts, from noise that
            training never sees.
        seed: the seed of the split. It is not the run's seed, so that runs with different seeds are judged on the same
            prompts.
    """

    source: SourceConfig
    num_train: Positive | None = None
    num_held_out: Count = 0
    seed: Seed = 0


@final
class DemonstrationsConfig(Config):
    """Images to learn from by supervision (the loss of flow matching, or of predicting noise): a warm-up, or a term
    beside the policy's.

    Args:
        unconditional_share: of the demonstrations, those shown without their prompt, as classifier-free guidance needs.
        times: how noise levels are drawn: `uniform`, or `logit_normal` (more in the middle).
    """

    unconditional_share: Annotated[float, Field(ge=0, lt=1)] = 0.0
    times: Literal["uniform", "logit_normal"] = "uniform"


@final
class EvaluationConfig(Config):
    """The evaluation of the policy: from the same noise every time and in every run, so that two evaluations differ by
    the model alone.

    Args:
        num_prompts: of the prompts to evaluate, the first so many; unset takes all.
        num_images: images a prompt.
        sampler: without noise unless another is named.
        num_steps: transitions; unset takes the domain's.
        guidance: unset takes the domain's.
        seed: the seed of the noise. It is not the run's seed.
        num_records: images written down one by one.
        num_columns: images a prompt in the picture; 0 makes no picture.
        num_rows: prompts in the picture.
    """

    num_prompts: Positive | None = None
    num_images: PerStep = 8
    sampler: Sampler = ODE()
    num_steps: Length | None = None
    guidance: float | None = None
    seed: Seed = 0
    num_records: Count = 8
    num_columns: Count = 8
    num_rows: Length = 10


@final
class DiffusionConfig(DomainConfig):
    """A diffusion model, its prompts, and how its images are drawn and rewarded.

    Args:
        model: a folder of diffusers (`kind = "pretrained"`) or a small denoiser with fresh weights (`kind =
            "scratch"`).
        data: where prompts come from.
        rewards: name -> reward. Those with `role = "judge"` are measured in evaluation only.
        sampler: how a transition draws its noise.
        num_steps: transitions from noise to an image.
        spacing: the spacing of a flow's noise levels: `uniform` is `1, ..., 1/S, 0` before the scheduler's shift,
            `scheduler` its own, which end at 0.001 and 0.
        guidance: classifier-free guidance, in sampling and in training; 1 is without. May follow a schedule over the
            steps (`sampling_schedule`).
        sampling_schedule: a schedule over the steps for `guidance`; the value used is stored with the rollouts.
        window: which transitions are decisions; unset takes all but the last.
        initial_noise: whether each member starts from its own noise, or all of a group from the same.
        reduce: the unit of a decision's log-prob over the `D` elements of a latent: their mean, sum, sum over
            `sqrt(D)`, or each a decision of its own.
        stepwise: whether each transition is rewarded by what it adds to the reward of the clean image that the model
            predicts, in place of one reward for the image; every reward is computed once a transition.
        video_rewards: what rewards see of a video: `frames` shows them each frame as an image and takes the mean,
            `whole` shows them the video, uint8 `[F, H, W, 3]`.
        demonstrations: images for supervised stages and terms.
        transitions_at_once: transitions in one forward (and backward) pass. Unset, as many as were measured to fit:
            with a gradient into half of a GPU's free memory or 128 MiB on a CPU, without one (sampling, scoring,
            evaluation, decoding) no more than 64 rows of the model besides. Passes are halved where memory runs out all
            the same. A size changes a result only by rounding.
        evaluation: how the policy is evaluated.
    """

    extra: ClassVar[str] = "diffusion"
    whole_run: ClassVar[frozenset[str]] = frozenset({"model"})
    """Keys that no stage may change."""

    kind: Literal["diffusion"] = "diffusion"
    model: ModelConfig
    data: DataConfig
    rewards: Mapping[str, RewardConfig] = Field(default_factory=dict)
    sampler: Sampler = Auto()
    num_steps: Annotated[Length, Field(ge=2)] = 10
    spacing: Literal["uniform", "scheduler"] = "uniform"
    guidance: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0
    sampling_schedule: Mapping[Literal["guidance"], Schedule] = Field(default_factory=dict)
    window: Window | None = None
    initial_noise: Literal["member", "group"] = "member"
    reduce: Reduce = "mean"
    stepwise: bool = False
    video_rewards: Literal["frames", "whole"] = "frames"
    demonstrations: DemonstrationsConfig | None = None
    transitions_at_once: Positive | None = None
    evaluation: EvaluationConfig = EvaluationConfig()

    @model_validator(mode="after")
    def _sound(self) -> DiffusionConfig:
        if not any(reward.trains for reward in self.rewards.values()):
            raise ValueError(
                'rewards names nothing to train on; write for example [domain.rewards.small] with kind = "jpeg_size"'
            )
        if not self.sampler.stochastic:
            raise ValueError(
                f"sampler.kind = {self.sampler.kind!r} has no noise, and so no log-probs to train by; write auto,"
                " flow_sde, dance_sde, cps or ddim (evaluation is without noise as it is)"
            )
        if self.window is not None and (problem := self.window.problem(self.num_steps)):
            raise ValueError(f"window: {problem}")
        if self.stepwise and self.window is not None:
            raise ValueError(
                "stepwise = true rewards all transitions, and window leaves some of them out; write window = null"
            )
        if self.stepwise and self.reduce == "per_element":
            raise ValueError(
                "stepwise = true rewards transitions, and reduce = 'per_element' makes every element of one a decision;"
                " write reduce = 'mean'"
            )
        if self.data.num_held_out and not isinstance(self.model, Pretrained) and self.data.source.kind == "digits":
            raise ValueError(
                "data.num_held_out: a digit that is held out can never be drawn; write 0, and noise is held out instead"
            )
        return self

    def to_sample(self, *, data: bool) -> DiffusionConfig:
        """Returns the settings that `groupwise sample` opens: the model, and the prompts where `data` asks for them or
        where the model reads classes or images, because only the prompts know the classes' names, and only their source
        how images are read.

        Args:
            data: whether training prompts are.
        """
        from groupwise_images.diffusion.models.pipeline import is_pipeline

        are_images = self.data.source.kind == "image_pairs"
        without_prompts = not data and not are_images and isinstance(self.model, Pretrained) and is_pipeline(self.model)
        changes = {"data": self.data.model_copy(update={"source": Nothing()})} if without_prompts else {}
        return self.model_copy(update={"rewards": {}, "demonstrations": None, **changes})

    @classmethod
    def card(cls, request: Export) -> Card:
        """Describes a folder of diffusers where the model came from one; an adapter stays one."""
        out, model = request.out, request.settings.get("model")
        loading = super().card(request).loading
        if (request.folder / "pytorch_lora_weights.safetensors").is_file():
            base = f'diffusers.DiffusionPipeline.from_pretrained("{base_model(request.settings)}")'
            loading = f'{base}, and then pipeline.load_lora_weights("{out}")'
        elif (request.folder / "model_index.json").is_file():
            loading = f'diffusers.DiffusionPipeline.from_pretrained("{out}")'
        data = request.settings.get("data")
        source = data.get("source") if isinstance(data, Mapping) else None
        is_paired = isinstance(source, Mapping) and source.get("kind") == "image_pairs"
        return Card(
            loading=loading,
            library="diffusers",
            task="image-to-image" if is_paired else "text-to-image",
            adapter=isinstance(model, Mapping) and bool(model.get("lora")),
        )

    @classmethod
    def on_prompts(cls, path: str) -> dict[str, Any]:
        """Returns the keys that draw images for the prompts of a file."""
        return {"data": {"source": {"kind": "prompts", "path": path}}}

    def open(self, *, streams: Streams, device: str = "cpu") -> DiffusionDomain:
        """Opens the domain: prompts read and split, the model loaded.

        Raises:
            ConfigError: data or a model that cannot be used.
        """
        from groupwise_images.diffusion.domain import DiffusionDomain

        return DiffusionDomain(self, streams=streams, device=device)
