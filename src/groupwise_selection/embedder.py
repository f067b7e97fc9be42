"""Texts as vectors, by hashes of their parts. Imports no torch: an exported selector embeds without it."""

import hashlib
import itertools
import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, final

import numpy as np
from pydantic import Field

from groupwise.config import Config, ConfigError
from groupwise.config.errors import PerStep, Width

# Thai, Lao, Burmese, Khmer, kana, Han.
_SCRIPTS = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    r"\U00020000-\U0003ffff"
)
_UNSPACED = re.compile(f"[{_SCRIPTS}]")
# With the marks behind it.
_CHARACTER = re.compile(r"\w\W*")
_RUNS = re.compile(f"[{_SCRIPTS}]+|[^{_SCRIPTS}]+")


@final
class HashedWords(Config):
    """Bags of words without a vocabulary: signed counts of hashed words (in lower case, without punctuation), of length
    1.

    Scripts without spaces (Chinese, Japanese, Thai, Lao, Khmer, Burmese) have their characters and pairs of neighbours
    for words, and an accent counts the same in both of its spellings. The cosine of two texts is, up to
    collisions, the share of words they have in common. It needs no model and no download, knows nothing of what words
    mean, and is the same on every machine.

    Args:
        size: numbers of a vector; collisions become rarer with more.

    Example:
        >>> vectors = HashedWords(size=64)(["refund north", "North, refund!", "login south"])
        >>> (vectors @ vectors.T).round(2).tolist()
        [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]

    A text without words has no direction; it becomes the first unit vector.
    """

    kind: Literal["hashed_words"] = "hashed_words"
    size: Annotated[Width, Field(ge=8)] = 128

    def __call__(self, texts: Sequence[str], images: Sequence[Any] | None = None) -> np.ndarray:
        """Embeds texts as the rows of an fp32 `[N, size]`; their pictures are not looked at."""
        vectors = np.zeros((len(texts), self.size), np.float32)
        for row, text in enumerate(texts):
            places = [_place(word, self.size) for word in words_of(text)]
            for place, sign in places:
                vectors[row, place] += sign
            if not vectors[row].any():
                # Words of opposite signs cancelled each other; without signs they cannot.
                for place, _ in places:
                    vectors[row, place] += 1.0
        length = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors[length[:, 0] == 0, 0] = 1.0
        return vectors / np.where(length == 0, 1.0, length)


@final
class ClipEmbedder(Config):
    """Questions with their pictures, by a CLIP-shaped model in a folder: both features of length 1, joined so that the
    cosine of two questions is `share` times that of their pictures plus `1 - share` times that of their texts.

    What was embedded is kept between runs, by the model's files, the texts and the content of the pictures.

    Args:
        path: a folder of transformers with the model (`get_image_features`, `get_text_features`), its tokenizer and its
            image processor.
        share: weight of the pictures.
        batch_size: questions of a forward pass.
    """

    kind: Literal["clip"] = "clip"
    path: Annotated[str, Field(min_length=1)]
    share: Annotated[float, Field(ge=0, le=1)] = 0.5
    batch_size: PerStep = 32

    def __call__(self, texts: Sequence[str], images: Sequence[Any] | None = None) -> np.ndarray:
        """Embeds questions with their pictures as the rows of an fp32 `[N, D]`.

        Raises:
            ConfigError: a picture is missing or cannot be read, or the folder cannot be loaded.
        """
        from groupwise_selection.task_model.clip import embedded

        if images is None or any(image is None for image in images):
            raise ConfigError(f"embedder.path = {self.path!r}: it embeds a question with its picture; give the picture")
        if not Path(self.path).is_dir():
            raise ConfigError(f"embedder.path = {self.path!r} is no folder; write the folder of a CLIP of transformers")
        return embedded(self, texts, images)


def words_of(text: str) -> list[str]:
    """Splits a text into words, in lower case and without punctuation.

    Example:
        >>> words_of("North, refund!"), words_of("猫在哪")
        (['north', 'refund'], ['猫', '在', '哪', '猫在', '在哪'])
    """
    text = unicodedata.normalize("NFKC", text).lower()
    if text.isascii():
        return re.findall(r"\w+", text)
    # Vowels of many scripts are marks, which are a part of their word.
    kept = (c if c.isalnum() or c == "_" or unicodedata.category(c)[0] == "M" else " " for c in text)
    words: list[str] = []
    for word in "".join(kept).split():
        for run in _RUNS.findall(word):
            characters = _CHARACTER.findall(run)
            if not _UNSPACED.match(run):
                words += ["".join(characters)] if characters else []
            else:
                words += [*characters, *map("".join, itertools.pairwise(characters))]
    return words


@lru_cache(maxsize=1 << 16)
def _place(word: str, size: int) -> tuple[int, float]:
    code = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "big")
    return (code >> 1) % size, 1.0 if code & 1 else -1.0


def answer_features(text: str, size: int) -> np.ndarray:
    """Computes hashed, signed counts of the text's character n-grams (1 to 3, in lower case, with its ends marked), of
    length 1; fp32 `[size]`.

    Args:
        text: the answer.
        size: number of features.

    Example:
        >>> features = answer_features("yes", 8)
        >>> (
        ...     features.shape,
        ...     bool(abs((features**2).sum() - 1) < 1e-6),
        ...     bool((features == answer_features(" YES ", 8)).all()),
        ... )
        ((8,), True, True)
    """
    marked = f"^{unicodedata.normalize('NFC', text).strip().lower()}$"
    counts = np.zeros(size)
    for length in (1, 2, 3):
        for start in range(len(marked) - length + 1):
            place, sign = _place(marked[start : start + length], size)
            counts[place] += sign
    norm = np.linalg.norm(counts)
    return (counts / norm if norm > 0 else counts).astype(np.float32)
