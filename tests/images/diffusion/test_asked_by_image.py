"""Pipelines that are asked by an image, and in words beside it: trained, saved and opened in plain diffusers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import pytest
import torch
from PIL import Image
from tests.images.diffusion.models.tiny import ASKED_BY_IMAGE, saved
from torch import Tensor

from groupwise.cli.trained import trained
from groupwise.config import ConfigError, merge, validate
from groupwise.experiment import Experiment
from groupwise.experiment.runner import open_domain, run
from groupwise.streams import Streams
from groupwise_images.diffusion.config import DiffusionConfig
from groupwise_images.diffusion.domain import DiffusionDomain
from groupwise_images.diffusion.image_prompts import EncodedPrompts
from groupwise_images.diffusion.models.families import InstructPix2Pix, StableDiffusion
from groupwise_images.diffusion.pipeline_adapter import PromptImage
from groupwise_images.testing import _drawn

SIZE = (16, 8)
GUIDANCE, IMAGE_GUIDANCE = 4.0, 1.5
HERE = "tests.images.diffusion.test_asked_by_image"


def reddest(prompts: Any, completions: Any, degraded: Any, instruction: Any, **columns: Any) -> list[float]:
    """A user's reward, which finds the image and the words."""
    assert [image.shape for image in degraded] == [image.shape for image in completions]
    assert set(instruction) <= {"make it red", "make it blue", "sharpen"}
    return [float(image[..., 0].float().mean()) / 255 for image in completions]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(ASKED_BY_IMAGE, tmp_path_factory.mktemp("model"))


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    return written(tmp_path)


def written(folder: Path, targets: bool = True, words: bool = True, num: int = 5) -> Path:
    """A table of images with what is asked of each."""
    random, lines = np.random.default_rng(0), []
    for number in range(num):
        for part in ("photos", "edited"):
            (folder / part).mkdir(exist_ok=True)
            pixels = random.integers(0, 256, (*SIZE, 3), dtype="uint8")
            Image.fromarray(pixels).save(folder / part / f"{number}.png")
        row = {"image": f"photos/{number}.png"}
        row |= {"target": f"edited/{number}.png"} if targets else {}
        row |= {"instruction": ("make it red", "make it blue")[number % 2]} if words else {}
        lines.append(json.dumps(row))
    (folder / "pairs.jsonl").write_text("\n".join(lines))
    return folder / "pairs.jsonl"


def table(folder: Path, pairs: Path, **changes: Any) -> dict[str, Any]:
    domain = {
        "kind": "diffusion",
        "num_steps": 3,
        "guidance": GUIDANCE,
        "model": {"kind": "pretrained", "path": str(folder), "size": list(SIZE), "image_guidance": IMAGE_GUIDANCE},
        "data": {
            "source": {
                "kind": "image_pairs",
                "images": {"kind": "table", "path": str(pairs), "num_held_out": 2},
            }
        },
        "rewards": {"red": {"kind": "callable", "path": f"{HERE}:reddest"}},
        "evaluation": {"num_images": 1},
    }
    return merge(domain, changes)


def opened(folder: Path, pairs: Path, **changes: Any) -> DiffusionDomain:
    return DiffusionDomain(validate(DiffusionConfig, table(folder, pairs, **changes)), streams=Streams(0))


def experiment(domain: dict[str, Any], **changes: Any) -> Experiment:
    base = {
        "name": "edits",
        "method": "flow_grpo",
        "domain": domain,
        "train": {"prompts_per_step": 2, "group_size": 2, "num_steps": 2},
        "optimiser": {"learning_rate": 0.01},
        "track": {"console": "none", "rollouts_every": 1},
    }
    return validate(Experiment, merge(base, changes))


@pytest.mark.slow
@pytest.mark.parametrize(
    "lora",
    [pytest.param(None, id="whole"), pytest.param({"rank": 2, "alpha": 8}, id="adapter")],
)
def test_what_a_run_saves_gives_its_images_in_plain_diffusers(
    model: Path, pairs: Path, tmp_path: Path, lora: dict[str, int] | None
) -> None:
    changes = {} if lora is None else {"model": {"lora": lora}}
    run(experiment(table(model, pairs, **changes), optimiser={"learning_rate": 0.1}), tmp_path / "run")
    with trained(tmp_path / "run", None, "final", run_code=True) as loaded:
        domain = open_domain(loaded)
    photos = [Image.open(pairs.parent / f"photos/{number}.png") for number in range(2)]
    words = ["make it red", "make it blue"]
    rows = [
        {"prompt": "photo", "instruction": text, "degraded": as_prompt_image(photo)}
        for text, photo in zip(words, photos, strict=True)
    ]
    noise = torch.randn(2, *domain.denoiser.latent_shape, generator=torch.Generator().manual_seed(1))
    here = _drawn(domain.denoiser, domain.denoiser.schedule(3), noise, rows, GUIDANCE)
    pipe: Any = diffusers.DiffusionPipeline.from_pretrained(model if lora else tmp_path / "run" / "model")
    pipe.set_progress_bar_config(disable=True)

    def drawn() -> Tensor:
        images = pipe(
            words, image=photos, latents=noise, guidance_scale=GUIDANCE, image_guidance_scale=IMAGE_GUIDANCE,
            num_inference_steps=3, output_type="np",
        ).images  # fmt: skip
        return torch.from_numpy(images).movedim(-1, -3)

    if lora:
        assert float((drawn() - here).abs().max()) > 1e-3, "the adapter was trained"
        pipe.load_lora_weights(tmp_path / "run" / "model")
    assert float((drawn() - here).abs().max()) < 2e-5
    domain.close()
    records = [
        json.loads(line) for line in next((tmp_path / "run/rollouts").glob("step-*.jsonl")).read_text().splitlines()
    ]
    assert {record["instruction"] for record in records} <= set(words)
    assert all((tmp_path / "run" / record["degraded"]).is_file() for record in records)


def as_prompt_image(photo: Image.Image) -> PromptImage:
    return PromptImage(np.asarray(photo).transpose(2, 0, 1).astype("float32") / 255)


def test_one_instruction_for_all_and_pictures_without_targets(model: Path, tmp_path: Path) -> None:
    pairs = written(tmp_path, targets=False, words=False)
    domain = opened(model, pairs, data={"source": {"instruction": "sharpen"}})
    shown = domain.sample(
        domain.prompts([0]), 2, streams=Streams(0), step=0, settings={}, requires=frozenset({"log_prob"})
    )
    assert shown.prompts[0].columns["instruction"] == "sharpen"
    picture = domain.evaluate(streams=Streams(0)).pictures["images"]
    # Two rows of two images, enlarged twelve times: what was shown, and what was drawn.
    assert picture.shape == (2 * (12 * 16 + 16) - 2, 52 + 2 * (12 * 8 + 2), 3)
    photo = torch.from_numpy(np.array(Image.open(tmp_path / "photos" / Path(domain._splits.evaluated[0].key).name)))
    assert torch.equal(picture[: 12 * 16 : 12, 52 : 52 + 12 * 8 : 12], photo)
    domain.close()


def test_a_negative_prompt_is_encoded_with_the_image_that_stands_beside_it(model: Path, pairs: Path) -> None:
    domain = opened(model, pairs)
    shown = domain._splits.shown(domain.prompts([0, 1]), Streams(0), 0)
    condition = EncodedPrompts(domain.denoiser).of(shown).select(torch.tensor([0, 1]))
    expected = domain.denoiser.encode([prompt.columns for prompt in shown])
    assert condition.unconditional is not None
    assert expected.unconditional is not None
    assert not torch.equal(expected.unconditional["image"][0], expected.unconditional["image"][1])
    torch.testing.assert_close(condition.unconditional["image"], expected.unconditional["image"])


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"model": {"size": [16, 16]}}, r"0.png is \[3, 16, 8\] .* conditioned on \[3, 16, 16\]; .*model.size = \[16, 8\]"),
    ({"data": {"source": {"instruction": "sharpen"}}}, "a column 'instruction' of its own; leave one of the two out"),
    ({"model": {"path": "text", "image_guidance": 1}}, "conditioned on no image; .*a pipeline that is asked by an"),
    ({"model": {"path": "text"}}, "image_guidance = 1.5: a StableDiffusionPipeline is not guided by an image"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), MISTAKES)
def test_what_does_not_fit_is_refused_before_anything_is_computed(
    model: Path, pairs: Path, changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    if changes.get("model", {}).get("path") == "text":
        path = str(saved("StableDiffusionPipeline", tmp_path / "text"))
        changes = {"model": {**changes["model"], "path": path}}
    with pytest.raises(ConfigError, match=message):
        opened(model, pairs, **changes)


def test_images_without_words_and_words_without_images_are_refused(model: Path, pairs: Path, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in pairs.read_text().splitlines()]
    del rows[3]["instruction"]
    pairs.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(ConfigError, match=r"photos/3.png.*column 'instruction' holds none; write data.source.instr"):
        opened(model, pairs)
    (tmp_path / "prompts.txt").write_text("a cat\n")
    changed = table(model, pairs) | {"data": {"source": {"kind": "prompts", "path": str(tmp_path / "prompts.txt")}}}
    with pytest.raises(ConfigError, match="'a cat': this pipeline is asked by an image, and the prompt has none"):
        DiffusionDomain(validate(DiffusionConfig, changed), streams=Streams(0))


def test_the_adapter_refuses_a_model_that_is_shown_nothing(pairs: Path, tmp_path: Path) -> None:
    model = saved(ASKED_BY_IMAGE, tmp_path / "model", in_channels=4)
    with pytest.raises(ConfigError, match="takes 4 channels and the autoencoder makes 4; give a model that is shown"):
        opened(model, pairs)
    assert InstructPix2Pix().guided_by_image
    assert not StableDiffusion().guided_by_image
