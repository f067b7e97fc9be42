"""The machines of a Ray cluster while a grid runs on them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, final

from groupwise.config import ConfigError
from groupwise.experiment.ray_address import check_address

LOOK_SECONDS = 5.0
"""Seconds between two looks at the machines."""
HEAD_SECONDS = 20.0
"""Seconds that the head may be silent. After 60 Ray ends the whole program."""
ROOM_SECONDS = 600.0
"""Seconds for which a grid waits for a machine that can take a run, on a cluster that may grow."""

_GOES_ON = "give the same command again, which goes on with the runs that are not finished"


@final
class RayWatch:
    """Says in one line that a machine has left, and ends a grid that waits for what does not come.

    Args:
        ray: the module, connected to a cluster.
        gpus: GPUs that a run needs beside one CPU.
        grows: whether machines may join; otherwise a grid does not wait for one.
        tell: called with each line.
        clock: seconds that only rise.
    """

    def __init__(
        self,
        ray: Any,
        *,
        gpus: float,
        grows: bool,
        tell: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ray, self._gpus, self._tell, self._clock = ray, gpus, tell, clock
        self._patience = ROOM_SECONDS if grows else 0.0
        self._alive: dict[str, str] = {}
        self._last_answer = clock()
        self._full_since: float | None = None
        # A client of `ray://` talks to the head through another process, and sees no address of it.
        self._head = "" if ray.util.client.ray.is_connected() else ray.get_runtime_context().gcs_address

    def look(self) -> None:
        """Looks at the machines once.

        Raises:
            ConfigError: the head does not answer any more, or no machine can take a run.
        """
        if not self._head_answers():
            return
        nodes = {node["NodeID"]: node for node in self._ray.nodes() if node["Alive"]}
        for identity, name in self._alive.items():
            if identity not in nodes:
                self._tell(
                    f"machine {name} has left the cluster; its runs begin again on another one, from their newest"
                    " checkpoints"
                )
        self._alive = {identity: f"{node['NodeManagerAddress']} ({identity[:8]})" for identity, node in nodes.items()}
        self._check_room([node["Resources"] for node in nodes.values()])

    def _head_answers(self) -> bool:
        """Returns whether the head answers; Ray's own questions to a dead one never return."""
        if self._head:
            try:
                check_address(self._head)
            except ConfigError as error:
                silent = self._clock() - self._last_answer
                if silent < HEAD_SECONDS:
                    return False
                raise ConfigError(
                    f"the head of the Ray cluster at {self._head} has not answered for {silent:.0f} s; start the"
                    f" cluster again and {_GOES_ON}"
                ) from error
        self._last_answer = self._clock()
        return True

    def _check_room(self, resources: list[dict[str, float]]) -> None:
        if any(room.get("CPU", 0) >= 1 and room.get("GPU", 0) >= self._gpus for room in resources):
            self._full_since = None
            return
        needs = "1 CPU" + (f" and {self._gpus:g} GPU" if self._gpus else "")
        if self._full_since is None:
            self._full_since = self._clock()
            if self._patience:
                self._tell(
                    f"no machine of the cluster has {needs} for a run; {self._patience / 60:g} minutes are waited for"
                    " one"
                )
        if self._clock() - self._full_since >= self._patience:
            raise ConfigError(
                f"no machine of the cluster has {needs} for a run ({len(resources)} machines are there); add one, or"
                f" write a smaller --gpus-per-run, and {_GOES_ON}"
            )
