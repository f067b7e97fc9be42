from __future__ import annotations

import json

import pytest

from groupwise.config import ConfigError
from groupwise.domain.language.source.base import Hub


def test_a_local_folder_is_loaded_by_its_splits(tmp_path, monkeypatch):
    for split, numbers in (("train", range(5)), ("test", range(9, 11))):
        (tmp_path / f"{split}.jsonl").write_text(
            "\n".join(json.dumps({"prompt": f"{n} ?", "answer": str(n)}) for n in numbers)
        )
    source = Hub(id=str(tmp_path), held_out_split="test")
    assert sorted(row["answer"] for row in source.rows(None, seed=0)) == ["0", "1", "2", "3", "4"]
    assert sorted(row["answer"] for row in source.held_out_rows(10, seed=0)) == ["10", "9"]
    assert source.rows(3, seed=0) == source.rows(None, seed=0)[:3]
    with pytest.raises(ConfigError, match=r"datasets cannot load .*split 'dev'"):
        Hub(id=str(tmp_path), split="dev").rows(None, seed=0)
