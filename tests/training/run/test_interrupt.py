"""A request to end, wherever it finds the program."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest
from rich.console import Console

from groupwise.track import Trackers
from groupwise.track.console import ConsoleTracker
from groupwise.training.run.loop import listening

SENTENCE = "ending after this step, with a checkpoint; Ctrl-C again ends at once"


def test_a_request_that_finds_the_console_waiting_for_its_reader_leaves_it_on() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    full = os.write(writer, bytes(1 << 21))
    os.set_blocking(writer, True)
    received: list[bytes] = []

    def ask_and_read() -> None:
        time.sleep(0.3)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
        time.sleep(0.1)
        while part := os.read(reader, 65536):
            received.append(part)

    slow = threading.Thread(target=ask_and_read)
    with os.fdopen(writer, "w") as file:
        trackers = Trackers([ConsoleTracker(1, None, live=False, console=Console(file=file))])
        with listening(trackers.note) as interrupt:
            slow.start()
            trackers.note("this waits")
            trackers.note("that follows")
        assert interrupt.signal == signal.SIGTERM
        assert trackers.names == ["ConsoleTracker"]
    slow.join()
    os.close(reader)
    assert sorted(b"".join(received)[full:].decode().splitlines()) == sorted([SENTENCE, "this waits", "that follows"])


def test_under_torchrun_a_second_request_is_not_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    said: list[str] = []
    with listening(said.append):
        signal.raise_signal(signal.SIGINT)
    expected = "ending after this step, with a checkpoint; torchrun kills what is still there after its"
    assert said == [f"{expected} --shutdown-timeout, 30 s where it has none"]
