"""`select(query, k)` without torch: equal to the policy, explicit in its order, and refused where something differs
from training.
"""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import torch

from groupwise.config import ConfigError
from groupwise_selection.embedder import HashedWords
from groupwise_selection.measurement import QueryTable
from groupwise_selection.policy.choices import draw_choices
from groupwise_selection.selector import Selector
from groupwise_selection.task_model.config import TEMPLATE
from groupwise_selection.task_model.template import TextTemplate

from .small_selector import QUESTION, SOURCE, small_network, small_selector


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("selector")
    small_selector().save(found)
    return found


def test_picks_equal_the_policys_over_each_querys_own_pool(folder):
    network, questions = small_network(), SOURCE.read()
    table = QueryTable(questions.train, network.config.answer_size, torch.device("cpu"), torch.float32)
    with torch.no_grad():
        encoded = network.encode(table.pools(torch.arange(len(questions.train))))
        choices = draw_choices(network, encoded, 4, None, torch.ones(len(questions.train), dtype=torch.float64))
    selector = Selector.load(folder)
    for query, picks in zip(questions.train, choices.picks.tolist(), strict=True):
        pool = [example.id for example in query.pool]
        found = selector.select(query.question, 4, pool=pool, order="first_pick_first")
        assert [example.id for example in found] == [pool[place] for place in picks]
        assert [example.id for example in selector.select(query.embedding, 4, pool=pool)] == [
            pool[place] for place in picks
        ][::-1]


def test_without_a_pool_it_chooses_among_the_nearest(folder):
    selector = Selector.load(folder)
    vector = SOURCE.embedder([QUESTION])[0]
    ids = [example.id for example in selector.examples]
    nearest = sorted(range(len(ids)), key=lambda place: -float(selector.examples[place].embedding @ vector))[:24]
    found = selector.select(QUESTION)
    assert len(found) == 4
    assert [each.id for each in found] == [
        each.id for each in selector.select(QUESTION, pool=[ids[place] for place in sorted(nearest)])
    ]


def test_the_order_is_that_of_training_or_the_one_asked_for(folder, tmp_path):
    selector = Selector.load(folder)
    assert selector.select(QUESTION, 3) == selector.select(QUESTION, 3, order="first_pick_first")[::-1]
    assert selector.select(QUESTION, 1) == selector.select(QUESTION, 3, order="first_pick_first")[:1]
    small_selector(order="first_pick_first").save(tmp_path)
    other = Selector.load(tmp_path)
    assert [each.id for each in other.select(QUESTION, 3)] == [each.id for each in selector.select(QUESTION, 3)][::-1]
    shown = selector.select(QUESTION, 2)
    assert (
        selector.prompt(QUESTION, 2) == "".join(f"{each.question}: {each.answer}\n" for each in shown) + f"{QUESTION}:"
    )


def test_an_example_that_is_added_can_be_picked_and_saved(folder, tmp_path):
    selector = Selector.load(folder)
    before = [each.id for each in selector.examples]
    own = selector.add(QUESTION, "elm")
    assert selector.select(QUESTION, 1, pool=[own])[0].answer == "elm"
    # What is nearest is in the pool: the very question.
    assert own in {each.id for each in selector.select(QUESTION, 24)}
    selector.add("a line\nand\u2028another", "beyond ☃", id="odd")
    selector.save(tmp_path / "more")
    again = Selector.load(tmp_path / "more")
    assert (again.examples[-1].question, again.examples[-1].answer) == ("a line\nand\u2028another", "beyond ☃")
    again.remove("odd")
    assert [each.id for each in again.examples] == [*before, own]
    assert [each.id for each in again.select(QUESTION)] == [each.id for each in selector.select(QUESTION)]
    again.remove(own)
    assert [each.id for each in again.select(QUESTION)] == [each.id for each in Selector.load(folder).select(QUESTION)]
    with pytest.raises(ConfigError, match=f"example '{own}' is not here"):
        again.remove(own)
    with pytest.raises(ConfigError, match="field id is there already"):
        selector.add("a", "b", id=own)
    with pytest.raises(ConfigError, match="field answer is ' '"):
        selector.add("a", " ")


@pytest.mark.slow
def test_where_torch_cannot_be_imported_it_selects_all_the_same(folder):
    code = (
        "import sys\n"
        "for name in ('torch', 'transformers', 'sklearn', 'scipy'): sys.modules[name] = None\n"
        f"import groupwise; selector = groupwise.Selector.load(sys.argv[1]); QUESTION = {QUESTION!r}\n"
        "from groupwise_selection import dspy, langchain\n"
        "print(len(selector.select(QUESTION)))\n"
        "print(len(langchain.GroupwiseExampleSelector(selector).select_examples({'question': QUESTION})))\n"
        "print(len(dspy.SelectDemos(selector)(QUESTION)))\n"
        "selector.add(QUESTION, 'elm')\n"
        "try:\n    import torch\nexcept ImportError: print('no torch')"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True)
    assert ended.stdout.split("\n")[:4] == ["4", "4", "4", "no torch"], ended.stderr


def test_one_text_never_fills_two_shots(tmp_path):
    selector = small_selector()
    first = selector.examples[0]
    names = [selector.add(first.question, first.answer, id=f"copy {number} \u00e9\u2603") for number in range(3)]
    other = selector.add(first.question, f"{first.answer} too")
    selector.save(tmp_path)
    for folder in (selector, Selector.load(tmp_path)):
        shown = folder.select(first.question, 3)
        assert len({example.text for example in shown}) == 3
        near = [example.id for example in folder.nearest(first.question)]
        # Of texts that are equally near, the first one stands for all.
        assert first.id in near
        assert other in near
        assert not set(names) & set(near)
        with pytest.raises(ConfigError, match=r"pool: example 'copy 0 .*' has the text of another one"):
            folder.select(QUESTION, 2, pool=[first.id, *names])


def changed(folder, tmp_path, name, change):
    found = tmp_path / "changed"
    found.mkdir()
    for file in folder.iterdir():
        if file.is_file():
            (found / file.name).write_bytes(file.read_bytes())
    (found / name).write_bytes(change((found / name).read_bytes()))
    return found


def flip(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def edited(**more):
    def change(data: bytes) -> bytes:
        return json.dumps({**json.loads(data), **more}).encode()

    return change


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("model.safetensors", flip, "policy.json or model.safetensors is not what was saved"),
        ("embeddings.safetensors", flip, "examples.jsonl or embeddings.safetensors is not what was saved"),
        (
            "examples.jsonl",
            lambda data: data.replace(b'"amber"', b'"birch"', 1),
            "examples.jsonl or embeddings.safetensors is not what was saved",
        ),
        (
            "examples.jsonl",
            lambda data: data[: len(data) // 2],
            "examples.jsonl or embeddings.safetensors is not what was saved",
        ),
        (
            "selector.json",
            edited(embedder={"kind": "hashed_words", "size": 64}),
            "embedder in selector.json is not what was saved",
        ),
        ("selector.json", edited(template=None), "template in selector.json is not what was saved"),
        ("selector.json", edited(order="first_pick_first"), "settings in selector.json is not what was saved"),
        ("selector.json", edited(shots=2), "settings in selector.json is not what was saved"),
        ("selector.json", edited(hashes={}), "policy.json or model.safetensors is not what was saved"),
        ("selector.json", edited(more=1), "selector.json holds shots, .*, more, not shots"),
        ("selector.json", lambda data: data[:40], "selector.json"),
        (
            "policy.json",
            lambda data: data.replace(b'"num_heads": 2', b'"num_heads": 4'),
            "policy.json or model.safetensors is not what was saved",
        ),
    ],
)
def test_what_was_changed_after_saving_is_refused(folder, tmp_path, name, change, message):
    with pytest.raises(ConfigError, match=message):
        Selector.load(changed(folder, tmp_path, name, change))


def test_another_embedder_or_template_is_refused(folder):
    with pytest.raises(
        ConfigError, match=r"the embedder gives example '.*' another vector than the one it was saved with \(cosine"
    ):
        Selector.load(folder, embed=lambda texts: np.roll(SOURCE.embedder(texts), 1, axis=1))
    with pytest.raises(ConfigError, match=r"its embedding has the shape \[64\], others have \[128\]"):
        Selector.load(folder, embed=HashedWords(size=64))
    with pytest.raises(ConfigError, match="it was trained with the template"):
        Selector.load(folder, template=TextTemplate())
    assert Selector.load(folder, embed=SOURCE.embedder, template=TEMPLATE)


def test_what_cannot_be_selected_for_is_an_error(folder, tmp_path):
    selector = Selector.load(folder)
    with pytest.raises(ConfigError, match=r"k = 25: 24 of 368 examples are there to choose from .*; write 0 to 24"):
        selector.select(QUESTION, 25)
    assert selector.select(QUESTION, 0) == []
    assert selector.prompt(QUESTION, 0) == TEMPLATE.prompt(QUESTION, [])
    for wrong in (2.0, "2", True):
        with pytest.raises(ConfigError, match=f"k = {wrong!r} is no whole number; write 0 to 24"):
            selector.select(QUESTION, wrong)
    with pytest.raises(ConfigError, match="there are no examples to choose from"):
        selector.select(QUESTION, 1, pool=[])
    with pytest.raises(ConfigError, match=r"example 'x': field answer is 3 \(int\); write a text"):
        selector.add("a", 3, id="x")
    with pytest.raises(ConfigError, match=r"example 'x': field question is None"):
        selector.add(None, "a", id="x")
    with pytest.raises(ConfigError, match=r"query: its embedding has the shape \[\]"):
        selector.select(None, 1)
    with pytest.raises(ConfigError, match=r"query: its embedding has the length 0"):
        selector.select(np.zeros(128), 1)
    with pytest.raises(ConfigError, match=r"k = 3: 2 of 368 examples are there"):
        selector.select(QUESTION, 3, pool=[each.id for each in selector.examples[:2]])
    with pytest.raises(ConfigError, match="there is no example 'nobody'"):
        selector.select(QUESTION, 1, pool=["nobody"])
    with pytest.raises(ConfigError, match="is listed twice"):
        selector.select(QUESTION, 1, pool=[selector.examples[0].id] * 2)
    with pytest.raises(ConfigError, match="query: its embedding holds nan"):
        selector.select(np.full(128, np.nan), 1)
    with pytest.raises(ConfigError, match="query: its embedding has the length 2"):
        selector.select(2 * selector.examples[0].embedding, 1)
    with pytest.raises(ConfigError, match="order = 'best_first'"):
        selector.select(QUESTION, 1, order="best_first")
    selector.embed = None
    with pytest.raises(ConfigError, match="query is a text, and this selector has no embedder"):
        selector.select(QUESTION, 1)
    with pytest.raises(ConfigError, match=r"no selector.json in it"):
        Selector.load(tmp_path)


def test_a_function_of_ones_own_is_an_embedder_too(tmp_path):
    """Nothing but the vectors tells whether it is the same one."""
    selector = small_selector()
    selector.save(tmp_path)
    asked = []

    def embed(texts):
        asked.extend(texts)
        return HashedWords(size=128)(texts)

    Selector.load(tmp_path, embed=embed)
    assert len(asked) == 4
