"""A small causal language model that learns here to send tickets as the solved ones before it were sent.

A layer of short convolutions, by which a desk knows the word before it, and one of attention, which looks for the same
word: with two layers of attention the same is learnt, but many times slower.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from transformers import Lfm2Config, Lfm2ForCausalLM
from transformers.utils import logging as transformers_logging

from groupwise.causal_lm.loading import save
from groupwise.causal_lm.small import character_tokenizer
from groupwise.streams import Streams
from groupwise_selection.source.tickets import DESKS, WORDS
from groupwise_selection.task_model.base import TaskModel
from groupwise_selection.task_model.config import CausalLM, TicketLM
from groupwise_selection.task_model.trained import Write, fit, kept

VERSION = 1
"""The version of the trained model. Raise it with every code change that changes the trained weights: a stored model of
an earlier version is not used.
"""

_TICKETS = 16
"""Tickets of a training text."""
_MOST_PRODUCTS = 8
"""Highest number of products in a text."""


def open_model(config: TicketLM, device: str = "cpu") -> TaskModel:
    """Opens the trained model from its folder, on a device."""
    with _quietly():
        return CausalLM(path=str(trained_folder(config)), template=config.template, cache=False).open(device)


@contextmanager
def _quietly() -> Iterator[None]:
    """Silences the hint of transformers that a faster convolution could be installed, which so small a model needs
    not.
    """
    before = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(before)


def trained_folder(config: TicketLM) -> Path:
    """Returns the folder of the trained model as `save_pretrained` writes it, from the cache where it was trained
    before.
    """

    def trained() -> Write:
        words = tokenizer()
        model = train(config, words)
        return lambda folder: save(model, words, folder)

    return kept(config.model_dump(mode="json"), VERSION, trained)


def tokenizer() -> Any:
    """Builds the tokenizer: one token a word, with the space before it and, for a product, the colon after it; a line
    begins without a space.
    """
    words = [
        *WORDS[0],
        *(f" {word}" for words in (*WORDS[1:-1], DESKS) for word in words),
        *(f" {word}:" for word in WORDS[-1]),
    ]
    return character_tokenizer("abcdefghijklmnopqrstuvwxyz: \n", words=words)


def shape_of(words: Any, width: int) -> Lfm2Config:
    """Returns the shape of a model of two layers that learns in seconds to answer from demonstrations.

    Args:
        words: its tokenizer.
        width: its hidden size.
    """
    return Lfm2Config(
        vocab_size=len(words),
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        layer_types=["conv", "full_attention"],
        block_auto_adjust_ff_dim=False,
        max_position_embeddings=512,
        bos_token_id=None,
        eos_token_id=words.eos_token_id,
        pad_token_id=words.pad_token_id,
    )


def train(config: TicketLM, words: Any) -> Any:
    """Trains a model with the tokenizer `words` to answer every ticket of a text from the tickets before it."""
    streams = Streams(config.seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(streams.seed("ticket_lm"))
        model: Any = Lfm2ForCausalLM(shape_of(words, config.width))
    random = streams.numpy("ticket_lm")

    def loss(step: int) -> Tensor:
        ids, places = texts(words, config.batch_size, random)
        hidden = model.model(input_ids=ids[:, :-1], use_cache=False).last_hidden_state[:, places - 1]
        return functional.cross_entropy(model.lm_head(hidden).flatten(0, 1), ids[:, places].flatten())

    fit(
        model,
        loss,
        num_steps=config.num_steps,
        learning_rate=config.learning_rate,
        least=0.05,
        betas=(0.9, 0.98),
    )
    return model


def texts(words: Any, size: int, random: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Draws texts as token ids, `[size, L]`, with the places of the desks in them. Desks are drawn anew for each text.

    Each text is about a few products, so that an earlier ticket shows the desk of many a ticket.

    Args:
        words: the tokenizer.
        size: number of texts.
        random: the random generator.
    """

    def ids(names: Sequence[str], form: str = " {}") -> np.ndarray:
        return np.array([words.convert_tokens_to_ids(form.format(name)) for name in names])

    shape, num_products = (size, _TICKETS), len(WORDS[-1])
    text_products = random.random((size, num_products)).argsort(1)
    product = np.take_along_axis(
        text_products, (random.random(shape) * random.integers(1, _MOST_PRODUCTS + 1, size=(size, 1))).astype(int), 1
    )
    desk = random.integers(len(DESKS), size=(size, num_products))[np.arange(size)[:, None], product]
    forms = ["{}", *[" {}"] * (len(WORDS) - 2)]
    columns = [
        ids(position_words, form)[random.integers(len(position_words), size=shape)]
        for position_words, form in zip(WORDS[:-1], forms, strict=True)
    ]
    columns += [ids(WORDS[-1], " {}:")[product], ids(DESKS)[desk], np.broadcast_to(ids(["\n"], "{}"), shape)]
    token_ids = np.stack(columns, 2).reshape(size, -1)[:, :-1]
    return torch.from_numpy(token_ids), torch.arange(len(columns) - 2, token_ids.shape[1], len(columns))
