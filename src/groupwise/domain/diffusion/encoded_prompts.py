"""Encoded prompts: each is encoded once, by itself, and cached on disk under what its encoding depends on.

Encoded alone, a prompt has the same bits whatever it is asked with and whether a file held them; and no pass of the
text encoders holds more than one prompt, however many there are. Some of them stay in memory.

    key = hash(columns, the encoders' files, versions of libraries, dtype, device)
"""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, final

import torch
from safetensors.torch import load, save
from torch import Tensor

from groupwise.checkpoint import StorageError, cache_folder, content_key
from groupwise.checkpoint.atomic import write_file
from groupwise.domain.diffusion.denoiser import Condition, Denoiser
from groupwise.domain.diffusion.prompt_image import PromptImage
from groupwise.domain.protocol import Prompt

log = logging.getLogger("groupwise")

MOST_BYTES = 2**28
"""Bytes of encoded prompts that stay in memory."""

_Tensors = dict[str, Tensor]


@final
class EncodedPrompts:
    """The prompts of a run as conditions of a denoiser.

    Args:
        denoiser: encodes them. Where its `encoders` is empty, encoding costs nothing and nothing is written.
        folder: of the files; unset takes `encoded_prompts` in Groupwise's cache.
    """

    def __init__(self, denoiser: Denoiser, folder: Path | None = None) -> None:
        self._denoiser, self._folder = denoiser, folder or cache_folder() / "encoded_prompts"
        self._entries: OrderedDict[str, _Tensors | None] = OrderedDict()
        self._num_bytes = 0
        self._writes = True
        self.num_encoded = 0
        """Prompts that the encoders encoded; the others came from files."""

    def of(self, prompts: Sequence[Prompt]) -> PromptConditions:
        """Returns the conditions of prompts, which are encoded where a pass asks for them."""
        return PromptConditions(self, prompts)

    @torch.no_grad()
    def entry(self, prompt: Prompt) -> tuple[_Tensors, _Tensors | None]:
        """Returns the tensors of one prompt, and of its negative prompt; one row each."""
        columns = dict(prompt.columns)
        # A target is no part of what is encoded, and an image is known by its content.
        contents = {
            name: value.content if isinstance(value, PromptImage) else value
            for name, value in columns.items()
            if name != "negative_prompt" and not (name == "clean" and (value is None or isinstance(value, PromptImage)))
        }
        negative: dict[str, Any] = {"without prompt": columns.get("negative_prompt")}
        names = (
            content_key(contents),
            # The shipped encoders of texts read nothing else for a negative prompt (mostly the empty one), which many
            # prompts then share.
            content_key(negative if self._denoiser.encoders else negative | contents),
        )
        parts = [self._read(name) for name in names]
        if any(part is _MISSING for part in parts):
            condition = self._denoiser.encode([columns])
            self.num_encoded += 1
            unconditional = condition.unconditional
            parts = [dict(condition.tensors), None if unconditional is None else dict(unconditional)]
            for name, tensors in zip(names, parts, strict=True):
                self._keep(name, tensors)
                self._write(name, tensors)
        prompted, without = parts
        assert isinstance(prompted, dict)
        return prompted, without if isinstance(without, dict) else None

    def _read(self, name: str) -> Any:
        if name in self._entries:
            self._entries.move_to_end(name)
            return self._entries[name]
        path = self._path(name)
        if path is None or not path.is_file():
            return _MISSING
        try:
            tensors = {key: value.to(self._denoiser.device) for key, value in load(path.read_bytes()).items()}
        except Exception as error:  # a file that is not whole is encoded again
            log.warning("%s cannot be read (%s); the prompt is encoded again", path, error)
            return _MISSING
        # A model without an unconditional branch has an empty file.
        return self._keep(name, tensors or None)

    def _keep(self, name: str, tensors: _Tensors | None) -> _Tensors | None:
        if name not in self._entries:
            self._num_bytes += _num_bytes(tensors)
        self._entries[name] = tensors
        self._entries.move_to_end(name)
        while self._num_bytes > MOST_BYTES and len(self._entries) > 2:
            _, oldest = self._entries.popitem(last=False)
            self._num_bytes -= _num_bytes(oldest)
        return tensors

    def _write(self, name: str, tensors: _Tensors | None) -> None:
        path = self._path(name)
        if path is None or not self._writes:
            return
        content = {key: value.detach().cpu().contiguous() for key, value in (tensors or {}).items()}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(path, save(content), durable=False)
        except (OSError, StorageError) as error:
            self._writes = False
            log.warning("encoded prompts are not kept: %s", error)

    def _path(self, name: str) -> Path | None:
        encoders = self._denoiser.encoders
        return self._folder / encoders / f"{name}.safetensors" if encoders else None


@final
class PromptConditions:
    """The conditions of some prompts; `select` encodes those that a pass asks for.

    Args:
        encoded: the prompts of the run.
        prompts: by whose places `select` selects.
    """

    def __init__(self, encoded: EncodedPrompts, prompts: Sequence[Prompt]) -> None:
        self._encoded, self._prompts = encoded, prompts

    def select(self, rows: Tensor) -> Condition:
        """Returns the conditions of prompts in the order of `rows`, repeated where `rows` repeats."""
        places, inverse = rows.unique(return_inverse=True)
        entries = [self._encoded.entry(self._prompts[place]) for place in places.tolist() or [0]]
        inverse = inverse.to(next(iter(entries[0][0].values())).device)
        unconditional = [without for _, without in entries if without is not None]
        return Condition(
            _rows([prompted for prompted, _ in entries], inverse),
            _rows(unconditional, inverse) if len(unconditional) == len(entries) else None,
        )


_MISSING = object()


def encoders_key(folder: Path, parts: Sequence[str], settings: Mapping[str, Any]) -> str:
    """Returns the hash of the files of text encoders and tokenizers, and of what else their numbers depend on.

    Args:
        folder: of the pipeline.
        parts: subfolders that take part in encoding.
        settings: versions, dtype, device, size of the images.
    """
    files = [file for part in parts for file in sorted((folder / part).rglob("*")) if file.is_file()]
    digests = {str(file.relative_to(folder)): _filecontent_key(file) for file in files}
    return content_key({"files": digests, **settings})


def _filecontent_key(file: Path) -> str:
    """Returns the hash of a file's content; kept by path, size and time, for hashing 10 GB takes some seconds."""
    stat = file.stat()
    identity = content_key({"path": str(file.resolve()), "size": stat.st_size, "changed": stat.st_mtime_ns})
    kept = cache_folder() / "file_digests" / identity
    try:
        return kept.read_text(encoding="ascii")
    except (OSError, ValueError):
        pass
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_file(kept, digest, durable=False)
    except (OSError, StorageError):
        pass
    return digest


def _num_bytes(tensors: _Tensors | None) -> int:
    return sum(value.numel() * value.element_size() for value in (tensors or {}).values())


def _rows(entries: Sequence[Mapping[str, Tensor]], inverse: Tensor) -> _Tensors:
    return {name: torch.cat([entry[name] for entry in entries])[inverse] for name in entries[0]}
