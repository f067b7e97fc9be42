"""The adapters of the pipelines that are shipped: Stable Diffusion 1 to 3 and XL, Flux, Qwen-Image, Wan, DiT and
InstructPix2Pix.
"""

from collections.abc import Mapping, Sequence
from typing import Any, final

import torch
from torch import Tensor
from torch.nn.functional import pad

from groupwise.config import ConfigError
from groupwise_images.diffusion.pipeline_adapter import (
    INSTRUCTION,
    Encoded,
    Negatives,
    PipelineAdapter,
    Prompts,
    Size,
    Tensors,
    dynamic_shift,
    images,
    latent_size,
    pixels_a_latent,
    texts,
)

_MOST_TOKENS = 512
"""Tokens of a prompt that Qwen-Image and Wan read unless another number is asked for."""


def _filled(prompts: Prompts, negatives: Negatives) -> list[str]:
    """Returns the negative prompts, empty ones where there are none."""
    return [""] * len(prompts) if negatives is None else list(negatives)


def _encoded(
    pipe: Any, words: list[str], negatives: Negatives, names: list[str], **arguments: Any
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Encodes texts by a pipeline whose `encode_prompt` returns each tensor followed by its negative one."""
    values = pipe.encode_prompt(
        prompt=words,
        device=(pipe.unet if hasattr(pipe, "unet") else pipe.transformer).device,
        num_images_per_prompt=1,
        do_classifier_free_guidance=True,
        negative_prompt=None if negatives is None else list(negatives),
        **arguments,
    )
    return dict(zip(names, values[::2], strict=True)), dict(zip(names, values[1::2], strict=True))


class _UNet(PipelineAdapter):
    """A pipeline with a conditional UNet, which may be given an image in further channels."""

    denoiser = "unet"
    components = ("unet", "vae", "text_encoder", "tokenizer", "scheduler")

    def latent_shape(self, pipe: Any, size: Size) -> tuple[int, ...]:
        """Returns `[C, h, w]`.

        Raises:
            ConfigError: a UNet for another task (inpainting, distilled guidance), or a size it cannot make.
        """
        config, num_drawn = pipe.unet.config, pipe.vae.config.latent_channels
        num_channels = 2 * num_drawn if self.takes_image else num_drawn
        if config.in_channels != num_channels:
            raise ConfigError(
                f"model.path: the UNet takes {config.in_channels} channels and the autoencoder makes {num_drawn}; give"
                f" a model {'that is shown an image too' if self.takes_image else 'that makes images from texts alone'}"
                f", whose UNet takes {num_channels}"
            )
        if config.time_cond_proj_dim is not None:
            raise ConfigError(
                "model.path: the UNet was distilled for guidance (time_cond_proj_dim), which is not supported; take the"
                " model it was distilled from"
            )
        return (num_drawn, *latent_size(size, pipe.vae_scale_factor))


@final
class StableDiffusion(_UNet):
    """`StableDiffusionPipeline`, Stable Diffusion 1.x and 2.x."""

    pipeline = "StableDiffusionPipeline"

    def encode(self, pipe: Any, prompts: Prompts, negatives: Negatives, size: Size) -> Encoded:
        """Encodes hidden states of the text encoder."""
        return _encoded(pipe, texts(prompts), negatives, ["encoder_hidden_states"])


@final
class StableDiffusionXL(_UNet):
    """`StableDiffusionXLPipeline`. Images count as uncropped and of the size that is made."""

    pipeline = "StableDiffusionXLPipeline"
    components = ("unet", "vae", "text_encoder_2", "tokenizer_2", "scheduler")

    def encode(self, pipe: Any, prompts: Prompts, negatives: Negatives, size: Size) -> Encoded:
        """Encodes hidden states and pooled text; the empty negative prompt is all zeros where the pipeline asks for it
        (`force_zeros_for_empty_prompt`).
        """
        condition, negative = _encoded(pipe, texts(prompts), negatives, ["encoder_hidden_states", "text_embeds"])
        # Original size, crop and target size.
        ids = torch.tensor([[*size, 0, 0, *size]]).to(condition["encoder_hidden_states"]).repeat(len(prompts), 1)
        return condition | {"time_ids": ids}, negative | {"time_ids": ids}

    def forward(self, denoiser: Any, latents: Tensor, timestep: Tensor, condition: Tensors, guidance: float) -> Tensor:
        """Computes the UNet's prediction."""
        hidden = condition["encoder_hidden_states"]
        added = {"text_embeds": condition["text_embeds"], "time_ids": condition["time_ids"]}
        return denoiser(latents, timestep, hidden, added_cond_kwargs=added, return_dict=False)[0]


@final
class InstructPix2Pix(_UNet):
    """`StableDiffusionInstructPix2PixPipeline`. The image's latents, which are not scaled, are concatenated to those
    that are drawn.
    """

    pipeline = "StableDiffusionInstructPix2PixPipeline"
    takes_image = True

    def encode(self, pipe: Any, prompts: Prompts, negatives: Negatives, size: Size) -> Encoded:
        """Encodes hidden states of the text encoder, and the image, which a negative prompt has too."""
        negative = None if negatives is None else list(negatives)
        hidden = pipe._encode_prompt(texts(prompts, INSTRUCTION), pipe.unet.device, 1, True, negative)
        # There are two negative prompts; the second is for the prediction without an image.
        prompted, unprompted, _ = hidden.chunk(3)
        pixels = images(prompts) * 2 - 1
        shown = pipe.prepare_image_latents(pixels, len(prompts), 1, pipe.vae.dtype, pipe.vae.device, False)
        return (
            {"encoder_hidden_states": prompted, "image": shown},
            {"encoder_hidden_states": unprompted, "image": shown},
        )

    def without_image(self, condition: Tensors) -> Tensors:
        """Returns the condition with an image of zeros."""
        return {**condition, "image": torch.zeros_like(condition["image"])}

    def forward(self, denoiser: Any, latents: Tensor, timestep: Tensor, condition: Tensors, guidance: float) -> Tensor:
        """Computes the UNet's prediction."""
        inputs = torch.cat([latents, condition["image"].to(latents.dtype)], 1)
        read = {"encoder_hidden_states": condition["encoder_hidden_states"]}
        return super().forward(denoiser, inputs, timestep, read, guidance)

    def call_arguments(self, pipe: Any, prompts: Prompts, negatives: Negatives, guidance: float) -> dict[str, Any]:
        """Leaves out the size, which the pipeline reads off the image."""
        return {"height": None, "width": None}


@final
class StableDiffusion3(PipelineAdapter):
    """`StableDiffusion3Pipeline`. Without its third text encoder the pipeline reads zeros for it."""

    pipeline = "StableDiffusion3Pipeline"
    components = ("transformer", "vae", "text_encoder", "tokenizer", "text_encoder_2", "tokenizer_2", "scheduler")
    optional = ("text_encoder_3", "tokenizer_3")

    def latent_shape(self, pipe: Any, size: Size) -> tuple[int, ...]:
        """Returns `[C, h, w]`."""
        config = pipe.transformer.config
        return (config.in_channels, *latent_size(size, pipe.vae_scale_factor, config.patch_size))

    def encode(self, pipe: Any, prompts: Prompts, negatives: Negatives, size: Size) -> Encoded:
        """Encodes hidden states and pooled text."""
        words, names = texts(prompts), ["encoder_hidden_states", "pooled_projections"]
        return _encoded(pipe, words, negatives, names, prompt_2=words, prompt_3=words)

    def shift(self, pipe: Any, latent_shape: Sequence[int]) -> float | None:
        """Computes the shift of SD 3.5's schedulers, where their settings ask for it."""
        if not pipe.scheduler.config.get("use_dynamic_shifting", False):
            return None
        patch = pipe.transformer.config.patch_size
        return dynamic_shift(pipe.scheduler, (latent_shape[1] // patch) * (latent_shape[2] // patch), 1.16)


class _Packed(PipelineAdapter):
    """A pipeline whose latents are packed: 2 x 2 places side by side are one token, `[h w / 4, 4 C]`."""

    def latent_shape(self, pipe: Any, size: Size) -> tuple[int, ...]:
        """Returns `[h w / 4, 4 C]`."""
        height, width = latent_size(size, pipe.vae_scale_factor, 2)
        return (height * width // 4, pipe.transformer.config.in_channels)

    def shift(self, pipe: Any, latent_shape: Sequence[int]) -> float | None:
        """Computes the shift, linear in the number of image tokens, where the scheduler asks for one."""
        if not pipe.scheduler.config.get("use_dynamic_shifting", False):
            return None
        return dynamic_shift(pipe.scheduler, latent_shape[0])

    def unpack(self, pipe: Any, latents: Tensor, size: Size) -> Tensor:
        """Unpacks `[N, h w / 4, 4 C]` to `[N, C, h, w]`."""
        height, width = (side // pipe.vae_scale_factor // 2 for side in size)
        blocks = latents.reshape(len(latents), height, width, -1, 2, 2)
        return blocks.permute(0, 3, 1, 4, 2, 5).reshape(len(latents), -1, 2 * height, 2 * width)

    def pack(self, latents: Tensor) -> Tensor:
        """Packs `[N, C, h, w]` to `[N, h w / 4, 4 C]`."""
        number, channels, height, width = latents.shape
        blocks = latents.reshape(number, channels, height // 2, 2, width // 2, 2)
        return blocks.permute(0, 2, 4, 1, 3, 5).reshape(number, height * width // 4, 4 * channels)

    def call_arguments(self, pipe: Any, prompts: Prompts, negatives: Negatives, guidance: float) -> dict[str, Any]:
        """Names the guidance `true_cfg_scale`; the pipeline guides only where it has negative prompts."""
        if self.takes_guidance(pipe):
            return {}
        filled = _filled(prompts, negatives)
        return {"true_cfg_scale": guidance, "guidance_scale": None, "negative_prompt": filled}


@final
class Flux(_Packed):
    """`FluxPipeline`. A model that was distilled for guidance (`guidance_embeds`, Flux dev) takes the domain's guidance
    as an input and runs once; another one (Flux schnell) is guided by a second run without the prompt.
    """

    pipeline = "FluxPipeline"
    components = ("transformer", "vae", "text_encoder", "tokenizer", "text_encoder_2", "tokenizer_2", "scheduler")

    def encode(self, pipe: Any, prompts: Prompts, negatives: Negatives, size: Size) -> Encoded:
        """Encodes hidden states, pooled text, and the place of each image token."""
        height, width = (side // pipe.vae_scale_factor // 2 for side in size)
        rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        places = torch.stack([torch.zeros_like(rows), rows, columns], dim=-1).reshape(1, height * width, 3)

        def read(words: list[str]) -> Tensors:
            hidden, pooled, _ = pipe.encode_prompt(
                prompt=words, prompt_2=None, device=pipe.transformer.device, num_images_per_prompt=1
            )
            places_of_words = places.to(hidden).repeat(len(words), 1, 1)
            return {"encoder_hidden_states": hidden, "pooled_projections": pooled, "img_ids": places_of_words}

        return read(texts(prompts)), None if self.takes_guidance(pipe) else read(_filled(prompts, negatives))

    def takes_guidance(self, pipe: Any) -> bool:
        """Tests that the transformer has an embedding of the guidance."""
        return bool(pipe.transformer.config.guidance_embeds)

    def forward(self, denoiser: Any, latents: Tensor, timestep: Tensor, condition: Tensors, guidance: float) -> Tensor:
        """Computes the transformer's velocity."""
        hidden, strength = condition["encoder_hidden_states"], None
        if denoiser.config.guidance_embeds:
            strength = torch.full((len(latents),), guidance, dtype=torch.float32, device=latents.device)
        return denoiser(
            hidden_states=latents,
            timestep=timestep.to(latents.dtype) / 1000,
            guidance=strength,
            pooled_projections=condition["pooled_projections"],
            encoder_hidden_states=hidden,
            # The transformer takes places without a batch, and they are the same for every row.
            txt_ids=hidden.new_zeros(hidden.shape[1], 3),
            img_ids=condition["img_ids"][0],
            return_dict=False,
        )[0]


@final
class QwenImage(_Packed):
    """`QwenImagePipeline`. The guided prediction of each token is scaled to the length of the prompted one, as the
    pipeline does it.
    """

    pipeline = "QwenImagePipeline"
    components = ("transformer", "vae", "text_encoder", "tokenizer", "scheduler")

    def latent_shape(self, pipe: Any, size: Size) -> tuple[int, ...]:
        """Returns `[h w / 4, 4 C]`.

        Raises:
            ConfigError: a transformer that was distilled for guidance, or a size it cannot make.
        """
        if pipe.transformer.config.guidance_embeds:
            raise ConfigError(
                "model.path: the transformer was distilled for guidance (guidance_embeds), which is not supported here;"
                " take the model it was distilled from"
            )
        return super().latent_shape(pipe, size)

    def encode(self, pipe: Any, prompts: Prompts, negatives: Negatives, size: Size) -> Encoded:
        """Encodes hidden states, which of them are text, and the image's height and width in tokens."""
        device = pipe.transformer.device
        places = torch.tensor([[side // pipe.vae_scale_factor // 2 for side in size]], device=device)

        def read(words: list[str]) -> Tensors:
            hidden, mask = pipe.encode_prompt(words, device=device, max_sequence_length=_MOST_TOKENS)
            mask = torch.ones(hidden.shape[:2], device=hidden.device) if mask is None else mask
            missing = _MOST_TOKENS - hidden.shape[1]
            return {
                "encoder_hidden_states": pad(hidden, (0, 0, 0, missing)),
                "encoder_hidden_states_mask": pad(mask, (0, missing)).bool(),
                "places": places.repeat(len(words), 1),
            }

        return read(texts(prompts)), read(_filled(prompts, negatives))

    def forward(self, denoiser: Any, latents: Tensor, timestep: Tensor, condition: Tensors, guidance: float) -> Tensor:
        """Computes the transformer's velocity."""
        height, width = condition["places"][0].tolist()
        return denoiser(
            hidden_states=latents,
            timestep=timestep.to(latents.dtype) / 1000,
            encoder_hidden_states=condition["encoder_hidden_states"],
            encoder_hidden_states_mask=condition["encoder_hidden_states_mask"],
            img_shapes=[[(1, height, width)]] * len(latents),
            return_dict=False,
        )[0]

    def guided(self, unconditional: Tensor, prompted: Tensor, guidance: float) -> Tensor:
        """Combines both predictions; each token's is as long as the prompted one."""
        combined = super().guided(unconditional, prompted, guidance)
        return combined * (prompted.norm(dim=-1, keepdim=True) / combined.norm(dim=-1, keepdim=True))

    def unpack(self, pipe: Any, latents: Tensor, size: Size) -> Tensor:
        """Unpacks `[N, h w / 4, 4 C]` to `[N, C, 1, h, w]`, videos of one frame."""
        return super().unpack(pipe, latents, size)[:, :, None]

    def pack(self, latents: Tensor) -> Tensor:
        """Packs `[N, C, 1, h, w]` to `[N, h w / 4, 4 C]`."""
        return super().pack(latents[:, :, 0])


@final
class Wan(PipelineAdapter):
    """`WanPipeline`, videos from texts.

    A latent is `[C, f, h, w]`: the first frame, and then one latent for every four frames.
    """

    pipeline = "WanPipeline"
    components = ("transformer", "vae", "text_encoder", "tokenizer", "scheduler")
    video = True

    def default_size(self, pipe: Any) -> tuple[int, ...]:
        """Returns the size that the pipeline's call has by default."""
        return (81, 480, 832)

    def latent_shape(self, pipe: Any, size: Size) -> tuple[int, ...]:
        """Returns `[C, f, h, w]`.

        Raises:
            ConfigError: a model of two denoisers or of times for each place, or a size it cannot make.
        """
        if pipe.config.boundary_ratio is not None or pipe.config.expand_timesteps:
            setting = "expand_timesteps" if pipe.config.expand_timesteps else "boundary_ratio"
            raise ConfigError(
                f"model.path: this WanPipeline has {setting} in its model_index.json (Wan 2.2), which is not supported;"
                " take a model of one denoiser and one time (Wan 2.1)"
            )
        config, frames = pipe.transformer.config, pipe.vae_scale_factor_temporal
        if (size[0] - 1) % frames:
            raise ConfigError(
                f"model.size = {list(size)}: the number of frames must be 1 more than a multiple of {frames}"
            )
        height, width = latent_size(size, pipe.vae_scale_factor_spatial, config.patch_size[-1])
        return (config.in_channels, (size[0] - 1) // frames + 1, height, width)

    def encode(self, pipe: Any, prompts: Prompts, negatives: Negatives, size: Size) -> Encoded:
        """Encodes hidden states of the text encoder."""
        hidden, negative_hidden = pipe.encode_prompt(
            texts(prompts),
            _filled(prompts, negatives),
            max_sequence_length=_MOST_TOKENS,
            device=pipe.transformer.device,
        )
        dtype = pipe.transformer.dtype
        return {"encoder_hidden_states": hidden.to(dtype)}, {"encoder_hidden_states": negative_hidden.to(dtype)}


@final
class DiT(PipelineAdapter):
    """`DiTPipeline`.

    A prompt is a class: its number in the column `label`, or one of the pipeline's names for it in `prompt`. There is
    no negative prompt; the unconditional branch is the class that the model keeps for it.
    """

    pipeline = "DiTPipeline"

    def latent_shape(self, pipe: Any, size: Size) -> tuple[int, ...]:
        """Returns `[C, h, w]`; the model makes images of one size."""
        config, factor = pipe.transformer.config, pixels_a_latent(pipe)
        if latent_size(size, factor) != (config.sample_size, config.sample_size):
            pixels = config.sample_size * factor
            raise ConfigError(
                f"model.size = {list(size)}: a DiT makes images of one size; leave it out, or write [{pixels},"
                f" {pixels}]"
            )
        return (config.in_channels, config.sample_size, config.sample_size)

    def check(self, pipe: Any, prompts: Prompts) -> None:
        """Refuses a prompt that names no class, or has a negative prompt."""
        for columns in prompts:
            _label(pipe, columns, pipe.transformer.config.num_embeds_ada_norm)
            if columns.get("negative_prompt") is not None:
                raise ConfigError(
                    "negative_prompt: a DiT is asked for a class and has no negative prompt; leave the column out"
                )

    def encode(self, pipe: Any, prompts: Prompts, negatives: Negatives, size: Size) -> Encoded:
        """Encodes class numbers."""
        num_classes = pipe.transformer.config.num_embeds_ada_norm
        labels = torch.tensor(
            [_label(pipe, columns, num_classes) for columns in prompts], device=pipe.transformer.device
        )
        return {"class_labels": labels}, {"class_labels": torch.full_like(labels, num_classes)}

    def forward(self, denoiser: Any, latents: Tensor, timestep: Tensor, condition: Tensors, guidance: float) -> Tensor:
        """Computes the transformer's prediction without its learned variance."""
        return super().forward(denoiser, latents, timestep, condition, guidance)[:, : latents.shape[1]]

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
        """Draws images of the prompts' classes. The pipeline takes no latents: they take the place of its draw."""
        from diffusers.pipelines.dit import pipeline_dit

        library: Any = pipeline_dit
        labels = [_label(pipe, columns, pipe.transformer.config.num_embeds_ada_norm) for columns in prompts]
        draw, library.randn_tensor = library.randn_tensor, lambda *_, **__: latents
        try:
            images = pipe(
                labels, guidance_scale=guidance, num_inference_steps=num_steps, output_type="np", **arguments
            ).images
        finally:
            library.randn_tensor = draw
        return torch.from_numpy(images).movedim(-1, -3)


def _label(pipe: Any, columns: Mapping[str, Any], num_classes: int) -> int:
    label, names = columns.get("label"), getattr(pipe, "labels", None) or {}
    if isinstance(label, int) and 0 <= label < num_classes:
        return label
    if label is None and columns.get("prompt") in names:
        return int(names[columns["prompt"]])
    names_hint = f", or in 'prompt' one of the pipeline's names ({', '.join(list(names)[:3])}, ...)" if names else ""
    raise ConfigError(
        f"prompt {dict(columns)}: this pipeline draws classes; write a number from 0 to {num_classes - 1} in the column"
        f" 'label'{names_hint}"
    )
