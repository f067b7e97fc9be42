"""The stochastic transitions, which are the decisions: all but the last, or a window that moves."""

from __future__ import annotations

from typing import Literal, final

from pydantic import model_validator

from groupwise.config import Config
from groupwise.config.numbers import Count, Positive


@final
class Window(Config):
    """`size` transitions next to each other are sampled with noise and trained; the others are deterministic and cost
    no training.

    Args:
        size: transitions in the window.
        low, high: the window lies within transitions `low .. high - 1`; `high` unset is the last but one transition's
            end (the last is never trained).
        place: `fixed` at `low`; `random`, drawn anew every step; `progressive`, from `low` on by `stride` every
            `shift_every` steps, and from `low` again when it reaches the end.
        stride: transitions by which the progressive window moves.
        shift_every: steps between two moves.

    Example:
        >>> [Window(size=2, place="progressive", shift_every=2).start(step, 6, draw=0.0) for step in range(10)]
        [0, 0, 1, 1, 2, 2, 3, 3, 0, 0]

    Source: MixGRPO, arXiv 2507.21802 (progressive); Flow-GRPO-Fast (random).
    """

    size: Positive
    low: Count = 0
    high: Positive | None = None
    place: Literal["fixed", "random", "progressive"] = "random"
    stride: Positive = 1
    shift_every: Positive = 25

    @model_validator(mode="after")
    def _fits(self) -> Window:
        """Refuses a window that is longer than the distance from `low` to `high`."""
        if self.high is not None and self.low + self.size > self.high:
            raise ValueError(
                f"a window of size {self.size} does not fit between low = {self.low} and high = {self.high}; write high"
                f" = {self.low + self.size}"
            )
        return self

    def start(self, step: int, num_steps: int, draw: float) -> int:
        """Returns the window's first transition.

        Args:
            num_steps: transitions of a sampling run.
            draw: uniform in [0, 1), for `random`.
        """
        last = self.last(num_steps)
        places = last - self.low - self.size + 1
        if self.place == "fixed":
            return self.low
        if self.place == "random":
            return self.low + int(draw * places)
        num_stops = (places - 1) // self.stride + 1
        return self.low + self.stride * ((step // self.shift_every) % num_stops)

    def last(self, num_steps: int) -> int:
        """Returns one past the last transition that may be trained."""
        return num_steps - 1 if self.high is None else self.high

    def problem(self, num_steps: int) -> str:
        """Says why the window does not fit `num_steps` transitions; empty where it fits."""
        if self.high is not None and self.high > num_steps - 1:
            return (
                f"high = {self.high} reaches the last of num_steps = {num_steps} transitions, which is never trained;"
                f" write high = {num_steps - 1} or less"
            )
        if self.low + self.size > self.last(num_steps):
            return (
                f"low = {self.low} and size = {self.size} do not fit into the {num_steps - 1} transitions that can be"
                " trained; write a smaller size"
            )
        return ""
