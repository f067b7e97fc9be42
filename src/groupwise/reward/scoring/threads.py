"""Calls in threads that may be left behind, and one event loop for all that is awaitable."""

import asyncio
import concurrent.futures
import inspect
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, final

_SECONDS_TO_WAKE = 0.5
_SECONDS_TO_ANSWER = 1.0


@final
class EventLoop:
    """An event loop in a daemon thread, which begins at its first use. One that a call blocks is replaced."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def start(self, awaitable: Awaitable[Any]) -> concurrent.futures.Future[Any]:
        """Begins to await in the loop; the future gives a value, and an error or None."""
        with self._lock:
            if self._loop is None or not self._answers(self._loop):
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_serve, args=(self._loop,), name="rewards-async", daemon=True)
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(_settled(awaitable), self._loop)

    def close(self) -> None:
        """Ends the thread; calls under way are cancelled."""
        loop, self._loop = self._loop, None
        if loop is not None and self._thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join(_SECONDS_TO_ANSWER)

    def _answers(self, loop: asyncio.AbstractEventLoop) -> bool:
        answered = threading.Event()
        loop.call_soon_threadsafe(answered.set)
        return answered.wait(_SECONDS_TO_ANSWER)


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()
    # Cancelled tasks are awaited here, so that they clean up. `asyncio.Runner` would also wait for the threads of
    # `asyncio.to_thread`, which may never end.
    pending = asyncio.all_tasks(loop)
    for task in pending:
        task.cancel()
    if pending:
        loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
    loop.close()


async def _settled(awaitable: Awaitable[Any]) -> tuple[Any, BaseException | None]:
    try:
        return await awaitable, None
    except asyncio.CancelledError:
        raise
    # A reward may call sys.exit(): that too is the reward's error and not the end of the loop.
    except BaseException as error:
        return None, error


@final
class Job(threading.Thread):
    """One call in a daemon thread, which begins at once; when it has ended, `value` or `error` is set. Daemon: a call
    that never returns cannot keep the process from ending.

    Args:
        name: for the thread's name.
        call: its result is awaited where it is awaitable.
        loop: awaits it; where absent, one of its own.

    Example:
        >>> job = Job("example", lambda: 2 + 2)
        >>> job.ends_within(5.0), job.value
        (True, 4)
    """

    def __init__(self, name: str, call: Callable[[], Any], loop: EventLoop | None = None) -> None:
        super().__init__(name=f"reward-{name}", daemon=True)
        self._call, self._loop, self._owns_loop = call, loop or EventLoop(), loop is None
        self._awaited: concurrent.futures.Future[Any] | None = None
        self.value: Any = None
        self.error: BaseException | None = None
        self.begun, self.seconds = time.monotonic(), 0.0
        # `is_alive` is wrong after a KeyboardInterrupt inside `join`.
        self.done = threading.Event()
        self.start()

    def run(self) -> None:
        """Makes the call."""
        try:
            self.value = self._call()
            if inspect.isawaitable(self.value):
                self._awaited = self._loop.start(self.value)
                self.value, self.error = self._awaited.result()
        # As above, of a call that is not awaited.
        except BaseException as error:
            self.error = error
        self.seconds = time.monotonic() - self.begun
        self.done.set()

    def ends_within(self, seconds: float | None) -> bool:
        """Waits for the end of the call, and returns whether it ended in time. One that awaits is then cancelled.

        A signal that arrives just before Python's main thread blocks, or in another thread, is handled when it wakes:
        it wakes every half second, so that Ctrl-C is heard however long the call takes.

        Args:
            seconds: counted from the start of the call; None waits without an end.
        """
        while not self.done.is_set():
            left = _SECONDS_TO_WAKE if seconds is None else self.begun + seconds - time.monotonic()
            if left <= 0:
                break
            self.done.wait(min(left, _SECONDS_TO_WAKE))
        ended = self.done.is_set()
        self.leave()
        return ended

    def leave(self) -> None:
        """Cancels a call that awaits; any other that is under way is left to its thread."""
        if self._awaited is not None:
            self._awaited.cancel()
        if self._owns_loop:
            self._loop.close()
