"""Readers of words, the reward and the loss made of them."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from groupwise import streams
from groupwise.reward import RewardError
from groupwise_images.image_source.words import draw, word_list
from groupwise_images.restoration import word_reader
from groupwise_images.restoration.word_reader import RapidOcr, Reading, Tesseract, edits, reading_loss

WORDS = [word for word in word_list() if len(word) >= 4][::16]
PICTURES = np.stack([(draw(word, "DejaVuSans") * 255).astype("uint8") for word in WORDS])


def program(folder: Path, script: str) -> None:
    folder.mkdir(exist_ok=True)
    file = folder / "tesseract"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


@pytest.mark.parametrize(
    ("left", "right", "count"),
    [("", "", 0), ("abc", "", 3), ("flaw", "lawn", 2), ("kitten", "sitting", 3), ("word", "word", 0)],
)
def test_edits_are_counted_as_by_hand(left: str, right: str, count: int) -> None:
    assert edits(left, right) == edits(right, left) == count


def test_the_reward_is_the_share_of_letters_or_the_exact_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_reader.Tesseract, "is_installed", lambda: True)
    monkeypatch.setattr(
        word_reader.Tesseract, "__call__", lambda self, pictures: ["word", "ward", "", "sixteen letters!"]
    )
    logged: dict[str, list[str]] = {}
    images = [torch.zeros(16, 64, dtype=torch.uint8)] * 4
    letters = Reading(["tesseract"])(images, images, ["word"] * 4, log_extra=logged.__setitem__)
    assert letters == [1.0, 0.75, 0.0, 0.0]
    assert logged == {"read by tesseract": ["word", "ward", "", "sixteen letters!"]}
    assert Reading(["tesseract"], "word")(images, images, ["word"] * 4) == [1.0, 0.0, 0.0, 0.0]
    assert Reading(["tesseract"])(images, images, ["word", None, None, "word"]) == [1.0, None, None, 0.0]


def test_the_first_installed_reader_reads_and_a_fallback_is_announced(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(word_reader.Tesseract, "is_installed", lambda: False)
    monkeypatch.setattr(word_reader.RapidOcr, "is_installed", lambda: True)
    with caplog.at_level(logging.WARNING, "groupwise"):
        assert Reading(["tesseract", "rapidocr"]).name == "rapidocr"
    assert "read by 'rapidocr', for 'tesseract' is not installed (apt install tesseract-ocr)" in caplog.text
    with pytest.raises(RewardError, match=r"none is installed; apt install tesseract-ocr, or add \"trained\""):
        Reading(["tesseract"])
    with pytest.raises(RewardError, match=r"readers = \['abbyy'\]: write some of"):
        Reading(["abbyy"])
    with pytest.raises(RewardError, match=r"measure = 'line': write \"letters\" or \"word\""):
        Reading(["rapidocr"], "line")  # type: ignore[arg-type]


def test_pages_of_tesseract_stay_with_their_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    # An empty page in the middle, and no form feed at the end.
    program(tmp_path, "printf 'one\\n\\f\\fthree\\n'")
    assert Tesseract()(PICTURES[:3]) == ["one", "", "three"]
    program(tmp_path, "printf 'one\\n\\f\\fthree\\n\\f'")
    assert Tesseract()(PICTURES[:3]) == ["one", "", "three"]
    with pytest.raises(RewardError, match=r"tesseract read 4 pages of 5; install tesseract-ocr"):
        Tesseract()(PICTURES[:5])
    program(tmp_path, "echo 'no data for eng' >&2; exit 1")
    with pytest.raises(RewardError, match=r"exit status 1 \(no data for eng\)"):
        Tesseract()(PICTURES[:1])


@pytest.mark.slow
@pytest.mark.skipif(
    not Tesseract.is_installed(), reason="the program tesseract is not installed (apt install tesseract-ocr)"
)
def test_tesseract_reads_clean_words() -> None:
    assert np.mean(Reading(["tesseract"])(WORDS, list(PICTURES), WORDS)) > 0.9
    assert np.mean(Reading(["tesseract"])(WORDS, list(PICTURES[::-1]), WORDS)) < 0.5


@pytest.mark.slow
@pytest.mark.skipif(not RapidOcr.is_installed(), reason="rapidocr-onnxruntime is not installed (pip install '.[ocr]')")
def test_rapidocr_reads_clean_words() -> None:
    assert np.mean(Reading(["rapidocr"])(WORDS, list(PICTURES), WORDS)) > 0.85
    assert np.mean(Reading(["rapidocr"])(WORDS, list(PICTURES[::-1]), WORDS)) < 0.5


def test_the_trained_reader_comes_from_the_cache_and_leaves_generators_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROUPWISE_CACHE", str(tmp_path))
    monkeypatch.setattr(word_reader, "_NUM_STEPS", 1)
    monkeypatch.setattr(word_reader, "_pool", lambda random: [(word, draw(word, "DejaVuSans")) for word in WORDS])
    word_reader.trained_network.cache_clear()
    before = streams.capture()
    first = word_reader.trained_network(3)
    assert streams.capture() == before
    assert [file.name for file in tmp_path.iterdir()] == ["word-reader-1-3.safetensors"]
    word_reader.trained_network.cache_clear()
    monkeypatch.setattr(word_reader, "_train", lambda *arguments: pytest.fail("trained again"))
    again = word_reader.trained_network(3)
    assert all(torch.equal(left, right) for left, right in zip(first.parameters(), again.parameters(), strict=True))
    images = torch.rand(2, 1, 16, 64, requires_grad=True)
    loss = reading_loss(images, ["word", "owl"], seed=3)
    loss.sum().backward()
    assert images.grad is not None
    assert (images.grad.flatten(1).abs().sum(1) > 0).all()
    assert not any(parameter.requires_grad for parameter in again.parameters())
    word_reader.trained_network.cache_clear()


def test_nats_per_letter_are_those_of_all_placements() -> None:
    """Two columns, the word "a": `aa`, `a-` and `-a` spell it."""
    log_probs = torch.randn(1, 2, 27, dtype=torch.float64).log_softmax(-1)
    blank, letter = log_probs[0].exp()[:, 0], log_probs[0].exp()[:, 1]
    expected = -(letter[0] * letter[1] + letter[0] * blank[1] + blank[0] * letter[1]).log()
    assert torch.allclose(word_reader._nats_per_letter(log_probs, ["a"]), expected[None])
    longer = torch.randn(1, 9, 27, dtype=torch.float64).log_softmax(-1)
    whole = functional.ctc_loss(longer.transpose(0, 1), torch.tensor([1, 2]), torch.tensor([9]), torch.tensor([2]))
    assert torch.allclose(word_reader._nats_per_letter(longer, ["ab"])[0], whole), "torch's mean divides by the letters"


@pytest.mark.nightly
def test_the_trained_reader_reads_clean_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUPWISE_CACHE", str(tmp_path))
    monkeypatch.setattr(word_reader, "_NUM_STEPS", 600)
    word_reader.trained_network.cache_clear()
    assert np.mean(Reading(["trained"])(WORDS, list(PICTURES), WORDS)) > 0.85
    word_reader.trained_network.cache_clear()
