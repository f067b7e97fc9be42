"""Checkpoints are kept by rule, and a broken one is never read."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from groupwise.checkpoint import CheckpointConfig, CheckpointStore

RECORD = {"weight": torch.arange(4.0), "step": 3}


def steps(store: CheckpointStore) -> list[int]:
    return [checkpoint.step for checkpoint in store.complete()]


def test_last_best_and_every_nth_are_kept(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, CheckpointConfig(keep_last=2, keep_every=4))
    for step, best in [(1, True), (2, False), (3, True), (4, False), (5, False), (6, False), (7, False)]:
        store.save(step, RECORD, score=float(step), best=best)
    assert steps(store) == [3, 4, 6, 7]


@pytest.mark.parametrize("damage", ["truncate", "flip", "remove", "manifest"])
def test_a_damaged_checkpoint_is_ignored_and_listed(tmp_path: Path, damage: str) -> None:
    store = CheckpointStore(tmp_path, CheckpointConfig())
    store.save(1, RECORD)
    path = store.save(2, RECORD)
    file = path / ("manifest.json" if damage == "manifest" else "tensors.safetensors")
    data = file.read_bytes()
    match damage:
        case "flip":
            file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        case "remove":
            file.unlink()
        case _:
            file.write_bytes(data[:-3])
    latest = store.latest()
    assert latest is not None
    assert latest.step == 1
    assert store.damaged() == [path]


MANIFEST_HEAD = '"step": 2, "score": null, "best": false'
MANIFESTS = {
    "files is a list": f'{{{MANIFEST_HEAD}, "files": []}}',
    "no file is named": f'{{{MANIFEST_HEAD}, "files": {{}}}}',
    "one file is named": f'{{{MANIFEST_HEAD}, "files": {{"values.json": [2, 3]}}}}',
    "files outside": f'{{{MANIFEST_HEAD}, "files": {{"/dev/zero": [2, 3], "../../values.json": [2, 3]}}}}',
    "sizes are texts": f'{{{MANIFEST_HEAD}, "files": {{"values.json": ["2", "3"], "tensors.safetensors": [1, 1]}}}}',
    "a list": "[]",
    "null": "null",
    "empty": "",
    "deep": "[" * 100_000,
    "deep and closed": '{"files": ' * 5_000 + "1" + "}" * 5_000,
    "a long integer": f'{{"step": {"9" * 6_000}, "score": null, "best": false, "files": {{}}}}',
    "no text": "\x00\x00",
    "huge": " " * 2**24,
    "step is a text": '{"step": "2", "score": null, "best": false, "files": {}}',
}


@pytest.mark.parametrize("manifest", MANIFESTS.values(), ids=list(MANIFESTS))
def test_a_hostile_manifest_leaves_the_checkpoint_before_it_readable(tmp_path: Path, manifest: str) -> None:
    store = CheckpointStore(tmp_path, CheckpointConfig())
    store.save(1, RECORD)
    path = store.save(2, RECORD)
    (path / "manifest.json").write_text(manifest)
    assert steps(store) == [1]
    latest = store.latest()
    assert latest is not None
    assert latest.step == 1
    assert store.damaged() == [path]


def test_a_checkpoint_whose_manifest_has_another_step_or_whose_files_are_pipes_is_not_complete(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, CheckpointConfig())
    store.save(1, RECORD)
    path = store.save(2, RECORD)
    path.rename(tmp_path / "step-7")
    assert steps(store) == [1]
    (tmp_path / "step-7").rename(path)
    assert steps(store) == [1, 2]
    for name in ("tensors.safetensors", "manifest.json"):
        (path / name).unlink()
        os.mkfifo(path / name)
        assert steps(store) == [1]


@pytest.mark.slow
def test_a_limit_on_file_size_names_the_checkpoint_that_is_safe(tmp_path: Path) -> None:
    """RLIMIT_FSIZE makes a real write fail in the middle, in a process of its own."""
    code = (
        "import signal, resource, sys, torch, pathlib\n"
        "from groupwise.checkpoint import CheckpointConfig, CheckpointStore, StorageError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "store = CheckpointStore(pathlib.Path(sys.argv[1]) / 'checkpoints', CheckpointConfig())\n"
        "store.save(1, {'weight': torch.zeros(10)})\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try:\n"
        "    store.save(2, {'weight': torch.zeros(100000)})\n"
        "except StorageError as error:\n"
        "    print(error)\n"
    )
    assert resource.getrlimit(resource.RLIMIT_FSIZE)
    process = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert "step-2 could not be written: a limit on the size of files is reached (ulimit -f)" in process.stdout
    assert "step-1 is complete; nothing before step 1 is lost" in process.stdout
    assert f"groupwise resume {tmp_path}" in process.stdout
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-1"]
