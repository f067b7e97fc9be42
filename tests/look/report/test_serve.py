"""A served report: it follows the runs' files, and answers nobody but this machine."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from groupwise.config import ConfigError
from groupwise.runs import Run
from groupwise_look.report import serve as served
from groupwise_look.report.serve import LivePage, serve

Get = Callable[..., tuple[int, str, http.client.HTTPMessage]]


@contextmanager
def serving(*paths: Path) -> Iterator[Get]:
    with serve(LivePage(paths), 0) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()

        def get(
            path: str = "/", *, method: str = "GET", host: str | None = None
        ) -> tuple[int, str, http.client.HTTPMessage]:
            connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=600)
            connection.putrequest(method, path, skip_host=True)
            connection.putheader("Host", host or f"127.0.0.1:{server.server_port}")
            connection.endheaders()
            reply = connection.getresponse()
            content = reply.read().decode()
            connection.close()
            return reply.status, content, reply.msg

        yield get
        server.shutdown()


def add_step(run: Run, step: int, reward: float) -> None:
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": step, "stage": "main", "reward": reward}) + "\n")


def test_the_page_follows_the_runs(write_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "_REST", 0.0)
    run = write_run()
    with serving(run.path) as get:
        status, page, _ = get()
        version = get("/version")[1]
        assert status == 200
        assert f'data-live="{version}"' in page
        assert get("/version")[1] == version, "nothing has changed"
        add_step(run, 2, 0.8125)
        newer = get("/version")[1]
        assert newer != version
        page = get()[1]
        assert f'data-live="{newer}"' in page
        assert "0.8125" in page
        assert get("/", method="HEAD")[1] == ""


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "localhost:1", "", "127.0.0.1.evil.example:{port}"])
def test_a_name_of_another_site_is_not_answered(write_run: Callable[..., Run], host: str) -> None:
    with serving(write_run().path) as get:
        for path in ("/", "/version"):
            status, content, _ = get(path, host=host or " ")
            assert status == 421
            assert "reward" not in content


@pytest.mark.parametrize(
    "path", ["/config.json", "/../config.json", "/%2e%2e/config.json", "//etc/passwd", "/version/", "/?a", "*"]
)
def test_no_file_is_served(write_run: Callable[..., Run], path: str) -> None:
    with serving(write_run().path) as get:
        assert get(path)[0] == (200 if path == "/?a" else 404)


def test_only_reading_is_answered(write_run: Callable[..., Run]) -> None:
    with serving(write_run().path) as get:
        assert {get(method=method)[0] for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS")} == {501}


def test_a_run_that_was_removed_is_one_line(write_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "_REST", 0.0)
    run = write_run()
    with serving(run.path) as get:
        run.path.rename(run.path.with_name("elsewhere"))
        for path in ("/", "/version"):
            status, content, headers = get(path)
            assert status == 503
            assert content.startswith("no such folder")
            assert content.count("\n") == 1
            assert headers["Content-Type"].startswith("text/plain")


def test_a_port_that_is_taken_is_one_line(write_run: Callable[..., Run]) -> None:
    page = LivePage([write_run().path])
    with serve(page, 0) as server:
        with pytest.raises(ConfigError, match=rf"--port {server.server_port}: .* cannot be taken .*; write another"):
            serve(page, server.server_port)
        assert server.server_address[0] == "127.0.0.1"
