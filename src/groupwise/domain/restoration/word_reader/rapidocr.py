"""The recogniser of RapidOCR, whose weights lie in the wheel `rapidocr-onnxruntime`."""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch.nn import functional

from groupwise.reward.error import RewardError

_HEIGHT = 32
_AT_ONCE = 4
"""Pictures in a pass: on one thread more take longer, for they leave the processor's cache."""


@final
class RapidOcr:
    """Reads each picture by the recogniser alone, without the detector of lines, on one thread."""

    name = "rapidocr"

    @staticmethod
    def is_installed() -> bool:
        """Returns whether the package and the runtime of its networks are installed."""
        return find_spec("rapidocr_onnxruntime") is not None and find_spec("onnxruntime") is not None

    def __call__(self, pictures: np.ndarray) -> list[str]:
        """Reads pictures uint8 `[N, H, W]`."""
        session, symbols = _network()
        images = torch.from_numpy(np.ascontiguousarray(pictures)).float()[:, None]
        size = (_HEIGHT, round(images.shape[3] * _HEIGHT / images.shape[2]))
        images = functional.interpolate(images, size=size, mode="bilinear", align_corners=False) / 127.5 - 1
        texts: list[str] = []
        for part in images.expand(-1, 3, -1, -1).contiguous().split(_AT_ONCE):
            best = session.run(None, {session.get_inputs()[0].name: part.numpy()})[0].argmax(2)
            texts += [spelled(row, symbols) for row in best.tolist()]
        return texts


def spelled(row: list[int], symbols: list[str]) -> str:
    """Spells the likeliest symbols of a row of columns: repetitions are one, and symbol 0 is a blank.

    Example:
        >>> spelled([0, 1, 1, 0, 1, 2], ["", "e", "l"])
        'eel'
    """
    return "".join(
        symbols[symbol] for place, symbol in enumerate(row) if symbol and (place == 0 or row[place - 1] != symbol)
    ).strip()


@lru_cache(maxsize=1)
def _network() -> tuple[Any, list[str]]:
    import onnxruntime  # pyright: ignore[reportMissingImports]

    spec = find_spec("rapidocr_onnxruntime")
    folder = Path(spec.origin or "" if spec else "").parent / "models"
    files = sorted(folder.glob("*rec*.onnx"))
    if not files:
        raise RewardError(f"no recogniser *rec*.onnx in {folder}; install rapidocr-onnxruntime 1.4")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(files[0]), options, providers=["CPUExecutionProvider"])
    letters = session.get_modelmeta().custom_metadata_map["character"].splitlines()
    return session, ["", *letters, " "]
