"""A policy in another process: the toy domain's weights and optimiser live behind a pipe, forward gives numbers without
a gradient, and gradients go there as cotangents. Its saved state stays there too, and checkpoints hold its path.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from tests.training.toy import ToyDomain
from torch import Tensor

from groupwise.checkpoint import load_tree, save_tree
from groupwise.domain.base import Domain
from groupwise.domain.protocol import Evaluation, Prompt, Samples
from groupwise.learner.protocol import OFFERS, Sizes, StepNumbers
from groupwise.records import Scored
from groupwise.streams import Streams, seed_everything


class _Server:
    """What runs in the other process: a toy domain with its local learner, and what was copied of its weights."""

    def open(self, seed: int, shape: Mapping[str, int]) -> None:
        seed_everything(seed)
        self.domain = ToyDomain(**shape)
        self.learner = self.domain.learner
        self.copies: list[Any] = []
        self.blocks: list[Any] = []

    def policy(self, name: str, *arguments: Any, **options: Any) -> Any:
        if name == "backward":
            return Domain.backward(self.domain, *arguments)
        with torch.no_grad():
            return getattr(self.domain, name)(*arguments, **options)

    def weights(self, name: str, *arguments: Any) -> Any:
        return getattr(self.learner, name)(*arguments)

    def copy(self) -> int:
        self.copies.append(self.learner.copy())
        return len(self.copies) - 1

    def of_copy(self, number: int, name: str, *arguments: Any) -> Any:
        if name == "enter":
            block = self.copies[number].active()
            block.__enter__()
            return self.blocks.append(block)
        if name == "leave":
            return self.blocks.pop().__exit__(None, None, None)
        return getattr(self.copies[number], name)(*arguments)

    def keep(self, what: str, folder: str) -> None:
        Path(folder).mkdir(parents=True)
        record = self.learner.record() if what == "learner" else dict(self.copies[int(what)].record())
        save_tree(Path(folder), record)

    def take_back(self, what: str, folder: str) -> None:
        target = self.learner if what == "learner" else self.copies[int(what)]
        target.restore(load_tree(Path(folder)))


def _serve(pipe: Any, parents_end: Any) -> None:
    # Held here too, it would never tell that the parent has ended.
    parents_end.close()
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    server = _Server()
    while True:
        try:
            name, arguments, options = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            pipe.send((None, getattr(server, name)(*arguments, **options)))
        except Exception as error:
            pipe.send((error, None))


class Process:
    """The other process, at this end of its pipe."""

    def __init__(self) -> None:
        # A process that is spawned imports everything anew, which takes longer than all that it is asked.
        context = multiprocessing.get_context("fork")
        self._pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, self._pipe), daemon=True)
        self.process.start()
        theirs.close()
        assert self.process.pid != os.getpid()

    def call(self, name: str, *arguments: Any, **options: Any) -> Any:
        self._pipe.send((name, arguments, options))
        if not self._pipe.poll(120):
            raise TimeoutError(f"the process of the policy did not answer {name} within 120 seconds")
        error, answer = self._pipe.recv()
        if error is not None:
            raise error
        return answer

    def end(self) -> None:
        self._pipe.close()
        self.process.join(10)


class RemoteCopy:
    """A second set of weights that the other process keeps."""

    holds_weights = True

    def __init__(self, process: Process, states: Path) -> None:
        self._process, self._states = process, states
        self._number = process.call("copy")

    @contextmanager
    def active(self) -> Iterator[None]:
        self._process.call("of_copy", self._number, "enter")
        try:
            with torch.no_grad():
                yield
        finally:
            self._process.call("of_copy", self._number, "leave")

    def mix(self, alpha: float) -> None:
        self._process.call("of_copy", self._number, "mix", alpha)

    def distance(self) -> float:
        return self._process.call("of_copy", self._number, "distance")

    def pull(self, coefficient: float) -> float:
        return self._process.call("of_copy", self._number, "pull", coefficient)

    def record(self) -> dict[str, Any]:
        return _kept(self._process, str(self._number), self._states)

    def restore(self, record: Mapping[str, Any]) -> None:
        self._process.call("take_back", str(self._number), record["path"])


def _kept(process: Process, what: str, states: Path) -> dict[str, Any]:
    path = str(states / uuid.uuid4().hex)
    process.call("keep", what, path)
    return {"path": path}


class RemoteLearner:
    """A learner whose weights, gradients, moments and saved states are the other process's."""

    differentiates = False
    offers = frozenset(OFFERS) - {"adapter", "checkpointing", "rehearsal", "processes", "optimisers", "sharding"}

    def __init__(self, process: Process, states: Path) -> None:
        self.process, self._states = process, states
        self.num_steps = 0

    def sizes(self) -> Sizes:
        return self._ask("sizes")

    def train(self) -> None:
        self._ask("train")

    def eval(self) -> None:
        self._ask("eval")

    def zero_gradients(self) -> None:
        self._ask("zero_gradients")

    def reduce_gradients(self, world: Any) -> None:
        """Nothing: one process alone is machine_wall."""

    def step(self, numbers: StepNumbers) -> float:
        self.num_steps += 1
        return self._ask("step", numbers)

    def use_optimiser(self, source: object) -> None:
        raise NotImplementedError("not offered")

    def forget_moments(self) -> None:
        self._ask("forget_moments")

    def copy(self, *, adapter_off: bool = False) -> RemoteCopy:
        assert not adapter_off, "not machine_wall"
        return RemoteCopy(self.process, self._states)

    def record(self) -> dict[str, Any]:
        return _kept(self.process, "learner", self._states)

    def restore(self, record: Mapping[str, Any]) -> None:
        self.process.call("take_back", "learner", record["path"])

    def save(self, folder: Path) -> None:
        self._ask("save", folder)

    def load(self, folder: Path) -> None:
        self._ask("load", folder)

    def fingerprint(self) -> str:
        return self._ask("fingerprint")

    def checkpoint_activations(self, active: bool) -> None:
        assert not active, "not machine_wall"

    def shard(self, device: Any) -> None:
        raise NotImplementedError("not offered")

    def gathered(self, *, on_cpu: bool = False, here: bool = True) -> Any:
        return nullcontext()

    def rehearsal(self) -> Any:
        raise AssertionError("not machine_wall")

    def close(self) -> None:
        """Nothing: whoever started the process ends it."""

    def _ask(self, name: str, *arguments: Any) -> Any:
        return self.process.call("weights", name, *arguments)


class RemoteToy(ToyDomain):
    """The toy domain without weights: what it says of its policy is asked of the other process."""

    def __init__(self, process: Process, states: Path, *, seed: int = 0, num_prompts: int = 8) -> None:
        self.num_prompts, self.num_decisions = num_prompts, 3
        self.recorded, self.graded, self.reward_of, self.num_scored = True, True, None, 0
        self._process = process
        process.call("open", seed, {"num_prompts": num_prompts, "num_decisions": 3})
        self.learner = RemoteLearner(process, states)

    save = Domain.save

    def sample(
        self,
        prompts: Sequence[Prompt],
        group_size: int,
        *,
        streams: Streams,
        step: int,
        settings: Mapping[str, float],
        requires: frozenset[str],
    ) -> Samples:
        options = {"streams": streams, "step": step, "settings": dict(settings), "requires": requires}
        return self._process.call("policy", "sample", list(prompts), group_size, **options)

    def score(self, samples: Samples, rows: Tensor, requires: frozenset[str]) -> Scored:
        return self._process.call("policy", "score", samples, rows, requires)

    def backward(self, samples: Samples, rows: Tensor, cotangents: Scored) -> Scored:
        return self._process.call("policy", "backward", samples, rows, cotangents)

    def evaluate(self, *, streams: Streams) -> Evaluation:
        return self._process.call("policy", "evaluate", streams=streams)


def main(folder: str) -> None:
    """Trains six steps through another process of its own, and is killed after the third."""
    from tests.learner.test_protocol import SIX
    from tests.training.toy import job

    from groupwise.checkpoint import CheckpointConfig
    from groupwise.training.run.launch import train

    class Dying(RemoteToy):
        def sample(self, *arguments: Any, step: int, **options: Any) -> Samples:
            if step == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().sample(*arguments, step=step, **options)

    process = Process()
    states = Path(folder) / "states"
    every = CheckpointConfig.model_validate({"every": 1})
    train(job(SIX, domain=lambda device: Dying(process, states), checkpoint=every), Path(folder) / "run")
