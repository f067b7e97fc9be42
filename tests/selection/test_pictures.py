"""A run on OK-VQA's files with an image-text model, its export, and the deployed model's prompt."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.selection.source.okvqa import write
from tests.selection.tiny import TABLE
from tests.selection.tiny_llava import build_llava
from tests.tiny_clip import build_clip
from transformers import AutoProcessor

from groupwise.config import ConfigError, validate
from groupwise.domain.exported import Export
from groupwise.streams import Streams
from groupwise_selection.config import SelectionConfig
from groupwise_selection.domain import SelectionDomain
from groupwise_selection.selector import Selector

TEMPLATE = {"kind": "chat", "question": "{image}{question}", "system": "look"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: Any) -> tuple[SelectionDomain, Path, Path]:
    folder = tmp_path_factory.mktemp("pictures")
    build_clip(folder / "clip")
    build_llava(folder / "llava", max_positions=400)
    source = {"kind": "vqa", **write(folder, 16), "embedder": {"kind": "clip", "path": str(folder / "clip")}}
    tree = TABLE | {
        "source": source | {"num_held_out": 4, "pool_size": 5},
        "task_model": {"kind": "image_text", "path": str(folder / "llava"), "template": TEMPLATE, "max_new_tokens": 2},
        "answers": "vqa",
    }
    config = validate(SelectionConfig, tree)
    domain = SelectionDomain(config, streams=Streams(0))
    domain.save(folder / "model")
    (folder / "out").mkdir()
    request = Export(run=folder, model=folder / "model", folder=folder / "out", out="out", settings=tree, measure=False)  # type: ignore[call-arg]
    card = SelectionConfig.export(request)
    moved = folder.parent / f"{folder.name}-moved"
    shutil.move(folder / "out", moved)
    shutil.rmtree(folder / "train2014")
    (moved / "card.txt").write_text("\n".join([card.loading, *card.sections]))
    return domain, moved, folder


def test_the_folder_has_its_pictures_wherever_it_is(run: tuple[SelectionDomain, Path, Path]) -> None:
    _, moved, folder = run
    rows = [json.loads(line) for line in (moved / "examples.jsonl").read_text().splitlines()]
    assert all((moved / row["image"]).is_file() for row in rows)
    assert len({row["image"] for row in rows}) == len(list((moved / "images").iterdir()))
    card = (moved / "card.txt").read_text()
    assert 'Selector.load("out").messages(QUERY, IMAGE)' in card
    assert f"{len(rows)} solved examples, and {len(list((moved / 'images').iterdir()))} pictures (" in card
    assert f"Embedder: clip {folder / 'clip'}" in card


def test_messages_give_the_task_model_the_prompt_of_training(
    run: tuple[SelectionDomain, Path, Path], tmp_path: Path
) -> None:
    domain, moved, folder = run
    selector = Selector.load(moved)
    pixels = np.random.default_rng(5).integers(0, 255, (30, 20, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "asked.png")
    turns = selector.messages("what is this?", tmp_path / "asked.png", k=2)
    shown = selector.select("what is this?", 2, image=tmp_path / "asked.png")
    parts = [part for turn in turns for part in turn["content"] if part["type"] == "image"]
    assert [part["image"] for part in parts] == [*(example.image for example in shown), str(tmp_path / "asked.png")]
    inputs = AutoProcessor.from_pretrained(folder / "llava").apply_chat_template(
        turns, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
    )
    query = domain._questions.held_out[0]
    query = type(query)("q", "what is this?", ("red",), query.embedding, (), str(tmp_path / "asked.png"))
    model = getattr(domain._task_model, "model", domain._task_model)
    expected = model._inputs([(query, shown)])
    assert inputs["input_ids"].tolist() == expected["input_ids"].tolist()
    np.testing.assert_allclose(inputs["pixel_values"], expected["pixel_values"])
    assert [len(turn["content"]) for turn in selector.messages("what is this?", pixels)] == [1, 2, 1, 2, 1, 2]


def test_what_cannot_be_written_is_refused(run: tuple[SelectionDomain, Path, Path], tmp_path: Path) -> None:
    _, moved, _ = run
    selector = Selector.load(moved)
    with pytest.raises(ConfigError, match=r"write messages\(query, image\) where it is a chat"):
        selector.prompt("what is this?")
    with pytest.raises(ConfigError, match="image is missing, and the template shows one"):
        selector.messages("what is this?")
    damaged = tmp_path / "damaged"
    shutil.copytree(moved, damaged)
    picture = damaged / json.loads((damaged / "examples.jsonl").read_text().splitlines()[0])["image"]
    picture.write_bytes(picture.read_bytes() + b"x")
    with pytest.raises(ConfigError, match=r"field image: .* is not what was saved \(its hash differs\)"):
        Selector.load(damaged)
    picture.unlink()
    with pytest.raises(ConfigError, match=r"field image: .* cannot be read: No such file or directory; export again"):
        Selector.load(damaged)
