"""What another process prints, passed on up to a limit: a text of megabytes in a message of a library does not flood
the terminal.
"""

from __future__ import annotations

import os
import threading
from typing import final

_LIMIT = 1 << 16


@final
class Printed:
    """Passes on to standard error what comes out of a pipe, so many bytes a batch, and says once where more was left
    out.

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
            # Below zero once it was said that something is left out.
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
    # Nobody listens, which is no failure of the reward.
    except OSError:
        pass
