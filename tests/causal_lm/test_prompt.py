"""Prompts say what was meant: special tokens once, begun answers continued, nulls not written."""

from __future__ import annotations

import json
from typing import Any

import datasets
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from groupwise.causal_lm.prompt import added_tokens, cut_left, encode_middle, encode_prompts, render_chat
from groupwise.config import ConfigError

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
THINKS = CHATML.replace(
    "m['content'] + ",
    "('<think>\n\n</think>\n\n' if loop.last and m['role'] == 'assistant' else '') + m['content'] + ",
)
OPENS_THOUGHT = CHATML.replace("assistant\n' }}{% endif", "assistant\n<think>\n' }}{% endif")
CALLS = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function | tojson }}"
    "{% endfor %}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
)
QUESTION = {"role": "user", "content": "1 + 2"}


def tokenizer(template: str = CHATML, post: str = "$A", eos: str = "<eos>") -> PreTrainedTokenizerFast:
    """Letters in bytes; `post` names the special tokens that are put around a text."""
    tokens = Tokenizer(models.BPE())
    tokens.pre_tokenizer, tokens.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    special = ["<bos>", "<eos>", "</s>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokens.train_from_iterator(
        ["1 + 2"], trainers.BpeTrainer(special_tokens=special, initial_alphabet=alphabet, show_progress=False)
    )
    tokens.post_processor = processors.TemplateProcessing(
        single=post, special_tokens=[(part, tokens.token_to_id(part)) for part in special]
    )
    made = PreTrainedTokenizerFast(tokenizer_object=tokens, bos_token="<bos>", eos_token=eos)
    made.chat_template = template
    return made


def pieces() -> PreTrainedTokenizerFast:
    """A tokenizer of the SentencePiece kind, which puts a space before every text."""
    words = {"<unk>": 0, "<s>": 1, "</s>": 2, "▁": 3, "a": 4, "▁a": 5, "b": 6, "\n": 7}
    tokens = Tokenizer(models.BPE(words, [("▁", "a")], unk_token="<unk>"))
    tokens.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
    tokens.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokens, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


@pytest.mark.parametrize("post", ["<bos> $A", "<bos> $A <eos>", "<bos> $A </s>"])
@pytest.mark.parametrize("text", ["1 + 2 =", "<bos>1 + 2 =", "<bos><bos>1 + 2 ="])
def test_a_text_has_one_beginning_and_no_end(post: str, text: str) -> None:
    made = tokenizer(post=post)
    assert made.decode(encode_prompts(made, [text, "a"])[0]) == "<bos>1 + 2 ="
    assert made.decode(encode_prompts(made, ["", text])[0]) == "<bos>"


@pytest.mark.parametrize(("post", "begin"), [("$A <eos>", ""), ("<|im_start|> <bos> $A <eos>", "<|im_start|><bos>")])
def test_an_end_that_was_written_stays_and_several_tokens_may_begin(post: str, begin: str) -> None:
    made = tokenizer(post=post)
    texts = ["1<eos>", "<bos>2", "<|im_start|><bos>2"]
    assert [made.decode(ids).removeprefix(begin) for ids in encode_prompts(made, texts)] == (
        ["1<eos>", "<bos>2", "<|im_start|><bos>2"] if not begin else ["1<eos>", "2", "2"]
    )


def test_a_tokenizer_that_begins_and_ends_with_one_token() -> None:
    made = tokenizer(post="<eos> $A <eos>")
    assert [made.decode(ids) for part in added_tokens(made) for ids in [part]] == ["<eos>", "<eos>"]
    assert made.decode(encode_prompts(made, ["<eos>1"])[0]) == "<eos>1"


@pytest.mark.parametrize("post", ["$A", "<bos> $A <eos>"])
def test_a_chat_has_the_beginning_that_its_template_writes_and_its_text_the_same(post: str) -> None:
    made = tokenizer("{{ bos_token }}" + CHATML, post)
    text = render_chat(made, [QUESTION])
    expected = made.apply_chat_template([QUESTION], add_generation_prompt=True, return_dict=False)
    assert encode_prompts(made, [text], rendered=True) == encode_prompts(made, [text]) == [expected]
    assert expected.count(made.bos_token_id) == 1


def test_a_cut_prompt_keeps_its_beginning() -> None:
    made = tokenizer()
    ids = made.encode("<bos>1 + 2")
    assert cut_left(made, ids, 3) == [ids[0], *ids[-2:]]
    assert cut_left(made, ids[1:], 3) == ids[-3:]
    assert cut_left(made, ids, len(ids)) == ids
    assert cut_left(made, ids, 1) == ids[-1:]


def test_pieces_get_a_space_at_the_beginning_alone() -> None:
    made = pieces()
    assert encode_prompts(made, ["ab", "<s>ab"])[0] == [1, 5, 6]
    assert encode_prompts(made, ["<s>ab"])[0][0] == 1
    assert encode_prompts(made, ["<s>ab"])[0].count(1) == 1
    assert made.encode("ab", add_special_tokens=False) == [5, 6]
    assert encode_middle(made, "ab") == [4, 6]
    assert encode_middle(made, " ab") == [5, 6]


@pytest.mark.parametrize("content", ["<think>", "The answer is ", ""])
def test_a_chat_that_ends_with_the_assistant_is_continued(content: str) -> None:
    made, chat = tokenizer(), [QUESTION, {"role": "assistant", "content": content}]
    assert render_chat(made, chat) == render_chat(made, [QUESTION]) + content
    assert render_chat(made, chat) == made.apply_chat_template(chat, tokenize=False, continue_final_message=True)


@pytest.mark.parametrize(
    "template",
    [
        THINKS,
        OPENS_THOUGHT,
        *(
            template.replace("m['content']", "m['content'].split('</think>')[-1]")
            for template in (CHATML, OPENS_THOUGHT)
        ),
    ],
)
@pytest.mark.parametrize("content", ["<think>so", "<think>so</think>The answer is"])
def test_a_begun_thought_stands_alone_in_its_turn(template: str, content: str) -> None:
    chat = [QUESTION, {"role": "assistant", "content": content}]
    assert render_chat(tokenizer(template), chat) == render_chat(tokenizer(), [QUESTION]) + content


def test_a_begun_answer_that_the_template_changes_is_refused() -> None:
    made = tokenizer(CHATML.replace("m['content']", "m['content'] | upper"))
    with pytest.raises(ConfigError, match=r"chat template refuses .* final message does not appear"):
        render_chat(made, [QUESTION, {"role": "assistant", "content": "so"}])


def calling(content: Any, **arguments: Any) -> list[dict[str, Any]]:
    call = {"type": "function", "function": {"name": "now", "arguments": arguments}}
    return [QUESTION, {"role": "assistant", "content": content, "tool_calls": [call]}, {"role": "tool", "content": "5"}]


@pytest.mark.parametrize(
    "written",
    [
        "m.content",
        "m.content | trim",
        "m.content | string",
        "m.content.strip()",
        "'' ~ m['content']",
        "'' + m['content']",
    ],
)
def test_a_null_content_is_nothing(written: str) -> None:
    made = tokenizer(CALLS.replace("m.content", written))
    assert render_chat(made, calling(None)) == render_chat(made, calling(""))
    assert "None" not in render_chat(made, calling(None))
    assert "[assistant]None{" in render_chat(made, calling("None"))


@pytest.mark.parametrize("kind", ["dataset", "parquet", "jsonl"])
def test_nulls_that_a_table_filled_into_arguments_are_not_shown(kind: str, tmp_path: Any) -> None:
    rows = [
        calling("", city="Oslo", within={"hours": 1}),
        calling("", a=1, b=[{"q": 1}, {"z": [2, None]}]),
        calling("", city="Rome", unit="C"),
    ]
    table = datasets.Dataset.from_list([{"prompt": row} for row in rows])
    if kind == "parquet":
        table.to_parquet(tmp_path / "rows.parquet")
        table = datasets.Dataset.from_parquet(str(tmp_path / "rows.parquet"), cache_dir=str(tmp_path))
    if kind == "jsonl":
        table.to_json(tmp_path / "rows.jsonl")
        table = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    made = tokenizer(CALLS)
    shown = [render_chat(made, row["prompt"]) for row in table]
    assert shown == [render_chat(made, row) for row in rows]
    assert '"city": "Oslo"' in shown[0]
    assert "[2, null]" in shown[1]
    assert "null" not in shown[0] + shown[2]


def test_a_null_that_was_written_into_an_argument_is_shown() -> None:
    assert '"arguments": {"city": null}' in render_chat(tokenizer(CALLS), calling("", city=None))
