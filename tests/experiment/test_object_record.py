"""Records of Python objects are the same in every process that holds the same objects."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
from groupwise.experiment.object_record import record_of

class Picture:
    pass

right = lambda completions: [text in {"yes", "true", "right"} for text in completions]
print(record_of(right, "rewards").hash, record_of([{"prompt": Picture()}], "data").hash)
"""


@pytest.mark.slow
def test_a_set_and_an_object_of_no_text_have_one_hash_in_every_process() -> None:
    printed = {
        subprocess.run(
            [sys.executable, "-c", f"pads = [object() for _ in range({seed})]\n{PROGRAM}"],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in (1, 2, 3)
    }
    assert len(printed) == 1
