"""A reward model of random weights, built here, saved and loaded as a folder."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import LlamaConfig, LlamaForSequenceClassification, PreTrainedTokenizerFast

import groupwise.reward.models.judge as room
from groupwise.reward import RewardError, RewardModel, Rewards, WinRate, score

WORDS = ["<pad>", "<eos>", "<unk>", "<bos>", "user", "assistant", *["a", "b", "c", "d", "e", "f", "g", "h"]]
TEMPLATE = "<bos> {% for m in messages %}{{ m['role'] }} {{ m['content'] }} <eos> {% endfor %}"


def build(folder: Path, *, num_labels: int = 1, pad: bool = True) -> str:
    words = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.post_processor = processors.TemplateProcessing(
        single="<bos> $A", special_tokens=[("<bos>", WORDS.index("<bos>"))]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words,
        unk_token="<unk>",
        bos_token="<bos>",
        eos_token="<eos>",
        **({"pad_token": "<pad>"} if pad else {}),
    )
    tokenizer.chat_template = TEMPLATE
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=12,
        num_labels=num_labels,
        pad_token_id=0 if pad else None,
        initializer_range=0.5,
    )
    LlamaForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def plain(folder: str, text: str) -> torch.Tensor:
    """The model on one text alone."""
    model = LlamaForSequenceClassification.from_pretrained(folder)
    ids = torch.tensor([[WORDS.index(word) for word in text.split()]])
    with torch.no_grad():
        return model.eval()(input_ids=ids).logits[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return build(tmp_path_factory.mktemp("reward-model"))


def test_batches_of_unequal_texts_score_as_each_alone(folder: str) -> None:
    prompts, completions = ["a ", "b c ", "d ", "a "], ["b", "d e f g h a b", "c d", "b c d e"]
    values = score({"rm": RewardModel(path=folder, batch_size=2)}, prompts, completions).values["rm"]
    expected = [
        plain(folder, "<bos> " + prompt + completion)[0].item()
        for prompt, completion in zip(prompts, completions, strict=True)
    ]
    assert values == pytest.approx(expected, abs=1e-5)
    assert max(expected) - min(expected) > 0.1


@pytest.mark.parametrize("completion", ["b c", [{"role": "assistant", "content": "b c"}]])
def test_chats_are_written_with_the_template(folder: str, completion: object) -> None:
    values = score({"rm": RewardModel(path=folder)}, [[{"role": "user", "content": "a"}]], [completion]).values["rm"]  # type: ignore[list-item]
    assert values == pytest.approx([plain(folder, "<bos> user a <eos> assistant b c <eos>")[0].item()], abs=1e-5)


def test_a_text_that_begins_with_its_token_gets_no_second_and_chats_stand_beside_texts(folder: str) -> None:
    """A prompt that is a text and one that is a chat may share a batch."""
    prompts = ["<bos> a ", [{"role": "user", "content": "a"}]]
    values = score({"rm": RewardModel(path=folder)}, prompts, ["b c", "b c"]).values["rm"]
    expected = [plain(folder, text)[0].item() for text in ("<bos> a b c", "<bos> user a <eos> assistant b c <eos>")]
    assert values == pytest.approx(expected, abs=1e-5)


def test_quantised_weights_without_their_library_are_refused_in_one_line(tmp_path: Path) -> None:
    folder = Path(build(tmp_path / "model"))
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(RewardError, match="reward_model cannot be loaded from path = "):
        RewardModel(path=str(folder)).open()


def test_too_long_a_text_loses_its_beginning_and_is_counted(folder: str) -> None:
    table = score({"rm": RewardModel(path=folder)}, [""] * 2, [" ".join("abcdefgh" * 2), "a"])
    assert table.values["rm"][0] == pytest.approx(plain(folder, " ".join(("abcdefgh" * 2)[-12:]))[0].item(), abs=1e-5)
    assert [(event.name, event.member, event.detail) for event in table.events] == [
        ("truncated", 0, "17 tokens, 12 read")
    ]


def test_a_tokenizer_without_padding_and_a_classifier_of_several_labels(tmp_path: Path) -> None:
    folder = build(tmp_path, num_labels=3, pad=False)
    texts = ["a b", "c", "d e f"]
    expected = torch.stack([plain(folder, "<bos> " + text) for text in texts])
    reward = RewardModel(path=folder, label=2, output="probability")
    assert score({"rm": reward}, [""] * 3, texts).values["rm"] == pytest.approx(
        expected.softmax(-1)[:, 2].tolist(), abs=1e-5
    )
    with pytest.raises(RewardError, match="has 3 outputs; label = 3 must be below that"):
        Rewards({"rm": RewardModel(path=folder, label=3)})


@pytest.mark.parametrize("output", ["logit", "probability"])
def test_a_model_that_gives_infinity_is_named(folder: str, output: Any) -> None:
    """The sigmoid of infinity is 1."""
    loaded: Any = RewardModel(path=folder, output=output).open()
    with torch.no_grad():
        loaded.model.score.weight.fill_(math.inf)
    with pytest.raises(RewardError, match="gives NaN or infinity; are its weights whole"):
        loaded(["a "], ["b"])


# Pairwise preference inside a group, by hand.


def use(monkeypatch: pytest.MonkeyPatch, judge: object) -> None:
    monkeypatch.setattr(room, "user_callable", lambda path, key, group: judge)


def test_the_share_of_the_own_group_that_is_beaten(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, lambda prompt, first, second: 0.5 if first == second else float(first > second))
    prompts, values = ["a", "b", "a", "a", "b", "c"], ["1", "9", "3", "3", "8", "7"]
    # In group a: 1 loses twice, each 3 wins once and draws once. c has nobody to be compared with.
    assert score({"w": WinRate(function="m:f")}, prompts, values).values["w"] == [0.0, 1.0, 0.75, 0.75, 0.0, None]


def test_both_orders_take_the_judges_favourite_place_out(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    use(monkeypatch, lambda prompt, first, second: asked.append((first, second)) or 0.9)
    assert score({"w": WinRate(function="m:f")}, ["a"] * 2, ["x", "y"]).values["w"] == pytest.approx([0.9, 0.1])
    assert score({"w": WinRate(function="m:f", both_orders=True)}, ["a"] * 2, ["x", "y"]).values["w"] == pytest.approx(
        [0.5, 0.5]
    )
    assert asked == [("x", "y"), ("x", "y"), ("y", "x")]


@pytest.mark.parametrize("answer", [1.5, None, "yes", float("nan")])
def test_an_answer_that_is_no_probability_is_named(monkeypatch: pytest.MonkeyPatch, answer: object) -> None:
    use(monkeypatch, lambda prompt, first, second: answer)
    with pytest.raises(RewardError, match=r"return the probability that the first is better, 0 to 1"):
        score({"w": WinRate(function="m:f")}, ["a"] * 2, ["x", "y"])
