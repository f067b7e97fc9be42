"""Sharded tensors go into files and come back, into live tensors in place or whole. (What several processes write, and
others read, is in tests/training/test_sharding.py.)
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.learner.one_process import sharding

from groupwise.learner.shards import StoredTensor, fill, local_part, read_whole, write_shards


def test_what_is_written_fills_live_tensors_sharded_or_plain(tmp_path: Path) -> None:
    wide, narrow = torch.randn(3, 2, dtype=torch.float64), torch.randn(5)
    with sharding() as sharded:
        names = write_shards(tmp_path / "shards", {"/a/wide": sharded(wide), "/narrow": sharded(narrow)})
        assert names == [path.name for path in (tmp_path / "shards").iterdir()]
        stored = [StoredTensor(tmp_path / "shards", "/a/wide", wide.shape, wide.dtype)]
        stored.append(StoredTensor(tmp_path / "shards", "/narrow", narrow.shape, narrow.dtype))
        live = sharded(torch.zeros(3, 2, dtype=torch.float64))
        plain = torch.zeros(5)
        fill(zip((live, plain), stored, strict=True))
        assert local_part(live).equal(wide)
        assert plain.equal(narrow)
        fill([(live, 2 * wide)])
        assert local_part(live).equal(2 * wide)
    # Without the processes that wrote.
    whole = read_whole({"b": [stored[0], 3], "c": (stored[1],)})
    assert whole["b"][0].equal(wide)
    assert whole["b"][1] == 3
    assert whole["c"][0].equal(narrow)


def test_another_shape_and_a_folder_that_cannot_be_written_are_errors(tmp_path: Path) -> None:
    with sharding() as sharded:
        write_shards(tmp_path / "shards", {"a": sharded(torch.ones(3))})
        with pytest.raises(ValueError, match="Size mismatch"):
            fill([(torch.zeros(4), StoredTensor(tmp_path / "shards", "a", torch.Size([4]), torch.float32))])
        (tmp_path / "file").touch()
        with pytest.raises(OSError, match="process 0"):
            write_shards(tmp_path / "file" / "shards", {"a": sharded(torch.ones(3))})
