"""The place where processes meet: each start of a run has keys of its own there, and before each exchange every process
states that it has come.

No signal and no exception interrupts a collective operation, so that a process begins one only when all have come. Who
is missing is reported after a minute; whoever has left the run by an error is waited for by nobody; and processes that
came to different exchanges, as where code of a user sums on some of them alone, end with that sentence.

`torchrun --max-restarts` gives restarted processes the store of the processes before them, with the addresses of dead
ones in it (seen with torch 2.13: connections refused, or a wait without an end). The number of restarts that torchrun
tells is not a name for a start, since it differs between machines.
"""

import logging
import time
import uuid
from contextlib import suppress
from datetime import timedelta
from typing import Final

from torch.distributed import DistNetworkError
from torch.distributed.distributed_c10d import PrefixStore, Store

from groupwise.processes import ProcessLeftError

SECONDS: Final = 60.0
"""The time after which a process that waits reports for whom it waits. It reports again after twice that time, and so
on.
"""

PATIENCE = timedelta(hours=24)
"""The time that a process waits for another, whose rewards may take long."""

_LEFT = "left"
_KEPT: list[Store] = []
"""The stores of runs that this process has left. This process may hold such a store, from which others read why it
left.
"""

log = logging.getLogger("groupwise")


class Rendezvous:
    """The place where the processes of one start of a run meet before each exchange.

    Args:
        store: a store that all processes reach, for this start of the run alone.
        rank: the number of this process.
        size: the number of processes.

    Example:
        >>> from torch.distributed import HashStore
        >>> Rendezvous(HashStore(), rank=0, size=1).wait_for_all("a sum of 2 float64")
    """

    def __init__(self, store: Store, rank: int, size: int) -> None:
        self._store, self._rank, self._size = store, rank, size
        self._count = 0
        self._own_sentence = ""

    def wait_for_all(self, exchange: str) -> None:
        """Waits until every process has come to the same exchange.

        Args:
            exchange: what is exchanged, the same on every process.

        Raises:
            ProcessLeftError: another process has left the run, did not come, or came to another exchange.
        """
        self._count += 1
        keys = [f"{self._count}/{rank}" for rank in range(self._size)]
        try:
            self._store.set(keys[self._rank], exchange)
            self._wait(keys)
            exchanges = [name.decode() for name in self._store.multi_get(keys)]
            # All have come here, so that nobody still reads the keys of the exchange before.
            self._store.delete_key(f"{self._count - 1}/{self._rank}")
        except DistNetworkError as error:
            raise ProcessLeftError(
                f"process {self._rank} no longer reaches the place where processes meet: torchrun, or the first process"
                " where it holds that place, has ended"
            ) from error
        if len(set(exchanges)) > 1:
            other = next(rank for rank, name in enumerate(exchanges) if name != exchanges[0])
            raise ProcessLeftError(
                f"the processes came to different exchanges: process 0 waits for {exchanges[0]}, and process {other}"
                f" for {exchanges[other]}; every process has to sum equally often"
            )

    def _wait(self, keys: list[str]) -> None:
        start, tell_after = time.monotonic(), SECONDS
        while not self._store.check(keys):
            if sentence := self.left():
                raise ProcessLeftError(sentence)
            waited = time.monotonic() - start
            late, patient = waited > tell_after, PATIENCE.total_seconds()
            if late or waited > patient:
                come = [self._store.check([key]) for key in keys]
                missing = ", ".join(str(rank) for rank in range(self._size) if not come[rank])
                if waited > patient:
                    raise ProcessLeftError(f"process {missing} did not come within {patient:g} s")
                if come.index(True) == self._rank:
                    log.warning("the processes have waited %.0f s for process %s", waited, missing)
                tell_after *= 2
            time.sleep(min(0.0002 + waited / 10, 0.1))

    def leave(self, reason: str) -> None:
        """Informs the other processes that this one has left the run, so that none waits for it; the first one that
        leaves is heard.

        Args:
            reason: what ended it, in one line.
        """
        _KEPT.append(self._store)
        with suppress(RuntimeError):
            if not self._store.check([_LEFT]):
                self._own_sentence = f"process {self._rank} has left the run: {reason}"
                self._store.set(_LEFT, self._own_sentence)

    def left(self) -> str:
        """Returns the sentence about the first process that has left the run; empty where none has, or this one was the
        first, or the place is gone.
        """
        with suppress(RuntimeError):
            if self._store.check([_LEFT]) and (sentence := self._store.get(_LEFT).decode()) != self._own_sentence:
                return sentence
        return ""


JOIN_PATIENCE = timedelta(minutes=10)
"""The time within which every process of a run has to arrive."""

_SECONDS_BETWEEN_LOOKS = 0.02
_SECONDS_BEFORE_ASKING_AGAIN = 5.0


def fresh_store(store: Store, rank: int, size: int, patience: timedelta = JOIN_PATIENCE) -> Store:
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
        time.sleep(_SECONDS_BETWEEN_LOOKS if absent else 0)
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
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    return True
