"""The reward of a word that is read as it is."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Literal, final

import numpy as np

from groupwise.domain.restoration.word_reader.rapidocr import RapidOcr
from groupwise.domain.restoration.word_reader.tesseract import Tesseract
from groupwise.domain.restoration.word_reader.trained import Trained
from groupwise.reward.error import RewardError

log = logging.getLogger("groupwise")

_READERS = {"tesseract": Tesseract, "rapidocr": RapidOcr, "trained": Trained}
_INSTALL = {"tesseract": "apt install tesseract-ocr", "rapidocr": "pip install rapidocr-onnxruntime"}


@final
class Reading:
    """`R = max(0, 1 - d / L)` with `d` the edits (a letter put in, left out or changed) between what is read and the
    word of `L` letters; or 1 where the word is read exactly and otherwise 0.

    With the measure `letters` the record of a member, and the picture of an evaluation, say what was read.

    Args:
        readers: `tesseract`, `rapidocr`, `trained`: the first that is installed reads. Where it is not the first of
            all, the run says so.
        measure: `letters` is the share of edits, `word` asks for the exact word.
        seed: of the reader `trained`.

    Raises:
        RewardError: a reader of another name, or none of them is installed.

    Example:
        >>> edits("harbor", "harbour")
        1
    """

    def __init__(
        self, readers: Sequence[str] = ("tesseract",), measure: Literal["letters", "word"] = "letters", seed: int = 0
    ) -> None:
        unknown = [name for name in readers if name not in _READERS]
        if unknown or not readers:
            raise RewardError(f"readers = {list(readers)}: write some of {list(_READERS)}, the preferred one first")
        if measure not in ("letters", "word"):
            raise RewardError(f'measure = {measure!r}: write "letters" or "word"')
        installed = [name for name in readers if _READERS[name].is_installed()]
        if not installed:
            hints = " or ".join(_INSTALL[name] for name in readers)
            raise RewardError(f'readers = {list(readers)}: none is installed; {hints}, or add "trained"')
        self.name, self.measure = installed[0], measure
        if self.name != readers[0]:
            log.warning("words are read by %r, for %r is not installed (%s)", self.name, readers[0], _hint(readers[0]))
        self._read = Trained(seed) if self.name == "trained" else _READERS[self.name]()

    def read(self, images: Sequence[Any]) -> list[str]:
        """Reads pictures uint8 `[H, W]`; those of one size are read together."""
        pages = [np.asarray(image) for image in images]
        answers = [""] * len(pages)
        for shape in {page.shape for page in pages}:
            places = [place for place, page in enumerate(pages) if page.shape == shape]
            for place, answer in zip(places, self._read(np.stack([pages[place] for place in places])), strict=True):
                answers[place] = answer
        return answers

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        text: Sequence[str | None],
        log_extra: Callable[[str, Sequence[Any]], None] | None = None,
    ) -> list[float | None]:
        answers = self.read(completions)
        if log_extra is not None and self.measure == "letters":
            log_extra(f"read by {self.name}", answers)
        pairs = zip(answers, text, strict=True)
        return [None if word is None else self.score(answer, word) for answer, word in pairs]

    def score(self, answer: str, word: str) -> float:
        """Computes the reward of a word that was read as `answer`."""
        return float(answer == word) if self.measure == "word" else max(0.0, 1 - edits(answer, word) / len(word))


def edits(left: str, right: str) -> int:
    """Counts the fewest letters to put in, leave out or change that make one text of the other (Levenshtein).

    Example:
        >>> edits("", "word"), edits("work", "word"), edits("sword", "word")
        (4, 1, 1)
    """
    row = list(range(len(right) + 1))
    for count, letter in enumerate(left, 1):
        diagonal, row[0] = row[0], count
        for place, expected in enumerate(right, 1):
            diagonal, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, diagonal + (letter != expected))
    return row[-1]


def _hint(name: str) -> str:
    return _INSTALL.get(name, "")
