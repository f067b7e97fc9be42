"""An evaluation that several processes share is that of one process."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.domain.language.conftest import tiny_config

from groupwise.domain.language.domain import LanguageDomain
from groupwise.domain.protocol import Evaluation
from groupwise.streams import Streams
from groupwise.training.distributed import World


class Threads:
    """Peers that are threads of this process."""

    def __init__(self, size: int) -> None:
        self.size, self.barrier, self.values = size, threading.Barrier(size, timeout=60), [None] * size

    def peer(self, rank: int) -> Any:
        threads = self

        class Peer:
            def share(self, count: int) -> range:
                return World(rank, threads.size).share(count)

            def gather(self, value: Any) -> list[Any]:
                threads.values[rank] = value
                threads.barrier.wait()
                values = list(threads.values)
                threads.barrier.wait()
                return values

        return Peer()


@pytest.mark.parametrize("size", [2, 7])
def test_the_same_metrics_and_records(size: int) -> None:
    """Seven processes have five prompts: two of them write nothing."""
    config = tiny_config(evaluation={"num_prompts": 5, "num_samples": 2, "sampled": True, "num_texts": 3})
    expected = LanguageDomain(config, streams=Streams(0)).evaluate(streams=Streams(0))
    domains = [LanguageDomain(config, streams=Streams(0)) for _ in range(size)]
    threads = Threads(size)

    def evaluation(rank: int) -> Evaluation:
        return domains[rank].evaluate_shared(streams=Streams(0), peers=threads.peer(rank))

    with ThreadPoolExecutor(size) as pool:
        evaluations = list(pool.map(evaluation, range(size)))
    for shared in evaluations:
        # A share is another shape of the same passes, so that a log-prob rounds otherwise; texts and rewards do not.
        assert shared.metrics == pytest.approx(expected.metrics)
        assert list(shared.records) == list(expected.records)
