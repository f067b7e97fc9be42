"""Loads a model with its tokenizer from a folder or hub id, once the folder is known to hold a causal LM, and saves a
plain folder that transformers loads.
"""

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, final

import torch
from huggingface_hub import constants, try_to_load_from_cache
from torch import nn
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from groupwise.causal_lm.backbone import Backbone
from groupwise.causal_lm.config import CausalLMConfig, LoraConfig
from groupwise.causal_lm.gguf import plain_folder
from groupwise.config import ConfigError
from groupwise.learner.quantised import refuse_quantised
from groupwise.processes import is_out_of_memory

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", "vocab.txt", "tekken.json")

NO_CODE = {"trust_remote_code": False}
"""Without this argument transformers asks at the terminal whether to run a folder's own code."""


def checked(config: CausalLMConfig) -> CausalLMConfig:
    """Returns the settings with the path of a plain folder or a hub id, whose files describe a causal LM.

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
    """Refuses a local folder that cannot hold a causal LM, saying which file is missing. A name that is not a local
    path is left to the hub.

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
    """Refuses a model whose configuration states that it is not a decoder-only language model, or is quantised, before
    any weight is read.
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
    """Refuses an unreachable hub at once, instead of after half a minute of retries in the libraries."""
    try:
        cached_file = try_to_load_from_cache(path, "config.json")
    except ValueError:  # transformers raises it for a path that cannot be a name on the hub
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


@final
@dataclass(frozen=True)
class LoadedLM:
    """A causal LM ready for use.

    Args:
        model: the module that is trained (with its adapter, if any).
        tokenizer: its tokenizer, with an end and a pad token.
        backbone: the model taken apart at its head.
    """

    model: nn.Module
    tokenizer: Any
    backbone: Backbone


def load(config: CausalLMConfig, device: str | torch.device = "cpu") -> LoadedLM:
    """Loads the model that `config` names.

    Args:
        config: folder or hub id, dtype, adapter.
        device: where the weights go.

    Raises:
        ConfigError: no such folder; an encoder-decoder or an encoder; no ``config.json``, tokenizer or safetensors
            weights in it; quantised weights, or weights that do not fit; no end token; a family that is not supported;
            an adapter whose target modules do not exist.

    Only safetensors are read, and no code from the folder is run.

    Example:
        >>> from groupwise.causal_lm.config import SmallModelConfig
        >>> from groupwise.causal_lm.small import character_tokenizer, small_model
        >>> import tempfile
        >>> folder, tokenizer = tempfile.mkdtemp(), character_tokenizer("ab")
        >>> save(small_model(SmallModelConfig(hidden_size=8, num_heads=2), tokenizer, seed=0), tokenizer, folder)
        >>> loaded = load(CausalLMConfig(path=folder, lora=LoraConfig(r=2)))
        >>> (
        ...     loaded.tokenizer.eos_token,
        ...     all("lora" in name for name, weight in loaded.model.named_parameters() if weight.requires_grad),
        ... )
        ('<|end|>', True)
    """
    config = checked(config)
    tokenizer = load_tokenizer(config.path, config.revision)
    model = load_model(config, "auto" if config.dtype == "auto" else getattr(torch, config.dtype))
    return prepared(model, tokenizer, config.dropout, config.lora, device, config.path)


def load_model(config: CausalLMConfig, dtype: torch.dtype | str) -> Any:
    """Loads the model alone, as transformers makes it.

    Args:
        config: as `checked` returned it.
        dtype: the dtype of its weights, or `"auto"`.

    Raises:
        ConfigError: as `load`.
    """
    arguments: dict[str, Any] = {
        "dtype": dtype,
        "revision": config.revision or "main",
        "use_safetensors": True,
        "output_loading_info": True,
    } | NO_CODE
    if config.attention is not None:
        arguments["attn_implementation"] = config.attention
    try:
        with without_progress_bars():
            model, report = cast(Any, AutoModelForCausalLM.from_pretrained(config.path, **arguments))
    except Exception as error:  # transformers raises errors of any kind for an unknown folder
        if is_out_of_memory(error):
            raise
        if "ignore_mismatched_sizes" in str(error):
            raise ConfigError(
                f"path = {config.path!r}: its weights have other shapes than its config.json says; save the model anew"
            ) from error
        raise ConfigError(
            f"path = {config.path!r}: transformers cannot load a causal language model from it: {_first_line(error)}"
        ) from error
    if missing := sorted(report["missing_keys"]):
        missing_sample = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
        raise ConfigError(
            f"path = {config.path!r}: its weights lack {len(missing)} tensors ({missing_sample}); they would be random."
            " Save the whole model into the folder"
        )
    return model


def prepared(
    model: Any,
    tokenizer: Any,
    dropout: str = "off",
    lora: LoraConfig | None = None,
    device: str | torch.device = "cpu",
    path: str = "",
) -> LoadedLM:
    """Prepares a model and a tokenizer that a program holds, as `load` does with those of a folder; both are changed in
    place.

    Args:
        model: a causal language model of transformers, or one with an adapter of peft.
        tokenizer: its tokenizer.
        dropout: `off` sets every rate of dropout to 0.
        lora: an adapter to add.
        device: where the weights go.
        path: what an error calls the model.

    Raises:
        ConfigError: quantised weights, no end token, more tokens than embeddings, a family that is not supported, or an
            adapter whose target modules do not exist.
    """
    refuse_quantised(getattr(model, "config", None), f"path = {path!r}" if path else "model")
    if lora is not None and hasattr(model, "peft_config"):
        raise ConfigError("model: it has an adapter already, which is trained; leave domain.model.lora out")
    fit_tokenizer(tokenizer, model, path)
    model = model.to(device)
    if dropout == "off":
        _without_dropout(model)
    trained: nn.Module = model if lora is None else add_lora(model, lora)
    return LoadedLM(trained, tokenizer, Backbone(trained))


def load_tokenizer(path: str, revision: str | None = None) -> Any:
    """Loads the tokenizer of a folder or hub id.

    Raises:
        ConfigError: it cannot be loaded.
    """
    try:
        return AutoTokenizer.from_pretrained(path, revision=revision or "main", **NO_CODE)
    except Exception as error:  # the readers of tokenizers raise errors of any kind
        if is_out_of_memory(error):
            raise
        path_note = "" if Path(path).is_dir() else "there is no such folder here, and as a name on the hub "
        raise ConfigError(
            f"path = {path!r}: {path_note}its tokenizer cannot be loaded: {_first_line(error)}"
        ) from error


def fit_tokenizer(tokenizer: Any, model: Any, path: str = "") -> None:
    """Gives the tokenizer an end token (from the model's configuration, if need be) and a pad token (the end token, if
    need be).

    The pad token never reaches a loss: padding is outside the mask and outside attention.

    Raises:
        ConfigError: no end token anywhere, or a tokenizer with more tokens than the model has embeddings.

    Example:
        >>> from groupwise.causal_lm.config import SmallModelConfig
        >>> from groupwise.causal_lm.small import character_tokenizer, small_model
        >>> tokenizer = character_tokenizer("ab")
        >>> model = small_model(SmallModelConfig(hidden_size=8, num_heads=2), tokenizer, seed=0)
        >>> tokenizer.pad_token = None
        >>> fit_tokenizer(tokenizer, model)
        >>> tokenizer.pad_token == tokenizer.eos_token
        True
    """
    rows = model.get_input_embeddings().weight.shape[0]
    place = f"path = {path!r}" if path else "model"
    if len(tokenizer) > rows:
        raise ConfigError(
            f"{place}: the tokenizer has {len(tokenizer)} tokens and the model {rows} embeddings; "
            "use the model's own tokenizer, or model.resize_token_embeddings(len(tokenizer)) and save again"
        )
    if tokenizer.eos_token_id is None:
        end_tokens = [
            getattr(source, "eos_token_id", None)
            for source in (getattr(model, "generation_config", None), model.config)
        ]
        ids = [
            i
            for value in end_tokens
            for i in (value if isinstance(value, list | tuple) else [value])
            if isinstance(i, int) and 0 <= i < len(tokenizer)
        ]
        if not ids:
            raise ConfigError(
                f"{place}: the tokenizer has no end-of-sequence token, so no completion could end; "
                'write "eos_token": "<the token>" into tokenizer_config.json (a token of its vocabulary)'
                + ("" if path else ', or tokenizer.eos_token = "<the token>"')
            )
        tokenizer.eos_token = tokenizer.convert_ids_to_tokens(ids[0])
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token


def _without_dropout(model: nn.Module) -> None:
    """Sets the dropout rates to zero, in dropout layers and in layers that keep their rate as a number. The
    configuration that is saved does not change.
    """
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        for name, value in vars(module).items():
            if "drop" in name and isinstance(value, float):
                setattr(module, name, 0.0)


def add_lora(model: nn.Module, config: LoraConfig) -> nn.Module:
    """Puts an adapter on the named layers of a model; only the adapter is trained.

    Raises:
        ConfigError: target modules that the model does not have.
    """
    from peft import LoraConfig as PeftConfig
    from peft import get_peft_model

    target = config.target_modules if isinstance(config.target_modules, str) else list(config.target_modules)
    settings = PeftConfig(
        task_type="CAUSAL_LM",
        r=config.r,
        lora_alpha=config.alpha,  # type: ignore[arg-type]
        lora_dropout=config.dropout,
        target_modules=target,
    )
    try:
        with warnings.catch_warnings():
            # peft calls a function that transformers has renamed, and warns that it derived a layer's layout.
            warnings.filterwarnings(
                "ignore", message="`is_gradient_checkpointing` is deprecated", category=FutureWarning
            )
            warnings.filterwarnings("ignore", message="fan_in_fan_out is set to", category=UserWarning)
            return get_peft_model(model, settings)  # type: ignore[arg-type]
    except ValueError as error:
        linear = sorted(
            {name.rsplit(".", 1)[-1] for name, module in model.named_modules() if isinstance(module, nn.Linear)}
            - {"lm_head"}
        )
        raise ConfigError(
            f"lora.target_modules = {target}: {_first_line(error)}; linear layers here are {linear}, or write"
            ' "all-linear"'
        ) from error


def save(model: Any, tokenizer: Any, folder: str | Path, *, merge: bool = True) -> None:
    """Writes a plain transformers folder (safetensors, tokenizer), which ``AutoModelForCausalLM.from_pretrained`` loads
    without Groupwise.

    Args:
        model: the trained model; not changed.
        tokenizer: saved next to it.
        folder: where to; made if absent.
        merge: add the adapter to the weights it adapts. Without, only the adapter is written, which needs its base
            model to load.

    Example:
        >>> from groupwise.causal_lm.config import SmallModelConfig
        >>> from groupwise.causal_lm.small import character_tokenizer, small_model
        >>> import tempfile
        >>> folder, tokenizer = tempfile.mkdtemp(), character_tokenizer("ab")
        >>> save(small_model(SmallModelConfig(hidden_size=8, num_heads=2), tokenizer, seed=0), tokenizer, folder)
        >>> (
        ...     sorted(path.name for path in Path(folder).glob("*.safetensors")),
        ...     AutoModelForCausalLM.from_pretrained(folder).config.vocab_size,
        ... )
        (['model.safetensors'], 5)
    """
    if merge and hasattr(model, "peft_config"):
        model = _merged(model)
    for adapter in getattr(model, "peft_config", {}).values():
        if isinstance(adapter.target_modules, set):
            # The order of a set differs from process to process, and equal runs write equal files.
            adapter.target_modules = sorted(adapter.target_modules)
    with without_progress_bars(), _writing_on_any_rank(model):
        model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def unused_rows(model: Any, tokenizer: Any) -> list[str]:
    """Returns a remark where the embedding table has rows that no token of the tokenizer uses."""
    rows = model.get_input_embeddings().weight.shape[0] - len(tokenizer)
    if rows <= 0:
        return []
    return [
        f"model: its embedding table has {rows} rows that none of the tokenizer's {len(tokenizer)} tokens uses; a model"
        " that was trained never writes them, and one with random weights does"
    ]


def _merged(model: Any) -> Any:
    """Returns a model with its adapter added to the weights. Only the weights that the adapter changes are copied.
    Adding in place and subtracting again would leave rounding errors in the weights that are trained.
    """
    from peft.tuners.tuners_utils import BaseTunerLayer

    adapters: list[Any] = [module for module in model.modules() if isinstance(module, BaseTunerLayer)]
    adapted = {id(parameter) for module in adapters for parameter in module.parameters()}
    shared = {id(parameter): parameter for parameter in model.parameters() if id(parameter) not in adapted}
    return copy.deepcopy(model, shared).merge_and_unload()


@contextmanager
def _writing_on_any_rank(model: Any) -> Iterator[None]:
    """Lets transformers write files on every process, because each process may have a server that reads them."""
    model.should_save_on_this_rank = lambda is_main_process: is_main_process
    try:
        yield
    finally:
        del model.should_save_on_this_rank


@contextmanager
def without_progress_bars() -> Iterator[None]:
    """Hides the bars that transformers draws for every file, so that only the run's own bar is on the screen."""
    were_enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if were_enabled:
            logging.enable_progress_bar()


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
