"""Runs rewards: in threads, with one event loop for all asynchronous rewards, or in processes of their own, which can
be killed when they hang and started again.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import inspect
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, final

from groupwise.reward.base import Noted, Reward, RewardError
from groupwise.reward.completions import Text
from groupwise.reward.scoring.table import TRAINER_ARGUMENTS
from groupwise.reward.wall import machine_wall
from groupwise.reward.wall.machine_wall import Limits
from groupwise.reward.wall.readable_paths import python

_START = "import sys; sys.path[:0] = {paths!r}; from groupwise.reward.scoring.process_main import main; main()"
# Each member has limits of its own. This process only forks members and evaluates none, so it has none.
_UNLIMITED = Limits(cpu_seconds=None, memory_mb=None, wall_seconds=None)


@final
class ProcessReward:
    """Calls a configured reward in another process, by lines of JSON; columns must therefore be JSON-able.

    A shipped reward that is scored member by member evaluates what a policy wrote, so its process runs inside the wall
    of `groupwise.reward.wall`, and gets none of this process's variables.

    The process lives until `close`, a time limit (`cancel`), or the end of this one, and is started again at the next
    call.

    Example:
        >>> from groupwise.reward.texts.style import Length
        >>> with contextlib.closing(ProcessReward(Length(target=2))) as reward:
        ...     reward(["", ""], ["one two", "one"])
        [1.0, 0.5]
    """

    def __init__(self, reward: Reward) -> None:
        self.needs = reward.needs
        self._reward = reward
        self._process: subprocess.Popen[str] | None = None
        self._begin()

    def __call__(self, prompts: Sequence[Text], completions: Sequence[Text], **columns: Sequence[Any]) -> list[Any]:
        trainer: dict[str, Any] = {name: columns[name] for name in TRAINER_ARGUMENTS if name in columns}
        reads = columns.keys() - trainer if self._reward.reads is None else self._reward.reads
        columns = {name: values for name, values in columns.items() if name in reads}
        state = trainer["trainer_state"].table() if "trainer_state" in trainer else None
        try:
            line = json.dumps({"prompts": prompts, "completions": completions, "columns": columns, "state": state})
        except TypeError as error:
            raise RewardError(
                f'the columns cannot be sent to another process: {error}; write isolation = "thread"'
            ) from error
        answer = self._exchange(self._process or self._begin(), line)
        logged = answer.get("logged", {"metrics": {}, "columns": {}})
        for name, values in logged["metrics"].items():
            for value in values:
                trainer["log_metric"](name, value)
        for column, entries in logged["columns"].items():
            trainer["log_extra"](column, entries)
        return [Noted(**value) if isinstance(value, dict) else value for value in answer["values"]]

    def cancel(self) -> None:
        """Kills the process, with whatever it started."""
        process, self._process = self._process, None
        if process is None:
            return
        if self._reward.member_limits is not None:
            # When the wall ends, every process inside it ends.
            process.terminate()
        else:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        # The pipes are left to the garbage collector, because a thread may still be reading.
        process.wait()

    close = cancel

    def _begin(self) -> subprocess.Popen[str]:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "start_new_session": True}
        pipes |= {"text": True, "encoding": "utf-8"}
        if self._reward.member_limits is None:
            # -P keeps the working directory from being searched before every library, as in the command itself.
            command = [sys.executable, "-P", "-c", _START.format(paths=[path for path in sys.path if path])]
            process = subprocess.Popen(command, **pipes)
        else:
            paths, environment = _package_folders(), {"PATH": os.environ.get("PATH", os.defpath)}
            command = [*python(), "-c", _START.format(paths=paths)]
            with machine_wall.wrap(command, _UNLIMITED, readable=paths) as (walled, passed):
                process = subprocess.Popen(walled, pass_fds=passed, env=environment, **pipes)
        self._process = process
        self._exchange(process, self._reward.model_dump_json())
        return process

    def _exchange(self, process: subprocess.Popen[str], line: str) -> dict[str, Any]:
        assert process.stdin is not None
        assert process.stdout is not None
        reply = ""
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(line + "\n")
            process.stdin.flush()
            reply = process.stdout.readline()
        if not reply:
            status = process.wait()
            if self._process is process:
                self._process = None
            how = f"signal {-status}" if status < 0 else f"status {status}"
            raise RuntimeError(f"the process of the reward ended with {how}")
        answer = json.loads(reply)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer


def _package_folders() -> list[str]:
    """Returns the folders of this package and of installed packages. Other folders of the import path are left out,
    because they may hold anything.
    """
    own = os.path.dirname(os.path.dirname(os.path.abspath(sys.modules["groupwise"].__file__ or "")))
    return [path for path in sys.path if path == own or path.endswith("-packages")]


_SECONDS_TO_END = 2.0
_SECONDS_TO_WAKE = 0.5
_SECONDS_TO_ANSWER = 1.0


@final
@dataclass(eq=False)
class Job:
    """One call: `done` is set as soon as `value` or `error` is; `seconds` is the duration.

    Example:
        >>> Job(lambda: 4).done.is_set()
        False
    """

    call: Callable[[], Any]
    done: threading.Event = field(default_factory=threading.Event)
    value: Any = None
    error: BaseException | None = None
    started: float = field(default_factory=time.monotonic)
    seconds: float = 0.0

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
class EventLoop:
    """An event loop in a daemon thread, which begins at its first use. One that a call blocks is replaced."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def start(self, awaitable: Awaitable[Any]) -> concurrent.futures.Future[Any]:
        """Begins to await in the loop."""
        with self._lock:
            if self._loop is None or not self._answers(self._loop):
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_run, args=(self._loop,), name="rewards-async", daemon=True)
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


async def _settled(awaitable: Awaitable[Any]) -> tuple[Any, BaseException | None]:
    try:
        return await awaitable, None
    except asyncio.CancelledError:
        raise
    # A reward may call sys.exit(): that too is the reward's error and not the end of the loop.
    except BaseException as error:
        return None, error


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()
    # Cancelled tasks are awaited here, so that they clean up and Python does not warn of tasks that were never awaited.
    pending = asyncio.all_tasks(loop)
    for task in pending:
        task.cancel()
    if pending:
        loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
    loop.close()


@final
class Worker:
    """One daemon thread, which makes one call after another. Daemon: a reward that never returns cannot keep the
    process from ending.

    Args:
        name: the name of the reward, for the thread's name.
        loop: awaits the results that are awaitable; where absent, one of its own.

    Example:
        >>> job = Worker("example").start(lambda: 2 + 2)
        >>> job.done.wait(5), job.value
        (True, 4)
    """

    def __init__(self, name: str, loop: EventLoop | None = None) -> None:
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._loop, self._owns_loop = loop or EventLoop(), loop is None
        self._awaited: concurrent.futures.Future[Any] | None = None
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
        if self._awaited is not None:
            self._awaited.cancel()
        if self._last is None or self._last.done.is_set():
            # A thread that used C++ libraries can abort the process if both end at the same time.
            self._thread.join(_SECONDS_TO_END)
        if self._owns_loop:
            self._loop.close()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job.value = job.call()
                if inspect.isawaitable(job.value):
                    self._awaited = self._loop.start(job.value)
                    job.value, job.error = self._awaited.result()
            # A reward may call sys.exit(): that too is the reward's error and not the end of its thread.
            except BaseException as error:
                job.error = error
            self._awaited = None
            job.seconds = time.monotonic() - job.started
            job.done.set()
