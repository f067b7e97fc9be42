"""Rewards read what was written, special tags too."""

from __future__ import annotations

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from groupwise.causal_lm.sampler import written_texts
from groupwise.reward import Format


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
