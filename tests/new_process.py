"""Runs what may not share its process with the other tests."""

from __future__ import annotations

import multiprocessing
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

SECONDS = 120


def _traced(function: Callable[..., Any], arguments: tuple[object, ...]) -> tuple[Any, int]:
    tracemalloc.start()
    return function(*arguments), tracemalloc.get_traced_memory()[1]


def traced_peak(function: Callable[..., Any], *arguments: object) -> tuple[Any, int]:
    """Returns what a function returns, and the most bytes that Python's objects held meanwhile.

    Before 3.12.9, `tracemalloc.stop()` can crash a process that has other threads
    (https://github.com/python/cpython/issues/128679). This process ends with tracing on.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_traced, function, arguments).result(SECONDS)
