"""Ctrl-C and a scheduler's SIGTERM: finish the step, save, and end; a second Ctrl-C ends at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
        say: receives one sentence when the request arrives.

    Yields:
        whether a request has come.

    Raises:
        KeyboardInterrupt: a second request came.

    Example:
        >>> with listening(print) as interrupt:
        ...     signal.raise_signal(signal.SIGTERM)
        ...     interrupt.asked
        ending after this step, with a checkpoint; once more ends at once
        True
    """
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if interrupt.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        if interrupt.asked:
            return
        interrupt.signal = number
        say("ending after this step, with a checkpoint; once more ends at once")

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
