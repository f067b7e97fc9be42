"""Several processes write one record: what fails on one fails on all, and a folder they do not share is refused."""

from __future__ import annotations

import errno
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.learner.one_process import sharding

from groupwise.checkpoint import CheckpointConfig, CheckpointStore, StorageError, load_tree, write_record
from groupwise.checkpoint.store import on_every_process
from groupwise.learner.shards import read_whole


class Threads:
    """Peers that are threads of this process."""

    def __init__(self, size: int) -> None:
        self._barrier, self._values = threading.Barrier(size, timeout=600), [None] * size

    def at(self, rank: int) -> Any:
        peers = self

        class Peer:
            first = rank == 0

            def gather(self, value: Any) -> list[Any]:
                peers._values[rank] = value
                peers._barrier.wait()
                values = list(peers._values)
                peers._barrier.wait()
                return values

        return Peer()


def test_what_fails_on_one_fails_on_all_with_the_same_words(tmp_path: Path) -> None:
    peers = Threads(2)

    def write(rank: int) -> str:
        def part() -> int:
            if rank == 1:
                raise OSError(errno.EACCES, "denied")
            return rank

        try:
            on_every_process(peers.at(rank), tmp_path / "step-1", part)
        except StorageError as error:
            return str(error)
        return "written"

    with ThreadPoolExecutor(2) as threads:
        messages = list(threads.map(write, (0, 1)))
    assert messages == [f"{tmp_path / 'step-1'} could not be written: the folder is not writable."] * 2


def test_without_shards_only_the_first_process_writes(tmp_path: Path) -> None:
    peers = Threads(2)
    write_record(tmp_path / "record", {"a": torch.ones(2)}, peers.at(1))
    assert not (tmp_path / "record").exists()
    write_record(tmp_path / "record", {"a": torch.ones(2)}, peers.at(0))
    assert load_tree(tmp_path / "record")["a"].tolist() == [1.0, 1.0]


class WithAnotherMachine:
    """A second process that wrote its shards into a folder of the same name on another machine."""

    first = True

    def gather(self, value: Any) -> list[Any]:
        part, failure = value
        other = {"shards/shard-00002.safetensors": (1, 1)} if isinstance(part, dict) else part
        return [value, (other, failure)]


def test_a_folder_that_machines_do_not_share_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    with sharding() as sharded, pytest.raises(StorageError, match=r"shard-00002.* on another machine.*--out"):
        write_record(tmp_path / "record", {"a": sharded(torch.ones(2))}, WithAnotherMachine())
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_of_shards_is_whole_or_not_used(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, CheckpointConfig())
    with sharding() as sharded:
        store.save(1, {"a": sharded(torch.tensor([1.0])), "b": 1})
        store.save(2, {"a": sharded(torch.tensor([2.0])), "b": 2})
    newest = store.latest()
    assert newest is not None
    assert read_whole(newest.load()) == {"a": torch.tensor([2.0]), "b": 2}
    (shard,) = (newest.path / "shards").iterdir()
    shard.write_bytes(shard.read_bytes()[:-1] + b"x")
    assert [checkpoint.step for checkpoint in store.complete()] == [1]
    shard.unlink()
    assert store.damaged() == [newest.path]
