"""`make peers`: what the comparison of two trainers says, and one run of it over a checkout made here."""

from __future__ import annotations

import pytest
from benchmarks.peers_hub import FEW_TEXTS, QWEN_TEXTS, make_tokenizer

pytestmark = pytest.mark.slow


def test_the_tokenizer_has_qwens_ids_and_a_text_for_every_id() -> None:
    tokenizer = make_tokenizer(QWEN_TEXTS)
    assert (tokenizer.eos_token_id, tokenizer.pad_token_id, len(tokenizer)) == (151_645, 151_643, 151_669)
    assert tokenizer.decode([40, 1513, 944, 1414, 894, 5392]) == "I don't know any tool"
    assert tokenizer("\n a1")["input_ids"] == [198, 220, 64, 16]
    few = make_tokenizer(FEW_TEXTS)
    assert len({few.decode([place]) for place in range(128, FEW_TEXTS)}) > FEW_TEXTS - 300
