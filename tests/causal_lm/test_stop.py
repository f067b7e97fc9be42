"""Stop texts end a turn however they were cut into tokens."""

from __future__ import annotations

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from groupwise.causal_lm.backbone import Backbone
from groupwise.causal_lm.config import SamplingConfig, SmallModelConfig
from groupwise.causal_lm.decode import Stops
from groupwise.causal_lm.sampler import sample
from groupwise.causal_lm.small import character_tokenizer, small_model


def byte_tokenizer():
    """Every token is one byte, so that a character outside ASCII takes several."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE({token: index for index, token in enumerate(alphabet)}, []))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=backend)


def first_end(stops, tokens):
    """Where the sampler would stop: the table first, the exact answer after it."""
    for n in range(1, len(tokens) + 1):
        if stops.may_end[tokens[n - 1]] and stops.ends(tokens[:n]):
            return n
    return None


@pytest.mark.parametrize(
    ("text", "stop", "seen"),
    [
        ("so 答案: yes", "答案", "so 答案"),
        ("a\n\nb", "\n\n", "a\n\n"),
        ("x</end>y", "</end>", "x</end>"),
        ("none", "zz", None),
    ],
)
def test_a_text_across_tokens_and_bytes_is_found_at_its_last_token(text, stop, seen):
    tokenizer = byte_tokenizer()
    stops = Stops([], [stop], tokenizer, len(tokenizer), torch.device("cpu"))
    tokens = tokenizer(text)["input_ids"]
    expected = None if seen is None else len(tokenizer(seen)["input_ids"])
    assert first_end(stops, tokens) == expected


def test_the_table_spares_decoding_where_nothing_can_end():
    tokenizer = character_tokenizer("abc", words=["bca"])
    stops = Stops([1], ["ab"], tokenizer, 20, torch.device("cpu"))
    ids = tokenizer.convert_tokens_to_ids
    assert stops.may_end[[ids("a"), ids("b"), ids("c"), ids("bca"), 1, 0]].tolist() == [
        False,
        True,
        False,
        True,
        True,
        False,
    ]
    assert stops.ends([ids("a"), ids("b")])
    assert stops.ends([ids("a"), ids("bca")])
    assert not stops.ends([ids("b")])
    assert stops.ends([1])


def test_the_sampler_stops_at_the_first_stop_text_and_calls_it_complete():
    tokenizer = character_tokenizer("ab .\n")
    backbone = Backbone(small_model(SmallModelConfig(hidden_size=16, num_heads=2, max_positions=64), tokenizer, seed=0))
    out = sample(
        backbone,
        [tokenizer("ab")["input_ids"]],
        200,
        SamplingConfig(max_new_tokens=30, temperature=9.0, stop=("a.", "\n")),
        range(200),
        tokenizer=tokenizer,
    )
    texts = [tokenizer.decode(row) for row in out.token_lists()]
    for text, truncated in zip(texts, out.truncated.tolist(), strict=True):
        assert truncated == (not text.endswith(("a.", "\n", "<|end|>")))
        assert "a." not in text[:-1]
        assert "\n" not in text[:-1]
    assert any(text.endswith("a.") for text in texts)
