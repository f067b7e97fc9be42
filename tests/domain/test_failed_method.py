"""A method of a user's domain that raises during a run ends it in one line with the method, the class and the place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.experiment.test_from_python import WALK, Walk

import groupwise
from groupwise.config import ConfigError
from groupwise.domain.failed_method import calling
from groupwise.domain.language.domain import LanguageDomain
from groupwise.reward import RewardError
from groupwise.streams import Streams


class Failing(Walk):
    """A walk one of whose methods fails at a call after those of the trial before training."""

    method, call = "", 0

    def _failing(self, method: str, given: Any) -> Any:
        if method == self.method:
            self.call -= 1
            if self.call < 0:
                torch.zeros(2) @ torch.zeros(3)
        return given

    def prompts(self, indices: Any) -> Any:
        return self._failing("prompts", super().prompts(indices))

    def sample(self, *arguments: Any, **options: Any) -> Any:
        return self._failing("sample", super().sample(*arguments, **options))

    def reward(self, samples: Any) -> Any:
        return self._failing("reward", super().reward(samples))

    def evaluate(self, *, streams: Any) -> Any:
        return self._failing("evaluate", super().evaluate(streams=streams))


@pytest.mark.parametrize(("method", "call"), [("evaluate", 0), ("prompts", 2), ("sample", 1), ("reward", 1)])
def test_a_run_ends_in_one_line(method: str, call: int, tmp_path: Path) -> None:
    domain = Failing(Failing.Settings(), streams=Streams(0))
    domain.method, domain.call = method, call
    with pytest.raises(ConfigError) as caught:
        groupwise.train(domain=domain, out=tmp_path / "run", **WALK)
    told = str(caught.value)
    assert told.startswith(f"domain: Failing.{method} raised RuntimeError: inconsistent tensor size"), told
    assert "test_failed_method.py:" in told
    assert "in _failing" in told
    assert "\n" not in told
    assert isinstance(caught.value.__cause__, RuntimeError), "the traceback stays within reach"


def test_the_own_line_is_told_where_a_library_raised() -> None:
    domain: Any = Failing(Failing.Settings(), streams=Streams(0))
    with (
        pytest.raises(ConfigError, match=r"json/decoder.py:\d+ in raw_decode\), called at test_failed_method.py:\d+$"),
        calling(domain, "evaluate"),
    ):
        __import__("json").loads("[")


@pytest.mark.parametrize("error", [ConfigError("write 3"), RewardError("no reward"), MemoryError()])
def test_errors_that_name_a_remedy_and_memory_stay(error: Exception) -> None:
    domain: Any = Failing(Failing.Settings(), streams=Streams(0))
    with pytest.raises(type(error)) as caught, calling(domain, "evaluate"):
        raise error
    assert caught.value is error


def test_a_defect_of_a_shipped_domain_keeps_its_traceback() -> None:
    domain: Any = object.__new__(LanguageDomain)
    with pytest.raises(KeyError), calling(domain, "evaluate"):
        raise KeyError("of ours")
