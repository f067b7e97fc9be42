"""A cached result is found by the content of its inputs, whoever writes it."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

from groupwise.checkpoint import Cache


def _write(root: Path, text: str) -> None:
    for index in range(20):
        Cache(root).put("warm_up", str(index), lambda folder: [(folder / name).write_text(text) for name in "ab"])


def test_concurrent_writers_leave_whole_entries(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_write, args=(tmp_path, text)) for text in ("x" * 1000, "y" * 1000)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
    for index in range(20):
        entry = Cache(tmp_path).get("warm_up", str(index))
        assert entry is not None
        assert (entry / "a").read_text() == (entry / "b").read_text()
    assert len(list((tmp_path / "warm_up").iterdir())) == 20
