"""Ctrl-C and a scheduler's SIGTERM: the run finishes the step, saves and ends; a second Ctrl-C ends it at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from types import FrameType
from typing import final


@final
class Interrupt:
    """A request to end the run, with the number of its signal.

    Example:
        >>> Interrupt().asked
        False
    """

    def __init__(self) -> None:
        self.signal = 0

    @property
    def asked(self) -> bool:
        """True once a request has come."""
        return self.signal != 0


@contextmanager
def listening(say: Callable[[str], None]) -> Iterator[Interrupt]:
    """Takes SIGINT and SIGTERM as a request to end the run within the block; outside the main thread it changes
    nothing.

    Args:
        say: receives one sentence when the request arrives, in a separate thread: the signal may arrive while the main
            thread writes and waits for a reader, where Python allows no second write to the same file.

    Yields:
        the request, which is set when a signal comes.

    Raises:
        KeyboardInterrupt: a second request came.

    Example:
        >>> sentences = []
        >>> with listening(sentences.append) as interrupt:
        ...     signal.raise_signal(signal.SIGTERM)
        >>> interrupt.asked, sentences
        (True, ['ending after this step, with a checkpoint; once more ends at once'])
    """
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    then = "once more ends at once"
    if "TORCHELASTIC_RUN_ID" in os.environ:  # A second Ctrl-C reaches torchrun alone.
        then = "torchrun kills what is still there after its --shutdown-timeout, 30 s where it has none"
    # A second signal may interrupt `put`; the `put` of a SimpleQueue is reentrant.
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
        sentences.put(f"ending after this step, with a checkpoint; {then}")

    speaker = threading.Thread(target=speak, name="groupwise-interrupt", daemon=True)
    speaker.start()
    previous_handlers = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupt
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)
        sentences.put(None)
        speaker.join()
