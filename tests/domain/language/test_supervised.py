from __future__ import annotations

import pytest
import torch

from groupwise.domain.language.chat import Chat, build_tokenizer
from groupwise.domain.language.config import ChatConfig
from groupwise.domain.language.data import Demonstration
from groupwise.domain.language.environment import GuessTheNumber, Tools
from groupwise.domain.language.supervised import Corpus, as_samples, encode_demonstration, has_few_letters
from groupwise.domain.protocol import Prompt


@pytest.fixture
def chat():
    return Chat(build_tokenizer("pieces", ["<tool>1+1</tool><result>2</result> so 2 ? 9 lower"]), ChatConfig())


PROMPT = Prompt("p", {"prompt": "1+1 ?", "secret": 2})


def test_policy_turns_are_targets_with_their_end_and_the_environments_are_not(chat):
    eos = chat.tokenizer.eos_token_id
    example = encode_demonstration(
        Demonstration(PROMPT, ("9", " lower", "2")), chat, GuessTheNumber(), (eos,), (), None
    )
    nine, lower, two = (chat.encode_text(text)[0] for text in ("9", " lower", "2"))
    assert example.tokens == (nine, eos, lower, two, eos)
    assert example.target == (True, True, False, True, True)
    assert list(example.prompt_ids) == chat.encode_text("1+1 ?")


def test_a_turn_that_ends_with_a_stop_text_needs_no_end_token(chat):
    eos = chat.tokenizer.eos_token_id
    turns = ("<tool>1+1</tool>", "<result>2</result>", " so 2")
    example = encode_demonstration(Demonstration(PROMPT, turns), chat, Tools(), (eos,), Tools().stop, None)
    assert chat.tokenizer.decode(example.tokens) == "".join(turns) + chat.tokenizer.eos_token
    assert example.tokens.count(eos) == 1


def test_a_corpus_encodes_at_once_only_what_may_be_too_long():
    chat = Chat(build_tokenizer("pieces", ["1+1 ? so 2"]), ChatConfig())
    texts = ["2", "2 " * 9, "so"]
    demonstrations = [Demonstration(PROMPT, (text,)) for text in texts]
    encoded = []

    def encode(demonstration):
        encoded.append(demonstration.turns[0])
        return encode_demonstration(demonstration, chat, None, (1,), (), None)

    corpus = Corpus(demonstrations, encode, lambda demonstration: not has_few_letters(demonstration, 9, 0))
    assert encoded == [texts[1]]
    assert [corpus[place].prompt for place in (2, 2, 1)] == [PROMPT] * 3
    assert encoded == [texts[1], texts[2]]
    assert len(corpus) == 3


def test_a_batch_counts_target_tokens_and_reinforces_none(chat):
    examples = [
        encode_demonstration(Demonstration(PROMPT, turns), chat, None, (1,), (), None)
        for turns in (("2",), ("9", " lower", "2"))
    ]
    samples = as_samples(examples, torch.device("cpu"))
    assert not samples.mask.any()
    assert samples.auxiliary_count["supervised"].tolist() == [2, 4]
    assert samples.payload["length"].tolist() == [2, 5]
    assert samples.payload["target"].tolist() == [[True, True, False, False, False], [True, True, False, True, True]]
