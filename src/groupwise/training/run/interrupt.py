"""Ctrl-C and a scheduler's SIGTERM: finish the step, save, and end; a second Ctrl-C ends at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from types import FrameType
from typing import final


@final
class Interrupt:
    """Whether somebody asked the run to end, and by which signal.

    Example:
        >>> Interrupt().asked
        False
    """

    def __init__(self) -> None:
        self.signal = 0

    @property
    def asked(self) -> bool:
        """Whether a request has come."""
        return self.signal != 0


@contextmanager
def listening(say: Callable[[str], None]) -> Iterator[Interrupt]:
    """Within the block SIGINT and SIGTERM are taken as a request; outside the main thread nothing is changed.

    Args:
        say: receives one sentence when the request arrives, in a thread of its own: the request may find the main one
            within a write that waits for its reader, and Python allows no other write to the same file there.

    Yields:
        whether a request has come.

    Raises:
        KeyboardInterrupt: a second request came.

    Example:
        >>> said = []
        >>> with listening(said.append) as interrupt:
        ...     signal.raise_signal(signal.SIGTERM)
        >>> interrupt.asked, said
        (True, ['ending after this step, with a checkpoint; once more ends at once'])
    """
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    # Its `put` may interrupt itself.
    sentences: SimpleQueue[str | None] = SimpleQueue()

    def speak() -> None:
        for text in iter(sentences.get, None):
            say(text)

    def handle(number: int, frame: FrameType | None) -> None:
        if interrupt.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        if interrupt.asked:
            return
        interrupt.signal = number
        sentences.put("ending after this step, with a checkpoint; once more ends at once")

    speaker = threading.Thread(target=speak, name="groupwise-interrupt", daemon=True)
    speaker.start()
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        sentences.put(None)
        speaker.join()
