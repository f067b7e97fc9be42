"""A run that prints nothing for a while says what it is doing."""

import threading
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any, Final, final

from groupwise.track.tracker import Tracker, Trackers

_WORDS: Final = {
    "setup": "reading the model and the data",
    "sampling": "sampling",
    "rewards": "waiting for the rewards",
    "scoring": "scoring what was sampled",
    "update": "updating the weights",
    "warm_up": "updating the weights",
    "evaluation": "evaluating",
    "checkpoint": "writing a checkpoint",
    "tables": "making the tables that the result is compared with",
}
_FIRST_SECONDS: Final = 10.0


@final
class Silence(Tracker):
    """Says what a run is doing where it has reported nothing for ten seconds, and again each time that the silence is
    twice as long.

    Args:
        doing: returns the part of the run that is at work, as `Progress.timed` names it.
        say: prints a sentence, before there are trackers.
        clock: the seconds since any moment.

    Example:
        >>> seconds = iter([0.0, 5.0, 10.0, 15.0, 20.0])
        >>> silence = Silence(lambda: "evaluation", print, clock=lambda: next(seconds))
        >>> for _ in range(4):
        ...     silence.look()
        evaluating (10 s so far)
        evaluating (20 s so far)
    """

    def __init__(
        self, doing: Callable[[], str], say: Callable[[str], None], *, clock: Callable[[], float] = monotonic
    ) -> None:
        self.doing, self._say, self._clock = doing, say, clock
        self._since, self._wait, self._over = clock(), _FIRST_SECONDS, threading.Event()

    def begin(self) -> None:
        """Looks every second, in a thread of its own, until `close`."""

        def watch() -> None:
            while not self._over.wait(1.0):
                self.look()

        threading.Thread(target=watch, name="groupwise-silence", daemon=True).start()

    def follow(self, trackers: Trackers) -> None:
        """Speaks through trackers from now on, and hears what they report."""
        trackers.add(self)
        self._say = trackers.note

    def look(self) -> None:
        """Says what is done if it has been silent for long enough."""
        since, wait, seconds = self._since, self._wait, self._clock() - self._since
        if seconds < wait or not (words := _WORDS.get(self.doing(), "")) or self._over.is_set():
            return
        self._say(f"{words} ({seconds:.0f} s so far)")
        # Its own sentence comes back by the trackers and is no report.
        self._since, self._wait = since, 2 * wait

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Hears a step."""
        self._since, self._wait = self._clock(), _FIRST_SECONDS

    def members(self, step: int, place: str, records: Sequence[Mapping[str, Any]], pictures: Mapping[str, Any]) -> None:
        """Hears an evaluation."""
        self.metrics(step, {})

    def note(self, text: str) -> None:
        """Hears a sentence."""
        self.metrics(0, {})

    def close(self) -> None:
        """Ends the thread, which may wait for the caller now and is not waited for."""
        self._over.set()
