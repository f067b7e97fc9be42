from __future__ import annotations

import json
from unittest.mock import patch

import pytest

from groupwise.causal_lm.small import character_tokenizer
from groupwise.config import ConfigError, merge, validate
from groupwise.domain.language.chat import Chat
from groupwise.domain.language.config import ChatConfig, DataConfig, DemonstrationsConfig
from groupwise.domain.language.data import encode, split, tokenize
from groupwise.domain.language.source import Cups, Files
from groupwise.domain.protocol import Prompt


def write_two(row, seed):
    return ["a", "b"]


def shout(row):
    return {**row, "prompt": row["question"].upper(), "answer": "yes"}


def forget(row):
    return row["question"]


def with_prompt(row):
    return {"prompt": row.get("question"), **row}


def files(tmp_path, rows, name="train.json", **more):
    (tmp_path / name).write_text(json.dumps(rows))
    return Files(paths=(str(tmp_path / name),), shuffle=False, **more)


def numbered(*numbers):
    return [{"question": f"{number} ?", "solution": str(number), "work": f"it is {number}"} for number in numbers]


def test_nothing_held_out_is_trained_on_or_demonstrated():
    splits = split(DataConfig(source=Cups(), num_train=300, num_held_out=100), DemonstrationsConfig(num=200))
    train, held_out = ({prompt.columns["prompt"] for prompt in each} for each in (splits.train, splits.held_out))
    shown = {each.prompt.columns["prompt"] for each in splits.demonstrations}
    assert (len(train), len(held_out), len(shown)) == (300, 100, 200)
    assert not train & held_out
    assert not shown & (train | held_out)


def test_held_out_rows_of_a_file_are_its_first_prompts_and_their_doubles_are_removed(tmp_path):
    source = files(tmp_path, numbered(1, 2, 1, 3, 4, 2, 3))
    splits = split(DataConfig(source=source, num_held_out=2, prompt_column="question", answer_column="solution"))
    assert [prompt.columns["answer"] for prompt in splits.held_out] == ["1", "2"]
    assert [prompt.columns["answer"] for prompt in splits.train] == ["3", "4", "3"]
    assert splits.num_removed == 2, "a second row asks for 1, and one for 2"
    assert len({prompt.key for prompt in splits.train}) == 3, "a prompt asked twice has two keys"


def test_a_column_that_some_rows_lack_is_none_there_and_stays_in_the_others(tmp_path):
    rows = [{"prompt": "1 ?"}, {"prompt": "2 ?", "hint": "two"}, {"prompt": "3 ?", "hint": "three"}]
    splits = split(DataConfig(source=files(tmp_path, rows), num_held_out=1))
    columns = [prompt.columns["hint"] for prompt in (*splits.held_out, *splits.train)]
    assert columns == [None, "two", "three"]


def test_demonstrations_come_from_the_training_prompts_a_column_or_a_writer(tmp_path):
    data = DataConfig(source=files(tmp_path, numbered(1, 2, 3)), num_held_out=1, prompt_column="question")
    assert [each.turns for each in split(data, DemonstrationsConfig(column="work")).demonstrations] == [
        ("it is 2",),
        ("it is 3",),
    ]
    shown = split(data, DemonstrationsConfig(num=1, writer=f"{__name__}:write"))
    assert [each.turns for each in shown.demonstrations] == [("3", "right", "good")]
    assert [prompt.columns["solution"] for prompt in shown.train] == ["2"]
    with pytest.raises(ConfigError, match=r"a source of kind 'files' writes none itself; write demonstrations.column"):
        split(data, DemonstrationsConfig())
    with pytest.raises(ConfigError, match=r"neither a text nor an odd number of texts"):
        split(data, DemonstrationsConfig(writer=f"{__name__}:write_two"))


def write(row, seed):
    return [row["solution"], "right", "good"]


def test_a_template_fills_in_columns_and_names_what_it_lacks(tmp_path):
    source = files(tmp_path, numbered(1, 2))
    splits = split(DataConfig(source=source, num_held_out=1, prompt_template="Q: {question}\nA:"))
    assert splits.train[0].columns["prompt"] == "Q: 2 ?\nA:"
    unfilled = (
        r"data.prompt_template = 'Q: \{query\}' cannot be filled in for the row .*: KeyError: 'query'; columns present:"
        r" question, solution, work"
    )
    with pytest.raises(ConfigError, match=unfilled):
        split(DataConfig(source=source, num_held_out=1, prompt_template="Q: {query}"))


def test_a_function_may_change_rows_and_what_fails_in_it_is_said(tmp_path):
    source = files(tmp_path, [{"question": "one ?"}, {"question": "two ?"}, {"question": "One ?"}])
    splits = split(DataConfig(source=source, num_held_out=1, map=f"{__name__}:shout"))
    assert [prompt.columns for prompt in splits.held_out] == [{"question": "one ?", "prompt": "ONE ?", "answer": "yes"}]
    assert [prompt.columns["prompt"] for prompt in splits.train] == ["TWO ?"]
    assert splits.num_removed == 1, "what is the same after the change is the same prompt"
    with pytest.raises(
        ConfigError, match=r"data.map = '.*:forget' gives str for the row .*; write a function that returns the row"
    ):
        split(DataConfig(source=source, num_held_out=1, map=f"{__name__}:forget"))
    with pytest.raises(
        ConfigError, match=r"data.map = '.*' fails for the row .*KeyError: 'metadata'; columns present: question"
    ):
        split(DataConfig(source=source, num_held_out=1, map="groupwise.domain.language.writer.countdown:sort_numbers"))
    demonstrations = DemonstrationsConfig(writer="groupwise.domain.language.writer.countdown:write")
    with pytest.raises(ConfigError, match=r"demonstrations.writer = '.*' fails for the row"):
        split(DataConfig(source=source, num_held_out=1, prompt_column="question"), demonstrations)


@pytest.mark.parametrize(
    ("rows", "settings", "message"),
    [
        ([], {}, "is empty"),
        (
            numbered(1, 2),
            {"prompt_column": "questions"},
            (
                "data.prompt_column = 'questions': the data have no such column; columns present: question, solution,"
                " work; did you mean question?"
            ),
        ),
        (
            numbered(1, 2),
            {"prompt_column": "question", "answer_column": "answer"},
            "data.answer_column = 'answer': the data have no such column",
        ),
        (
            numbered(1, 2),
            {"prompt_column": "question", "num_held_out": 2},
            r"ask for more different prompts than there are: the 2 rows.*, or evaluate on rows of their own \(domain",
        ),
        ([{"prompt": " "}], {}, "the prompt is empty in the row"),
        (
            [{"prompt": 3}],
            {},
            r"the prompt is 3 \(of type int\) in the row \{'prompt': 3\}; a prompt is a text, or a list of messages",
        ),
        ([{"prompt": [{"text": "hi"}]}], {}, "a prompt is a text, or a list of messages"),
        (
            [{"prompt": [{"role": "user", "content": None}]}],
            {},
            r"a message of the role 'user' has the content None \(of type NoneType\); write a text; the row",
        ),
        ([{"prompt": [{"role": "user", "content": 3}]}], {}, r"has the content 3 \(of type int\); write a text"),
        (
            [{"prompt": [{"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "image"}]}]}],
            {},
            r"has the part \{'type': 'image'\}, and a language model here reads texts; write \{\"type\": \"text\"",
        ),
    ],
)
def test_data_that_cannot_be_used_say_why(tmp_path, rows, settings, message):
    with pytest.raises(ConfigError, match=message):
        split(DataConfig(**{"source": files(tmp_path, rows), "num_held_out": 1, **settings}))


def test_evaluation_sets_are_files_or_sources_and_nothing_of_them_is_trained_on(tmp_path):
    (tmp_path / "hard.json").write_text(json.dumps(numbered(9, 2, 9)))
    data = validate(
        DataConfig,
        {
            "source": {"kind": "files", "paths": [str(tmp_path / "train.json")], "shuffle": False},
            "evaluation": {"hard": str(tmp_path / "hard.json"), "cups": {"kind": "cups"}},
            "map": "tests.domain.language.test_data:with_prompt",
            "num_held_out": 4,
        },
    )
    files(tmp_path, numbered(1, 2, 3))
    splits = split(data)
    assert {name: len(prompts) for name, prompts in splits.evaluation.items()} == {"hard": 3, "cups": 4}
    assert [prompt.columns["solution"] for prompt in splits.evaluation["hard"]] == ["9", "2", "9"]
    assert [prompt.columns["solution"] for prompt in splits.train] == ["1", "3"]
    assert splits.num_removed == 1
    assert data.evaluated_apart


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"evaluation": {"hard": "nowhere.jsonl"}}, r"data.evaluation.hard: there is no file 'nowhere.jsonl'"),
        ({"evaluation": {"hard": 3}}, r"evaluation.hard"),
        ({"evaluation": {"a b": "x.jsonl"}}, r"'a b' is no name of an evaluation set"),
        ({"evaluation": {"hard": "empty.json"}}, r"data.evaluation.hard: 'empty.json' is empty"),
        (
            {"evaluation": {"hard": "train.json"}, "source": {"held_out_paths": ["train.json"]}},
            r"evaluation \(hard\) and source.held_out_paths both say what is evaluated on; write source.held_out_paths",
        ),
    ],
)
def test_an_evaluation_set_that_cannot_be_used_says_why(tmp_path, monkeypatch, data, message):
    monkeypatch.chdir(tmp_path)
    files(tmp_path, numbered(1, 2, 3))
    files(tmp_path, [], "empty.json")
    table = merge({"source": {"kind": "files", "paths": ["train.json"]}, "prompt_column": "question"}, data)
    with pytest.raises(ConfigError, match=message):
        split(validate(DataConfig, table))


@pytest.mark.parametrize(
    ("template", "prompt"),
    [
        ("{context} {question}", " 1 + 1?"),
        ("{context!r:>9}{context:.2f}{question!s}", "1 + 1?"),
        ("{score}{question}", "1 + 1?"),
        ("{options}{meta}{meta[city]}{question}", "['a', '', 'b']{'zip': 1}1 + 1?"),
        ("{question:>7}{meta[zip]:03d}", " 1 + 1?001"),
    ],
)
def test_a_null_in_a_template_is_nothing(tmp_path, template, prompt):
    row = {
        "question": "1 + 1?",
        "context": None,
        "score": float("nan"),
        "options": ["a", None, "b"],
        "meta": {"city": None, "zip": 1},
    }
    source = files(tmp_path, [row | {"question": "2 + 2?"}, row])
    (made,) = split(DataConfig(source=source, prompt_template=template, num_held_out=1)).train
    assert made.columns["prompt"] == prompt
    assert made.columns["context"] is None


def test_a_tokenizer_is_called_once_for_a_thousand_prompts():
    tokenizer = character_tokenizer("0123456789 user")
    tokenizer.chat_template = "{% for message in messages %}{{ message.content }} {% endfor %}user"
    chat = Chat(tokenizer, ChatConfig(), ())
    texts = [f"{number} 1" for number in range(2500)]
    columns = [text if number % 5 else [{"role": "user", "content": text}] for number, text in enumerate(texts)]
    prompts = [Prompt(str(number), {"prompt": column}) for number, column in enumerate(columns)]
    with patch.object(type(tokenizer), "__call__", autospec=True, side_effect=type(tokenizer).__call__) as call:
        found = tokenize(prompts, chat, None, None, "error")
    in_batches = [taken for taken in call.call_args_list if isinstance(taken.args[1], list)]
    assert len(in_batches) == 6, "texts and chats, three times"
    assert list(found.ids.values()) == [encode(prompt, chat, None) for prompt in prompts]
