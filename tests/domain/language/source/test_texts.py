from __future__ import annotations

from groupwise.domain.language.config import DataConfig
from groupwise.domain.language.data import split
from groupwise.domain.language.source.base import Texts


def test_the_first_prompts_are_held_out():
    splits = split(DataConfig(source=Texts(prompts=("a", "b", "c")), num_held_out=1))
    assert [prompt.columns["prompt"] for prompt in splits.held_out] == ["a"]
    assert [prompt.columns["prompt"] for prompt in splits.train] == ["b", "c"]
