from __future__ import annotations

import pytest
import torch

from groupwise.config import ConfigError
from groupwise.domain.language.chat import Chat
from groupwise.domain.language.config import ChatConfig
from groupwise.domain.language.data import Demonstration
from groupwise.domain.language.environment import GuessTheNumber, Tools
from groupwise.domain.language.supervised import as_samples, encode_demonstration
from groupwise.domain.language.tokenizer import build_tokenizer
from groupwise.domain.protocol import Prompt


@pytest.fixture
def chat():
    return Chat(build_tokenizer("pieces", ["<tool>1+1</tool><result>2</result> so 2 ? 9 lower"]), ChatConfig())


PROMPT = Prompt("p", {"prompt": "1+1 ?", "secret": 2})


def test_policy_turns_are_targets_with_their_end_and_the_environments_are_not(chat):
    eos = chat.tokenizer.eos_token_id
    example = encode_demonstration(Demonstration(PROMPT, ("9", " lower", "2")), chat, GuessTheNumber(), eos, (), None)
    nine, lower, two = (chat.encode_text(text)[0] for text in ("9", " lower", "2"))
    assert example.tokens == (nine, eos, lower, two, eos)
    assert example.target == (True, True, False, True, True)
    assert list(example.prompt_ids) == chat.encode_text("1+1 ?")


def test_a_turn_that_ends_with_a_stop_text_needs_no_end_token(chat):
    eos = chat.tokenizer.eos_token_id
    turns = ("<tool>1+1</tool>", "<result>2</result>", " so 2")
    example = encode_demonstration(Demonstration(PROMPT, turns), chat, Tools(), eos, Tools().stop, None)
    assert chat.tokenizer.decode(example.tokens) == "".join(turns) + chat.tokenizer.eos_token
    assert example.tokens.count(eos) == 1


def test_a_demonstration_longer_than_the_context_is_refused(chat):
    with pytest.raises(ConfigError, match="has 3 tokens beside the prompt's 4, above the model's context of 6"):
        encode_demonstration(Demonstration(PROMPT, (" so 2",)), chat, None, 1, (), 6)


def test_a_batch_counts_target_tokens_and_reinforces_none(chat):
    examples = [
        encode_demonstration(Demonstration(PROMPT, turns), chat, None, 1, (), None)
        for turns in (("2",), ("9", " lower", "2"))
    ]
    samples = as_samples(examples, torch.device("cpu"))
    assert not samples.mask.any()
    assert samples.auxiliary_count["supervised"].tolist() == [2, 4]
    assert samples.payload["length"].tolist() == [2, 5]
    assert samples.payload["target"].tolist() == [[True, True, False, False, False], [True, True, False, True, True]]
