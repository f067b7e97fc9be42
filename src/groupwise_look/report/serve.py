"""The report of runs as a page that follows them while they train, served to this machine alone."""

import hashlib
import threading
import time
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, final
from urllib.parse import urlsplit

from groupwise.config import ConfigError
from groupwise.runs import find_runs, is_training, read_run
from groupwise.runs.folder import RunFolder
from groupwise_look.report.page import MOST_GROUPS, render

HOST = "127.0.0.1"
_REST = 3.0
"""The page is made again after a rest of this many times the seconds that making it took, so that it takes at most a
third of a core.
"""
_REQUEST_SECONDS = 10.0


@final
class LivePage:
    """The page of some runs, which is made again when their files have changed.

    Args:
        paths: run folders, comparisons, or folders of either, which are searched again for every page.
        most_groups: groups shown of one run.

    Raises:
        ConfigError: a path holds no run.
    """

    def __init__(self, paths: Sequence[Path], *, most_groups: int = MOST_GROUPS) -> None:
        self.paths, self.most_groups = paths, most_groups
        self._lock = threading.Lock()
        self._version, self._content, self._earliest = "", b"", 0.0
        self.page()

    def page(self) -> bytes:
        """Returns the page, made again if there is a newer version."""
        with self._lock:
            version = self._current_version()
            if version != self._version:
                start = time.monotonic()
                runs = [read_run(folder) for folder in find_runs(self.paths)]
                self._content = render(runs, most_groups=self.most_groups, live=version)
                end = time.monotonic()
                self._version, self._earliest = version, end + _REST * (end - start)
            return self._content

    def version(self) -> str:
        """Returns the version of the page that `page` would return, a short text that changes with the runs' files."""
        with self._lock:
            return self._current_version()

    def _current_version(self) -> str:
        return self._version if time.monotonic() < self._earliest else _files_version(self.paths)


def serve(page: LivePage, port: int) -> ThreadingHTTPServer:
    """Returns a server of the page at `http://127.0.0.1:PORT/`, which listens; `serve_forever` answers.

    Only `GET` and `HEAD` are answered, only for the page and its version, and only under the names of this machine's
    own address, so that no page of another site can read the runs through a name of its own.

    Args:
        port: the port, 0 for any that is free.

    Raises:
        ConfigError: the port cannot be taken.
    """
    try:
        return _Server(page, port)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"--port {port}: {HOST}:{port} cannot be taken ({reason}); write another port") from None


@final
class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, page: LivePage, port: int) -> None:
        super().__init__((HOST, port), _Handler)
        self.page = page
        self.names = {f"{name}:{self.server_port}" for name in (HOST, "localhost")}

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Prints nothing: a browser that closes a connection early is not an error."""


@final
class _Handler(BaseHTTPRequestHandler):
    timeout = _REQUEST_SECONDS
    server: _Server

    def do_GET(self) -> None:
        if self.headers.get("Host", "").lower() not in self.server.names:
            self._send(HTTPStatus.MISDIRECTED_REQUEST, b"this server answers under its own address alone\n")
            return
        path = urlsplit(self.path).path
        if path not in ("/", "/version"):
            self._send(HTTPStatus.NOT_FOUND, b"there is nothing here but the page, at /\n")
            return
        try:
            content = self.server.page.page() if path == "/" else self.server.page.version().encode()
        except ConfigError as error:
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, f"{error}\n".encode(errors="replace"))
            return
        self._send(HTTPStatus.OK, content, "text/html" if path == "/" else "text/plain")

    do_HEAD = do_GET

    def _send(self, status: HTTPStatus, content: bytes, kind: str = "text/plain") -> None:
        self.send_response(status)
        headers = {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(content)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def version_string(self) -> str:
        return "groupwise"

    def log_message(self, *_: object) -> None:
        """Prints nothing."""


def _files_version(paths: Sequence[Path]) -> str:
    """Returns a hash of the sizes and times of the runs' files.

    Raises:
        ConfigError: a path holds no run any more.
    """
    states = []
    for path in find_runs(paths):
        run = RunFolder(path)
        for file in (run.config, run.environment, run.metrics, run.summary, run.rollouts, run.tables, run.path):
            try:
                state = file.stat()
            except OSError:
                continue
            states.append(f"{file} {state.st_mtime_ns} {state.st_size}")
        states.append(f"{path} {is_training(path)} {run.ended_controls}")
    return hashlib.blake2b("\n".join(states).encode(errors="replace"), digest_size=8).hexdigest()
