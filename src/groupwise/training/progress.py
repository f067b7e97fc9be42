"""The counters of a run: plain numbers that go into a checkpoint and come back as they were."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from time import perf_counter
from typing import Any, final

import torch


@final
@dataclass
class Progress:
    """The counters of a run.

    Args:
        step: steps done since the run began.
        start_step: the step at which the run began: 0, or the last step of the warm-up that it starts from.
        stage: place of the current stage among the recipes.
        stage_step: steps done inside the stage.
        stage_seconds: time of the stage's training by `undelayed_seconds`, without evaluations and checkpoints.
        stage_ended: the reason why the stage ended before its last step (time, early stopping, a callback); else empty.
        sampled_seconds: `stage_seconds` of all finished stages that sample.
        num_drawn: counter of `draw_prompts`.
        num_updates: optimiser steps taken.
        num_skipped: optimiser steps left out because nothing would have changed.
        num_not_finite: optimiser steps left out because a gradient was NaN or infinite.
        skipped_in_a_row: skipped optimiser steps since the last one taken; `train.patience` of them cause a warning.
        reference_step: steps since the reference began.
        reference_mixed: step of the loop at which the reference was last mixed with the policy.
        average_step: updates since the average of the weights began.
        group_size: members of a group where the size follows the rewards, inside the stage; 0 before its first step.
        before: metrics of the evaluation at the start of the first stage that samples (at the run's start if none
            does).
        before_step: the step of that evaluation.
        latest: metrics of the newest evaluation.
        latest_step: the step of the newest evaluation, -1 before the first one.
        score: the newest value of the deciding metric.
        best, best_step: the best score and its step.
        anchor: the score of the last gain that counted for early stopping, inside the stage.
        evaluations_without_gain: evaluations since that gain, inside the stage.
        micro_batch_members: measured number of members in a pass, inside the stage; 0 before the measurement.
        measured_decisions: decisions of the longest member that was measured.
        pass_sizes: rows of each kind of pass, of a domain that cuts its passes by itself.
        seconds: wall time by part of the run.

    Example:
        >>> progress = Progress(step=3)
        >>> Progress.from_record(progress.record()) == progress
        True
    """

    step: int = 0
    start_step: int = 0
    stage: int = 0
    stage_step: int = 0
    stage_seconds: float = 0.0
    stage_ended: str = ""
    sampled_seconds: float = 0.0
    num_drawn: int = 0
    num_updates: int = 0
    num_skipped: int = 0
    num_not_finite: int = 0
    skipped_in_a_row: int = 0
    reference_step: int = 0
    reference_mixed: int = 0
    average_step: int = 0
    group_size: int = 0
    before: dict[str, float] = field(default_factory=dict)
    before_step: int = 0
    latest: dict[str, float] = field(default_factory=dict)
    latest_step: int = -1
    score: float | None = None
    best: float | None = None
    best_step: int = -1
    anchor: float | None = None
    evaluations_without_gain: int = 0
    micro_batch_members: int = 0
    measured_decisions: int = 0
    pass_sizes: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def num_attempts(self) -> int:
        """Optimiser steps before this step of the loop, with those left out: a key for draws that never comes twice."""
        return self.num_updates + self.num_skipped + self.num_not_finite

    def record(self) -> dict[str, Any]:
        """Returns plain values for a checkpoint."""
        return asdict(self)

    @staticmethod
    def from_record(record: dict[str, Any]) -> Progress:
        """Restores the counters from the values of `record`.

        Args:
            record: the return value of the method `record`.
        """
        return Progress(**record)

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Adds the block's wall time to `seconds[part]`. The time ends when the device has finished the block's work.

        Args:
            part: the key in `seconds`.
        """
        start = perf_counter()
        try:
            yield
        finally:
            # A GPU still computes while Python goes on; without the wait the next part would be charged for it.
            if torch.cuda.is_initialized():
                torch.cuda.synchronize()
            self.seconds[part] = self.seconds.get(part, 0.0) + perf_counter() - start
