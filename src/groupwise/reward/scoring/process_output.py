"""The output of a reward's process, passed on up to a limit, so that a library's message of megabytes does not flood
the terminal.
"""

from __future__ import annotations

import os
import threading
from typing import final

_LIMIT = 1 << 16


@final
class Printed:
    """Passes the bytes of a pipe on to standard error, up to a limit a batch, and reports once that the remaining bytes
    were left out.

    Args:
        reader: the pipe's end; it is closed when nobody can write there any more.
        limit: bytes a batch.
    """

    def __init__(self, reader: int, limit: int = _LIMIT) -> None:
        self.reader, self.limit, self._left = reader, limit, limit
        threading.Thread(target=self._pass_on, name="printed-by-reward", daemon=True).start()

    def begin(self) -> None:
        """Allows the whole limit again, for the next batch."""
        self._left = self.limit

    def _pass_on(self) -> None:
        while chunk := os.read(self.reader, _LIMIT):
            left = self._left
            # The number is below zero after the report that bytes were left out.
            self._left = left - len(chunk)
            if left >= 0:
                _print(chunk[:left])
            if self._left < 0 <= left:
                _print(
                    f"\n(a reward's process printed more than {self.limit:,} bytes during a batch; the rest is left"
                    " out)\n".encode()
                )
        os.close(self.reader)


def _print(text: bytes) -> None:
    try:
        while text:
            text = text[os.write(2, text) :]
    # A closed standard error is no failure of the reward.
    except OSError:
        pass
