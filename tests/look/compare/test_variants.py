"""Variants: the product of the values, with commas inside brackets left alone."""

from __future__ import annotations

import pytest

from groupwise.config import ConfigError
from groupwise_look.compare.grids import variants


def test_brackets_and_quotes_keep_their_commas():
    combinations = variants(["domain.stop=[a,b],[c]", "name='x,y',z"])
    assert [variant.overrides for variant in combinations] == [
        ("domain.stop=[a,b]", "name='x,y'"),
        ("domain.stop=[a,b]", "name=z"),
        ("domain.stop=[c]", "name='x,y'"),
        ("domain.stop=[c]", "name=z"),
    ]


def test_nothing_varied_is_one_variant_and_folders_are_plain_names():
    (unchanged,) = variants([])
    assert (unchanged.name, unchanged.folder) == ("as it is", "as-it-is")
    with_spaces, with_underscores = variants(["domain.data.path=/a b/c.jsonl,/a_b/c.jsonl"])
    assert with_spaces.folder.startswith("domain.data.path=_a_b_c.jsonl-")
    assert with_spaces.folder != with_underscores.folder
    assert len(variants([f"name={'x' * 300}"])[0].folder) < 120


@pytest.mark.parametrize(
    ("vary", "word"),
    [(["method"], "key=a,b"), (["method=a,,b"], "key=a,b"), (["a=1", "a=2"], "twice"), (["a=1,1"], "twice")],
)
def test_what_makes_no_grid_is_an_error(vary: list[str], word: str):
    with pytest.raises(ConfigError, match=word):
        variants(vary)
