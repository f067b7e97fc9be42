"""The meeting of processes that start together: they agree on keys of a store that no earlier start has written.

`torchrun --max-restarts` gives restarted processes the store of the processes before them, with the addresses of dead
ones in it (seen with torch 2.13: connections refused, or a wait without an end). The number of restarts that torchrun
tells is no name for a start, since it differs between machines.
"""

from __future__ import annotations

import logging
import time
import uuid
from datetime import timedelta

from torch.distributed.distributed_c10d import PrefixStore, Store

from groupwise.training.roll_call import SECONDS

MEETING = timedelta(minutes=10)
"""The time within which every process of a run has to come."""

_SECONDS_BETWEEN_LOOKS = 0.02
_SECONDS_BEFORE_ASKING_AGAIN = 5.0

log = logging.getLogger("groupwise")


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
