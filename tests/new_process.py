"""Runs what may not share its process with the other tests."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

SECONDS = 120


def in_new_process(function: Callable[..., Any], *arguments: object) -> Any:
    """Returns what a function of a module returns in a process that ends after it.

    There `tracemalloc` can stay on: before Python 3.12.9 `tracemalloc.stop()` may crash a process that has other
    threads (https://github.com/python/cpython/issues/128679).
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result(SECONDS)
