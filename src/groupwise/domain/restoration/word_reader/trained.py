"""A small reader of words that is trained here: the fallback where no other is installed, and one that has a gradient.

It is trained once, in about a minute, on words of the whole list of the source `words`, held-out ones too, and on
strings of letters, in that source's fonts on white paper, and is stored in the cache.
"""

from __future__ import annotations

import logging
import os
import string
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from groupwise.checkpoint.cache import cache_folder
from groupwise.domain.image_source.words import FONTS, draw, word_list
from groupwise.domain.restoration.word_reader.rapidocr import spelled

log = logging.getLogger("groupwise")

_VERSION = 1
"""To be raised with every change of the network, of its training or of what it is trained on."""
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
        seed: of the reader.
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
