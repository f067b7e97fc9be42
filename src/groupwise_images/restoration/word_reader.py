"""Readers of words: Tesseract, RapidOCR, and a small network that is trained here; a reward and a loss made of them."""

from __future__ import annotations

import logging
import os
import shutil
import string
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from groupwise.config.files import cache_folder
from groupwise.reward.base import RewardError
from groupwise_images.image_source.words import FONTS, draw, word_list

# The recogniser of RapidOCR, whose weights are in the wheel `rapidocr-onnxruntime`.

_HEIGHT = 32
_AT_ONCE = 4
"""Pictures in a pass. On one thread larger passes take longer, because they do not fit into the processor's cache."""


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


_SCALE = 2
_MARGIN = 10
_SECONDS = 600
_WRITE = 'install tesseract-ocr with its English data, or write readers = ["rapidocr"] or ["trained"]'


@final
class Tesseract:
    """Reads each picture as one line of English text, by one process for all of a batch.

    Pictures are enlarged twice and are on a white margin of ten pixels, without which Tesseract reads few of them.
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


# A small reader of words that is trained here: the fallback where no other is installed, and one that has a gradient.
#
# It is trained once, in about a minute, on words of the whole list of the source `words`, held-out ones too, and on
# strings of letters, in that source's fonts on white paper, and is stored in the cache.

_VERSION = 1
"""Raise this number with every change of the network, its training or its training data."""
_NUM_STEPS = 1000
_BATCH = 64
_SYMBOLS = ["", *string.ascii_lowercase]


@final
class Trained:
    """Reads each picture by the network of a seed.

    Args:
        seed: two seeds are two readers.
    """

    name = "trained"

    def __init__(self, seed: int = 0) -> None:
        self.network = trained_network(seed)

    @staticmethod
    def is_installed() -> bool:
        """Returns true: nothing but torch is needed."""
        return True

    @torch.no_grad()
    def __call__(self, pictures: np.ndarray) -> list[str]:
        """Reads pictures uint8 `[N, H, W]`."""
        images = torch.from_numpy(np.ascontiguousarray(pictures)).float()[:, None] / 255
        return [spelled(row, _SYMBOLS) for part in images.split(256) for row in self.network(part).argmax(2).tolist()]


def reading_loss(images: Tensor, text: Sequence[str], seed: int = 0) -> Tensor:
    """Computes how unlikely the right word is to the trained reader, nats per letter, `[N]`; its gradient reaches the
    images.

    Args:
        images: `[N, 1, H, W]` in [0, 1], as a network restores them.
        text: the words.
        seed: the seed of the reader.
    """
    reader = trained_network(seed).to(images.device)
    return _nats_per_letter(reader(images.clamp(0, 1)), text)


@lru_cache(maxsize=4)
def trained_network(seed: int) -> WordReader:
    """Returns the reader of a seed, frozen: from the cache, or trained now and stored there."""
    from safetensors.torch import load_file, save_file

    file = cache_folder() / f"word-reader-{_VERSION}-{seed}.safetensors"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = WordReader()
    if file.is_file():
        network.load_state_dict(load_file(file))
    else:
        log.info("a reader of words is trained once (about a minute) and stored in %s", file)
        _train(network, np.random.default_rng(seed), _NUM_STEPS)
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, partial = tempfile.mkstemp(dir=file.parent, suffix=".partial")
        os.close(handle)
        save_file(network.state_dict(), partial)
        # Two runs may train the same reader at the same time: the file is whole whoever is last.
        os.replace(partial, file)
    return network.eval().requires_grad_(False)


@final
class WordReader(nn.Module):
    """Convolutions that halve the height four times, and a row of letters' log-probs every two columns,
    `[N, W / 2, 27]`; symbol 0 is a blank.
    """

    def __init__(self, width: int = 24, hidden: int = 96) -> None:
        super().__init__()
        shapes = ((1, width, 1), (width, width, 2), (width, 2 * width, 1), (2 * width, 2 * width, 1))
        layers: list[nn.Module] = []
        for channels_in, channels_out, step in shapes:
            layers += [
                nn.Conv2d(channels_in, channels_out, 3, stride=(2, step), padding=1),
                nn.BatchNorm2d(channels_out),
                nn.ReLU(),
            ]
        self.columns = nn.Sequential(*layers)
        self.letters = nn.Sequential(
            nn.Conv1d(2 * width, hidden, 7, padding=3),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
            nn.Conv1d(hidden, hidden, 5, padding=2),
            nn.ReLU(),
            nn.Conv1d(hidden, len(_SYMBOLS), 1),
        )

    def forward(self, images: Tensor) -> Tensor:
        return self.letters(self.columns(1 - images).mean(2)).transpose(1, 2).log_softmax(-1)


def _train(network: WordReader, random: np.random.Generator, num_steps: int) -> None:
    """Trains on words on white paper, blurred, faded, shifted and noised a little."""
    pool = _pool(random)
    optimiser = torch.optim.AdamW(network.parameters(), 3e-3)
    schedule: Any = torch.optim.lr_scheduler.OneCycleLR(optimiser, 6e-3, num_steps)
    network.train()
    for _ in range(num_steps):
        chosen = [pool[place] for place in random.integers(len(pool), size=_BATCH).tolist()]
        images = np.stack([picture for _, picture in chosen])
        loss = _nats_per_letter(network(_spoilt(images, random)), [word for word, _ in chosen]).mean()
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 5.0)
        optimiser.step()
        schedule.step()


def _pool(random: np.random.Generator, size: int = 4000) -> list[tuple[str, np.ndarray]]:
    """Draws words and, as often, strings of three to six letters, which no list of words helps to read."""
    words, pool = word_list(), []
    for number in range(size):
        letters = random.choice(list(string.ascii_lowercase), size=int(random.integers(3, 7)))
        word = words[int(random.integers(len(words)))] if number % 2 else "".join(letters)
        pool.append((word, draw(word, FONTS[int(random.integers(len(FONTS)))])))
    return pool


def _spoilt(images: np.ndarray, random: np.random.Generator) -> Tensor:
    from scipy.ndimage import gaussian_filter

    images = np.stack([gaussian_filter(image, random.uniform(0, 0.8)) for image in images])
    images = np.roll(images, (int(random.integers(-1, 2)), int(random.integers(-3, 4))), (1, 2))
    images = 1 - (1 - images) * random.uniform(0.5, 1.1, (len(images), 1, 1))
    noise = random.uniform(0, 0.2, (len(images), 1, 1)) * random.standard_normal(images.shape)
    return torch.from_numpy((images + noise).clip(0, 1).astype("float32"))[:, None]


def _nats_per_letter(log_probs: Tensor, words: Sequence[str]) -> Tensor:
    """Computes `-log p(word) / letters` over all ways to place its letters in the columns, `[N]`."""
    symbols = torch.tensor([_SYMBOLS.index(letter) for word in words for letter in word], device=log_probs.device)
    lengths = torch.tensor([len(word) for word in words], device=log_probs.device)
    columns = torch.full_like(lengths, log_probs.shape[1])
    nats = functional.ctc_loss(
        log_probs.transpose(0, 1), symbols, columns, lengths, reduction="none", zero_infinity=True
    )
    return nats / lengths


# The reward of a word that is read as it is.

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
            all, the run reports that.
        measure: `letters` is the share of edits, `word` asks for the exact word.
        seed: the seed of the reader `trained`.

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
    """Counts the fewest letters to insert, delete or change that turn one text into the other (Levenshtein).

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
