"""Weight files: their dtype before they are loaded, quiet loading, and LoRA adapters."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

import torch
from torch import nn

from groupwise.config import ConfigError
from groupwise_images.diffusion.model import LoraConfig

_DTYPES = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64}


def stored_dtype(folder: Path, variant: str | None = None) -> torch.dtype:
    """Reads the dtype in which weights were saved: that of the first tensor of floats; fp32 where no tensor has a dtype
    that torch computes with.

    Args:
        folder: the folder of a model of diffusers, with safetensors.
        variant: the variant of the files, such as `fp16`.

    Example:
        >>> import tempfile
        >>> from safetensors.torch import save_file
        >>> folder = Path(tempfile.mkdtemp())
        >>> save_file({"weight": torch.zeros(1, dtype=torch.bfloat16)}, folder / "diffusion_pytorch_model.safetensors")
        >>> save_file(
        ...     {"weight": torch.zeros(1, dtype=torch.float16)},
        ...     folder / "diffusion_pytorch_model.fp16-00001-of-00001.safetensors",
        ... )
        >>> stored_dtype(folder), stored_dtype(folder, "fp16")
        (torch.bfloat16, torch.float16)
    """
    from safetensors import SafetensorError, safe_open

    name = "diffusion_pytorch_model" + ("" if variant is None else f".{variant}")
    for file in sorted([*folder.glob(f"{name}.safetensors"), *folder.glob(f"{name}-*.safetensors")]):
        try:
            with safe_open(file, "pt") as weights:
                dtypes = (_DTYPES.get(weights.get_slice(key).get_dtype()) for key in weights.keys())  # noqa: SIM118 (no mapping)
                if (stored := next((dtype for dtype in dtypes if dtype is not None), None)) is not None:
                    return stored
        except (OSError, SafetensorError):
            # The error is raised where the file is loaded.
            continue
    return torch.float32


# Loading and saving without the progress bars and the advice of the libraries, which would be between this
# project's own lines.


@contextmanager
def quiet() -> Iterator[None]:
    """Silences diffusers and transformers within the block: no progress, errors only; afterwards their settings are
    restored.
    """
    from diffusers.utils import logging as of_diffusers
    from transformers.utils import logging as of_transformers

    loggers: tuple[Any, ...] = (of_diffusers, of_transformers)
    settings = [(logger, logger.get_verbosity(), logger.is_progress_bar_enabled()) for logger in loggers]
    for logger in loggers:
        logger.set_verbosity_error()
        logger.disable_progress_bar()
    try:
        yield
    finally:
        for logger, verbosity, had_progress_bar in settings:
            logger.set_verbosity(verbosity)
            if had_progress_bar:
                logger.enable_progress_bar()


# A low-rank adapter on a denoiser, in diffusers' own format: added, switched off (the reference policy), saved and
# loaded.

WEIGHTS = "pytorch_lora_weights.safetensors"
"""The file that diffusers calls an adapter's weights."""


@final
class Adapted(nn.Module):
    """A denoiser with an adapter in it. Only the adapter is trained; switched off, the denoiser is what it was loaded
    as.

    Args:
        denoiser: a model of diffusers that adapters can be added to.
        config: rank, scale and layers.

    Raises:
        ConfigError: diffusers knows no adapters for this model, or it has none of the layers.
    """

    def __init__(self, denoiser: nn.Module, config: LoraConfig) -> None:
        super().__init__()
        import peft

        model: Any = denoiser
        if not hasattr(model, "add_adapter"):
            raise ConfigError(
                f"model.lora: diffusers has no adapters for {type(denoiser).__name__}; leave model.lora out and train"
                " the whole model"
            )
        denoiser.requires_grad_(False)
        settings = peft.LoraConfig(
            r=config.rank,
            lora_alpha=config.alpha,  # type: ignore[arg-type]
            lora_dropout=0.0,
            target_modules=list(config.target_modules),
            init_lora_weights="gaussian",
        )
        try:
            model.add_adapter(settings)
        except ValueError as error:
            raise ConfigError(f"model.lora.target_modules = {list(config.target_modules)}: {error}") from error
        # Small steps are lost in half precision; the adapter's layers cast their input themselves.
        for parameter in denoiser.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.to(torch.promote_types(parameter.dtype, torch.float32))
        self.denoiser = denoiser

    def forward(self, *arguments: Any, **keywords: Any) -> Any:
        """Calls the denoiser."""
        return self.denoiser(*arguments, **keywords)

    @contextmanager
    def disable_adapter(self) -> Iterator[None]:
        """Switches the adapter off within the block."""
        from peft.tuners.tuners_utils import BaseTunerLayer

        layers = [layer for layer in self.denoiser.modules() if isinstance(layer, BaseTunerLayer)]
        for layer in layers:
            layer.enable_adapters(False)
        try:
            yield
        finally:
            for layer in layers:
                layer.enable_adapters(True)

    def enable_gradient_checkpointing(self) -> None:
        """Switches the denoiser's gradient checkpointing on."""
        self.denoiser.enable_gradient_checkpointing()  # type: ignore[operator]

    def disable_gradient_checkpointing(self) -> None:
        """Switches the denoiser's gradient checkpointing off."""
        self.denoiser.disable_gradient_checkpointing()  # type: ignore[operator]


def save_lora(pipe: Any, part: str, denoiser: Any, folder: Path) -> None:
    """Writes the adapter as `pipeline.load_lora_weights(folder)` reads it, its scale with it."""
    import peft

    layers = {
        name: value.detach().cpu().contiguous() for name, value in peft.get_peft_model_state_dict(denoiser).items()
    }
    metadata = denoiser.peft_config["default"].to_dict()
    # peft holds a set, whose order differs from process to process.
    metadata["target_modules"] = sorted(metadata["target_modules"])
    type(pipe).save_lora_weights(
        folder, **{f"{part}_lora_layers": layers, f"{part}_lora_adapter_metadata": metadata}, safe_serialization=True
    )


def load_lora(pipe: Any, part: str, adapted: Adapted, folder: Path) -> None:
    """Copies an adapter's weights, as diffusers writes them, into the adapter of the same layers and rank.

    Raises:
        ConfigError: the file has other layers or another rank than `model.lora` states.
    """
    import peft

    state = type(pipe).lora_state_dict(str(folder), weight_name=WEIGHTS, use_safetensors=True, local_files_only=True)
    tensors = {
        name.removeprefix(f"{part}."): value
        for name, value in (state[0] if isinstance(state, tuple) else state).items()
    }
    adapter_state = peft.get_peft_model_state_dict(adapted.denoiser)  # type: ignore[arg-type]
    different = sorted({*tensors} ^ {*adapter_state}) or [
        name for name, value in adapter_state.items() if value.shape != tensors[name].shape
    ]
    if different:
        raise ConfigError(
            f"model.lora does not fit the adapter in {str(folder)!r}: they differ in {different[0]}; write the rank and"
            " target_modules it was made with"
        )
    peft.set_peft_model_state_dict(adapted.denoiser, tensors)  # type: ignore[arg-type]
