"""The examples in the docstrings of modules that import TRL or DSPy, which `make test` does not."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "groupwise_selection.dspy",
        *(f"groupwise_trainers.trl.{part}" for part in ("experiment", "keys", "trainer", "version")),
    ],
)
def test_the_examples_run(name: str) -> None:
    ran = doctest.testmod(importlib.import_module(name))
    assert ran.attempted > 0
    assert ran.failed == 0
