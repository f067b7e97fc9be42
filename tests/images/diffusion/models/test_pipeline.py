"""Every pipeline as a denoiser gives the images that the pipeline itself gives, from the same noise."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import diffusers
import pytest
import torch
from tests.images.diffusion.models.tiny import ALL_PIPELINES, PIPELINES, build, others_slow, saved
from torch import Tensor

from groupwise.config import ConfigError
from groupwise_images.diffusion.model import Pretrained
from groupwise_images.diffusion.models.open import without_dropout
from groupwise_images.diffusion.models.pipeline import SHIPPED, PipelineDenoiser, is_pipeline, open_pipeline
from groupwise_images.testing import _drawn

# Not square, so that height and width cannot be exchanged unseen.
SIZE = (16, 8)
SIZES = {"WanPipeline": (5, 16, 32)}
CPU = torch.device("cpu")
STEPS = 3


class Folders(dict[str, Path]):
    """Name of a pipeline -> its folder, which is written where it is first asked for."""

    def __init__(self, place: pytest.TempPathFactory) -> None:
        super().__init__()
        self.place = place

    def __missing__(self, name: str) -> Path:
        self[name] = saved(name, self.place.mktemp(name))
        return self[name]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return Folders(tmp_path_factory)


def opened(path: Path, name: str, **keys: Any) -> PipelineDenoiser:
    size = {} if name == "DiTPipeline" else {"size": SIZES.get(name, SIZE)}
    spacing = "scheduler" if name in ("StableDiffusion3Pipeline", "WanPipeline") else "uniform"
    return open_pipeline(Pretrained(path=str(path), **{**size, **keys}), spacing, CPU)


def prompts(name: str, negative: bool = False) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = (
        [{"label": 3}, {"prompt": "class 7"}]
        if name == "DiTPipeline"
        else [{"prompt": "a red cat"}, {"prompt": "two dogs"}]
    )
    return [row | {"negative_prompt": "grey"} for row in rows] if negative else rows


def ode(denoiser: PipelineDenoiser, noise: Tensor, rows: list[dict[str, Any]], guidance: float) -> Tensor:
    """Images from noise, by this project's own transitions without noise."""
    return _drawn(denoiser, denoiser.schedule(STEPS), noise, rows, guidance)


def by_the_pipeline(pipe: Any, name: str, noise: Tensor, rows: list[dict[str, Any]], guidance: float) -> Tensor:
    """Images from the same noise, by diffusers alone."""
    if name == "DiTPipeline":
        # It takes no latents: what it would draw is put in place of its draw.
        module = diffusers.pipelines.dit.pipeline_dit
        original, module.randn_tensor = module.randn_tensor, lambda *_, **__: noise
        try:
            labels = [row["label"] if "label" in row else pipe.get_label_ids([row["prompt"]])[0] for row in rows]
            images = pipe(
                class_labels=labels, guidance_scale=guidance, num_inference_steps=STEPS, output_type="np"
            ).images
        finally:
            module.randn_tensor = original
        return torch.from_numpy(images).permute(0, 3, 1, 2)
    size = SIZES.get(name, SIZE)
    given: dict[str, Any] = {"prompt": [row["prompt"] for row in rows], "height": size[-2], "width": size[-1]}
    if "negative_prompt" in rows[0]:
        given["negative_prompt"] = [row["negative_prompt"] for row in rows]
    if name == "QwenImagePipeline" or (name == "FluxPipeline" and not pipe.transformer.config.guidance_embeds):
        given |= {"true_cfg_scale": guidance, "negative_prompt": given.get("negative_prompt", [""] * len(rows))}
    else:
        given["guidance_scale"] = guidance
    if name in ("FluxPipeline", "StableDiffusion3Pipeline"):
        given["max_sequence_length"] = 512 if name == "FluxPipeline" else 256
    if name == "WanPipeline":
        # Of first order and without its corrector the scheduler remembers no earlier steps.
        config = pipe.scheduler.config
        pipe.scheduler = diffusers.UniPCMultistepScheduler.from_config(
            config, solver_order=1, disable_corrector=[0, 1, 2]
        )
        videos = pipe(**given, num_frames=size[0], latents=noise, num_inference_steps=STEPS, output_type="np").frames
        return torch.from_numpy(videos).permute(0, 1, 4, 2, 3)
    images = pipe(**given, latents=noise, num_inference_steps=STEPS, output_type="np").images
    return torch.from_numpy(images).permute(0, 3, 1, 2)


@pytest.mark.parametrize("negative", [False, True], ids=["", "negative"])
@pytest.mark.parametrize("guidance", [1.0, 4.0])
@pytest.mark.parametrize("name", others_slow(ALL_PIPELINES))
def test_the_same_noise_gives_the_pipelines_own_images(
    folders: dict[str, Path], name: str, guidance: float, negative: bool
) -> None:
    if negative and (name == "DiTPipeline" or guidance == 1):
        pytest.skip("no negative prompt takes part")
    denoiser = opened(folders[name], name)
    noise = torch.randn(2, *denoiser.latent_shape, generator=torch.Generator().manual_seed(1))
    rows = prompts(name, negative)
    expected = by_the_pipeline(denoiser.pipe, name, noise, rows, guidance)
    actual = ode(denoiser, noise, rows, guidance)
    assert actual.shape == expected.shape == (2, *denoiser.size[:-2], 3, *denoiser.size[-2:])
    assert float((actual - expected).abs().max()) < 2e-5
    assert float(expected.std()) > 0.01
    # The prompt matters, or nothing was tested.
    other = ode(denoiser, noise[:1].expand_as(noise), rows, guidance)
    assert float((other[0] - other[1]).abs().max()) > 1e-4


@pytest.mark.slow
def test_flux_takes_guidance_as_an_input_where_it_was_distilled_for_it(tmp_path: Path) -> None:
    denoiser = opened(saved("FluxPipeline", tmp_path, guidance_embeds=True), "FluxPipeline")
    assert denoiser.distilled
    noise = torch.randn(2, *denoiser.latent_shape, generator=torch.Generator().manual_seed(1))
    rows = prompts("FluxPipeline")
    assert denoiser.encode(rows).unconditional is None
    with pytest.raises(ConfigError, match="negative_prompt: 'grey': this model was distilled for guidance"):
        denoiser.check(prompts("FluxPipeline", negative=True))
    images = {guidance: ode(denoiser, noise, rows, guidance) for guidance in (1.0, 3.5)}
    assert float((images[1.0] - images[3.5]).abs().max()) > 1e-4
    for guidance, actual in images.items():
        assert (
            float((actual - by_the_pipeline(denoiser.pipe, "FluxPipeline", noise, rows, guidance)).abs().max()) < 2e-5
        )


@pytest.mark.parametrize("name", others_slow(PIPELINES))
def test_autoencoder_and_encoders_keep_their_precision_while_the_denoiser_is_cast(
    folders: dict[str, Path], name: str
) -> None:
    denoiser = opened(folders[name], name)
    latents = torch.randn(2, *denoiser.latent_shape, generator=torch.Generator().manual_seed(1))
    plain = denoiser.decode(latents), denoiser.encode(prompts(name)).tensors
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(denoiser.decode(latents), plain[0])
        cast = denoiser.encode(prompts(name)).tensors
    assert all(torch.equal(cast[part], value) for part, value in plain[1].items())


@pytest.mark.parametrize("name", others_slow(PIPELINES))
def test_gradient_checkpointing_changes_nothing_but_memory(folders: dict[str, Path], name: str) -> None:
    from groupwise.learner.local import checkpoint_activations, offers_checkpointing

    gradients = []
    for wanted in (False, True):
        denoiser = opened(folders[name], name)
        assert offers_checkpointing(denoiser.module)
        checkpoint_activations(denoiser.module, wanted)
        assert any(getattr(part, "gradient_checkpointing", False) for part in denoiser.module.modules()) == wanted
        without_dropout(denoiser.module)
        denoiser.module.train()
        latents = torch.randn(2, *denoiser.latent_shape, generator=torch.Generator().manual_seed(0))
        denoiser.predict(
            latents, torch.full((2,), 500.0), denoiser.encode(prompts(name)), 2.0
        ).square().sum().backward()
        gradients.append([parameter.grad for parameter in denoiser.module.parameters() if parameter.grad is not None])
    assert len(gradients[0]) == len(gradients[1]) > 0
    assert all(torch.allclose(one, other, rtol=1e-4, atol=1e-6) for one, other in zip(*gradients, strict=True))


def test_images_go_to_latents_and_back(folders: dict[str, Path]) -> None:
    for name in ("StableDiffusionPipeline", "FluxPipeline"):
        denoiser = opened(folders[name], name)
        images = torch.rand(2, 1, *SIZE)
        latents = denoiser.to_latents(images)
        assert latents.shape == (2, *denoiser.latent_shape)
        unpacked = denoiser.adapter.unpack(denoiser.pipe, latents, denoiser.size)
        vae = denoiser.pipe.vae
        with torch.no_grad():
            mean = vae.encode(images.expand(-1, 3, -1, -1) * 2 - 1).latent_dist.mean
        assert torch.allclose(unpacked, (mean - (vae.config.shift_factor or 0)) * vae.config.scaling_factor, atol=1e-6)
        if name == "FluxPipeline":
            packed = diffusers.FluxPipeline._pack_latents(
                unpacked, 2, unpacked.shape[1], unpacked.shape[2], unpacked.shape[3]
            )
            assert torch.equal(latents, packed)
        with pytest.raises(ConfigError, match=r"images are \[8, 8\] and the model makes \[16, 8\]"):
            denoiser.to_latents(torch.rand(1, 3, 8, 8))


@pytest.mark.slow
def test_stable_diffusion_3_without_its_third_text_encoder(folders: dict[str, Path], tmp_path: Path) -> None:
    name = "StableDiffusion3Pipeline"
    pipe = diffusers.StableDiffusion3Pipeline.from_pretrained(folders[name], text_encoder_3=None, tokenizer_3=None)
    pipe.set_progress_bar_config(disable=True)
    # As diffusers writes it, and as it is left when somebody saves the disk's space.
    pipe.save_pretrained(tmp_path / "written")
    shutil.copytree(folders[name], tmp_path / "removed", ignore=shutil.ignore_patterns("*_3"))
    for path in (tmp_path / "written", tmp_path / "removed"):
        denoiser = opened(path, name)
        noise = torch.randn(2, *denoiser.latent_shape, generator=torch.Generator().manual_seed(1))
        expected = by_the_pipeline(pipe, name, noise, prompts(name), 4.0)
        assert float((ode(denoiser, noise, prompts(name), 4.0) - expected).abs().max()) < 2e-5


def test_another_size_than_the_models_own(folders: dict[str, Path]) -> None:
    denoiser = opened(folders["StableDiffusion3Pipeline"], "StableDiffusion3Pipeline", size=(8, 16))
    assert denoiser.latent_shape == (4, 4, 8)
    assert denoiser.decode(torch.zeros(1, 4, 4, 8)).shape == (1, 3, 8, 16)
    with pytest.raises(ConfigError, match=r"model.size = \[10, 16\]: height and width must be multiples of 4 pixels"):
        opened(folders["StableDiffusion3Pipeline"], "StableDiffusion3Pipeline", size=(10, 16))
    with pytest.raises(ConfigError, match="a DiT makes images of one size"):
        opened(folders["DiTPipeline"], "DiTPipeline", size=(16, 16))


def test_prompts_that_a_pipeline_cannot_be_asked(folders: dict[str, Path]) -> None:
    words, classes = (
        opened(folders["StableDiffusionPipeline"], "StableDiffusionPipeline"),
        opened(folders["DiTPipeline"], "DiTPipeline"),
    )
    with pytest.raises(ConfigError, match="asked in words, and column 'prompt' holds none"):
        words.check([{"label": 3}])
    with pytest.raises(ConfigError, match="negative_prompt: 1 of 2 prompts have none"):
        words.check([{"prompt": "a"}, {"prompt": "b", "negative_prompt": "c"}])
    with pytest.raises(
        ConfigError,
        match=(
            r"write a number from 0 to 999 in the column 'label', or in 'prompt' one of the pipeline's names \(class 0"
        ),
    ):
        classes.check([{"prompt": "no class"}])
    with pytest.raises(ConfigError, match="has no negative prompt"):
        classes.check([{"label": 1, "negative_prompt": "c"}])


def test_folders_without_the_expected_parts(folders: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no model_index.json that names a class of pipelines"):
        open_pipeline(Pretrained(path=str(tmp_path)), "uniform", CPU)
    with pytest.raises(ConfigError, match=r"'models/of/mine' is no folder; .* or a hub id such as owner/name"):
        open_pipeline(Pretrained(path="models/of/mine"), "uniform", CPU)
    index = json.loads((folders["StableDiffusionPipeline"] / "model_index.json").read_text())
    (tmp_path / "model_index.json").write_text(json.dumps(index))
    with pytest.raises(
        ConfigError, match="has no unet/; a StableDiffusionPipeline needs unet, vae, text_encoder, tokenizer, scheduler"
    ):
        open_pipeline(Pretrained(path=str(tmp_path)), "uniform", CPU)
    (tmp_path / "model_index.json").write_text(json.dumps(index | {"_class_name": "StableDiffusion2Pipeline"}))
    with pytest.raises(
        ConfigError,
        match=r"holds a StableDiffusion2Pipeline, and there is no adapter for it .*write a class that extends",
    ):
        open_pipeline(Pretrained(path=str(tmp_path)), "uniform", CPU)
    assert is_pipeline(Pretrained(path=str(folders["DiTPipeline"])))
    (tmp_path / "model_index.json").write_text("{")
    with pytest.raises(ConfigError, match=r"model_index.json"):
        open_pipeline(Pretrained(path=str(tmp_path)), "uniform", CPU)


def test_schedulers_that_cannot_be_made_stochastic_and_models_for_other_tasks(tmp_path: Path) -> None:
    pipe = build("StableDiffusionXLPipeline")
    pipe.scheduler = diffusers.DDIMScheduler(clip_sample=True)
    pipe.save_pretrained(tmp_path / "clips")
    with pytest.raises(ConfigError, match="clip_sample = true: where it clips there is no gradient"):
        opened(tmp_path / "clips", "StableDiffusionXLPipeline")
    pipe.scheduler = diffusers.CMStochasticIterativeScheduler()
    with pytest.raises(ConfigError, match="has no noise levels that transitions can be read from; use DDIMScheduler"):
        PipelineDenoiser(pipe, SHIPPED["StableDiffusionXLPipeline"], Pretrained(path="x"), "uniform")
    with pytest.raises(
        ConfigError,
        match="takes 9 channels and the autoencoder makes 4; give a model that makes images from texts alone",
    ):
        opened(saved("StableDiffusionPipeline", tmp_path / "inpaint", in_channels=9), "StableDiffusionPipeline")


def test_a_frozen_part_that_gives_nothing_finite_is_named(folders: Folders) -> None:
    """Eight bits would turn NaN into black pictures and infinity into white ones, which rewards take for pictures."""
    denoiser = opened(folders["StableDiffusionPipeline"], "StableDiffusionPipeline")
    pipe, latents = denoiser.pipe, torch.zeros(2, *denoiser.latent_shape)
    (final_norm,) = (
        part for name, part in pipe.text_encoder.named_parameters() if name.endswith("final_layer_norm.bias")
    )
    parts = [
        (pipe.vae.decoder.conv_out.bias, "vae: it decodes", lambda: denoiser.decode(latents)),
        (pipe.vae.encoder.conv_out.bias, "vae: it encodes", lambda: denoiser.to_latents(torch.zeros(1, 3, *SIZE))),
        (
            final_norm,
            "text encoders:",
            lambda: denoiser.encode([{"prompt": "a"}]),
        ),
    ]
    for weight, named, use in parts:
        before = weight.detach().clone()
        with torch.no_grad():
            weight[0] = float("nan")
            with pytest.raises(ConfigError, match=f"{named} .*NaN or infinity"):
                use()
            weight.copy_(before)


def test_prompts_that_no_text_encoder_reads_whole_are_counted(folders: Folders) -> None:
    long, short = {"prompt": "a cat on " + "mats " * 40}, {"prompt": "a cat"}
    denoiser = opened(folders["StableDiffusionPipeline"], "StableDiffusionPipeline")
    assert denoiser.num_cut([long, short, long]) == 2
    denoiser.pipe.tokenizer.model_max_length = 10**6
    assert denoiser.num_cut([long, short]) == 0
