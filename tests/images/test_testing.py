"""The public laws of a pipeline's adapter: ours keep them, and each fault that an author may plant is named."""

from __future__ import annotations

from collections.abc import Callable
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


# The faults: an adapter of ours of which one member is replaced.


def predicts(change: Callable[[Tensor], Any], base: Any = Flux) -> dict[str, Any]:
    """What `forward` returns is changed."""
    return {"forward": lambda self, *arguments: change(base.forward(self, *arguments))}


def reads(change: Callable[[Tensor, Tensor, Any], Any], base: Any = Flux) -> dict[str, Any]:
    """The latents, the time and the condition are changed before `forward` reads them."""

    def forward(self: Any, denoiser: Any, latents: Tensor, timestep: Tensor, condition: Any, guidance: float) -> Tensor:
        return base.forward(self, denoiser, *change(latents, timestep, condition), guidance)

    return {"forward": forward}


def encodes(change: Callable[[Any, Any], Any], base: Any = Flux) -> dict[str, Any]:
    """Both conditions are changed."""
    return {"encode": lambda self, pipe, *arguments: change(*base.encode(self, pipe, *arguments))}


def decodes(change: Callable[[Tensor], Tensor]) -> dict[str, Any]:
    """The images are changed."""
    return {"decode": lambda self, *arguments: change(Flux.decode(self, *arguments))}


def other_negatives(self: Any, pipe: Any, prompts: Any, negatives: Any, size: Any) -> Any:
    condition, _ = Flux.encode(self, pipe, prompts, negatives, size)
    return condition, Flux.encode(self, pipe, prompts, ["nothing"] * len(prompts), size)[1]


def other_packing(self: Any, latents: Tensor) -> Tensor:
    number, channels, height, width = latents.shape
    return latents.reshape(number, channels * 4, height * width // 4).transpose(1, 2)


def without_shift(self: Any, pipe: Any, latents: Tensor, size: tuple[int, ...]) -> Tensor:
    unpacked = self.unpack(pipe, latents, size) / pipe.vae.config.scaling_factor
    return (pipe.vae.decode(unpacked, return_dict=False)[0] / 2 + 0.5).clamp(0, 1)


def copied(self: Any, denoiser: Any, *arguments: Any) -> Tensor:
    """A copy of the denoiser predicts, whose weights nobody trains."""
    if not hasattr(denoiser, "copied"):
        object.__setattr__(denoiser, "copied", deepcopy(denoiser))
    return Flux.forward(self, denoiser.copied, *arguments)


def padded_to_the_longest(self: Any, pipe: Any, prompts: Any, negatives: Any, size: Any) -> Any:
    length = 5 + max(len(columns["prompt"]) for columns in prompts)
    return tuple(
        half | {"encoder_hidden_states": half["encoder_hidden_states"][:, :length]}
        for half in Flux.encode(self, pipe, prompts, negatives, size)
    )


def centred(condition: Any, negative: Any) -> Any:
    pooled = condition["pooled_projections"]
    return condition | {"pooled_projections": pooled - pooled.mean(0, keepdim=True)}, negative


def asks_for_words(self: Any, pipe: Any, prompts: Any) -> None:
    if not all(row.get("instruction") for row in prompts):
        raise ConfigError("instruction: write one")


def adapter_off(self: Any, denoiser: Any, *arguments: Any) -> Tensor:
    adapted = bool(getattr(denoiser, "peft_config", None))
    if adapted:
        denoiser.disable_adapters()
    prediction = Flux.forward(self, denoiser, *arguments)
    if adapted:
        denoiser.enable_adapters()
    return prediction


def prompt_unread(latents: Tensor, timestep: Tensor, condition: Any) -> Any:
    empty = {name: value if name == "img_ids" else torch.zeros_like(value) for name, value in condition.items()}
    return latents, timestep, empty


WIDENED = reads(
    lambda latents, time, condition: (latents, time, {key: each.float() for key, each in condition.items()})
)
FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "Random": (predicts(lambda x: x + 0.1 * torch.randn_like(x)), "forward: the same latents gave two predictions"),
    "Neighbours": (predicts(lambda x: x - x.mean(0, keepdim=True)), "forward: a prediction depends on the rows that"),
    "PromptUnread": (reads(prompt_unread), "forward: the prompt changes nothing in a prediction"),
    "GuidanceIgnored": (
        {"guided": lambda self, unconditional, prompted, guidance: prompted},
        "guidance: guidance 4 gives the predictions of guidance 1",
    ),
    # The formula that begins at the prompted prediction, whose guidance of 0 is none.
    "GuidanceBesideOne": (
        {"guided": lambda self, unconditional, prompted, guidance: prompted + guidance * (prompted - unconditional)},
        "guidance: guided(unconditional, prompted, 1) is not the prompted prediction",
    ),
    "NegativesExchanged": (
        {"encode": other_negatives},
        "images: at guidance 4 the pipeline's own images from the same noise differ",
    ),
    # As a model's own pipeline scales the time before it is given.
    "Timesteps": (
        reads(lambda latents, time, condition: (latents, 1000 * time, condition)),
        "images: at guidance 1 the pipeline's own images from the same noise differ",
    ),
    "Sign": (predicts(lambda x: -x), "images: at guidance 1 the pipeline's own images from the same noise differ"),
    "OtherShift": (
        {"shift": lambda self, pipe, latent_shape: 0.9},
        "images: the pipeline's own call has the noise levels [1.0, ",
    ),
    "Sideways": (
        {"unpack": lambda self, pipe, latents, size: Flux.unpack(self, pipe, latents, size[::-1])},
        "decode: Sideways: latents [2, 8, 16] were decoded as [2, 3, 8, 16]",
    ),
    "OtherPacking": ({"pack": other_packing}, "pack: pack does not invert unpack"),
    "OutOfRange": (decodes(lambda images: 2 * images - 1), "decode: decoded images lie between -"),
    "WithoutShift": (
        {"decode": without_shift},
        "decode: the pipeline's own images of the same latents differ by up to",
    ),
    "CallsNothing": (
        {"call_pipeline": lambda self, *arguments, **named: None},
        "decode: call_pipeline returned a NoneType; return the images as a tensor in [0, 1]",
    ),
    "Brightened": (
        decodes(lambda images: images / images.flatten(1).amax(1).cumsum(0).max()),
        "decode: a decoded image depends on the latents that are decoded beside it",
    ),
    "Detached": (predicts(Tensor.detach), "gradient: in float32 a prediction has no gradient"),
    "Copied": ({"forward": copied}, "gradient: in float32 no weight of the component 'transformer' has a gradient"),
    "Widened": (WIDENED, "gradient: RuntimeError: "),
    "PaddedToTheLongest": (
        {"encode": padded_to_the_longest},
        "encode: the 'encoder_hidden_states' of a prompt is [13, 8] alone and [14, 8] beside another",
    ),
    "Centred": (encodes(centred), "encode: the 'pooled_projections' of a prompt depends on the prompts that are enc"),
    "AcceptsAll": ({"check": lambda self, pipe, prompts: None}, "encode: check accepts a prompt without any column"),
    "AdapterOff": ({"forward": adapter_off}, "lora: a saved LoRA gives other images in diffusers than here"),
    "OtherPart": ({"denoiser": "text_encoder"}, "forward: AttributeError: "),
}
EDIT_FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "SaysDistilled": (
        {"takes_guidance": lambda self, pipe: True},
        "guidance: takes_guidance says that the model takes guidance as an input, and encode returns a",
    ),
    "ImageUnread": (
        reads(lambda x, t, condition: (x, t, InstructPix2Pix().without_image(condition)), InstructPix2Pix),
        "forward: the image changes nothing in a prediction",
    ),
    "ImageInFront": (
        reads(lambda x, t, condition: (condition["image"].to(x.dtype), t, condition | {"image": x}), InstructPix2Pix),
        "images: at guidance 1 the pipeline's own images from the same noise differ",
    ),
    "FirstImageForAll": (
        encodes(
            lambda *halves: tuple(h | {"image": h["image"][:1].expand_as(h["image"])} for h in halves), InstructPix2Pix
        ),
        "encode: the 'image' of a prompt depends on the prompts that are encoded beside it",
    ),
    "InstructionUnread": (
        {
            "encode": lambda self, pipe, prompts, negatives, size: InstructPix2Pix.encode(
                self, pipe, [{**row, "instruction": "a"} for row in prompts], negatives, size
            )
        },
        "forward: the instruction changes nothing in a prediction",
    ),
    "KeepsTheImage": (
        {"without_image": lambda self, condition: dict(condition)},
        "images: at image guidance 1.5 the pipeline's own images from the same noise differ",
    ),
    "AcceptsTexts": ({"check": asks_for_words}, "encode: check accepts a prompt without its image"),
}


@pytest.fixture(scope="module")
def flux(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved("FluxPipeline", tmp_path_factory.mktemp("flux"))


@pytest.fixture(scope="module")
def edits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(ASKED_BY_IMAGE, tmp_path_factory.mktemp("edits"))


def verdict(adapter: Any, folder: Path) -> str:
    with pytest.raises(BrokenLaws) as caught:
        check_pipeline(adapter, folder, size=(16, 8))
    return str(caught.value)


@pytest.mark.nightly
@pytest.mark.parametrize("name", EDIT_FAULTS)
def test_a_fault_with_an_image_is_named(name: str, edits: Path) -> None:
    members, sentence = EDIT_FAULTS[name]
    assert sentence in verdict(type(name, (InstructPix2Pix,), members), edits)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "Sign" else [pytest.mark.nightly]) for name in FAULTS]
)
def test_a_planted_fault_is_named(name: str, flux: Path) -> None:
    members, sentence = FAULTS[name]
    heading, *lines = verdict(type(name, (Flux,), members), flux).splitlines()
    assert any(sentence in line for line in lines)
    count = f"1 law of {name} is" if len(lines) == 1 else f"{len(lines)} laws of {name} are"
    assert heading == f"{count} broken (docs/guide/write_your_own_pipeline.md):"
    assert all(line.startswith("- ") for line in lines)


class Lacking(PipelineAdapter):
    pipeline = "FluxPipeline"


class Nameless(Flux):  # type: ignore[misc]
    pipeline = None  # type: ignore[assignment]


UNOPENED: list[tuple[Any, str]] = [
    (Lacking, "open: pipeline = 'groupwise.objects:adapter': Lacking lacks encode, latent_shape"),
    (Nameless, "open: pipeline = 'groupwise.objects:adapter': Nameless lacks pipeline; write pipeline ="),
    (Wan, "holds a FluxPipeline, and model.pipeline = 'groupwise.objects:adapter' is for a WanPipeline"),
]


@pytest.mark.parametrize(("adapter", "sentence"), UNOPENED)
def test_an_adapter_that_cannot_be_opened_is_named(adapter: Any, sentence: str, flux: Path) -> None:
    assert sentence in verdict(adapter, flux)


def test_a_check_that_could_say_nothing_is_refused(flux: Path) -> None:
    with pytest.raises(ValueError, match="is no adapter; pass a class that extends"):
        check_pipeline(Flux(), flux)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="pass two different ones"):
        check_pipeline(Flux, flux, prompts=("a cat", "a cat"))
