"""Networks and their weights on disk: built, adapted, then filled; what does not fit is an error that lists it."""

from __future__ import annotations

import copy
import json
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from groupwise.config import ConfigError, validate
from groupwise.domain.restoration.model import LoraConfig, ModelConfig, Network, Pretrained
from groupwise.domain.restoration.source.folder import natural
from groupwise.processes import is_first_process
from groupwise.streams import Streams

log = logging.getLogger("groupwise")

NETWORK = "network.json"
WEIGHTS = "model.safetensors"


def resolve(config: ModelConfig) -> Network:
    """The model as an architecture with a checkpoint.

    Raises:
        ConfigError: a folder without `network.json` or weights.
    """
    if isinstance(config, Network):
        return config
    folder = Path(config.path)
    for name in (NETWORK, WEIGHTS):
        if not (folder / name).is_file():
            raise ConfigError(
                f"model.path = {config.path!r}: no {name} in it; give a folder that Groupwise wrote (RUN/model), or write model.kind = 'network' and "
                "model.checkpoint"
            )
    tree = json.loads((folder / NETWORK).read_text(encoding="utf-8"))
    return validate(Network, {**tree, "checkpoint": str(folder / WEIGHTS), "lora": None}, str(folder / NETWORK)).model_copy(update={"lora": config.lora})


def load(folder: str | Path) -> nn.Module:
    """The network of a run's `model/` folder, or of one that `groupwise export` wrote, on the CPU in evaluation mode.

    It maps images `[N, C, H, W]` in [0, 1] to images of the same shape; clamp what comes out, as evaluation does.

    Args:
        folder: holds `network.json` and `model.safetensors`; a class of one's own must be importable, as in training.

    Raises:
        ConfigError: files are missing, or do not belong together.

    Example:
        >>> import tempfile
        >>> from groupwise.domain.restoration.network import Residual
        >>> config = Network(network=Residual(width=4, depth=1))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(config.network.build(), config, Path(folder))
        ...     load(folder)(torch.zeros(1, 1, 8, 8)).shape
        torch.Size([1, 1, 8, 8])
    """
    return open_network(Pretrained(path=str(folder)), Streams(0), torch.device("cpu")).eval()


def open_network(config: ModelConfig, streams: Streams, device: torch.device) -> nn.Module:
    """The network with its weights, on its device; everything that is not trained has `requires_grad` false.

    Raises:
        ConfigError: it cannot be built, or the checkpoint does not fit.
    """
    network = resolve(config)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(streams.seed("model") if network.seed is None else network.seed)
        module = network.network.build()
        if network.lora is not None:
            module = add_lora(module, network.lora)
    module = module.to(device=device, dtype=getattr(torch, network.dtype))
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise ConfigError("model: the network has no parameter that could be trained")
    if network.checkpoint is not None:
        _fill(module, newest(Path(network.checkpoint)), network.strict)
    return module


def add_lora(module: nn.Module, config: LoraConfig) -> nn.Module:
    """The network with an adapter on the named layers; only the adapter is trained.

    Raises:
        ConfigError: no layer of that name, or one that cannot have an adapter.
    """
    from peft import LoraConfig as PeftConfig
    from peft import get_peft_model

    fit = [name for name, layer in module.named_modules() if isinstance(layer, (nn.Conv2d, nn.Linear)) and getattr(layer, "groups", 1) == 1]
    wanted = config.target_modules
    try:
        named = fit if wanted is None else [name for name in fit if re.fullmatch(wanted, name)] if isinstance(wanted, str) else list(wanted)
    except re.error as error:
        raise ConfigError(f"lora.target_modules = {wanted!r}: {error}; write a regular expression, or a list of endings") from error
    if not named:
        raise ConfigError(f"lora.target_modules = {wanted!r} names no layer; layers that can have an adapter are {fit}")
    # Whole names: peft takes a list as endings, and a layer of several groups may end as another is called.
    target: Any = named if isinstance(wanted, tuple) else "|".join(re.escape(name) for name in named)
    try:
        return cast(nn.Module, get_peft_model(module, PeftConfig(r=config.r, lora_alpha=config.alpha, target_modules=target)))  # type: ignore[arg-type]
    except ValueError as error:
        raise ConfigError(f"lora.target_modules = {config.target_modules!r}: {error}; layers that can have an adapter are {fit}") from error


def newest(path: Path) -> Path:
    """A checkpoint file: the path itself, or the last one of a folder in natural order (`epoch9` before `epoch19`).

    Raises:
        ConfigError: there is none.
    """
    if path.is_file():
        return path
    found = [each for pattern in ("*.safetensors", "*.pt", "*.pth") for each in path.glob(pattern)] if path.is_dir() else []
    if not found:
        raise ConfigError(f"model.checkpoint = {str(path)!r}: no such file, and no folder with .safetensors or .pt files")
    return max(found, key=lambda each: natural(each.name))


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a checkpoint by name; a `.pt` file is read without running any code of its own.

    Raises:
        ConfigError: it cannot be read, or holds something other than tensors.
    """
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        found: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        # What torch says of pickled code begins with how to run it all the same.
        code = type(error).__name__ == "UnpicklingError" or "TorchScript" in str(error)
        why = "it holds code or objects, none of which is run" if code else f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        raise ConfigError(f"model.checkpoint = {str(path)!r}: {why}; write tensors alone, as safetensors") from error
    # Training scripts keep the weights beside their optimiser.
    for name in ("state_dict", "model", "params_ema", "params", "net"):
        if isinstance(found, Mapping) and isinstance(found.get(name), Mapping):
            found = found[name]
    if not isinstance(found, Mapping) or not all(isinstance(name, str) and isinstance(value, Tensor) for name, value in found.items()):
        what = f"{[str(name) for name in found][:5]}" if isinstance(found, Mapping) else f"a {type(found).__name__}"
        raise ConfigError(f"model.checkpoint = {str(path)!r}: it holds {what} and no table of tensors by name; write the network's state_dict() alone")
    return {name.removeprefix("module."): value for name, value in found.items()}


def save(module: nn.Module, config: ModelConfig, folder: Path) -> None:
    """Writes `model.safetensors` (an adapter merged into the weights) and `network.json`, from which `kind = "pretrained"` loads.

    With an adapter, its own weights are written beside, in `adapter/`, as peft reads them.
    """
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    network = resolve(config)
    plain = module
    if hasattr(module, "merge_and_unload"):
        cast(Any, module).save_pretrained(folder / "adapter")
        plain = cast(Any, copy.deepcopy(module)).merge_and_unload()
    weights = {name: value.detach().cpu().contiguous().clone() for name, value in plain.state_dict().items()}
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})
    tree = network.model_copy(update={"checkpoint": None, "lora": None, "strict": True}).model_dump(mode="json", exclude={"checkpoint", "lora"})
    (folder / NETWORK).write_text(json.dumps(tree, indent=2) + "\n", encoding="utf-8")


def _fill(module: nn.Module, path: Path, strict: bool) -> None:
    """Copies a checkpoint into a network that may carry an adapter.

    The checkpoint may name a layer as it is called without the adapter (`last.weight`) or with it (`base_model.model.last.base_layer.weight`).
    """
    given = read_weights(path)
    own = module.state_dict()
    plain = {_plain(name): name for name in own}
    found: dict[str, Tensor] = {}
    unexpected: list[str] = []
    for name, value in given.items():
        place = name if name in own else plain.get(_plain(name))
        if place is None:
            unexpected.append(name)
        else:
            found[place] = value
    wrong = [f"{name} is {list(value.shape)}, not {list(own[name].shape)}" for name, value in found.items() if value.shape != own[name].shape]
    if wrong:
        raise ConfigError(f"model.checkpoint = {str(path)!r}: {len(wrong)} weights have another shape: {'; '.join(wrong[:3])}; is it another architecture?")
    missing = [name for name in own if name not in found]
    adapter = [name for name in missing if ".lora_" in name]
    base = [_plain(name) for name in missing if ".lora_" not in name]
    if base:
        raise ConfigError(
            f"model.checkpoint = {str(path)!r}: {len(base)} weights of the network are missing: {', '.join(base[:5])}"
            + (f"; unexpected: {', '.join(unexpected[:5])}" if unexpected else "")
            + "; give the checkpoint of this architecture (strict = false does not help: the network itself would stay untrained)"
        )
    any_adapter = any(".lora_" in name for name in found)
    if strict and (unexpected or (adapter and any_adapter)):
        listed = [*(f"unexpected {name}" for name in unexpected), *(f"missing {name}" for name in (adapter if any_adapter else []))]
        raise ConfigError(f"model.checkpoint = {str(path)!r}: {', '.join(listed[:6])} ({len(listed)} names); write strict = false to go on without them")
    if (unexpected or (adapter and any_adapter)) and is_first_process():
        log.warning("checkpoint %s: missing %s, unexpected %s", path, [_plain(name) for name in adapter], unexpected)
    module.load_state_dict({**own, **found})


def _plain(name: str) -> str:
    return name.removeprefix("base_model.model.").replace(".base_layer.", ".")
