"""The export of an adapter that a server trained: its weights are downloaded, and peft loads the folder."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
import zlib
from contextlib import closing
from typing import Any

from groupwise.config import ConfigError
from groupwise.domain.exported import Card, Export
from groupwise.domain.language.model import Tinker
from groupwise.domain.language.tinker.saved import FILE, SavedState

_WEIGHTS, _CONFIG = "adapter_model.safetensors", "adapter_config.json"
_LARGEST_CONFIG = 1 << 20


def export_adapter(request: Export) -> Card:
    """Writes the adapter as peft loads it, with the tokenizer beside it, and describes the folder on its card.

    Raises:
        ConfigError: the server cannot be reached, gives no archive, or one that holds no adapter of peft.
    """
    from groupwise.domain.language.tinker.client import Service, TinkerError

    saved = SavedState.read(request.model)
    model = {**request.settings["model"], "address": saved.address, "base_model": saved.base_model}
    try:
        with closing(Service(Tinker.model_validate(model))) as service:
            archive = service.download(saved.weights)
    except TinkerError as error:
        raise ConfigError(
            f"{error}; no archive of the weights {saved.weights} can be had. As long as the server keeps the run's"
            f" state, training goes on from it: domain.model.state = {saved.state!r}"
        ) from error
    shutil.copytree(request.model, request.folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(FILE))
    files = _adapter_files(archive, saved.weights)
    (request.folder / _WEIGHTS).write_bytes(files[_WEIGHTS])
    config = _completed(json.loads(files[_CONFIG]), files[_WEIGHTS], saved.base_model)
    (request.folder / _CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    return Card(
        loading=f'peft.AutoPeftModelForCausalLM.from_pretrained("{request.out}")',
        library="peft",
        task="text-generation",
        adapter=True,
        remarks=[f"It is the adapter alone: peft loads {saved.base_model} below it"],
    )


def _adapter_files(archive: bytes, path: str) -> dict[str, bytes]:
    """Returns the content of the two files of peft; nothing else of the archive is read."""
    files = dict[str, bytes]()
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            for member in tar:
                name = member.name.rpartition("/")[2]
                if member.isfile() and name in (_WEIGHTS, _CONFIG):
                    content = tar.extractfile(member)
                    assert content is not None
                    files[name] = content.read(_LARGEST_CONFIG if name == _CONFIG else -1)
    except (tarfile.TarError, OSError, EOFError, zlib.error):
        raise ConfigError(f"the archive of {path} is no tar archive; the server is of another kind") from None
    if missing := sorted({_WEIGHTS, _CONFIG} - files.keys()):
        raise ConfigError(f"the archive of {path} lacks {', '.join(missing)}: it is no adapter of peft")
    return files


def _completed(config: dict[str, Any], weights: bytes, base_model: str) -> dict[str, Any]:
    """Returns the configuration with the modules that the weights adapt, where the server names none: peft would
    otherwise take those that it knows for the architecture, and leave the weights of the others out.
    """
    length = int.from_bytes(weights[:8], "little")
    names = [name for name in json.loads(weights[8 : 8 + length]) if ".lora_A" in name]
    modules = sorted({name.partition(".lora_A")[0].rpartition(".")[2] for name in names})
    return {
        **config,
        "base_model_name_or_path": base_model,
        "target_modules": config.get("target_modules") or modules,
        "task_type": config.get("task_type") or "CAUSAL_LM",
    }
