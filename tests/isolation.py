"""Runs every test file alone in a process, its tests in random order: `make isolation`.

A parent that has imported torch forks one child a file, so that a file costs its own tests and not another start.
The seed is printed; `--seed N` repeats an order, and file names choose files.
"""

from __future__ import annotations

import argparse
import os
import random
import secrets
import sys
import tempfile
import time
from pathlib import Path
from typing import IO

for _name, _value in {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}.items():
    os.environ[_name] = _value  # the libraries read these when they are imported
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import pytest  # noqa: E402
import torch  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]


class Shuffled:
    """A plugin that puts the tests of a file into an order drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        random.Random(self.seed).shuffle(items)


def start(path: Path, seed: int, printed: IO[str], arguments: list[str]) -> int:
    """Forks a child that runs one file and returns the child's number."""
    child = os.fork()
    if child:
        return child
    os.dup2(printed.fileno(), 1)
    os.dup2(printed.fileno(), 2)
    status = pytest.main([str(path), "-q", "-p", "no:cacheprovider", *arguments], plugins=[Shuffled(seed)])
    sys.stdout.flush()
    os._exit(status)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, help="test files; all of them when none is named")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--workers", type=int, default=2)
    options, arguments = parser.parse_known_args()
    torch.set_num_threads(1)
    files = options.files or sorted((ROOT / "tests").rglob("test_*.py"))
    print(f"{len(files)} test files, each alone, in the order of seed {options.seed}", flush=True)
    failed, began, waiting, running = [], time.monotonic(), list(files), {}
    while waiting or running:
        while waiting and len(running) < options.workers:
            path, printed = waiting.pop(0), tempfile.TemporaryFile("w+")  # noqa: SIM115
            running[start(path, options.seed, printed, arguments)] = path, printed
        child, status = os.wait()
        path, printed = running.pop(child)
        with printed:
            if os.waitstatus_to_exitcode(status) not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
                failed.append(path)
                printed.seek(0)
                print(f"FAILED {path} (exit {os.waitstatus_to_exitcode(status)})\n{printed.read()}", flush=True)
    passed = len(files) - len(failed)
    print(f"{passed} passed, {len(failed)} failed in {time.monotonic() - began:.0f} s, seed {options.seed}")
    print("\n".join(f"  {path}" for path in failed), end="")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
