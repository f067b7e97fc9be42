"""Processes that wait say for whom, and where that one stands."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.distributed import HashStore, PrefixStore, TCPStore

from groupwise.processes import ProcessLeftError
from groupwise.training import roll_call
from groupwise.training.distributed import World, _sum_of
from groupwise.training.roll_call import RollCall

DEADLINE = 60.0


def wait_until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + DEADLINE
    while not holds():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


class Processes:
    """Threads in the place of processes; each waits in an exchange, or in `judge`, until it is let go."""

    def __init__(self, size: int) -> None:
        self.store, self.said = HashStore(), [[] for _ in range(size)]
        self.calls: list[RollCall] = []
        self.ended: list[int] = []
        self.let_go = threading.Event()
        self.threads: list[threading.Thread] = []

    def start(self, rank: int, *, judges: bool = False, exchange: str = "values") -> None:
        """Returns once the process waits where it is meant to."""
        has_come = threading.Event()

        def main() -> None:
            size, said = len(self.said), self.said[rank].append
            call = RollCall(self.store, rank, size, say=said, grace=0.1, end=lambda: self.ended.append(rank))
            self.calls.append(call)
            if judges:
                judge(has_come, self.let_go)
                return
            with call.waiting(exchange):
                has_come.set()
                self.let_go.wait()

        self.threads.append(threading.Thread(target=main))
        self.threads[-1].start()
        assert has_come.wait(DEADLINE)

    def have_waited_long(self) -> None:
        """Each process that waits asks at its next look, and not again."""
        for call in self.calls:
            if call._since is not None:
                call._since -= 1.5 * call._asked_after

    def close(self) -> None:
        self.let_go.set()
        for thread in self.threads:
            thread.join()
        for call in self.calls:
            call.close()


def judge(has_come: threading.Event, let_go: threading.Event) -> None:
    has_come.set()
    let_go.wait()


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Processes]:
    monkeypatch.setattr(roll_call, "_ROLL_CALL_SECONDS_BETWEEN_LOOKS", 0.02)
    monkeypatch.setattr(roll_call, "_SECONDS_FOR_AN_ANSWER", DEADLINE)
    running = Processes(3)
    yield running
    running.close()


def test_the_first_that_waits_names_the_missing_one_and_its_line(processes: Processes) -> None:
    processes.start(0, judges=True)
    processes.start(1)
    processes.start(2)
    processes.have_waited_long()
    wait_until(lambda: processes.said[1])
    (sentence, *_) = processes.said[1]
    assert "for process 0, which is at " in sentence
    assert "in judge" in sentence
    processes.have_waited_long()
    wait_until(lambda: len(processes.said[1]) > 1)
    assert processes.said[0] == processes.said[2] == []


def test_a_process_that_does_not_answer_is_named(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roll_call, "_SECONDS_FOR_AN_ANSWER", 0.1)
    processes.start(0)
    processes.start(1)
    processes.have_waited_long()
    wait_until(lambda: processes.said[0])
    assert "for process 2, which does not answer" in processes.said[0][0]


def test_nobody_is_named_where_all_have_come(processes: Processes) -> None:
    for rank in range(3):
        processes.start(rank)
    for call in processes.calls:
        assert call._since is not None
        call._ask(call._since)
    assert processes.said == [[], [], []]


def test_nobody_is_named_where_the_exchange_ended_while_it_was_asked() -> None:
    said: list[str] = []
    call = RollCall(HashStore(), 0, 2, say=said.append)
    with call.waiting():
        since = call._since
    assert since is not None
    call._ask(since)
    call.close()
    assert not said


def test_a_sum_is_named_alike_however_a_process_holds_its_summand() -> None:
    """A gradient that lies otherwise is summed in a flat copy, and the run of both is sound."""
    assert _sum_of(torch.ones(2, 3)) == _sum_of(torch.ones(6)) == "a sum of 6 float32"


def test_processes_that_came_to_different_exchanges_are_told_and_end(processes: Processes) -> None:
    """A user's code summed on some processes alone: all wait, and no exchange ends."""
    for rank, exchange in enumerate(("values", "a sum of 2 float64", "values")):
        processes.start(rank, exchange=exchange)
    processes.have_waited_long()
    wait_until(lambda: len(processes.ended) == 3)
    sentences = {sentence for said in processes.said for sentence in said}
    assert len(sentences) == 1
    (sentence,) = sentences
    assert sentence.startswith("the processes came to different exchanges: process 0, which is at ")
    assert "waits for values, and process 1, which is at " in sentence
    assert "waits for a sum of 2 float64; every process has to sum equally often; this process cannot" in sentence


def test_who_has_left_is_waited_for_by_nobody() -> None:
    store, said, ended = HashStore(), [], []
    calls = [
        RollCall(store, rank, 3, seconds=0.1, say=said.append, grace=3.0, end=lambda rank=rank: ended.append(rank))
        for rank in range(3)
    ]
    assert calls[0].left() == ""
    calls[2].leave("memory ran out")
    calls[1].leave("the connection broke")  # an error of its own: it is on its way out, and may take long for it
    assert calls[0].left() == calls[1].left() == "process 2 has left the run: memory ran out"
    wait_until(lambda: ended)
    for call in calls:
        call.close()
    assert ended == [0]
    assert said == ["process 2 has left the run: memory ran out; this process cannot go on, and ends"]


def test_a_process_that_ends_by_itself_is_not_ended() -> None:
    store, ended = HashStore(), []
    calls = [RollCall(store, rank, 2, seconds=0.1, grace=DEADLINE, end=lambda: ended.append(1)) for rank in range(2)]
    calls[1].leave("memory ran out")
    for call in calls:
        call.close()
    assert not any(call._thread.is_alive() for call in calls), "who would end it still runs"
    assert ended == []


def test_a_process_is_not_told_of_itself() -> None:
    """Both blocks of a run tell of its end. The outer one said of its own process that another one had left."""
    call = RollCall(HashStore(), 0, 2)
    world = World(0, 2, 0, call)
    broken = RuntimeError("the connection broke")
    code = compile("def gather(error):\n    raise error\n", "/torch/distributed/c10d.py", "exec")
    module: dict[str, Any] = {}
    exec(code, module)
    with pytest.raises(RuntimeError, match=r"^the connection broke$"), world.telling_end(), world.telling_end():
        module["gather"](broken)
    call.close()


@pytest.mark.parametrize("lives_on", [True, False])
def test_a_process_that_held_the_store_is_waited_for_by_nobody_either(lives_on: bool) -> None:
    """Without a launcher the first process holds the store, which went with its run before the others had ended."""
    kept = roll_call._KEPT
    host = TCPStore("127.0.0.1", 0, 2, is_master=True, wait_for_workers=False)
    guest = TCPStore("127.0.0.1", host.port, 2, is_master=False)
    ended: list[int] = []
    first = RollCall(PrefixStore("calls", host), 0, 2)
    second = RollCall(PrefixStore("calls", guest), 1, 2, seconds=0.1, grace=1.5, end=lambda: ended.append(1))
    looks: list[str] = []
    look = second.left
    second.left = lambda: looks.append(look()) or looks[-1]  # type: ignore[method-assign]
    first.leave("memory ran out")
    wait_until(lambda: any(looks))
    if not lives_on:
        kept.clear()
    first.close()
    del first, host
    gc.collect()
    wait_until(lambda: ended)
    second.close()
    kept.clear()


def test_a_store_that_ended_with_its_launcher_ends_the_run_in_a_sentence(capfd: pytest.CaptureFixture[str]) -> None:
    """Each question to it was answered by a page of PyTorch's frames, and the run by a traceback."""
    host = TCPStore("127.0.0.1", 0, 2, is_master=True, wait_for_workers=False)
    call = RollCall(PrefixStore("calls", TCPStore("127.0.0.1", host.port, 2, is_master=False)), 0, 2)
    del host
    gc.collect()

    def run() -> None:
        with World(0, 2, 0, call).telling_end():
            wait_until(lambda: exchange())

    def exchange() -> bool:
        with call.waiting():
            return False

    with pytest.raises(
        ProcessLeftError, match=r"^process 0 no longer reaches the place where processes meet: torchrun"
    ):
        run()
    call.close()
    assert capfd.readouterr().err.count("Exception raised from") <= 2  # this thread's and the watching one's
