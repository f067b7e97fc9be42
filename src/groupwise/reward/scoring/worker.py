"""A thread that calls a reward, and that can be abandoned when the reward hangs."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, final

_SECONDS_TO_END = 2.0
_SECONDS_TO_WAKE = 0.5


@final
class Job:
    """One call: `done` is set as soon as `value` or `error` is; `seconds` is the duration.

    Example:
        >>> Job(lambda: 4).done.is_set()
        False
    """

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call = call
        self.done = threading.Event()
        self.value: Any = None
        self.error: BaseException | None = None
        self.started = time.monotonic()
        self.seconds = 0.0

    def ends_within(self, seconds: float | None) -> bool:
        """Waits for the end of the call, and returns whether it ended in time.

        A signal that arrives just before Python's main thread blocks, or in another thread, is handled when it wakes:
        it wakes every half second, so that Ctrl-C is heard however long the call takes.

        Args:
            seconds: counted from the start of the call; None waits without an end.

        Example:
            >>> Worker("example").start(lambda: 2 + 2).ends_within(5.0)
            True
        """
        while not self.done.is_set():
            left = _SECONDS_TO_WAKE if seconds is None else self.started + seconds - time.monotonic()
            if left <= 0:
                return False
            self.done.wait(min(left, _SECONDS_TO_WAKE))
        return True


@final
class Worker:
    """One daemon thread with one event loop of its own. Daemon: a reward that never returns cannot keep the process
    from ending.

    Args:
        name: of the reward, for the thread's name.

    Example:
        >>> job = Worker("example").start(lambda: 2 + 2)
        >>> job.done.wait(5), job.value
        (True, 4)
    """

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None
        self._last: Job | None = None
        self._thread = threading.Thread(target=self._work, name=f"reward-{name}", daemon=True)
        self._thread.start()

    def start(self, call: Callable[[], Any]) -> Job:
        """Begins a call; its result is awaited where it is awaitable.

        Returns:
            the call, which is under way.
        """
        job = self._last = Job(call)
        self._jobs.put(job)
        return job

    def leave(self) -> None:
        """Ends the thread after the running call; a call that awaits is cancelled."""
        self._jobs.put(None)
        if (running := self._running) is not None:
            loop, task = running
            # The loop may have closed in between.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(task.cancel)
        if self._last is None or self._last.done.is_set():
            # A thread that ends while the process does, with libraries of C++ behind it, can take the process down with
            # an abort.
            self._thread.join(_SECONDS_TO_END)

    def _work(self) -> None:
        with asyncio.Runner() as runner:
            while (job := self._jobs.get()) is not None:
                try:
                    result = job.call()
                    job.value = runner.run(self._awaited(result)) if inspect.isawaitable(result) else result
                # A reward may call sys.exit(): that too is the reward's error and not the end of its thread.
                except BaseException as error:
                    job.error = error
                job.seconds = time.monotonic() - job.started
                job.done.set()

    async def _awaited(self, result: Any) -> Any:
        task = asyncio.current_task()
        assert task is not None
        self._running = (asyncio.get_running_loop(), task)
        try:
            return await result
        finally:
            self._running = None
