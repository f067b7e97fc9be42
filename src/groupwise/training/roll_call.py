"""Who is missing: while processes wait for one that does not come, the first of those that wait says which one that is
and where its program stands. Who has left the run by an error is told at once, and nobody waits for it.

A reward that hangs on one of eight machines otherwise looks like a run that stopped everywhere. Every process counts
the exchanges it has come to and keeps the number in the store through which the processes met. A thread looks there
once a second; it also answers for its own process, whose main thread may be the one that hangs.

Where all have come and none goes on, they may have come to different exchanges: code of a user summed over processes on
some of them alone. No collective operation ends that, so it is told, and the run ends.

A process that an error has ended may live on, in a program that caught the error, and its connections with it: the
others would wait inside a collective operation that nothing interrupts. They end themselves instead.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import sysconfig
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from time import perf_counter
from types import FrameType
from typing import Final, final

from torch.distributed import DistNetworkError
from torch.distributed.distributed_c10d import PrefixStore, Store

from groupwise.plugins import is_shipped_file
from groupwise.processes import ProcessLeftError

SECONDS: Final = 60.0
"""The time that processes wait before they ask; the next question comes after twice that time, and so on."""

SECONDS_AFTER_ONE_LEFT: Final = 15.0
"""The time that a process has to end by itself when another one has left the run: its connections may break first."""

_LEFT = "left"
_KEPT: list[Store] = []
"""The stores of runs that this process has left. It may be the one that holds them, and others read there why."""

_ROLL_CALL_SECONDS_BETWEEN_LOOKS = 1.0
_SECONDS_FOR_AN_ANSWER = 5.0
log = logging.getLogger("groupwise")


@final
class RollCall:
    """A thread that watches the exchanges of this process and answers questions of the others.

    Args:
        store: a store that all processes reach, for this start of the run alone.
        rank: the number of this process.
        size: the number of processes.
        seconds: the time to wait before it is asked who is missing.
        say: takes the sentence about a missing process; where omitted, it is logged as a warning.
        grace: the time in seconds that this process has to end by itself when another one has left.
        end: ends this process at once, whatever its main thread does; `os._exit` where omitted.

    Example:
        >>> from torch.distributed import HashStore
        >>> calls = RollCall(HashStore(), rank=0, size=1)
        >>> with calls.waiting():
        ...     pass  # an exchange with the other processes
        >>> calls.close()
    """

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        *,
        seconds: float = SECONDS,
        say: Callable[[str], object] = log.warning,
        grace: float = SECONDS_AFTER_ONE_LEFT,
        end: Callable[[], object] | None = None,
    ) -> None:
        self._store, self._rank, self._size, self._seconds, self._say = store, rank, size, seconds, say
        self._grace, self._end, self._leaves = grace, end or _end_process, False
        self._own_sentence, self._store_is_gone = "", False
        self._count, self._asked_after = 0, seconds
        self._since: float | None = None
        self._watched_thread = threading.get_ident()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="roll call", daemon=True)
        self._thread.start()
        # A thread that is inside the store while Python ends aborts the process (exit code -6).
        atexit.register(self.close)

    @contextmanager
    def waiting(self, exchange: str = "an exchange") -> Iterator[None]:
        """Surrounds an exchange, to which every process comes in the same order.

        Args:
            exchange: what is exchanged, the same on every process: `a sum of 2 float64`.

        Raises:
            ProcessLeftError: the process that held the store has ended, and the run with it.
        """
        self._count += 1
        try:
            if not self._store_is_gone:
                self._store.set(f"count/{self._rank}", f"{self._count} {exchange}")
        except DistNetworkError:
            self._store_is_gone = True
        if self._store_is_gone:
            raise ProcessLeftError(
                f"process {self._rank} no longer reaches the place where processes meet: torchrun, or the first process"
                " where it holds that place, has ended"
            )
        self._asked_after, self._since = self._seconds, time.monotonic()
        try:
            yield
        finally:
            self._since = None

    def leave(self, reason: str) -> None:
        """Tells the other processes that this one has left the run, so that none waits for it; the first one that
        leaves is heard.

        Args:
            reason: what ended it, in one line.
        """
        self._leaves = True
        _KEPT.append(self._store)
        with self._noticing_its_end():
            if not self._store_is_gone and not self._store.check([_LEFT]):
                self._own_sentence = f"process {self._rank} has left the run: {reason}"
                self._store.set(_LEFT, self._own_sentence)

    def left(self) -> str:
        """Returns the sentence about the first process that has left the run; empty where none has, or this one was the
        first.
        """
        with self._noticing_its_end():
            if self._store_is_gone or not self._store.check([_LEFT]):
                return ""
            if (sentence := self._store.get(_LEFT).decode()) != self._own_sentence:
                return sentence
        return ""

    def close(self) -> None:
        """Ends the thread; a second call does nothing. Where nobody calls it, Python does at its end."""
        atexit.unregister(self.close)
        self._ended.set()
        self._thread.join(_SECONDS_FOR_AN_ANSWER)

    @contextmanager
    def _noticing_its_end(self) -> Iterator[None]:
        """Surrounds questions to the store. It ends with the process that holds it, and the others with that one; it is
        asked nothing more then, since PyTorch answers each question by pages of its own frames.
        """
        try:
            yield
        except RuntimeError as error:
            self._store_is_gone |= isinstance(error, DistNetworkError)

    def _watch(self) -> None:
        sentence, until = "", 0.0
        with self._noticing_its_end():
            while not self._ended.wait(min(_ROLL_CALL_SECONDS_BETWEEN_LOOKS, self._seconds)):
                if sentence and not self._leaves:
                    # Nothing is read from the store any more, which may have ended with the process that left.
                    if time.monotonic() > until:
                        self._say(f"{sentence}; this process cannot go on, and ends")
                        self._end()
                        return
                    continue
                if self._store_is_gone:
                    return
                self._answer()
                sentence, until = self.left(), time.monotonic() + self._grace
                since = self._since
                if since is not None and time.monotonic() - since > self._asked_after:
                    self._asked_after *= 2
                    self._ask(since)

    def _answer(self) -> None:
        """Says where the watched thread stands to whoever asked."""
        key = f"question/{self._rank}"
        if self._store.check([key]):
            number = self._store.get(key).decode()
            self._store.delete_key(key)
            frame = sys._current_frames().get(self._watched_thread)
            self._store.set(f"answer/{number}", "at its end" if frame is None else place(frame))

    def _ask(self, since: float) -> None:
        counts, exchanges = zip(*(self._exchange_of(rank) for rank in range(self._size)), strict=True)
        if self._since != since:  # The exchange has ended, and what was read is of two of them.
            return
        absent = [rank for rank in range(self._size) if counts[rank] < self._count]
        if min(rank for rank in range(self._size) if rank not in absent) != self._rank:
            return
        if absent:
            seconds = time.monotonic() - since
            for rank, whereabouts in self._whereabouts(absent).items():
                self._say(f"the processes have waited {seconds:.0f} s for process {rank}, which {whereabouts}")
        elif set(counts) == {self._count} and len(set(exchanges)) > 1:
            other = next(rank for rank in range(self._size) if exchanges[rank] != exchanges[self._rank])
            whereabouts = self._whereabouts([self._rank, other])
            stands = ", and ".join(
                f"process {rank}, which {whereabouts[rank]}, waits for {exchanges[rank]}"
                for rank in (self._rank, other)
            )
            reason = f"the processes came to different exchanges: {stands}; every process has to sum equally often"
            if not self._store.check([_LEFT]):
                self._store.set(_LEFT, reason)

    def _whereabouts(self, ranks: Sequence[int]) -> dict[int, str]:
        """Asks processes where their programs stand; this one answers its own question."""
        numbers = {rank: uuid.uuid4().hex for rank in ranks}
        for rank, number in numbers.items():
            self._store.set(f"question/{rank}", number)
        until = time.monotonic() + _SECONDS_FOR_AN_ANSWER
        answers = {}
        for rank, number in numbers.items():
            while not self._store.check([f"answer/{number}"]) and time.monotonic() < until:
                self._answer()
                time.sleep(0.02)
            answers[rank] = (
                f"is {self._store.get(f'answer/{number}').decode()}"
                if self._store.check([f"answer/{number}"])
                else "does not answer: it was stopped or has died, or its machine cannot be reached"
            )
        return answers

    def _exchange_of(self, rank: int) -> tuple[int, str]:
        """Returns how many exchanges a process has come to, and which one is the last."""
        key = f"count/{rank}"
        count, _, exchange = (self._store.get(key).decode() if self._store.check([key]) else "0 ").partition(" ")
        return int(count), exchange


def _end_process() -> None:
    """Ends this process while its main thread stands in an operation that no signal and no exception interrupts."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(1)


def place(frame: FrameType) -> str:
    """Returns where a thread stands: the innermost line of a user's code that Groupwise called, or else of Groupwise,
    or else any.

    Args:
        frame: the innermost frame of the thread.

    Example:
        >>> import sys
        >>> place(sys._getframe()).endswith("in <module>")
        True
    """
    innermost_first = [frame]
    while (outer := innermost_first[-1].f_back) is not None:
        innermost_first.append(outer)
    ours = [place for place, item in enumerate(innermost_first) if is_shipped_file(item.f_code.co_filename)]
    library = [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")]
    called = innermost_first[: ours[-1]] if ours else innermost_first
    users = [item for item in called if not (_is_inside(item, library) or is_shipped_file(item.f_code.co_filename))]
    shown = users[0] if users else innermost_first[ours[0] if ours else 0]
    return f"at {shown.f_code.co_filename}:{shown.f_lineno} in {shown.f_code.co_name}"


def _is_inside(frame: FrameType, folders: list[Path]) -> bool:
    name = frame.f_code.co_filename
    return name.startswith("<frozen") or any(Path(name).is_relative_to(folder) for folder in folders)


# The meeting of processes that start together: they agree on keys of a store that no earlier start has written.
#
# `torchrun --max-restarts` gives restarted processes the store of the processes before them, with the addresses of
# dead ones in it (seen with torch 2.13: connections refused, or a wait without an end). The number of restarts that
# torchrun tells is no name for a start, since it differs between machines.

MEETING = timedelta(minutes=10)
"""The time within which every process of a run has to come."""

_MEETING_SECONDS_BETWEEN_LOOKS = 0.02
_SECONDS_BEFORE_ASKING_AGAIN = 5.0


def fresh_store(store: Store, rank: int, size: int, patience: timedelta = MEETING) -> Store:
    """Returns a view of the store whose keys belong to this start of the processes alone.

    Process 0 draws a name for the start. Each other process asks under a number that nobody used before, so that only a
    living process 0 answers with its name, and joins under that name; process 0 begins when all have joined. A process
    that was answered by a process 0 which then died asks again.

    Args:
        store: the store that all processes reach; it may hold keys of earlier starts.
        rank: the number of this process.
        size: the number of processes.
        patience: the time within which all have to come.

    Raises:
        RuntimeError: a process did not come; the message names its rank.

    Example:
        >>> from torch.distributed import HashStore
        >>> store = HashStore()
        >>> store.set("address", "of a process that is dead")
        >>> fresh_store(store, rank=0, size=1).check(["address"])
        False
    """
    deadline = time.monotonic() + patience.total_seconds()
    name = _host(store, size, deadline, patience) if rank == 0 else _guest(store, rank, deadline, patience)
    return PrefixStore(f"start/{name}", store)


def _host(store: Store, size: int, deadline: float, patience: timedelta) -> str:
    name = uuid.uuid4().hex
    absent = set(range(1, size))
    tell_at = time.monotonic() + SECONDS
    while absent:
        for rank in sorted(absent):
            if store.check([f"ask/{rank}"]):
                store.set(f"answer/{store.get(f'ask/{rank}').decode()}", name)
            if store.check([f"joined/{name}/{rank}"]):
                absent.discard(rank)
        ranks = ", ".join(map(str, sorted(absent)))
        if absent and time.monotonic() > tell_at:
            tell_at = float("inf")
            log.warning(
                "of %d processes, rank %s did not come within %g s; after %g s the run ends",
                *(size, ranks, SECONDS, patience.total_seconds()),
            )
        if absent and time.monotonic() > deadline:
            raise RuntimeError(f"of {size} processes, rank {ranks} did not come within {patience.total_seconds():g} s")
        time.sleep(_MEETING_SECONDS_BETWEEN_LOOKS if absent else 0)
    store.set(f"begin/{name}", "")
    return name


def _guest(store: Store, rank: int, deadline: float, patience: timedelta) -> str:
    while True:
        number = uuid.uuid4().hex
        store.set(f"ask/{rank}", number)
        until = min(time.monotonic() + _SECONDS_BEFORE_ASKING_AGAIN, deadline)
        if _appears(store, f"answer/{number}", until):
            name = store.get(f"answer/{number}").decode()
            store.set(f"joined/{name}/{rank}", "")
            if _appears(store, f"begin/{name}", until):
                return name
        if time.monotonic() > deadline:
            raise RuntimeError(
                f"rank {rank} waited {patience.total_seconds():g} s for the other processes of the run; one of them did"
                " not come"
            )


def _appears(store: Store, key: str, until: float) -> bool:
    """Waits for a key; returns whether it came."""
    while not store.check([key]):
        if time.monotonic() > until:
            return False
        time.sleep(_MEETING_SECONDS_BETWEEN_LOOKS)
    return True


# The clock by which a stage and its controls are given equal time.

_SCHEDULER: Final = Path("/proc/thread-self/schedstat")


def undelayed_seconds() -> float:
    """Reads a clock of wall time that stands still while the calling thread waits for a processor which others use.

    On a busy machine a run and its control then get equal amounts of work from equal seconds. Time in which the thread
    waits for a GPU, a server or a file counts as on every clock. Where the system does not say how long a thread
    waited (anywhere but on Linux), this is wall time.

    Returns:
        seconds since a moment that does not change while the thread lives; only differences mean something.

    Example:
        >>> start = undelayed_seconds()
        >>> undelayed_seconds() >= start
        True
    """
    # The delay is read first: a wait between the two readings then lengthens the time instead of turning it back.
    delay = _seconds_without_processor()
    return perf_counter() - delay


def _seconds_without_processor() -> float:
    """Returns how many seconds the calling thread has waited in a processor's queue since it began."""
    try:
        return int(_SCHEDULER.read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0
