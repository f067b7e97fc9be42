"""Processes that start again in an old store meet each other, never what a dead process left there; and processes that
wait for one say for which.
"""

from __future__ import annotations

import gc
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch
from torch.distributed import HashStore, PrefixStore, TCPStore
from torch.distributed.distributed_c10d import Store

from groupwise.processes import ProcessLeftError
from groupwise.training import distributed, rendezvous
from groupwise.training.rendezvous import Rendezvous, fresh_store


def meet(store: Store, size: int, patience: timedelta = timedelta(seconds=60)) -> list[Store]:
    with ThreadPoolExecutor(size) as pool:
        calls = [pool.submit(fresh_store, store, rank, size, patience) for rank in range(size)]
        return [call.result() for call in calls]


def test_every_start_has_keys_of_its_own_in_one_store() -> None:
    store = HashStore()
    first, second = meet(store, 3), meet(store, 3)
    first[0].set("address", "of the first start")
    assert all(view.check(["address"]) for view in first)
    assert not any(view.check(["address"]) for view in second)


def test_a_process_that_a_dead_host_answered_asks_the_living_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "_SECONDS_BEFORE_ASKING_AGAIN", 0.2)
    store = HashStore()
    guest: list[Store] = []
    thread = threading.Thread(target=lambda: guest.append(fresh_store(store, 1, 2, timedelta(seconds=60))))
    thread.start()
    wait_until(lambda: store.check(["ask/1"]))
    store.set(f"answer/{store.get('ask/1').decode()}", "dead")
    wait_until(lambda: store.check(["joined/dead/1"]))
    host = fresh_store(store, 0, 2, timedelta(seconds=60))
    thread.join()
    host.set("address", "living")
    assert guest[0].get("address") == b"living"


def test_a_process_that_does_not_come_is_named() -> None:
    with pytest.raises(RuntimeError, match=r"of 3 processes, rank 1, 2 did not come within 0\.1 s"):
        fresh_store(HashStore(), 0, 3, timedelta(seconds=0.1))
    with pytest.raises(RuntimeError, match=r"rank 1 waited 0\.1 s"):
        fresh_store(HashStore(), 1, 3, timedelta(seconds=0.1))


def test_a_shared_store_that_nobody_holds_is_told_in_a_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for name, value in {"WORLD_SIZE": 2, "RANK": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(distributed, "JOIN_PATIENCE", timedelta(seconds=1))
    with pytest.raises(RuntimeError, match=rf"process 1 of 2 does not reach 127\.0\.0\.1:{port}") as refused:
        distributed.connect(torch.device("cpu"))
    assert "\n" not in str(refused.value)


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def come(store: Store, exchanges: list[str], size: int) -> list[Future[None]]:
    """The first processes come to an exchange each; the errors of those that waited in vain."""
    meetings = [Rendezvous(store, rank, size) for rank in range(len(exchanges))]
    with ThreadPoolExecutor(size) as pool:
        return [pool.submit(one.wait_for_all, exchange) for one, exchange in zip(meetings, exchanges, strict=True)]


def test_all_that_come_go_on_and_leave_no_keys_behind() -> None:
    store = HashStore()
    both = [Rendezvous(store, rank, 2) for rank in (0, 1)]
    for _ in range(3):
        with ThreadPoolExecutor(2) as pool:
            assert [call.result() for call in [pool.submit(one.wait_for_all, "values") for one in both]] == [None, None]
    assert [store.check([f"{count}/0"]) for count in (1, 2, 3)] == [False, False, True]


def test_the_first_that_waits_names_the_missing_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rendezvous, "SECONDS", 0.0)
    monkeypatch.setattr(rendezvous, "PATIENCE", timedelta(seconds=1.0))
    for waited in come(HashStore(), ["values", "values"], 3):
        with pytest.raises(ProcessLeftError, match=r"^process 2 did not come within 1 s$"):
            waited.result()
    assert caplog.messages
    # The first that waits may look before the second has come.
    missing = {message.partition(" s for ")[2] for message in caplog.messages}
    assert missing <= {"process 2", "process 1, 2", "process 0, 2"}


def test_processes_that_came_to_different_exchanges_are_told() -> None:
    """A user's code summed on some processes alone: no exchange between them would end."""
    for waited in come(HashStore(), ["values", "a sum of 2 float64", "values"], 3):
        with pytest.raises(ProcessLeftError, match=r"process 0 waits for values, and process 1 for a sum of 2 float64"):
            waited.result()


def test_who_has_left_is_waited_for_by_nobody() -> None:
    store = HashStore()
    first, second, third = (Rendezvous(store, rank, 3) for rank in range(3))
    assert first.left() == ""
    third.leave("memory ran out")
    second.leave("the connection broke")  # an error of its own
    assert first.left() == second.left() == "process 2 has left the run: memory ran out"
    assert third.left() == ""
    with pytest.raises(ProcessLeftError, match=r"^process 2 has left the run: memory ran out$"):
        first.wait_for_all("values")


def test_a_store_that_ended_with_its_launcher_ends_the_run_in_a_sentence() -> None:
    host = TCPStore("127.0.0.1", 0, 2, is_master=True, wait_for_workers=False)
    guest = Rendezvous(PrefixStore("rendezvous", TCPStore("127.0.0.1", host.port, 2, is_master=False)), 0, 2)
    del host
    gc.collect()
    with pytest.raises(ProcessLeftError, match=r"^process 0 no longer reaches the place where processes meet: torch"):
        guest.wait_for_all("values")
