"""One event loop for all asynchronous rewards of a run, so that they are awaited together and may share connections."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, final

from groupwise.reward.scoring.process import Job

_SECONDS_TO_CANCEL = 1.0


def is_asynchronous(function: Any) -> bool:
    """Tests whether calling a reward gives something to await.

    Example:
        >>> async def judge(completions): ...
        >>> is_asynchronous(judge), is_asynchronous(len)
        (True, False)
    """
    while hasattr(function, "func"):  # functools.partial
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(type(function), "__call__", None)  # noqa: B004 - the coroutine function behind an object, not a test
    )


@final
class EventLoop:
    """A daemon thread with an event loop, in which calls run at the same time; it begins with the first call.

    Example:
        >>> async def four():
        ...     return 2 + 2
        >>> loop = EventLoop()
        >>> job = loop.start(four)
        >>> job.ends_within(5.0), job.value
        (True, 4)
        >>> loop.close()
    """

    def __init__(self) -> None:
        self._futures: dict[Job, concurrent.futures.Future[Any]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self, call: Callable[[], Coroutine[Any, Any, Any]]) -> Job:
        """Begins a call in the loop; it is under way when this returns."""
        job, loop = Job(call), self._loop or self._begin()
        self._futures[job] = asyncio.run_coroutine_threadsafe(self._awaited(job), loop)
        if job.done.is_set():
            self._futures.pop(job, None)
        return job

    def leave(self, job: Job) -> None:
        """Cancels a call. A call that blocks the loop, and so all others, is left behind with its thread."""
        future = self._futures.pop(job, None)
        if future is None or self._loop is None:
            return
        future.cancel()
        answered = threading.Event()
        self._loop.call_soon_threadsafe(answered.set)
        if not answered.wait(_SECONDS_TO_CANCEL):
            self._loop = None

    def close(self) -> None:
        """Ends the thread; calls under way are cancelled."""
        for future in list(self._futures.values()):
            future.cancel()
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join(_SECONDS_TO_CANCEL)

    def _begin(self) -> asyncio.AbstractEventLoop:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, args=(self._loop,), name="rewards-async", daemon=True)
        self._thread.start()
        return self._loop

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.run_forever()
        # Tasks that were cancelled end here, so that nothing is said of tasks that were never awaited.
        pending = asyncio.all_tasks(loop)
        for task in pending:
            task.cancel()
        if pending:
            loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        loop.close()

    async def _awaited(self, job: Job) -> None:
        try:
            job.value = await job.call()
        except asyncio.CancelledError:
            raise
        # A reward may call sys.exit(): that too is the reward's error and not the end of the loop.
        except BaseException as error:
            job.error = error
        job.seconds = time.monotonic() - job.started
        job.done.set()
        self._futures.pop(job, None)
