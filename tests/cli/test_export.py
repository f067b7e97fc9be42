"""`export`: a folder that transformers loads, with a card that says where it comes from."""

from __future__ import annotations

from pathlib import Path


def test_the_model_loads_elsewhere_and_its_card_says_what_it_is(groupwise, finished: Path, tmp_path: Path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    ended = groupwise("export", finished, "--out", tmp_path / "sorter")
    assert ended.status == 0, ended
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "sorter")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "sorter")
    assert model.config.hidden_size == 16
    assert len(tokenizer("sort 3 1 2 ?")["input_ids"]) == 5
    card = (tmp_path / "sorter" / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: transformers\n")
    assert "method `dapo+edited`, seed 0" in card
    assert "| before | 0.000 |" in card
    assert "- `correct`: weight = 1.0" in card


def test_nothing_is_overwritten(groupwise, finished: Path, tmp_path: Path):
    ended = groupwise("export", finished, "--out", tmp_path)
    assert ended.status == 2
    assert "exists; nothing is overwritten" in ended.err
