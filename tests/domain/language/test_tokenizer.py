from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from groupwise.domain.language.chat import build_tokenizer


@pytest.mark.parametrize("kind", ["pieces", "characters"])
@given(text=st.text(st.characters(max_codepoint=0x2FF, exclude_categories=("Cs", "Cc")), max_size=40))
@settings(max_examples=30, deadline=None)
def test_pieces_and_characters_lose_nothing(kind, text):
    tokenizer = build_tokenizer(kind, [text])
    ids = tokenizer.encode(text)
    assert tokenizer.unk_token_id not in ids
    assert tokenizer.decode(ids) == text


def test_words_are_what_stands_between_spaces():
    tokenizer = build_tokenizer("words", ["swap 1-4 3-2 ?", "answer 4"])
    assert [tokenizer.decode([token]) for token in tokenizer.encode("swap 3-2  1-4 ?")] == ["swap", "3-2", "1-4", "?"]
    assert tokenizer.encode("swap 9") == [tokenizer.convert_tokens_to_ids("swap"), tokenizer.unk_token_id]


def test_pieces_keep_tags_whole_and_digits_apart():
    tokenizer = build_tokenizer("pieces", ["<think>is 12.</think> <answer>"])
    tokens = [tokenizer.decode([token]) for token in tokenizer.encode("<think>is 12.</think> <answer>")]
    assert tokens == ["<think>", "is", " 1", "2", ".", "</think>", " <answer>"]


def test_the_vocabulary_does_not_depend_on_order_and_special_tokens_are_apart():
    first, second = build_tokenizer("words", ["b a", "c"]), build_tokenizer("words", ["c", "a b", "a"])
    assert first.get_vocab() == second.get_vocab()
    letters = "qwertyuiopasdfghjkl"
    found = build_tokenizer("characters", [letters]).get_vocab()
    assert [found[letter] for letter in sorted(letters)] == list(range(3, 3 + len(letters)))
    assert (first.pad_token_id, first.eos_token_id, first.unk_token_id) == (0, 1, 2)
    assert first.decode([*first.encode("a b"), first.eos_token_id], skip_special_tokens=True) == "a b"


@pytest.mark.parametrize("kind", ["words", "pieces", "characters"])
def test_a_saved_tokenizer_is_the_same_elsewhere(kind, tmp_path):
    tokenizer = build_tokenizer(kind, ["ball 3 swap, <answer>1-4</answer> ?"])
    tokenizer.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    text = "ball 3 ? <answer>1-4</answer>" if kind != "words" else "ball 3 ?"
    assert again.encode(text) == tokenizer.encode(text)
    assert again.decode(again.encode(text)) == text
