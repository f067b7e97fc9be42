"""A small program that runs a command in its own process group, and ends the whole group when the parent process has
ended: `supervisor.py PARENT COMMAND ...`. It is a separate program because a killed process cannot clean up; it imports
the standard library alone.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from typing import Any

SECONDS_TO_END = 10.0
"""The time that the group has between SIGTERM and SIGKILL."""
_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Runs the command until it ends, this process receives SIGTERM, or the parent is gone; returns its status."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _raise)
    process = subprocess.Popen(command, start_new_session=True, preexec_fn=_end_with_parent)
    try:
        while os.getppid() == parent:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return _status(process.wait(0.5))
    except SystemExit:
        pass
    finally:
        _end(process)
    return _status(process.returncode)


def _end_with_parent() -> None:
    """Asks Linux to send SIGTERM to the command when this program is killed; elsewhere the command then continues."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _raise(number: int, frame: Any) -> None:
    raise SystemExit(128 + number)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the whole process group. It gets time to end by itself only while its first process is running."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    end = time.monotonic() + SECONDS_TO_END
    with contextlib.suppress(ProcessLookupError):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            while process.poll() is None and time.monotonic() < end:
                time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _status(returncode: int) -> int:
    return returncode if returncode >= 0 else 128 - returncode


if __name__ == "__main__":
    sys.exit(main())
