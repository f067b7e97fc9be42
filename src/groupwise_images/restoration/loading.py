"""Builds networks, adapts them and fills them with weights from disk; weights that do not fit are an error that lists
them.
"""

import copy
import json
import logging
import re
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from groupwise.config import ConfigError
from groupwise.processes import is_first_process
from groupwise.streams import Streams
from groupwise_images.restoration.model import NETWORK, WEIGHTS, LoraConfig, ModelConfig, Network, Pretrained

log = logging.getLogger("groupwise")

_SUFFIXES = (".safetensors", ".pt", ".pth", ".ckpt", ".bin")
_TABLES = ("state_dict", "model_state_dict", "model", "params_ema", "params", "network", "net", "weights")
"""Names under which training scripts save weights, in the order of preference. Of BasicSR's two names, the averaged
weights come first.
"""
_WRITE = "where it was made, save network.state_dict() alone, by torch.save or safetensors.torch.save_file"


def resolve(config: ModelConfig) -> Network:
    """Resolves a model to an architecture with a checkpoint.

    Raises:
        ConfigError: a folder without `network.json` or weights.
    """
    return config if isinstance(config, Network) else config.network()


def load(folder: str | Path) -> nn.Module:
    """Loads the network of a run's `model/` folder, or of one that `groupwise export` wrote, on the CPU in evaluation
    mode.

    It maps images `[N, C, H, W]` in [0, 1] to images of the same shape, or of `scale` times the sides; clamp what comes
    out, as evaluation does.

    Args:
        folder: holds `network.json` and `model.safetensors`; a class of the user's must be importable, as in training.

    Raises:
        ConfigError: files are missing, or do not belong together.

    Example:
        >>> import tempfile
        >>> from groupwise_images.restoration.network import Residual
        >>> config = Network(network=Residual(width=4, depth=1))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(config.network.build(), config, Path(folder))
        ...     load(folder)(torch.zeros(1, 1, 8, 8)).shape
        torch.Size([1, 1, 8, 8])
    """
    return open_network(Pretrained(path=str(folder)), Streams(0), torch.device("cpu")).eval()


def open_network(config: ModelConfig, streams: Streams, device: torch.device) -> nn.Module:
    """Opens the network with its weights, on its device; everything that is not trained has `requires_grad` false.

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
        raise ConfigError(
            "model: the network has no parameter that could be trained; set requires_grad for some, or give it an"
            " adapter (model.lora)"
        )
    if network.checkpoint is not None:
        _fill(module, newest(Path(network.checkpoint)), network.strict)
    return module


def add_lora(module: nn.Module, config: LoraConfig) -> nn.Module:
    """Puts an adapter on the named layers of a network; only the adapter is trained.

    Raises:
        ConfigError: no layer of that name can have an adapter.
    """
    import peft

    layers, targets = _adaptable(module), config.target_modules
    names = [name for name, layer in module.named_modules() if isinstance(layer, (nn.Conv2d, nn.Linear))]
    if targets is None:
        chosen = layers
    elif isinstance(targets, str):
        try:
            chosen = [name for name in names if re.fullmatch(targets, name)]
        except re.error as error:
            raise ConfigError(
                f"lora.target_modules = {targets!r}: {error}; write a regular expression, or a list of endings"
            ) from error
    else:
        chosen = [name for name in names if any(name == ending or name.endswith(f".{ending}") for ending in targets)]
    if not chosen or not set(chosen) <= set(layers):
        unfit = ", ".join(name for name in chosen if name not in layers) or "no layer"
        raise ConfigError(
            f"lora.target_modules = {targets!r} names {unfit}; the layers that can have an adapter are {layers}"
        )
    # Where no gradient is asked for, torch's transformer layers compute from the weights of their layers, without
    # calling them: adapters would be scored and trained, and left out of samples and evaluations.
    torch.backends.mha.set_fastpath_enabled(False)
    # The pattern matches whole names: peft reads a list as endings, and the name of a layer of several groups may end
    # in another layer's name.
    pattern = "|".join(re.escape(name) for name in chosen)
    settings = peft.LoraConfig(r=config.r, lora_alpha=config.alpha, target_modules=pattern)
    return cast(nn.Module, peft.get_peft_model(module, settings))  # type: ignore[arg-type]


def _adaptable(module: nn.Module) -> list[str]:
    """Lists the convolutions and linear maps on which an adapter has an effect, and into which peft can merge
    it again.
    """
    modules = list(module.named_modules())
    # MultiheadAttention reads the weight of this layer without calling it.
    bypassed = {f"{name}.out_proj".lstrip(".") for name, layer in modules if isinstance(layer, nn.MultiheadAttention)}
    layers = {name: layer for name, layer in modules if isinstance(layer, (nn.Conv2d, nn.Linear))}
    uses = Counter(id(layer._parameters.get("weight")) for layer in layers.values())

    def fits(name: str, layer: nn.Conv2d | nn.Linear) -> bool:
        # A weight that is computed at every call (weight_norm, spectral_norm) would drop what was merged into it.
        weight = layer._parameters.get("weight")
        plain = type(layer).forward in (nn.Conv2d.forward, nn.Linear.forward) and getattr(layer, "groups", 1) == 1
        return weight is not None and uses[id(weight)] == 1 and plain and name not in bypassed

    return [name for name, layer in layers.items() if fits(name, layer)]


def newest(path: Path) -> Path:
    """Finds a checkpoint file: the path itself, or the last one of a folder in natural order (`epoch9` before
    `epoch19`).

    Files of a folder must differ by their numbers alone (`epoch_9.pt`, `epoch19.safetensors`); of two of one number,
    safetensors is taken.

    Raises:
        ConfigError: there is none, or files of several names of which none is the newest (`epoch19.pt` and
            `optimiser.pt`).
    """
    if path.is_file():
        return path
    files = (
        [file for file in path.iterdir() if file.suffix in _SUFFIXES and not file.name.startswith(".")]
        if path.is_dir()
        else []
    )
    if not files:
        raise ConfigError(
            f"model.checkpoint = {str(path)!r}: no such file, and no folder with {', '.join(_SUFFIXES)} files"
        )
    # The same word may be written with an underscore, a dot or without.
    words = {re.sub(r"[-_ .\d]", "", file.stem.lower()) for file in files}
    if len(words) > 1:
        raise ConfigError(
            f"model.checkpoint = {str(path)!r}: it holds files of several names ({', '.join(sorted(words)[:5])}), none"
            " of them the newest; name the file"
        )
    return max(files, key=_number)


def _number(path: Path) -> tuple[list[int], bool]:
    return [int(digits) for digits in re.findall(r"\d+", path.stem)], path.suffix == ".safetensors"


def read_weights(path: Path) -> dict[str, Tensor]:
    """Reads the tensors of a checkpoint by name; a `.pt` file is read without running any code of its own.

    Raises:
        ConfigError: it cannot be read, or holds something other than tensors.
    """
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        content: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        # torch's message on pickled code begins with advice to run it.
        code = type(error).__name__ == "UnpicklingError" or "TorchScript" in str(error)
        reason = (
            "it holds code or objects, none of which is run"
            if code
            else f"it cannot be read ({type(error).__name__}: {_line(error)})"
        )
        raise ConfigError(f"model.checkpoint = {str(path)!r}: {reason}; {_WRITE}") from error
    return _table(content, path)


def _table(content: Any, path: Path) -> dict[str, Tensor]:
    """Finds the weights among the entries of a training script's file."""
    if (
        isinstance(content, Mapping)
        and content
        and all(isinstance(name, str) and isinstance(value, Tensor) for name, value in content.items())
    ):
        return dict(content)
    inner = (
        {name: value for name, value in content.items() if isinstance(value, Mapping)}
        if isinstance(content, Mapping)
        else {}
    )
    table_name = next((name for name in _TABLES if name in inner), None)
    if table_name is not None:
        return _table(inner[table_name], path)
    description = (
        f"{[str(name) for name in content][:5]}" if isinstance(content, Mapping) else f"a {type(content).__name__}"
    )
    raise ConfigError(
        f"model.checkpoint = {str(path)!r}: it holds {description} and no table of tensors by name, alone or under one"
        f" of {', '.join(_TABLES)}; {_WRITE}"
    )


def _line(error: Exception) -> str:
    """Cuts the first sentence out of a library's message."""
    return (str(error).splitlines() or [""])[0].partition(". ")[0].rstrip(".")


def save(module: nn.Module, config: ModelConfig, folder: Path) -> None:
    """Writes `model.safetensors` (an adapter merged into the weights) and `network.json`, from which `kind =
    "pretrained"` loads.

    With an adapter, its own weights are written separately, in `adapter/`, as peft reads them.
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
    tree = network.model_copy(update={"checkpoint": None, "lora": None, "strict": True}).model_dump(
        mode="json", exclude={"checkpoint", "lora"}
    )
    (folder / NETWORK).write_text(json.dumps(tree, indent=2) + "\n", encoding="utf-8")


def _fill(module: nn.Module, path: Path, strict: bool) -> None:
    """Copies a checkpoint into a network that may carry an adapter.

    The checkpoint may name a layer as it is called without the adapter (`last.weight`) or with it
    (`base_model.model.last.base_layer.weight`), and it may be of a whole of which this network is a part
    (`module.last.weight`), or of a part of it.
    """
    weights = read_weights(path)
    state = module.state_dict()
    checkpoint_prefix, network_prefix = _prefixes(set(map(_plain, weights)), set(map(_plain, state)), path)
    plain = {_plain(name): name for name in state}
    matched: dict[str, Tensor] = {}
    unexpected: list[str] = []
    for name, value in weights.items():
        place = None
        if _plain(name).startswith(checkpoint_prefix):
            place = plain.get(network_prefix + _plain(name).removeprefix(checkpoint_prefix))
        if place is None:
            unexpected.append(name)
        else:
            matched[place] = value
    mismatched = [
        f"{name} is {list(value.shape)}, not {list(state[name].shape)}"
        for name, value in matched.items()
        if value.shape != state[name].shape
    ]
    if mismatched:
        raise ConfigError(
            f"model.checkpoint = {str(path)!r}: {len(mismatched)} weights have another shape:"
            f" {'; '.join(mismatched[:3])}; is it another architecture?"
        )
    missing = [name for name in state if name not in matched]
    adapted = hasattr(module, "peft_config")
    identity_prefixes = tuple(getattr(module, "identity_without", ()))
    head = [name for name in missing if identity_prefixes and _plain(name).startswith(identity_prefixes)]
    adapter = [name for name in missing if name not in head and adapted and ".lora_" in name]
    base = [_plain(name) for name in missing if name not in (*adapter, *head)]
    if not matched or (strict and base):
        grown = "write strict = false to leave these as initialised" if matched else "no name fits"
        raise ConfigError(
            f"model.checkpoint = {str(path)!r}: {len(base)} weights of the network are missing: {', '.join(base[:5])}"
            + (f"; unexpected: {', '.join(unexpected[:5])}" if unexpected else "")
            + f"; {grown}, or give the checkpoint of this architecture"
        )
    # A checkpoint without any adapter is that of the network itself, and a fresh adapter changes nothing.
    named_adapter = [_plain(name) for name in adapter] if any(".lora_" in name for name in matched) else []
    lacking = [*base, *map(_plain, head), *named_adapter]
    if strict and (unexpected or lacking):
        problems = [*(f"unexpected {name}" for name in unexpected), *(f"missing {name}" for name in lacking)]
        raise ConfigError(
            f"model.checkpoint = {str(path)!r}: {', '.join(problems[:6])} ({len(problems)} names); write strict = false"
            " to go on without them"
        )
    if (unexpected or lacking) and is_first_process():
        log.warning(
            "checkpoint %s: %d of %d weights are read; as initialised stay %s; unexpected and left out are %s",
            *(path, len(matched), len(state), ", ".join(lacking) or "none", ", ".join(unexpected) or "none"),
        )
    try:
        module.load_state_dict({**state, **matched})
    except Exception as error:
        # Sparse and quantised tensors are refused here, and tensors that a network's own hooks refuse.
        raise ConfigError(
            f"model.checkpoint = {str(path)!r}: its weights cannot be copied: {' '.join(str(error).split())}; {_WRITE}"
        ) from error


def _prefixes(checkpoint_names: Collection[str], network_names: Collection[str], path: Path) -> tuple[str, str]:
    """Finds the prefix of the checkpoint's names that the network's lack, and the other way about; one of the two, or
    both, are empty.

    Raises:
        ConfigError: two parts of the checkpoint fit equally well.

    Example:
        >>> _prefixes({"module.a.weight", "module.b.weight"}, {"a.weight", "b.weight"}, Path("a.pt"))
        ('module.', '')
    """
    checkpoint_heads, network_heads = _heads(checkpoint_names, network_names), _heads(network_names, checkpoint_names)
    (best, fits), (wrapped, fits_wrapped) = (
        max(heads.items(), key=lambda pair: (pair[1], not pair[0]), default=("", 0))
        for heads in (checkpoint_heads, network_heads)
    )
    if fits_wrapped > fits:
        return "", wrapped
    equal = sorted(head for head, number in checkpoint_heads.items() if number == fits)
    if best and len(equal) > 1:
        raise ConfigError(
            f"model.checkpoint = {str(path)!r}: its weights under {' and under '.join(equal)} fit equally well; write"
            " those of one network alone"
        )
    return best, ""


def _heads(long: Collection[str], short: Collection[str]) -> Counter[str]:
    """Counts, for each prefix, the long names that are that prefix followed by a short name."""
    short_names = set(short)
    return Counter(
        name[:place]
        for name in long
        for place in (0, *(dot.end() for dot in re.finditer(r"\.", name)))
        if name[place:] in short_names
    )


def _plain(name: str) -> str:
    return name.removeprefix("base_model.model.").replace(".base_layer.", ".")
