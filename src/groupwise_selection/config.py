"""The selection domain as configuration: policy, questions, task model, rewards, evaluation. Imports neither torch nor
libraries for models.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, final

from pydantic import Field, model_validator

from groupwise.config import Config, validate
from groupwise.config.errors import Count, Length, PerStep
from groupwise.domain.exported import Card, Export
from groupwise.domain.settings import DomainConfig
from groupwise.reward import RewardConfig
from groupwise.schedule import Linear, Schedule
from groupwise_selection.policy.config import ModelConfig, Pointer
from groupwise_selection.source import SourceConfig
from groupwise_selection.source.recorded import Recorded
from groupwise_selection.task_model.config import DigitRules, TaskModelConfig

if TYPE_CHECKING:
    from groupwise.streams import Streams
    from groupwise_selection.domain import SelectionDomain


# Reward-weighted cross-entropy as configuration: the source of candidates, and the weights from their rewards.
# Imports no torch.


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
"""Any source of candidates, distinguished by `kind`."""


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


Share = Annotated[float, Field(ge=0, le=1)]


@final
class PrefixConfig(Config):
    """Rewards of every prefix: one for the first pick by itself, one for the first two together, and so on.

    A pick is credited with its effect on its own and all later prefixes, `G_t = sum_{s >= t} d^(s - t) R_s / sum_{s >=
    t} d^(s - t)`, and compared with the same pick of the other members of its group.

    Args:
        discount: `d`. 0 credits a pick with its own prefix alone, 1 with the mean over all prefixes it is in.
        weights: the weights of the prefixes of one, two, ... examples, in place of equal ones: `R_s` then counts `w_s`
            times, above and below.
    """

    discount: Share = 0.5
    weights: list[Annotated[float, Field(ge=0, allow_inf_nan=False)]] | None = None


@final
class EvaluationConfig(Config):
    """The evaluation of the policy: its most probable picks for every held-out query, measured after each pick.

    Args:
        validation: also evaluate on the validation queries (metrics `validation/...`), to choose models and settings
            by.
        shared_pool: allow all queries to have one and the same pool. Without it that is an error: the policy
            then learns a list and no way to choose.
        num_oracle: held-out queries for which the oracle searches, in the table at the end.
        num_fixed: training queries by which the best fixed set is chosen.
        num_resamples: the number of resamples of the bootstrap that gives the intervals.
        tables: make the table of baselines at the end of a run.
    """

    validation: bool = True
    shared_pool: bool = False
    num_oracle: Count = 300
    num_fixed: PerStep = 256
    num_resamples: PerStep = 2000
    tables: bool = True


@final
class SelectionConfig(DomainConfig):
    """A policy that picks demonstrations out of each query's pool, in order, for a task model that is frozen.

    Args:
        model: the policy.
        source: queries with their pools.
        task_model: the frozen model that answers after the demonstrations.
        shots: highest number of demonstrations of a query.
        stop: let the policy end early, after at least one pick; ending is a decision too, whose probability before
            training is `model.stop_probability`.
        order: place of the first pick in the prompt: at the beginning, or next to the query. The saved policy records
            it.
        random_shots: each query's group picks a number of examples that is drawn from 1 to `shots`, anew at every step,
            in place of `shots`.
        prefix: reward every prefix; unset rewards only the whole choice.
        rce: reward-weighted cross-entropy on candidates, the auxiliary term `supervised`; unset has none.
        candidates: a file whose candidates, at most `train.group_size` a query, are the groups of policy steps, with
            their recorded rewards; unset draws groups from the live policy and asks the task model. The ratio is then
            the policy over whoever drew the candidates, an importance weight that the trust region bounds; without
            recorded log-probs, the policy is renormalised over each query's candidates.
        answers: which answers count as the same: `exact` those that are written alike, `vqa` those that the VQA
            challenge takes for equal (without case, articles and punctuation, `two` as `2`), which is for pictures and
            not for signs, letters or numbers.
        accuracy: form of the VQA accuracy: `official` leaves each annotator out once, `short` is `min(matches / 3, 1)`.
        temperature: the temperature of sampling, divides the logits; log-probs are those at this temperature.
        sampling_schedule: a schedule over the steps for `temperature`; the value used is stored with the rollouts.
        rewards: name -> reward. Those with `role = "judge"` are measured in evaluation only. Rewards find the
            measurements of a choice as the columns `correct`, `accuracy`, `info`, `expected`, `probability`, `quality`,
            `relevance`, the number of demonstrations as `shots`, and the annotators' `answers`; a completion is the
            task model's answer.
        evaluation: settings of the evaluation.
    """

    extra: ClassVar[str] = "selection"
    spreads: ClassVar[bool] = False
    """Its models fit one device."""

    whole_run: ClassVar[frozenset[str]] = frozenset({"model", "stop"})
    """Keys that no stage may change."""

    kind: Literal["selection"] = "selection"
    model: ModelConfig = Pointer()
    source: SourceConfig
    task_model: TaskModelConfig
    shots: Length = 4
    stop: bool = False
    order: Literal["first_pick_first", "first_pick_last"] = "first_pick_last"
    random_shots: bool = False
    prefix: PrefixConfig | None = None
    rce: RceConfig | None = None
    candidates: Recorded | None = None
    answers: Literal["exact", "vqa"] = "exact"
    accuracy: Literal["official", "short"] = "official"
    temperature: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    sampling_schedule: Mapping[Literal["temperature"], Schedule] = Field(default_factory=dict)
    rewards: Annotated[dict[str, RewardConfig], Field(min_length=1)]
    evaluation: EvaluationConfig = EvaluationConfig()

    @model_validator(mode="after")
    def _sound(self) -> SelectionConfig:
        if not any(reward.trains for reward in self.rewards.values()):
            raise ValueError(
                'rewards names nothing to train on; write for example [domain.rewards.vqa] with kind = "vqa"'
            )
        if self.candidates is not None and (self.prefix is not None or self.random_shots):
            key = "prefix" if self.prefix is not None else "random_shots"
            raise ValueError(
                f"{key} draws or measures parts of a choice, and the groups of candidates.path ="
                f" {self.candidates.path!r} were recorded whole; remove {key}, or candidates"
            )
        if self.random_shots and self.shots == 1:
            raise ValueError("random_shots has no effect with shots = 1; remove it")
        if (
            self.prefix is not None
            and self.prefix.weights is not None
            and (len(self.prefix.weights) != self.shots or sum(self.prefix.weights) <= 0)
        ):
            raise ValueError(
                f"prefix.weights = {self.prefix.weights}: one weight for each of 1 to shots = {self.shots} examples,"
                f" not all 0; write {[1.0] * self.shots}"
            )
        source, task_model = self.source, self.task_model
        if task_model.kind == "digit_rules" and source.kind != "digit_rules":
            raise ValueError(
                'task_model.kind = "digit_rules" reads the digits of source.kind = "digit_rules", and the source is'
                f' "{source.kind}"; write a model of your own, for example task_model = {{ kind = "causal_lm", path ='
                ' "models/Qwen2.5-0.5B" }'
            )
        if task_model.kind == "digit_rules" and self.shots > DigitRules.MOST_DEMOS:
            raise ValueError(
                f"shots = {self.shots}: this task model has places for {DigitRules.MOST_DEMOS} demonstrations; write 1"
                f" to {DigitRules.MOST_DEMOS}"
            )
        if (
            source.kind == "digit_rules"
            and task_model.kind == "digit_rules"
            and source.dimensions != task_model.dimensions
        ):
            present = source.dimensions
            raise ValueError(
                f"task_model.dimensions = {task_model.dimensions}, and the rules of the source are made of {present};"
                f" write dimensions = {present}"
            )
        for name, schedule in self.sampling_schedule.items():
            if schedule.extremes()[0] <= 0:
                raise ValueError(
                    f"sampling_schedule.{name} comes to {schedule.extremes()[0]:g}: it must be above 0 at every step"
                )
        return self

    def to_sample(self, *, data: bool) -> SelectionConfig:
        """Returns the configuration that `groupwise sample` opens: the policy, the questions and the task model.

        Args:
            data: true where training prompts are requested; selection needs its questions in either case.
        """
        return self.model_copy(update={"rewards": {}, "rce": None, "candidates": None})

    @classmethod
    def export(cls, request: Export) -> Card:
        """Exports a selector: the policy together with the solved examples that it chooses from."""
        from groupwise_selection.export import export

        return export(validate(cls, dict(request.settings), str(request.run)), request)

    @classmethod
    def on_prompts(cls, path: str) -> dict[str, Any]:
        """Returns the keys that take the queries of a file; `source.examples` names the examples."""
        return {"source": {"kind": "files", "queries": path}}

    def open(self, *, streams: Streams, device: str = "cpu") -> SelectionDomain:
        """Opens the domain: reads and checks the questions, loads the task model and the policy.

        Raises:
            ConfigError: the questions allow no selection, or the model does not fit them.
        """
        from groupwise_selection.domain import SelectionDomain

        return SelectionDomain(self, streams=streams, device=device)
