"""The public laws of a pipeline's adapter: ours keep them, and each fault that an author may plant is named."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.images.diffusion.models.tiny import ALL_PIPELINES, ASKED_BY_IMAGE, saved
from torch import Tensor

from groupwise.config import ConfigError
from groupwise.testing import BrokenLaws, check_pipeline
from groupwise_images.diffusion.models.families import Flux, InstructPix2Pix, Wan
from groupwise_images.diffusion.models.pipeline import SHIPPED
from groupwise_images.diffusion.pipeline_adapter import PipelineAdapter

SIZES = {"DiTPipeline": None, "WanPipeline": (5, 16, 32)}
OTHERS = (*(name for name in ALL_PIPELINES if name != "DiTPipeline"), ASKED_BY_IMAGE)
CLASSES = ({"label": 3}, {"prompt": "class 7"})


@pytest.mark.parametrize("name", ["DiTPipeline", *(pytest.param(name, marks=pytest.mark.nightly) for name in OTHERS)])
def test_ours_keep_them(name: str, tmp_path: Path) -> None:
    prompts = {"prompts": CLASSES} if name == "DiTPipeline" else {}
    check_pipeline(type(SHIPPED[name]), saved(name, tmp_path), size=SIZES.get(name, (16, 8)), **prompts)


@pytest.mark.slow
def test_a_model_that_was_distilled_for_guidance_keeps_them(tmp_path: Path) -> None:
    check_pipeline(Flux, saved("FluxPipeline", tmp_path, guidance_embeds=True), size=(16, 8))


class Wrong(Flux):  # type: ignore[misc]
    """Flux's adapter, of which each fault below replaces one member."""


class Random(Wrong):
    def forward(self, *arguments: Any) -> Tensor:
        prediction = super().forward(*arguments)
        return prediction + 0.1 * torch.randn_like(prediction)


class OnlyWhenTrained(Wrong):
    """As dropout does that is no module."""

    def forward(self, denoiser: Any, *arguments: Any) -> Tensor:
        prediction = super().forward(denoiser, *arguments)
        return torch.nn.functional.dropout(prediction, 0.1, denoiser.training)


class Neighbours(Wrong):
    def forward(self, *arguments: Any) -> Tensor:
        prediction = super().forward(*arguments)
        return prediction - prediction.mean(0, keepdim=True)


class PromptUnread(Wrong):
    def forward(self, denoiser: Any, latents: Tensor, timestep: Tensor, condition: Any, guidance: float) -> Tensor:
        empty = {name: value if name == "img_ids" else torch.zeros_like(value) for name, value in condition.items()}
        return super().forward(denoiser, latents, timestep, empty, guidance)


class GuidanceIgnored(Wrong):
    def guided(self, unconditional: Tensor, prompted: Tensor, guidance: float) -> Tensor:
        return prompted


class GuidanceBesideOne(Wrong):
    """Counts from 0, as some papers do."""

    def guided(self, unconditional: Tensor, prompted: Tensor, guidance: float) -> Tensor:
        return prompted + guidance * (prompted - unconditional)


class NegativesExchanged(Wrong):
    def encode(self, pipe: Any, prompts: Any, negatives: Any, size: Any) -> Any:
        condition, _ = super().encode(pipe, prompts, negatives, size)
        return condition, super().encode(pipe, prompts, ["nothing"] * len(prompts), size)[1]


class Timesteps(Wrong):
    """The model is told 0 to 1000 in the place of 0 to 1."""

    def forward(self, denoiser: Any, latents: Tensor, timestep: Tensor, condition: Any, guidance: float) -> Tensor:
        return super().forward(denoiser, latents, 1000 * timestep, condition, guidance)


class TimeReversed(Wrong):
    def forward(self, denoiser: Any, latents: Tensor, timestep: Tensor, condition: Any, guidance: float) -> Tensor:
        return super().forward(denoiser, latents, 1000 - timestep, condition, guidance)


class Sign(Wrong):
    """Image less noise."""

    def forward(self, *arguments: Any) -> Tensor:
        return -super().forward(*arguments)


class OtherShift(Wrong):
    def shift(self, pipe: Any, latent_shape: Sequence[int]) -> float:
        return 0.9


class Sideways(Wrong):
    def unpack(self, pipe: Any, latents: Tensor, size: tuple[int, ...]) -> Tensor:
        return super().unpack(pipe, latents, size[::-1])


class OtherPacking(Wrong):
    def pack(self, latents: Tensor) -> Tensor:
        number, channels, height, width = latents.shape
        return latents.reshape(number, channels * 4, height * width // 4).transpose(1, 2)


class OutOfRange(Wrong):
    def decode(self, pipe: Any, latents: Tensor, size: tuple[int, ...]) -> Tensor:
        return 2 * super().decode(pipe, latents, size) - 1


class WithoutShift(Wrong):
    """Forgets the shift of the autoencoder."""

    def decode(self, pipe: Any, latents: Tensor, size: tuple[int, ...]) -> Tensor:
        unpacked = self.unpack(pipe, latents, size) / pipe.vae.config.scaling_factor
        return (pipe.vae.decode(unpacked, return_dict=False)[0] / 2 + 0.5).clamp(0, 1)


class CallsNothing(Wrong):
    def call_pipeline(self, *arguments: Any, **named: Any) -> Any:
        return None


class NotFinite(Wrong):
    def decode(self, pipe: Any, latents: Tensor, size: tuple[int, ...]) -> Tensor:
        return super().decode(pipe, latents, size) / 0


class Brightened(Wrong):
    """Every image is scaled by the brightest of the batch."""

    def decode(self, pipe: Any, latents: Tensor, size: tuple[int, ...]) -> Tensor:
        images = super().decode(pipe, latents, size)
        return images / images.flatten(1).amax(1).cumsum(0).max()


class Detached(Wrong):
    @torch.no_grad()
    def forward(self, *arguments: Any) -> Tensor:
        return super().forward(*arguments)


class Copied(Wrong):
    """Predicts with weights that nobody trains."""

    def forward(self, denoiser: Any, *arguments: Any) -> Tensor:
        if not hasattr(denoiser, "copied"):
            object.__setattr__(denoiser, "copied", deepcopy(denoiser))
        return super().forward(denoiser.copied, *arguments)


class Widened(Wrong):
    """Works in fp32 alone."""

    def forward(self, denoiser: Any, latents: Tensor, timestep: Tensor, condition: Any, guidance: float) -> Tensor:
        wide = {name: value.float() for name, value in condition.items()}
        return super().forward(denoiser, latents, timestep, wide, guidance)


class PaddedToTheLongest(Wrong):
    def encode(self, pipe: Any, prompts: Any, negatives: Any, size: Any) -> Any:
        length = 5 + max(len(columns["prompt"]) for columns in prompts)
        return tuple(
            half | {"encoder_hidden_states": half["encoder_hidden_states"][:, :length]}
            for half in super().encode(pipe, prompts, negatives, size)
        )


class TwoLengths(Wrong):
    def encode(self, pipe: Any, prompts: Any, negatives: Any, size: Any) -> Any:
        condition, negative = super().encode(pipe, prompts, negatives, size)
        return condition, negative | {"encoder_hidden_states": negative["encoder_hidden_states"][:, :7]}


class OneRow(Wrong):
    def encode(self, pipe: Any, prompts: Any, negatives: Any, size: Any) -> Any:
        return super().encode(pipe, prompts[:1], None, size)


class Centred(Wrong):
    """A prompt's text is what it has beyond the batch."""

    def encode(self, pipe: Any, prompts: Any, negatives: Any, size: Any) -> Any:
        condition, negative = super().encode(pipe, prompts, negatives, size)
        pooled = condition["pooled_projections"]
        return condition | {"pooled_projections": pooled - pooled.mean(0, keepdim=True)}, negative


class AcceptsAll(Wrong):
    def check(self, pipe: Any, prompts: Any) -> None:
        pass


class AdapterOff(Wrong):
    """Predicts without the adapter that is trained."""

    def forward(self, denoiser: Any, *arguments: Any) -> Tensor:
        adapted = bool(getattr(denoiser, "peft_config", None))
        if adapted:
            denoiser.disable_adapters()
        prediction = super().forward(denoiser, *arguments)
        if adapted:
            denoiser.enable_adapters()
        return prediction


class OtherPart(Wrong):
    denoiser = "text_encoder"


class Lacking(PipelineAdapter):
    pipeline = "FluxPipeline"


class Nameless(Wrong):
    pipeline = None  # type: ignore[assignment]


FAULTS = [
    (Random, "forward: the same latents gave two predictions"),
    (OnlyWhenTrained, "forward: the same latents gave two predictions"),
    (Neighbours, "forward: a prediction depends on the rows that are computed beside it"),
    (PromptUnread, "forward: the prompt changes nothing in a prediction"),
    (GuidanceIgnored, "guidance: guidance 4 gives the predictions of guidance 1"),
    (GuidanceBesideOne, "guidance: guided(unconditional, prompted, 1) is not the prompted prediction"),
    (NegativesExchanged, "images: at guidance 4 the pipeline's own images from the same noise differ"),
    (Timesteps, "images: at guidance 1 the pipeline's own images from the same noise differ"),
    (TimeReversed, "images: at guidance 1 the pipeline's own images from the same noise differ"),
    (Sign, "images: at guidance 1 the pipeline's own images from the same noise differ"),
    (OtherShift, "images: the pipeline's own call has the noise levels [1.0, "),
    (Sideways, "decode: Sideways: latents [2, 8, 16] were decoded as [2, 3, 8, 16]"),
    (OtherPacking, "pack: pack does not invert unpack"),
    (OutOfRange, "decode: decoded images lie between -"),
    (WithoutShift, "decode: the pipeline's own images of the same latents differ by up to"),
    (Sideways, "images: Sideways: latents [2, 8, 16] were decoded as [2, 3, 8, 16]"),
    (CallsNothing, "decode: call_pipeline returned a NoneType; return the images as a tensor in [0, 1]"),
    (NotFinite, "decode: NotFinite: it decodes latents as NaN or infinity"),
    (Brightened, "decode: a decoded image depends on the latents that are decoded beside it"),
    (Detached, "gradient: in float32 a prediction has no gradient"),
    (Copied, "gradient: in float32 no weight of the component 'transformer' has a gradient"),
    (Widened, "gradient: RuntimeError: "),
    (PaddedToTheLongest, "encode: the 'encoder_hidden_states' of a prompt is [13, 8] alone and [14, 8] beside another"),
    (TwoLengths, "encode: TwoLengths.encode: 'encoder_hidden_states' is [2, 512, 8] of the prompts and [2, 7, 8]"),
    (OneRow, "encode: OneRow.encode: 'encoder_hidden_states' has 1 rows for 2 prompts"),
    (Centred, "encode: the 'pooled_projections' of a prompt depends on the prompts that are encoded beside it"),
    (AcceptsAll, "encode: check accepts a prompt without any column"),
    (AdapterOff, "lora: a saved LoRA gives other images in diffusers than here"),
    (OtherPart, "forward: AttributeError: "),
    (Lacking, "open: pipeline = 'groupwise.objects:adapter': Lacking lacks encode, latent_shape"),
    (Nameless, "open: pipeline = 'groupwise.objects:adapter': Nameless lacks pipeline; write pipeline ="),
    (Wan, "holds a FluxPipeline, and model.pipeline = 'groupwise.objects:adapter' is for a WanPipeline"),
]


AT_ONCE = (Sign, Lacking, Wan)
"""Faults that are planted in every run of the tests; the others are planted at night."""


@pytest.fixture(scope="module")
def flux(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved("FluxPipeline", tmp_path_factory.mktemp("flux"))


class Edits(InstructPix2Pix):  # type: ignore[misc]
    """The adapter of a pipeline that is asked by an image, of which each fault below replaces one member."""


class SaysDistilled(Edits):
    def takes_guidance(self, pipe: Any) -> bool:
        return True


class ImageUnread(Edits):
    def forward(self, denoiser: Any, latents: Tensor, timestep: Tensor, condition: Any, guidance: float) -> Tensor:
        return super().forward(denoiser, latents, timestep, self.without_image(condition), guidance)


class ImageInFront(Edits):
    def forward(self, denoiser: Any, latents: Tensor, timestep: Tensor, condition: Any, guidance: float) -> Tensor:
        exchanged = condition | {"image": latents}
        return super().forward(denoiser, condition["image"].to(latents.dtype), timestep, exchanged, guidance)


class ImageScaled(Edits):
    def encode(self, pipe: Any, prompts: Any, negatives: Any, size: Any) -> Any:
        factor = pipe.vae.config.scaling_factor
        halves = super().encode(pipe, prompts, negatives, size)
        return tuple(half | {"image": factor * half["image"]} for half in halves)


class FirstImageForAll(Edits):
    def encode(self, pipe: Any, prompts: Any, negatives: Any, size: Any) -> Any:
        halves = super().encode(pipe, prompts, negatives, size)
        return tuple(half | {"image": half["image"][:1].expand_as(half["image"])} for half in halves)


class InstructionUnread(Edits):
    def encode(self, pipe: Any, prompts: Any, negatives: Any, size: Any) -> Any:
        return super().encode(pipe, [{**row, "instruction": "a"} for row in prompts], negatives, size)


class NegativesWithoutImage(Edits):
    def encode(self, pipe: Any, prompts: Any, negatives: Any, size: Any) -> Any:
        condition, negative = super().encode(pipe, prompts, negatives, size)
        return condition, self.without_image(negative)


class KeepsTheImage(Edits):
    def without_image(self, condition: Any) -> Any:
        return dict(condition)


class AcceptsTexts(Edits):
    def check(self, pipe: Any, prompts: Any) -> None:
        if not all(row.get("instruction") for row in prompts):
            raise ConfigError("instruction: write one")


EDIT_FAULTS = [
    (SaysDistilled, "guidance: takes_guidance says that the model takes guidance as an input, and encode returns a"),
    (ImageUnread, "forward: the image changes nothing in a prediction"),
    (ImageInFront, "images: at guidance 1 the pipeline's own images from the same noise differ"),
    (ImageScaled, "see encode, and the time, the sign and the axes in forward"),
    (FirstImageForAll, "encode: the 'image' of a prompt depends on the prompts that are encoded beside it"),
    (InstructionUnread, "forward: the instruction changes nothing in a prediction"),
    (NegativesWithoutImage, "images: at guidance 4 the pipeline's own images from the same noise differ"),
    (KeepsTheImage, "images: at image guidance 1.5 the pipeline's own images from the same noise differ"),
    (AcceptsTexts, "encode: check accepts a prompt without its image"),
]


@pytest.fixture(scope="module")
def edits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(ASKED_BY_IMAGE, tmp_path_factory.mktemp("edits"))


@pytest.mark.nightly
@pytest.mark.parametrize(("fault", "sentence"), EDIT_FAULTS, ids=[fault.__name__ for fault, _ in EDIT_FAULTS])
def test_a_fault_with_an_image_is_named(fault: type[PipelineAdapter], sentence: str, edits: Path) -> None:
    with pytest.raises(BrokenLaws) as caught:
        check_pipeline(fault, edits, size=(16, 8))
    assert sentence in str(caught.value)


@pytest.fixture(scope="module")
def verdicts() -> dict[type[PipelineAdapter], str]:
    """What was said of the faults that were checked already: one check serves several sentences."""
    return {}


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        pytest.param(
            fault, law, id=f"{fault.__name__}-{law[:8]}", marks=[] if fault in AT_ONCE else [pytest.mark.nightly]
        )
        for fault, law in FAULTS
    ],
)
def test_a_planted_fault_is_named(
    fault: type[PipelineAdapter], sentence: str, verdicts: dict[type[PipelineAdapter], str], flux: Path
) -> None:
    if fault not in verdicts:
        with pytest.raises(BrokenLaws) as caught:
            check_pipeline(fault, flux, size=(16, 8))
        verdicts[fault] = str(caught.value)
    assert sentence in verdicts[fault]
    heading, *lines = verdicts[fault].splitlines()
    count = f"1 law of {fault.__name__} is" if len(lines) == 1 else f"{len(lines)} laws of {fault.__name__} are"
    assert heading == f"{count} broken (docs/guide/write_your_own_pipeline.md):"
    assert all(line.startswith("- ") for line in lines)


def test_a_check_that_could_say_nothing_is_refused(flux: Path) -> None:
    with pytest.raises(ValueError, match="is no adapter; pass a class that extends"):
        check_pipeline(Flux(), flux)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="pass two different ones"):
        check_pipeline(Flux, flux, prompts=("a cat", "a cat"))
