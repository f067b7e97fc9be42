"""A LLaVA behind a template, with its real processor, against one plain forward of each row and transformers' own
generation.
"""

from __future__ import annotations

import shutil
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from tokenizers.processors import TemplateProcessing
from transformers import AutoImageProcessor, AutoModelForImageTextToText, AutoProcessor

from groupwise.config import ConfigError
from groupwise_selection.task_model.config import ImageText
from groupwise_selection.task_model.image_text import ImageTextTaskModel, open_model
from groupwise_selection.task_model.template import ChatTemplate, TextTemplate

from .conftest import example, picture, query

TEMPLATE = TextTemplate(question="{image}\nQ: {question}\nA:")
DEMOS = [example(0, "a + b?", "red", picture(0)), example(1, "c?", "blue", picture(1)[:, :, 0])]
QUERIES = [query("q0", "f + a?", picture(2)), query("q1", "b + a?", picture(3)), query("q2", "e?", picture(4))]
CHOICES = [[], [DEMOS[0]], [DEMOS[0], DEMOS[1]], [DEMOS[1], DEMOS[0]]]
ANSWERS = ["red", "a1 green", "x"]


@pytest.fixture(scope="module")
def plain(llava_folder):
    model = AutoModelForImageTextToText.from_pretrained(llava_folder, dtype=torch.float64).eval()
    return model, AutoProcessor.from_pretrained(llava_folder)


@pytest.fixture(scope="module")
def ours(llava_folder):
    return open_model(ImageText(path=str(llava_folder), dtype="float64", max_new_tokens=6))


def rows():
    return [(query, demos) for query in QUERIES for demos in CHOICES]


def inputs_of(plain, asked, demos):
    text = (
        "".join(f"<image>\nQ: {demo.question}\nA: {demo.answer}\n\n" for demo in demos)
        + f"<image>\nQ: {asked.question}\nA:"
    )
    images = [Image.fromarray(each.image).convert("RGB") for each in [*demos, asked]]
    found = plain[1](text=text, images=images, return_tensors="pt")
    return {**found, "pixel_values": found["pixel_values"].double()}


def naive(plain, inputs, answer: str) -> float:
    ids = torch.tensor([plain[1].tokenizer.encode(answer, add_special_tokens=False)])
    length = inputs["input_ids"].shape[1]
    whole = {
        **inputs,
        "input_ids": torch.cat([inputs["input_ids"], ids], 1),
        "attention_mask": torch.ones(1, length + ids.shape[1], dtype=torch.long),
    }
    with torch.no_grad():
        log_p = plain[0](**whole).logits[0].log_softmax(-1)
    return sum(log_p[length + place - 1, token].item() for place, token in enumerate(ids[0].tolist()))


def test_scores_equal_a_plain_forward_of_each_row(plain, ours):
    found = ours.score(*map(list, zip(*rows())), [ANSWERS] * len(rows()))
    for (asked, demos), values in zip(rows(), found, strict=True):
        inputs = inputs_of(plain, asked, demos)
        assert values == pytest.approx([naive(plain, inputs, f" {answer}") for answer in ANSWERS], abs=1e-9)
    assert ours._from_cache is True
    # The pictures count, and so does their order.
    assert len({round(values[0], 6) for values in found}) == len(rows())


def test_a_family_whose_cache_disagrees_is_served_by_whole_passes(plain, llava_folder, monkeypatch):
    ours = open_model(ImageText(path=str(llava_folder), dtype="float64"))
    monkeypatch.setattr(ImageTextTaskModel, "_cached", lambda self, rows, asked: [0.0] * len(asked))
    found = ours.score([QUERIES[0]] * 2, [CHOICES[1], CHOICES[2]], [ANSWERS] * 2)
    for demos, values in zip(CHOICES[1:3], found, strict=True):
        inputs = inputs_of(plain, QUERIES[0], demos)
        assert values == pytest.approx([naive(plain, inputs, f" {answer}") for answer in ANSWERS], abs=1e-9)


def test_greedy_answers_equal_transformers_own(plain, ours):
    found = ours.generate(*map(list, zip(*rows())))
    for (asked, demos), text in zip(rows(), found, strict=True):
        inputs = inputs_of(plain, asked, demos)
        written = plain[0].generate(**inputs, max_new_tokens=6, do_sample=False)[0, inputs["input_ids"].shape[1] :]
        assert text == plain[1].tokenizer.decode(written, skip_special_tokens=True).split("\n")[0].strip()
    assert len(set(found)) > 2


def test_a_chat_shows_its_pictures_in_the_order_of_the_demonstrations(plain, llava_folder):
    ours = open_model(
        ImageText(path=str(llava_folder), dtype="float64", template=ChatTemplate(question="{image}{question}"))
    )
    found = ours.score([QUERIES[0]], [[DEMOS[1], DEMOS[0]]], [["red"]])[0][0]
    text = (
        "<|user|><image>c?<|end|><|assistant|>blue<|end|><|user|><image>a +"
        " b?<|end|><|assistant|>red<|end|><|user|><image>f + a?<|end|><|assistant|>"
    )
    images = [Image.fromarray(each.image).convert("RGB") for each in (DEMOS[1], DEMOS[0], QUERIES[0])]
    inputs = dict(plain[1](text=text, images=images, return_tensors="pt"))
    inputs["pixel_values"] = inputs["pixel_values"].double()
    assert found == pytest.approx(naive(plain, inputs, "red"), abs=1e-9)


def test_errors_name_the_query_or_the_example(ours, llava_folder):
    with pytest.raises(ConfigError, match="query 'q': field image is missing"):
        ours.score([query("q", "a?")], [[]], [["red"]])
    with pytest.raises(ConfigError, match="example 'e9': field image is missing"):
        ours.generate([QUERIES[0]], [[example(9, "a?", "red")]])
    with pytest.raises(ConfigError, match=r"query 'q': field image: '.*nowhere.png' cannot be read"):
        ours.score([query("q", "a?", "nowhere.png")], [[]], [["red"]])
    with pytest.raises(ConfigError, match=r"query 'q': field image is float64 \[2, 2\]"):
        ours.score([query("q", "a?", np.zeros((2, 2)))], [[]], [["red"]])
    with pytest.raises(
        ConfigError, match=r"query 'q0' with 9 demonstrations and the answer takes \d+ tokens, pictures included"
    ):
        ours.score([QUERIES[0]], [[DEMOS[0]] * 9], [["red"]])
    with pytest.raises(ConfigError, match="shows no picture"):
        open_model(ImageText(path=str(llava_folder), template=TextTemplate()))
    with pytest.raises(ConfigError, match="transformers cannot load an image-text model"):
        open_model(ImageText(path=str(llava_folder / "nowhere")))


def test_a_processor_that_needs_torchvision_for_pictures_says_which_build(llava_folder, monkeypatch):
    def needs_it(*_, **__):
        raise ImportError("Gemma3nImageProcessor requires the Torchvision library but it was not found.")

    monkeypatch.setattr(AutoProcessor, "from_pretrained", needs_it)
    monkeypatch.setattr(AutoImageProcessor, "from_pretrained", needs_it)
    index = "" if torch.version.cuda else " --index-url https://download.pytorch.org/whl/cpu"
    with pytest.raises(ConfigError, match=f"needs torchvision, of a build that fits torch; write .*torchvision{index}"):
        open_model(ImageText(path=str(llava_folder)))


def test_no_torchvision_and_no_pad_token(ours, llava_folder, tmp_path):
    assert "torchvision" not in sys.modules
    shutil.copytree(llava_folder, tmp_path / "bare")
    processor = AutoProcessor.from_pretrained(tmp_path / "bare")
    processor.tokenizer.pad_token = None
    processor.save_pretrained(tmp_path / "bare")
    bare = open_model(ImageText(path=str(tmp_path / "bare"), dtype="float64", max_new_tokens=6))
    assert bare._tokenizer.pad_token is None
    assert bare.generate(QUERIES, [CHOICES[2]] * 3) == ours.generate(QUERIES, [CHOICES[2]] * 3)
    assert bare.score(QUERIES, [CHOICES[2]] * 3, [["red"]] * 3) == ours.score(QUERIES, [CHOICES[2]] * 3, [["red"]] * 3)


def test_the_fingerprint_is_of_weights_and_template(ours, llava_folder):
    again = open_model(ImageText(path=str(llava_folder), dtype="float64", max_new_tokens=6))
    other = open_model(
        ImageText(
            path=str(llava_folder),
            dtype="float64",
            max_new_tokens=6,
            template=TEMPLATE.model_copy(update={"separator": "\n"}),
        )
    )
    assert ours.fingerprint() == again.fingerprint() != other.fingerprint()


def test_a_prompt_has_one_beginning_and_no_end_that_the_tokenizer_appends(ours, llava_folder):
    demos = [DEMOS[:1]] * len(QUERIES)
    expected = ours.score(QUERIES, demos, [ANSWERS] * len(QUERIES))
    changed = open_model(ImageText(path=str(llava_folder), dtype="float64", max_new_tokens=6))
    tokenizer, end = changed._tokenizer, ("<eos>", changed._tokenizer.eos_token_id)
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="$A <eos>", special_tokens=[end])
    ending = ImageTextTaskModel(changed._model, changed._processor, changed.template, max_new_tokens=6)
    assert ending.score(QUERIES, demos, [ANSWERS] * len(QUERIES)) == [
        pytest.approx(values, abs=1e-9) for values in expected
    ]
    tokenizer.bos_token = "Q"
    begin = ("Q", tokenizer.convert_tokens_to_ids("Q"))
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="Q $A", special_tokens=[begin])
    lengths = []
    for question in ("Q: {question}{image}", ": {question}{image}"):
        template = TextTemplate(question=question)
        beginning = ImageTextTaskModel(changed._model, changed._processor, template, max_new_tokens=6)
        ids = beginning._inputs([(QUERIES[0], [])])["input_ids"][0].tolist()
        assert (ids[0], ids.count(begin[1])) == (begin[1], 1)
        lengths.append(len(ids))
    assert lengths[0] == lengths[1]
