"""The checks of a folder or a name on the hub before any weight of it is read: whether it can hold a causal LM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from huggingface_hub import constants, try_to_load_from_cache
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig

from groupwise.causal_lm.config import CausalLMConfig
from groupwise.causal_lm.gguf import plain_folder
from groupwise.config import ConfigError
from groupwise.learner.quantised import refuse_quantised
from groupwise.processes import is_out_of_memory

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", "vocab.txt", "tekken.json")

NO_CODE = {"trust_remote_code": False}
"""Without this argument transformers asks at the terminal whether to run a folder's own code."""


def checked(config: CausalLMConfig) -> CausalLMConfig:
    """Returns the settings with the path of a plain folder or a hub id, whose files say that they are a causal LM.

    Raises:
        ConfigError: as `groupwise.causal_lm.loading.load`, before any weight is read.
    """
    config = config.model_copy(update={"path": plain_folder(config.path)})
    check_folder(config.path)
    _check_kind(config)
    return config


def read_config(config: CausalLMConfig) -> Any:
    """Returns the configuration of a model, as transformers has it; None where it cannot be read, which is reported
    where the model itself is loaded.

    Args:
        config: as `checked` returned it.
    """
    try:
        return AutoConfig.from_pretrained(config.path, revision=config.revision or "main", **NO_CODE)
    except Exception as error:  # the readers of folders raise errors of any kind
        if is_out_of_memory(error):
            raise
        return None


def check_folder(path: str) -> None:
    """Refuses a local folder that cannot hold a causal LM, saying which file is missing. A name that is no local path
    is left to the hub.

    Raises:
        ConfigError: as `groupwise.causal_lm.loading.load`.
    """
    folder = Path(path)
    if not folder.is_dir():
        if (
            folder.exists()
            or path.startswith((".", "/", "~"))
            or path.count("/") > 1
            or ("/" in path and folder.parent.is_dir())
        ):
            raise ConfigError(
                f"path = {path!r}: no such folder; give a folder saved by save_pretrained, or a hub id like"
                " Qwen/Qwen2.5-0.5B"
            )
        _check_hub(path)
        return
    if not (folder / "config.json").is_file() and (folder / "adapter_config.json").is_file():
        raise ConfigError(
            f"path = {path!r}: an adapter without its model; merge it once:"
            " peft.AutoPeftModelForCausalLM.from_pretrained(path).merge_and_unload(), save that with its tokenizer,"
            " and give the new folder"
        )
    if not (folder / "config.json").is_file():
        raise ConfigError(
            f"path = {path!r}: no config.json in it; save the model there with model.save_pretrained({path!r})"
        )
    if not any((folder / name).is_file() for name in _TOKENIZER_FILES) and not any(folder.glob("*.tiktoken")):
        raise ConfigError(
            f"path = {path!r}: no tokenizer in it (no tokenizer.json); save one there with"
            f" tokenizer.save_pretrained({path!r})"
        )
    if not any(folder.glob("*.safetensors")):
        if any(folder.glob("*.bin")) or any(folder.glob("*.pt")) or any(folder.glob("*.pth")):
            raise ConfigError(
                f"path = {path!r}: its weights are pickle files (.bin), which can run code when opened; only"
                " safetensors are read. Convert them once where you trust them:"
                " AutoModelForCausalLM.from_pretrained(path).save_pretrained(path)"
            )
        raise ConfigError(
            f"path = {path!r}: no weights in it (no *.safetensors); save the model there with"
            f" model.save_pretrained({path!r})"
        )


def _check_kind(config: CausalLMConfig) -> None:
    """Refuses a model whose configuration says that it is no decoder-only language model, or is quantised, before any
    weight is read.
    """
    if (model_config := read_config(config)) is None:
        return
    refuse_quantised(model_config, f"path = {config.path!r}")
    use = "Groupwise trains decoder-only causal language models; give one, such as Qwen/Qwen2.5-0.5B"
    if getattr(model_config, "is_encoder_decoder", False):
        raise ConfigError(
            f"path = {config.path!r}: its config.json says is_encoder_decoder = true (model_type ="
            f" {model_config.model_type!r}): the prompt is read by an encoder, and {use}"
        )
    if type(model_config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise ConfigError(
            f"path = {config.path!r}: transformers has no causal language model of model_type ="
            f" {model_config.model_type!r}, which its config.json names; {use}"
        )


def _check_hub(path: str) -> None:
    """Refuses a hub that does not answer at once, instead of half a minute of retries in the libraries below."""
    try:
        cached_file = try_to_load_from_cache(path, "config.json")
    except ValueError:  # transformers reports a path that is no name of the hub
        return
    if constants.HF_HUB_OFFLINE or isinstance(cached_file, str):
        return
    import httpx

    try:
        httpx.head(constants.ENDPOINT, timeout=10)
    except httpx.HTTPError as error:
        raise ConfigError(
            f"path = {path!r}: there is no such folder here, no model of this name was fetched before, and the hub"
            f" cannot be reached ({error}); give a folder saved by save_pretrained"
        ) from error
