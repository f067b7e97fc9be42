"""An evaluation that several processes share is that of one process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from tests.domain.language.conftest import tiny_config
from tests.images.diffusion import small as small_diffusion
from tests.images.restoration import small as small_restoration

from groupwise.domain.base import Domain
from groupwise.domain.language.domain import LanguageDomain
from groupwise.domain.protocol import Evaluation
from groupwise.streams import Streams
from groupwise.training.distributed import World


class Threads:
    """Peers that are threads of this process."""

    def __init__(self, size: int) -> None:
        self.size, self.barrier, self.values = size, threading.Barrier(size, timeout=600), [None] * size

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


def language() -> LanguageDomain:
    config = tiny_config(evaluation={"num_prompts": 5, "num_samples": 2, "sampled": True, "num_texts": 3})
    return LanguageDomain(config, streams=Streams(0))


def images_of_diffusion() -> Domain:
    return small_diffusion.domain({"evaluation": {"num_prompts": 5, "num_images": 2, "num_columns": 2}})


def images_restored() -> Domain:
    return small_restoration.domain({"evaluation": {"num_images": 3, "repeats": 2, "num_columns": 3}})


@pytest.mark.slow
@pytest.mark.parametrize("make", [language, images_of_diffusion, images_restored])
@pytest.mark.parametrize("size", [2, 7])
def test_a_shared_evaluation_is_that_of_one_process(make: Callable[[], Any], size: int) -> None:
    """Seven processes have at most six items: one at least computes nothing."""
    expected = make().evaluate(streams=Streams(0))
    domains = [make() for _ in range(size)]
    threads = Threads(size)

    def evaluation(rank: int) -> Evaluation:
        return domains[rank].evaluate_shared(streams=Streams(0), peers=threads.peer(rank))

    with ThreadPoolExecutor(size) as pool:
        evaluations = list(pool.map(evaluation, range(size)))
    for shared in evaluations:
        # A share is another shape of the same passes, so that a log-prob rounds otherwise; texts and rewards do not.
        assert shared.metrics == pytest.approx(expected.metrics)
        assert [plain(record) for record in shared.records] == [plain(record) for record in expected.records]
        assert set(shared.pictures) == set(expected.pictures)
        for name, picture in expected.pictures.items():
            assert torch.equal(picture, shared.pictures[name]), name


def plain(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record with its image as numbers."""
    return {name: value.tolist() if torch.is_tensor(value) else value for name, value in record.items()}
