"""Drawing a token, ending a turn, and decoding what was written."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from groupwise.causal_lm.backbone import Backbone
from groupwise.causal_lm.config import SamplingConfig, SmallModelConfig
from groupwise.causal_lm.decode import Stops, draw, truncation_mask, uniforms
from groupwise.causal_lm.sampler import GroupBatch, sample, written_texts
from groupwise.causal_lm.small import character_tokenizer, small_model
from groupwise.reward import Format


def test_splitmix_matches_its_published_first_output():
    """The first output of splitmix64 seeded with 0 is 0xE220A8397B1DCDAF (Vigna's reference code)."""
    from groupwise.causal_lm import decode as module

    with np.errstate(over="ignore"):
        assert int(module._mix(np.array([0], dtype=np.uint64) + module._GOLDEN)[0]) == 0xE220A8397B1DCDAF


def test_uniforms_are_uniform_independent_and_keyed_by_the_seed():
    u = uniforms(range(400), 100)
    assert u.dtype == torch.float64
    assert u.min() > 0
    assert u.max() < 1
    assert abs(u.mean().item() - 0.5) < 5 / (12 * 40000) ** 0.5
    counts = torch.histc(u.float(), 20, 0, 1)
    assert ((counts - 2000) ** 2 / 2000).sum() < 43.8  # chi-square with 19 degrees of freedom, 1 in 1000
    for a, b in ((u[:, :-1], u[:, 1:]), (u[:-1], u[1:])):
        assert abs(torch.corrcoef(torch.stack([a.flatten(), b.flatten()]))[0, 1].item()) < 0.025
    assert torch.equal(uniforms([-1, 2**64 + 5], 3), uniforms([2**64 - 1, 5], 3))


def test_draw_follows_the_masses_and_never_takes_a_zero():
    p = torch.tensor([0.0, 0.2, 0.0, 0.5, 0.3, 0.0])
    tokens = draw(p.expand(20000, 6) * 7, uniforms([0], 20000)[0])
    share = torch.bincount(tokens, minlength=6) / 20000
    assert share[[0, 2, 5]].sum() == 0
    assert torch.allclose(share, p, atol=0.015)
    edges = draw(p.expand(4, 6), torch.tensor([2.0**-49, 0.2, 0.7, 1 - 2.0**-49], dtype=torch.float64))
    assert edges.tolist() == [1, 3, 4, 4]


def test_top_k_and_top_p_by_hand():
    log_p = torch.tensor([[0.1, 0.4, 0.2, 0.3]]).log()
    assert truncation_mask(log_p, 2, 1.0).tolist() == [[False, True, False, True]]
    assert truncation_mask(log_p, 0, 0.71).tolist() == [[False, True, True, True]]
    assert truncation_mask(log_p, 0, 0.69).tolist() == [[False, True, False, True]]
    # top-p acts on what top-k left: .4 / .7 = .571
    assert truncation_mask(log_p, 2, 0.57).tolist() == [[False, True, False, False]]
    assert truncation_mask(log_p, 1, 1e-9).sum() == 1
    assert truncation_mask(log_p, 0, 1.0) is None
    assert truncation_mask(log_p, 4, 1.0) is None


# Stop texts end a turn however they were cut into tokens.


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
        GroupBatch(
            [tokenizer("ab")["input_ids"]],
            200,
            SamplingConfig(max_new_tokens=30, temperature=9.0, stop=("a.", "\n")),
            range(200),
        ),
        tokenizer=tokenizer,
    )
    texts = [tokenizer.decode(row) for row in out.token_lists()]
    for text, truncated in zip(texts, out.truncated.tolist(), strict=True):
        assert truncated == (not text.endswith(("a.", "\n", "<|end|>")))
        assert "a." not in text[:-1]
        assert "\n" not in text[:-1]
    assert any(text.endswith("a.") for text in texts)


# Rewards read what was written, special tags too.


def test_special_tags_stay_and_what_ends_or_fills_a_text_goes() -> None:
    tokens = Tokenizer(models.BPE())
    tokens.pre_tokenizer, tokens.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    special = ["<bos>", "<eos>", "<pad>", "<|end|>", "<think>", "</think>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokens.train_from_iterator(
        ["1 + 2"], trainers.BpeTrainer(special_tokens=special, initial_alphabet=alphabet, show_progress=False)
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tokens,
        bos_token="<bos>",
        eos_token="<eos>",
        pad_token="<pad>",
        additional_special_tokens=special[3:],
    )
    written = "<think>1 + 2</think><answer>3</answer>"
    ids = tokenizer.encode(written)
    assert special.index("<think>") in ids
    ends = [tokenizer.convert_tokens_to_ids("<|end|>")]
    rows = [[*ids, *tokenizer.encode(end)] for end in ("", "<eos>", "<|end|>", "<eos><pad><pad>")]
    assert written_texts(tokenizer, rows, ends) == [written] * 4
    assert Format()([""] * 4, written_texts(tokenizer, rows, ends)) == [1.0] * 4
