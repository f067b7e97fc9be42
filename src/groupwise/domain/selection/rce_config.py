"""Reward-weighted cross-entropy as configuration: the source of candidates, and the weights from their rewards.
Imports no torch.
"""

from __future__ import annotations

from typing import Annotated, Literal, final

from pydantic import Field, model_validator

from groupwise.config import Config
from groupwise.config.numbers import PerStep
from groupwise.domain.selection.source.recorded import Recorded
from groupwise.schedule import Linear, Schedule


@final
class Sampled(Config):
    """Candidates drawn from the live policy and measured by the task model, anew at every step.

    Args:
        num_candidates: candidates for each query.
        temperature: divides the logits of the draw; candidates differ more above 1.
    """

    kind: Literal["sampled"] = "sampled"
    num_candidates: Annotated[PerStep, Field(ge=2)] = 8
    temperature: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0


Candidates = Annotated[Sampled | Recorded, Field(discriminator="kind")]
"""Any source of candidates, told apart by `kind`."""


@final
class RceConfig(Config):
    """Reward-weighted cross-entropy, the auxiliary term `supervised`: `mean_q sum_i w_i sum_t -log p(pick_t)`, `w_i =
    softmax_i(R_i / tau)`.

    As a warm-up it is a stage with `policy_weight = 0` and `auxiliary = { supervised = 1.0 }`; beside the policy term
    it pulls towards good candidates.

    Args:
        candidates: source of ordered choices and their rewards.
        tau: temperature of the weights, a schedule over the optimiser steps of the run: a high one weighs all
            candidates alike, a low one only the best.
        weights: `reward` as above; `rank` puts `rank_i / (n - 1)` in the place of `R_i` (0 the worst, average ranks on
            ties), so that only the order of a query's candidates counts.
    """

    candidates: Candidates = Sampled()
    tau: Schedule = Linear(start=2.0, end=0.5, num_steps=100)
    weights: Literal["reward", "rank"] = "reward"

    @model_validator(mode="after")
    def _sound(self) -> RceConfig:
        if self.tau.extremes()[0] <= 0:
            raise ValueError(
                f"tau comes to {self.tau.extremes()[0]:g}: it divides rewards and must be above 0 at every step"
            )
        return self
