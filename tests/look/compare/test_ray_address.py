"""A wrong address of a Ray cluster is one line within seconds."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from groupwise.config import ConfigError
from groupwise_look.compare import ray_grid
from groupwise_look.compare.ray_grid import check_address


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener


def test_a_port_at_which_nobody_listens(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    listener.close()
    with pytest.raises(ConfigError, match=rf"no Ray cluster at '127.0.0.1:{port}' \(.*refused\); give --address"):
        check_address(f"127.0.0.1:{port}")


def test_a_port_that_never_answers(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_grid, "PATIENCE_SECONDS", 0.1)
    with pytest.raises(ConfigError, match=r"no answer within 0\.1 s"):
        check_address(f"ray://127.0.0.1:{listener.getsockname()[1]}")


def test_a_server_of_another_kind() -> None:
    """A web server closes the connection or answers in text."""
    import threading
    from http.server import BaseHTTPRequestHandler, HTTPServer

    server = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    threading.Thread(target=server.handle_request, daemon=True).start()
    with pytest.raises(ConfigError, match="no Ray"):
        check_address(f"127.0.0.1:{server.server_address[1]}")
    server.server_close()


def test_a_host_that_no_name_server_knows() -> None:
    with pytest.raises(ConfigError, match=r"no Ray cluster at 'head\.invalid:6379'"):
        check_address("head.invalid:6379")


@pytest.mark.nightly
def test_a_cluster_answers() -> None:
    ray = pytest.importorskip("ray")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    context = ray.init(num_cpus=1, include_dashboard=False, object_store_memory=80 * 2**20, log_to_driver=False)
    try:
        check_address(context.address_info["gcs_address"])
    finally:
        ray.shutdown()
