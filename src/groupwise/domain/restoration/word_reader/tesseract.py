"""The program `tesseract`, which Debian and others package as tesseract-ocr."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import final

import numpy as np

from groupwise.reward.error import RewardError

_SCALE = 2
_MARGIN = 10
_SECONDS = 600
_WRITE = 'install tesseract-ocr with its English data, or write readers = ["rapidocr"] or ["trained"]'


@final
class Tesseract:
    """Reads each picture as one line of English text, by one process for all of a batch.

    Pictures are enlarged twice and stand on a white margin of ten pixels, without which Tesseract reads few of them.
    """

    name = "tesseract"

    @staticmethod
    def is_installed() -> bool:
        """Returns whether the program is on the path."""
        return shutil.which("tesseract") is not None

    def __call__(self, pictures: np.ndarray) -> list[str]:
        """Reads pictures uint8 `[N, H, W]`.

        Raises:
            RewardError: the program fails, or reads another number of pictures.
        """
        from PIL import Image

        with tempfile.TemporaryDirectory(prefix="groupwise-tesseract-") as folder:
            files = [Path(folder) / f"{number}.pgm" for number in range(len(pictures))]
            for file, picture in zip(files, pictures, strict=True):
                image = Image.fromarray(picture)
                large = image.resize((image.width * _SCALE, image.height * _SCALE), Image.Resampling.BICUBIC)
                page = Image.new("L", (large.width + 2 * _MARGIN, large.height + 2 * _MARGIN), 255)
                page.paste(large, (_MARGIN, _MARGIN))
                page.save(file)
            index = Path(folder) / "pages.txt"
            index.write_text("\n".join(map(str, files)), encoding="utf-8")
            return self._texts(index, len(files))

    def _texts(self, index: Path, num_pages: int) -> list[str]:
        command: Sequence[str] = ["tesseract", str(index), "-", "--psm", "7", "--dpi", "150", "-l", "eng"]
        environment = {**os.environ, "OMP_THREAD_LIMIT": "1"}
        try:
            process = subprocess.run(
                command, capture_output=True, encoding="utf-8", errors="replace", env=environment, timeout=_SECONDS
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise RewardError(f"tesseract cannot be run ({type(error).__name__}: {error}); {_WRITE}") from error
        if process.returncode:
            last_line = (process.stderr.strip().splitlines() or ["no message"])[-1]
            raise RewardError(f"tesseract ended with exit status {process.returncode} ({last_line}); {_WRITE}")
        # A form feed parts pages; some versions write one after the last page too.
        pages = process.stdout.split("\f")
        if len(pages) == num_pages + 1 and not pages[-1].strip():
            pages.pop()
        if len(pages) != num_pages:
            raise RewardError(f"tesseract read {len(pages)} pages of {num_pages}; {_WRITE}")
        return [page.strip() for page in pages]
