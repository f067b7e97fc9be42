from __future__ import annotations

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from groupwise.domain.language.chat import token_texts


def test_bytes_of_one_character_read_as_parts_of_it() -> None:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({token: number for number, token in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    tokenizer.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    assert token_texts(fast, [fast.encode("a <"), fast.encode("é"), []]) == [["a", " ", "<"], ["\ufffd", "\ufffd"], []]


def test_the_space_before_a_word_stays() -> None:
    tokenizer = Tokenizer(models.WordLevel({"\u2581two": 0, "\u2581words": 1, "s": 2, "?": 3}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()  # type: ignore[assignment]
    tokenizer.decoder = decoders.Metaspace()  # type: ignore[assignment]
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    assert fast.decode([0]) == "two", "what decoding alone loses"
    assert token_texts(fast, [[0, 1, 2]]) == [[" two", " words", "s"]]
