"""Processes that start again in an old store meet each other, never what a dead process left there."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch
from torch.distributed import HashStore
from torch.distributed.distributed_c10d import Store

from groupwise.training import distributed, roll_call
from groupwise.training.roll_call import fresh_store


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
    monkeypatch.setattr(roll_call, "_SECONDS_BEFORE_ASKING_AGAIN", 0.2)
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


def test_a_process_that_is_waited_for_is_named_before_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(roll_call, "SECONDS", 0.0)
    with pytest.raises(RuntimeError):
        fresh_store(HashStore(), 0, 2, timedelta(seconds=0.2))
    assert caplog.messages == ["of 2 processes, rank 1 did not come within 0 s; after 0.2 s the run ends"]


def test_a_meeting_place_that_nobody_holds_is_told_in_a_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for name, value in {"WORLD_SIZE": 2, "RANK": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(distributed, "MEETING", timedelta(seconds=1))
    monkeypatch.setattr(distributed, "SECONDS", 0.0)
    with pytest.raises(RuntimeError, match=rf"process 1 of 2 does not reach 127\.0\.0\.1:{port}") as refused:
        distributed.connect(torch.device("cpu"))
    assert "\n" not in str(refused.value)
    assert f"process 1 of 2 has waited 0 s for an answer from 127.0.0.1:{port}" in caplog.text


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)
