"""Three hundred hostile inputs of a seed: none ends in a traceback, none hangs, and what is refused is named in a
message with exit status 2.

Another seed: `GROUPWISE_FUZZ_SEED=7 make nightly`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.faults.hostile import hostile
from tests.faults.processes import command

SEED = int(os.environ.get("GROUPWISE_FUZZ_SEED", "0"))
NUM_INPUTS, NUM_SLOW, NUM_AT_ONCE = 300, 30, 10
"""Of all, the first, one of every kind, in `make test`, those after them in `make slow`, the others at night."""


def mark_of(number: int) -> tuple[pytest.MarkDecorator, ...]:
    if number < NUM_AT_ONCE:
        return ()
    return (pytest.mark.slow if number < NUM_SLOW else pytest.mark.nightly,)


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """Whatever a command imports is there before the inputs are forked from this process."""
    import datasets  # noqa: F401
    import diffusers  # noqa: F401
    import pyarrow.parquet  # noqa: F401
    import sklearn.svm  # noqa: F401


@pytest.mark.parametrize("number", [pytest.param(number, marks=mark_of(number)) for number in range(NUM_INPUTS)])
def test_no_traceback_no_hang_and_the_thing_is_named(
    number: int, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROUPWISE_CACHE", str(tmp_path / "cache"))
    # The code that the inputs name may run: what is tried lies behind that question.
    monkeypatch.setenv("GROUPWISE_RUN_CODE", "1")
    files, work = tmp_path / "files", tmp_path / "work"
    files.mkdir()
    work.mkdir()
    case = hostile(SEED, number, files, finished)
    status, said = command(case.arguments, work)
    report = f"{case.what}\n{[word[:120] for word in case.arguments]}\nstatus {status}\n{said[-3000:]}"
    assert "Timeout (" not in said, f"it hangs: {report}"
    assert "Traceback" not in said, report
    assert status in (0, 2), report
    if status == 2:
        assert "error: " in said or "Usage: " in said, report
        assert len(said) < 20_000, report
        assert not case.names or any(name and name in said for name in case.names), report
