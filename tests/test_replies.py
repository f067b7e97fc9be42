"""Replies of real servers on this machine, each of them a trap."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from groupwise.replies import Reply, ReplyError, post

Answer = Callable[[BaseHTTPRequestHandler], None]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Answer], str]]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    running: list[ThreadingHTTPServer] = []

    def start(answer: Answer) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                # Whoever asked may have heard enough.
                with contextlib.suppress(OSError):
                    answer(self)

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        running.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in running:
        server.shutdown()
        server.server_close()


def body(content: bytes, **headers: str) -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        for name, value in headers.items():
            request.send_header(name.replace("_", "-"), value)
        request.end_headers()
        request.wfile.write(content)

    return answer


def ask(address: str, seconds: float = 30.0, max_bytes: int = 1000, body: Any = None) -> Reply:
    async def go() -> Reply:
        async with httpx.AsyncClient() as client:
            return await post(client, address, body or {}, seconds=seconds, max_bytes=max_bytes)

    return asyncio.run(go())


def test_a_small_reply_is_read_with_and_without_gzip(serve: Callable[[Answer], str]) -> None:
    assert ask(serve(body(b'{"a": 1}'))).json() == {"a": 1}
    packed = ask(serve(body(gzip.compress(b'{"a": 1}'), Content_Encoding="gzip")))
    assert (packed.status, packed.json(), packed.text) == (200, {"a": 1}, '{"a": 1}')


def test_nothing_packed_is_asked_for(serve: Callable[[Answer], str]) -> None:
    seen: list[str] = []

    def answer(request: BaseHTTPRequestHandler) -> None:
        seen.append(request.headers["Accept-Encoding"])
        body(b"{}")(request)

    ask(serve(answer))
    assert seen == ["identity"]


def test_more_than_is_read_is_not_waited_for(serve: Callable[[Answer], str]) -> None:
    sent = 0

    def endless(request: BaseHTTPRequestHandler) -> None:
        nonlocal sent
        request.send_response(200)
        request.end_headers()
        while True:
            sent += request.wfile.write(b"x" * 65536)

    with pytest.raises(ReplyError, match="larger than 1,000 bytes"):
        ask(serve(endless))
    assert sent < 1 << 30


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (body(b"no gzip at all", Content_Encoding="gzip"), "DecodingError"),
        (lambda request: request.wfile.write(b"\x00\xff nonsense\r\n\r\n"), "RemoteProtocolError"),
    ],
)
def test_what_cannot_be_read_says_why(serve: Callable[[Answer], str], answer: Answer, message: str) -> None:
    with pytest.raises(ReplyError, match=message):
        ask(serve(answer))


@pytest.mark.parametrize("part", [b"x", b"HTTP/1.1 200 OK\r\nA: " + b"x"])
def test_a_server_that_trickles_meets_its_limit(serve: Callable[[Answer], str], part: bytes) -> None:
    def trickle(request: BaseHTTPRequestHandler) -> None:
        if part == b"x":
            request.send_response(200)
            request.end_headers()
        while True:
            request.wfile.write(part)
            request.wfile.flush()
            time.sleep(0.05)

    with pytest.raises(ReplyError, match=r"no whole reply within 0\.5 s"):
        ask(serve(trickle), seconds=0.5, max_bytes=1 << 30)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[" * 200_000, "nested too deeply"),
        (b"9" * 6000, "no JSON that can be read"),
        (b"\xff\xfe", "no JSON that can be read"),
        (b"", "no JSON that can be read"),
    ],
)
def test_json_that_is_a_trap(content: bytes, message: str) -> None:
    with pytest.raises(ReplyError, match=message):
        Reply(200, content).json()
