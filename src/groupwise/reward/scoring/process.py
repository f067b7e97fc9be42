"""Where a reward runs: in a thread, in the event loop of all asynchronous rewards, or in a process of its own, which
can be killed when it hangs and started again.
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
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, final

from groupwise.reward.base import Noted, Reward, RewardError
from groupwise.reward.completions import Text
from groupwise.reward.scoring.table import TRAINER_ARGUMENTS
from groupwise.reward.wall.limits import Limits
from groupwise.reward.wall.machine_wall import behind
from groupwise.reward.wall.readable_paths import python

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


_SERVED = "groupwise.reward.scoring.process_main"
# Of a member, not of the process: that one forks all members and evaluates none.
_UNLIMITED = Limits(cpu_seconds=None, memory_mb=None, wall_seconds=None)


@final
class ProcessReward:
    """Calls a configured reward in another process, by lines of JSON; columns must therefore be JSON-able.

    A shipped reward that is scored member by member evaluates what a policy wrote, so its process runs behind the wall
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
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._begin()

    def __call__(self, prompts: Sequence[Text], completions: Sequence[Text], **columns: Sequence[Any]) -> list[Any]:
        trainer: dict[str, Any] = {name: columns[name] for name in TRAINER_ARGUMENTS if name in columns}
        columns = {name: values for name, values in columns.items() if name not in trainer}
        if (reads := self._reward.reads) is not None:
            columns = {name: columns[name] for name in reads if name in columns}
        state = trainer["trainer_state"].table() if "trainer_state" in trainer else None
        try:
            line = json.dumps({"prompts": prompts, "completions": completions, "columns": columns, "state": state})
        except TypeError as error:
            raise RewardError(
                f'the columns cannot be sent to another process: {error}; write isolation = "thread"'
            ) from error
        process = self._process or self._begin()
        answer = self._exchange(process, line)
        if logged := answer.get("logged"):
            for name, values in logged["metrics"].items():
                for value in values:
                    trainer["log_metric"](name, value)
            for column, entries in logged["columns"].items():
                trainer["log_extra"](column, entries)
        return [Noted(**value) if isinstance(value, dict) else value for value in answer["values"]]

    def cancel(self) -> None:
        """Kills the process, with whatever it started."""
        with self._lock:
            process, self._process = self._process, None
        if process is None:
            return
        if self._reward.member_limits is not None:
            # The wall ends everything behind it.
            process.terminate()
        else:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        # The pipes are left to the garbage collector, because a thread may still be reading.
        process.wait()

    close = cancel

    def _begin(self) -> subprocess.Popen[str]:
        error, printed = os.pipe()
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": printed}
        pipes |= {"text": True, "encoding": "utf-8", "start_new_session": True}
        try:
            if self._reward.member_limits is None:
                # -P keeps the working directory from being searched before every library, as in the command itself.
                command = [sys.executable, "-P", "-m", _SERVED]
                # A path from which this process imports may have been added by hand.
                environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
                process = subprocess.Popen(command, env=environment, **pipes)
            else:
                start = f"import sys; sys.path[:0] = {_imported_from()!r}; from {_SERVED} import main; main()"
                with behind([*python(), "-c", start], _UNLIMITED, readable=_imported_from()) as (command, passed):
                    process = subprocess.Popen(
                        command, pass_fds=passed, env={"PATH": os.environ.get("PATH", os.defpath)}, **pipes
                    )
        finally:
            os.close(printed)
        self._printed = Printed(error)
        self._process = process
        self._exchange(process, self._reward.model_dump_json())
        return process

    def _exchange(self, process: subprocess.Popen[str], line: str) -> dict[str, Any]:
        assert process.stdin is not None
        assert process.stdout is not None
        reply = ""
        self._printed.begin()
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


def _imported_from() -> list[str]:
    """Returns the folders of this package and of installed ones, and no other folder from which this process imports:
    it may hold anything.
    """
    own = os.path.dirname(os.path.dirname(os.path.abspath(sys.modules["groupwise"].__file__ or "")))
    return [path for path in sys.path if path == own or path.endswith("-packages")]


# A thread that calls a reward, and that can be abandoned when the reward hangs.

_SECONDS_TO_END = 2.0
_SECONDS_TO_WAKE = 0.5


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
