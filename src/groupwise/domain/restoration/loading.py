"""Networks and their weights on disk: built, adapted, then filled; what does not fit is an error that lists it."""

from __future__ import annotations

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
from groupwise.domain.restoration.model import NETWORK, WEIGHTS, LoraConfig, ModelConfig, Network, Pretrained
from groupwise.domain.restoration.source.folder import natural
from groupwise.processes import is_first_process
from groupwise.streams import Streams

log = logging.getLogger("groupwise")

_SUFFIXES = (".safetensors", ".pt", ".pth", ".ckpt", ".bin")
_PART = re.compile(r"(?P<name>.+)-\d{5}-of-(?P<count>\d{5})")
_TABLES = ("state_dict", "model_state_dict", "model", "params_ema", "params", "network", "net", "weights")
"""Names under which training scripts keep weights, the first that is there; of BasicSR's two the averaged ones."""
_WRITE = "where it was made, save network.state_dict() alone, by torch.save or safetensors.torch.save_file"


def resolve(config: ModelConfig) -> Network:
    """The model as an architecture with a checkpoint.

    Raises:
        ConfigError: a folder without `network.json` or weights.
    """
    return config if isinstance(config, Network) else config.network()


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
        own = getattr(module, "num_controls", network.network.num_controls)
        if network.network.num_controls and own != network.network.num_controls:
            raise ConfigError(
                f"network.controls = {network.network.num_controls}, and the network's num_controls is {own}; write"
                f" controls = {own}"
            )
        if network.lora is not None:
            module = add_lora(module, network.lora)
    lazy = [
        name
        for name, parameter in module.named_parameters()
        if isinstance(parameter, nn.parameter.UninitializedParameter)
    ]
    if lazy:
        raise ConfigError(
            f"model: {lazy[0]} has no size yet ({len(lazy)} such); write layers with sizes (Conv2d for LazyConv2d)"
        )
    module = module.to(device=device, dtype=getattr(torch, network.dtype))
    if not any(parameter.requires_grad for parameter in module.parameters()):
        number = sum(1 for _ in module.parameters())
        why = (
            f": requires_grad is false for all {number} of them; set it to true for some, or give it an adapter"
            " (model.lora)"
            if number
            else ""
        )
        raise ConfigError(f"model: the network has no parameter that could be trained{why}")
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

    layers = {name: layer for name, layer in module.named_modules() if isinstance(layer, (nn.Conv2d, nn.Linear))}
    read = {
        f"{name}.out_proj".lstrip(".")
        for name, each in module.named_modules()
        if isinstance(each, nn.MultiheadAttention)
    }
    cannot = {name: why for name, layer in layers.items() if (why := _no_adapter(layer, name in read))}
    fit = [name for name in layers if name not in cannot]
    given, said = (
        config.target_modules,
        "lora" if config.target_modules is None else f"lora.target_modules = {config.target_modules!r}",
    )
    can = (
        f"layers that can have an adapter are {fit}"
        if fit
        else "the network has no convolution and no linear map of torch.nn that could"
    )
    if given is None:
        target = fit
    elif isinstance(given, str):
        try:
            target = [name for name in fit if re.fullmatch(given, name)]
        except re.error as error:
            raise ConfigError(f"{said}: {error}; write a regular expression, or a list of endings") from error
    else:
        target = [name for name in layers if any(name == ending or name.endswith(f".{ending}") for ending in given)]
        for name in target:
            if name in cannot:
                raise ConfigError(f"{said}: {name} is {cannot[name]}; {can}")
    shared = Counter(id(layer.weight) for layer in layers.values())
    for name in target:
        if shared[id(layers[name].weight)] > 1:
            raise ConfigError(
                f"{said}: {name} shares its weight with another layer, and an adapter of one would be merged into both;"
                " leave it out"
            )
    if not target:
        raise ConfigError(f"{said} names no layer; {can}")
    # Where no gradient is asked for, torch's transformer layers compute from the weights of their layers, without
    # calling them: adapters would be scored and trained, and left out of what is drawn and evaluated.
    torch.backends.mha.set_fastpath_enabled(False)
    # Whole names: peft takes a list as endings, and a layer of several groups may end as another is called.
    whole = "|".join(re.escape(name) for name in target)
    return cast(
        nn.Module, get_peft_model(module, PeftConfig(r=config.r, lora_alpha=config.alpha, target_modules=whole))
    )  # type: ignore[arg-type]


def _no_adapter(layer: nn.Module, read: bool) -> str:
    """Why a convolution or linear map cannot have an adapter; empty where it can."""
    if getattr(layer, "groups", 1) > 1:
        return "a grouped convolution, whose adapter peft cannot merge"
    if read:
        return "read by its MultiheadAttention, which would pass an adapter by"
    if type(layer).forward not in (nn.Conv2d.forward, nn.Linear.forward):
        return "one with a forward of its own, which may do something else with a merged weight"
    # weight_norm and spectral_norm make it anew from others at every call, and what peft adds to it is gone.
    return (
        ""
        if layer._parameters.get("weight") is not None
        else "one whose weight is computed, into which peft cannot merge an adapter"
    )


def newest(path: Path) -> Path:
    """A checkpoint file: the path itself, or the last one of a folder in natural order (`epoch9` before `epoch19`).

    Files of a folder must differ by their numbers alone (`epoch_9.pt`, `epoch19.safetensors`); of two of one number,
    safetensors is taken.

    Raises:
        ConfigError: there is none, or files of several names of which none is the newest (`epoch19.pt` and
            `optimiser.pt`).
    """
    if path.is_file():
        return path
    found = (
        [each for each in path.iterdir() if each.suffix in _SUFFIXES and not each.name.startswith(".")]
        if path.is_dir()
        else []
    )
    if not found:
        raise ConfigError(
            f"model.checkpoint = {str(path)!r}: no such file, and no folder with {', '.join(_SUFFIXES)} files"
        )
    series: dict[tuple[str, ...], list[Path]] = {}
    for each in found:
        # Spelled with an underscore, a dot or without, it is the same word.
        words = re.split(r"\d+", re.sub(r"[-_ .]", "", each.stem.lower()))
        series.setdefault(tuple(words), []).append(each)
    if len(series) > 1:
        names = sorted((max(files, key=_number).name for files in series.values()), key=natural)
        raise ConfigError(
            f"model.checkpoint = {str(path)!r}: it holds files of several names ({', '.join(names[:5])}), none of them"
            " the newest; name the file"
        )
    return max(found, key=_number)


def _number(path: Path) -> tuple[list[int], bool]:
    return [int(digits) for digits in re.findall(r"\d+", path.stem)], path.suffix == ".safetensors"


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a checkpoint by name, with those of its other parts (`model-00001-of-00002.safetensors`); a `.pt`
    file is read without running any code of its own.

    Raises:
        ConfigError: it cannot be read, holds something other than tensors, or lacks a part.
    """
    if (part := _PART.fullmatch(path.stem)) is None:
        return _read(path)
    parts = [
        path.with_stem(f"{part['name']}-{number:05d}-of-{part['count']}") for number in range(1, int(part["count"]) + 1)
    ]
    if missing := [each.name for each in parts if not each.is_file()]:
        raise ConfigError(
            f"model.checkpoint = {str(path)!r}: it lacks its other parts ({', '.join(missing[:5])}); put them into the"
            " same folder"
        )
    return {name: value for each in parts for name, value in _read(each).items()}


def _read(path: Path) -> dict[str, Tensor]:
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        found: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        # What torch says of pickled code begins with how to run it all the same.
        code = type(error).__name__ == "UnpicklingError" or "TorchScript" in str(error)
        why = (
            f"it holds code or objects{_objects(path)}, none of which is run"
            if code
            else f"it cannot be read ({type(error).__name__}: {_line(error)})"
        )
        raise ConfigError(f"model.checkpoint = {str(path)!r}: {why}; {_WRITE}") from error
    return _table(found, path)


def _table(found: Any, path: Path) -> dict[str, Tensor]:
    """The weights among what a training script keeps beside them."""
    if (
        isinstance(found, Mapping)
        and found
        and all(isinstance(name, str) and isinstance(value, Tensor) for name, value in found.items())
    ):
        return dict(found)
    inner = (
        {name: value for name, value in found.items() if isinstance(value, Mapping)}
        if isinstance(found, Mapping)
        else {}
    )
    known = next((name for name in _TABLES if name in inner), None)
    if known is not None:
        return _table(inner[known], path)
    what = f"{[str(name) for name in found][:5]}" if isinstance(found, Mapping) else f"a {type(found).__name__}"
    raise ConfigError(
        f"model.checkpoint = {str(path)!r}: it holds {what} and no table of tensors by name, alone or under one of"
        f" {', '.join(_TABLES)}; {_WRITE}"
    )


def _objects(path: Path) -> str:
    """Which classes a file wants made, as far as it can be told without making them."""
    try:
        found = torch.serialization.get_unsafe_globals_in_checkpoint(path)
    except Exception:
        # Files of torch's older kind, TorchScript and plain pickles are not listed.
        return ""
    return f" ({', '.join(sorted(found)[:5])})" if found else ""


def _line(error: Exception) -> str:
    """The first sentence of what a library says."""
    return (str(error).splitlines() or [""])[0].partition(". ")[0].rstrip(".")


def save(module: nn.Module, config: ModelConfig, folder: Path) -> None:
    """Writes `model.safetensors` (an adapter merged into the weights) and `network.json`, from which `kind =
    "pretrained"` loads.

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
    given = read_weights(path)
    own = module.state_dict()
    theirs, ours = _beginnings({_plain(name) for name in given}, {_plain(name) for name in own}, path)
    plain = {_plain(name): name for name in own}
    found: dict[str, Tensor] = {}
    unexpected: list[str] = []
    for name, value in given.items():
        place = plain.get(ours + _plain(name).removeprefix(theirs)) if _plain(name).startswith(theirs) else None
        if place is None:
            unexpected.append(name)
        else:
            found[place] = value
    wrong = [
        f"{name} is {list(value.shape)}, not {list(own[name].shape)}"
        for name, value in found.items()
        if value.shape != own[name].shape
    ]
    if wrong:
        raise ConfigError(
            f"model.checkpoint = {str(path)!r}: {len(wrong)} weights have another shape: {'; '.join(wrong[:3])}; is it"
            " another architecture?"
        )
    missing = [name for name in own if name not in found]
    adapted = hasattr(module, "peft_config")
    harmless = tuple(getattr(module, "identity_without", ()))
    head = [name for name in missing if harmless and _plain(name).startswith(harmless)]
    adapter = [name for name in missing if name not in head and adapted and ".lora_" in name]
    base = [_plain(name) for name in missing if name not in (*adapter, *head)]
    if base:
        raise ConfigError(
            f"model.checkpoint = {str(path)!r}: {len(base)} weights of the network are missing: {', '.join(base[:5])}"
            + (f"; unexpected: {', '.join(unexpected[:5])}" if unexpected else "")
            + "; give the checkpoint of this architecture (strict = false does not help: the network itself would stay"
            " untrained)"
        )
    # A checkpoint without any adapter is that of the network itself, and a fresh adapter changes nothing.
    lacking = [_plain(name) for name in (*head, *(adapter if any(".lora_" in name for name in found) else []))]
    if strict and (unexpected or lacking):
        listed = [*(f"unexpected {name}" for name in unexpected), *(f"missing {name}" for name in lacking)]
        raise ConfigError(
            f"model.checkpoint = {str(path)!r}: {', '.join(listed[:6])} ({len(listed)} names); write strict = false to"
            " go on without them"
        )
    if (unexpected or lacking) and is_first_process():
        log.warning("checkpoint %s: missing %s, unexpected %s", path, lacking, unexpected)
    try:
        module.load_state_dict({**own, **found})
    except Exception as error:
        # Sparse and quantised tensors, and whatever a network's own hooks refuse.
        raise ConfigError(
            f"model.checkpoint = {str(path)!r}: its weights cannot be copied: {' '.join(str(error).split())}; {_WRITE}"
        ) from error


def _beginnings(given: Collection[str], own: Collection[str], path: Path) -> tuple[str, str]:
    """What the checkpoint's names begin with and the network's lack, and the other way about: one of the two, or none,
    is empty.

    Raises:
        ConfigError: two parts of the checkpoint fit equally well.

    Example:
        >>> _beginnings({"module.a.weight", "module.b.weight"}, {"a.weight", "b.weight"}, Path("a.pt"))
        ('module.', '')
    """
    theirs, ours = _heads(given, own), _heads(own, given)
    (best, fits), (wrapped, fits_wrapped) = (
        max(heads.items(), key=lambda each: (each[1], not each[0]), default=("", 0)) for heads in (theirs, ours)
    )
    if fits_wrapped > fits:
        return "", wrapped
    equal = sorted(head for head, number in theirs.items() if number == fits)
    if best and len(equal) > 1:
        raise ConfigError(
            f"model.checkpoint = {str(path)!r}: its weights under {' and under '.join(equal)} fit equally well; write"
            " those of one network alone"
        )
    return best, ""


def _heads(long: Collection[str], short: Collection[str]) -> Counter[str]:
    """How many of the long names are a short one behind the same beginning."""
    wanted = set(short)
    return Counter(
        name[:place]
        for name in long
        for place in (0, *(dot.end() for dot in re.finditer(r"\.", name)))
        if name[place:] in wanted
    )


def _plain(name: str) -> str:
    return name.removeprefix("base_model.model.").replace(".base_layer.", ".")
