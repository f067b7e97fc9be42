"""A method of a user's domain that raises ends a run, and every verb, in one line with the class, the method and the
place.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.domain.callable.reach import Reach
from tests.marks import slow_but

import groupwise
from groupwise.checkpoint.atomic import StorageError
from groupwise.config import ConfigError
from groupwise.domain.language.domain import LanguageDomain
from groupwise.domain.returned import naming_failed_method
from groupwise.reward import RewardError
from groupwise.streams import Streams

METHODS = ("prompts", "sample", "reward", "score", "backward", "describe", "evaluate", "save", "tables", "close")


class Failing(Reach):
    """A domain one of whose methods fails from a step on, or returns another text (`returns`)."""

    class Settings(Reach.Settings):
        method: str = ""
        from_step: int = 0
        returns: str = ""

    step = 0

    def _fail(self, method: str) -> str:
        """Fails, or returns a text in the place of the method's own result; an empty one otherwise."""
        if method != self.settings.method or self.step < self.settings.from_step:
            return ""
        return self.settings.returns or str(torch.dot(torch.zeros(2), torch.zeros(3)))

    def prompts(self, indices: Any) -> Any:
        return self._fail("prompts") or super().prompts(indices)

    def sample(self, prompts: Any, group_size: int, *, step: int, **options: Any) -> Any:
        samples = self._fail("sample") or super().sample(prompts, group_size, step=step, **options)
        self.step = step + 1  # Sampling scores too: the score of this step is the first that fails.
        return samples

    def reward(self, samples: Any) -> Any:
        return self._fail("reward") or super().reward(samples)

    def score(self, samples: Any, rows: Any, requires: Any) -> Any:
        return self._fail("score") or super().score(samples, rows, requires)

    def backward(self, samples: Any, rows: Any, cotangents: Any) -> Any:
        return self._fail("backward") or super().backward(samples, rows, cotangents)

    def describe(self, samples: Any, rows: Any) -> Any:
        return self._fail("describe") or super().describe(samples, rows)

    def evaluate(self, *, streams: Any) -> Any:
        return self._fail("evaluate") or super().evaluate(streams=streams)

    def tables(self, *, streams: Any) -> Any:
        return self._fail("tables") or []

    def save(self, folder: Path) -> None:
        self._fail("save")
        super().save(folder)

    def load(self, folder: Path) -> None:
        self._fail("load")
        super().load(folder)

    def asked(self, text: str) -> Any:
        return self._fail("asked") or super().asked(text)

    def conversation(self, turns: Any) -> Any:
        return self._fail("conversation") or super().prompts([0])[0]

    def close(self) -> None:
        self._fail("close")


def told(text: str, method: str) -> None:
    """Checks the one line of a planted error."""
    assert f"domain: Failing.{method} raised RuntimeError: inconsistent tensor size" in text, text
    assert "test_failed_method.py:" in text
    assert "in _fail" in text


@pytest.mark.parametrize("method", slow_but(("score", "evaluate", "backward"), METHODS))
def test_a_run_ends_in_one_line(method: str, tmp_path: Path) -> None:
    domain = Failing(Failing.Settings(method=method, from_step=3), streams=Streams(0), device="cpu")
    with pytest.raises(ConfigError) as caught:
        groupwise.train(
            domain=domain,
            method="kl_cov" if method == "backward" else "grpo",
            out=tmp_path / "run",
            train={"num_steps": 4, "prompts_per_step": 2, "group_size": 4},
            track={"console": "none", "rollouts_every": 1},
        )
    told(str(caught.value), method)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value.__cause__, RuntimeError), "the traceback stays within reach"
    rows = (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(rows) >= 3, "the steps before are whole"


class Noised(Failing):
    """One that trains on noised copies and fails where it makes them."""

    def noised(self, samples: Any, matching: Any, *, streams: Any, step: int) -> Any:
        raise LookupError("no noise")


def test_the_method_is_named_whoever_calls_it() -> None:
    domain = Noised(Noised.Settings(), streams=Streams(0), device="cpu")
    line = r"^domain: Noised\.noised raised LookupError: no noise \(at .*test_failed_method\.py:\d+ in noised\)$"
    with pytest.raises(ConfigError, match=line), naming_failed_method(domain):
        domain.noised(None, None, streams=None, step=0)


class Raising(Reach):
    """One that raises what it is told to."""

    def asked(self, text: Any) -> Any:
        raise text


@pytest.mark.parametrize(
    "error", [ConfigError("write 3"), RewardError("no reward"), StorageError("full"), MemoryError()]
)
def test_errors_that_name_a_remedy_and_memory_stay(error: Exception) -> None:
    domain = Raising(Raising.Settings(), streams=Streams(0), device="cpu")
    with pytest.raises(type(error)) as caught, naming_failed_method(domain):
        domain.asked(error)
    assert caught.value is error


def test_a_defect_of_a_shipped_domain_keeps_its_traceback() -> None:
    domain: Any = object.__new__(LanguageDomain)
    with pytest.raises(AttributeError), naming_failed_method(domain):
        domain.prompts([0])
