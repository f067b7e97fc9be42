"""Faults of a server between the real SDK and the stand-in: each ends in one line, or in the answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

pytest.importorskip("tinker", reason="the extra `tinker` is not installed")

from tests.tinker.http_standin import BASE, StandIn, listening

from groupwise.config import ConfigError
from groupwise_tinker import client
from groupwise_tinker.client import Adapter, Sequenced, Service, TinkerError
from groupwise_tinker.config import Tinker

MEMBERS = [Sequenced([3, 4], [5, 6, 7], [True] * 3)]


@contextmanager
def served(state: StandIn, seconds: float = 120.0) -> Iterator[Service]:
    with listening(state) as address:
        service = Service(Tinker(address=address, base_model=BASE, timeout_seconds=seconds))
        yield service
        service.close()


def hurry(service: Service, seconds: float) -> None:
    """Gives the calls that follow a limit of their own: what was called before had time on a busy machine."""
    service.config = service.config.model_copy(update={"timeout_seconds": seconds})


def work(adapter: Adapter) -> list[float]:
    """Calls the server in every way that a step does."""
    (values,) = adapter.log_probs(MEMBERS)
    adapter.accumulate(MEMBERS, [values], [[1.0, 0.0, -1.0]])
    adapter.sample([([3, 4], 2, 4, 7)], 1.0, [1])
    adapter.load(adapter.save())
    return values


ROUTES = ("forward", "forward_backward", "save_weights", "load_weights", "save_weights_for_sampler", "asample")


@pytest.mark.parametrize(
    "route", ["asample", "retrieve_future", *(pytest.param(route, marks=pytest.mark.slow) for route in ROUTES[:-1])]
)
def test_a_503_is_repeated(route: str) -> None:
    state = StandIn()
    with served(state) as service:
        adapter = service.adapter(0)
        expected = work(adapter)
        state.faults[route] = "503"
        assert work(adapter) == expected
        assert state.num_faults == 0, "the fault has happened"


READ = ["forward", "asample", "retrieve_future"]
UNREADABLE = ["garbage", "drip", "old"]


@pytest.mark.parametrize(
    ("route", "fault"),
    [
        pytest.param(route, fault, marks=[] if place == number else [pytest.mark.slow])
        for place, route in enumerate(READ)
        for number, fault in enumerate(UNREADABLE)
    ],
)
def test_an_answer_that_cannot_be_read_is_one_line(route: str, fault: str) -> None:
    state = StandIn()
    with served(state) as service:
        adapter = service.adapter(0)
        hurry(service, 1.5)
        state.faults[route], state.num_faults = fault, 1000
        with pytest.raises(
            TinkerError, match=r"model\.address = 'http://127\.0\.0\.1:\d+': \w+ (failed|gave)"
        ) as failure:
            work(adapter)
    assert "\n" not in str(failure.value)


def test_an_engine_that_never_answers_ends_at_the_deadline() -> None:
    state = StandIn()
    with served(state) as service:
        adapter = service.adapter(0)
        hurry(service, 1.0)
        state.dead = True
        with pytest.raises(TinkerError, match=r"forward gave no answer within .*is the server's engine alive\?"):
            work(adapter)


def test_a_server_that_is_gone_is_noticed_before_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_HEALTH_SECONDS", 0.2)
    state = StandIn()
    with listening(state) as address:
        service = Service(Tinker(address=address, base_model=BASE, timeout_seconds=600))
        adapter = service.adapter(0)
    message = r"forward was given up: the server no longer answers.*groupwise resume"
    with closing(service), pytest.raises(TinkerError, match=message):
        work(adapter)


def test_a_place_that_becomes_free_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_RETRY_SECONDS", 0.05)
    state = StandIn(places=1)
    with served(state) as service:
        first = service.adapter(0)
        timer = threading.Timer(0.5, first.unload)
        timer.start()
        assert service.adapter(0).model_id != first.model_id
        timer.join()


@pytest.mark.slow
def test_a_full_server_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_RETRY_SECONDS", 0.05)
    message = r"no free place for an adapter \(.*reached.*\); end another"
    with served(StandIn(places=0)) as service:
        hurry(service, 3.0)
        with pytest.raises(TinkerError, match=message) as failure:
            service.adapter(0)
    assert "\n" not in str(failure.value)


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>hello</html>")

    def log_message(self, format: str, *args: object) -> None:
        """Writes nothing."""


def test_a_server_of_another_kind_is_one_line() -> None:
    server = HTTPServer(("127.0.0.1", 0), _Page)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        with pytest.raises(ConfigError, match=r"no Tinker API answers there \(what answers is no JSON") as refusal:
            Service(Tinker(address=f"http://127.0.0.1:{server.server_address[1]}", base_model=BASE))
    finally:
        server.shutdown()
        server.server_close()
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("route", ["get_server_capabilities", "create_session", "healthz"])
def test_another_version_of_the_api_is_one_line(route: str) -> None:
    state = StandIn()
    state.faults[route], state.num_faults = "old", 1000
    with pytest.raises((ConfigError, TinkerError)) as failure, served(state, seconds=1.5) as service:
        service.adapter(0)
    assert "model.address" in str(failure.value)
    assert "\n" not in str(failure.value)


def test_an_sdk_that_is_newer_than_the_server_is_told_with_its_cure() -> None:
    state = StandIn()
    with served(state) as service:

        def newer() -> None:
            raise ValueError("JSON payload for SampleResponse, which this SDK version only supports as proto.")

        with pytest.raises(TinkerError, match=r"older than the SDK; write pip install tinker==0\.24\.1"):
            service.call("sample", newer)


def test_the_session_of_a_closed_connection_beats_no_more() -> None:
    state = StandIn()
    with served(state) as service:
        service.adapter(0)
        holder: Any = service._client.holder  # pyright: ignore[reportPrivateUsage]
        heartbeat = holder._session_heartbeat_task
        assert not heartbeat.done()
        service.close()
        service.close()
        end = time.monotonic() + 600
        while not heartbeat.done():
            assert time.monotonic() < end, "the heartbeats go on"
            time.sleep(0.01)
