"""Variants: the product of the values, with commas inside brackets left alone."""

from __future__ import annotations

import pytest

from groupwise.config import ConfigError
from groupwise.experiment.variants import variants


def test_brackets_and_quotes_keep_their_commas():
    found = variants(["domain.stop=[a,b],[c]", "name='x,y',z"])
    assert [variant.overrides for variant in found] == [
        ("domain.stop=[a,b]", "name='x,y'"),
        ("domain.stop=[a,b]", "name=z"),
        ("domain.stop=[c]", "name='x,y'"),
        ("domain.stop=[c]", "name=z"),
    ]


def test_nothing_varied_is_one_variant_and_folders_are_plain_names():
    (alone,) = variants([])
    assert (alone.name, alone.folder) == ("as it is", "as-it-is")
    first, second = variants(["domain.data.path=/a b/c.jsonl,/a_b/c.jsonl"])
    assert first.folder.startswith("domain.data.path=_a_b_c.jsonl-")
    assert first.folder != second.folder
    assert len(variants([f"name={'x' * 300}"])[0].folder) < 120


@pytest.mark.parametrize(
    ("vary", "word"),
    [(["method"], "key=a,b"), (["method=a,,b"], "key=a,b"), (["a=1", "a=2"], "twice"), (["a=1,1"], "twice")],
)
def test_what_makes_no_grid_is_an_error(vary: list[str], word: str):
    with pytest.raises(ConfigError, match=word):
        variants(vary)
