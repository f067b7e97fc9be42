"""What the SDK does in the background for one connection, so that it can be ended.

The SDK works on a thread of its own: it repeats a call for minutes after everybody stopped waiting for it, and tells
the server every ten seconds that its session lives, until the process ends.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, final
from weakref import WeakSet

_OWNER = contextvars.ContextVar["Background | None"]("_OWNER", default=None)


@final
class Background:
    """The tasks on the SDK's event loop that began in `owning`, those that such tasks began among them.

    Example:
        >>> loop, background = asyncio.new_event_loop(), Background()
        >>> background.follow(loop)
        >>> async def beat() -> None:
        ...     await asyncio.sleep(3600)
        >>> async def begin() -> "asyncio.Task[None]":
        ...     return asyncio.create_task(beat())
        >>> with background.owning():
        ...     heartbeat = loop.run_until_complete(begin())
        >>> background.end()
        >>> loop.run_until_complete(asyncio.wait([heartbeat]))[0] == {heartbeat}, heartbeat.cancelled()
        (True, True)
        >>> loop.close()
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks = WeakSet[Any]()

    def follow(self, loop: asyncio.AbstractEventLoop) -> None:
        """Notes from now on which tasks of a loop begin for which owner."""
        self._loop = loop
        factory: Any = loop.get_task_factory()
        if not isinstance(factory, _NotingFactory):
            loop.set_task_factory(_NotingFactory(factory))

    @contextmanager
    def owning(self) -> Iterator[None]:
        """Owns what the calling thread begins within the block."""
        token = _OWNER.set(self)
        try:
            yield
        finally:
            _OWNER.reset(token)

    def note(self, task: Any) -> None:
        """Notes a task that begins; called on the loop's thread."""
        self._tasks.add(task)

    def end(self) -> None:
        """Cancels the tasks that have not ended; whoever waits for one of them gets a `CancelledError`."""
        if self._loop is not None:
            with suppress(RuntimeError):  # The loop is closed.
                self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        for task in list(self._tasks):
            task.cancel()


@final
class _NotingFactory:
    """Makes tasks as a loop makes them, and tells their owner.

    A task inherits the context of what began it, also across threads, and its owner with it.
    """

    def __init__(self, factory: Callable[..., Any] | None) -> None:
        self._factory = factory or (lambda loop, work, **settings: asyncio.Task(work, loop=loop, **settings))

    def __call__(self, loop: asyncio.AbstractEventLoop, work: Any, **settings: Any) -> Any:
        task = self._factory(loop, work, **settings)
        if (owner := _OWNER.get()) is not None:
            owner.note(task)
        return task
