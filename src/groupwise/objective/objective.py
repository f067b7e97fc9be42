"""The objective: one loss made of orthogonal slots, the same for every domain.

    loss = - lambda_pg sum_bt w_bt c_bt k_bt S_bt + beta sum_bt w_bt D_bt - lambda_H sum_bt w_bt H_bt + sum_i lambda_i
    aux_i

Tensors in, tensors out. State is passed in and returned.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal, Self, final

import torch
from jaxtyping import Bool, Float
from pydantic import Field, model_validator
from torch import Tensor

from groupwise.config import Config, ConfigError, PieceFromPath, same_kind, why_failed
from groupwise.objective import batch as batches
from groupwise.objective.advantage import Admission, Advantage, Everything, ZScore
from groupwise.objective.aggregate import Aggregation, TokenMean
from groupwise.objective.batch import Acted, Batch, ObjectiveState, Plan
from groupwise.objective.correction import Correction, NoCorrection
from groupwise.objective.credit import Credit
from groupwise.objective.decisions import Counts
from groupwise.objective.divergence import Divergence, NoDivergence
from groupwise.objective.loss import check_log_prob, compat_weight, incompatible, loss_of
from groupwise.objective.matching import Matching, NoMatching
from groupwise.objective.ratio import Identity, Ratio, Smoothing, Token
from groupwise.objective.slot import SCOPES, Slot
from groupwise.objective.trust import Clip, Trust
from groupwise.records import Cotangents, Loss, Rollouts, Scored
from groupwise.schedule import Constant, EntropySchedule, Schedule
from groupwise.statistics import Reduce, logical_and, sum_over_one_process

# Settings that contradict each other, or that would change nothing: refused when the configuration is read, each with
# its reason and what to write.

PIECES = (
    *("advantage", "admission", "matching", "smoothing", "ratio", "trust"),
    *("correction", "aggregation", "divergence"),
)
"""The slots that hold one piece each; the credit is a chain."""


def refusals(objective: Objective) -> Iterator[str]:
    """Yields the reasons why an objective is refused, in sentences; nothing where it is sound.

    Args:
        objective: an objective whose slots are valid one by one.

    Example:
        >>> from groupwise import Objective
        >>> list(refusals(Objective.preset("grpo")))
        []
    """
    ratio, credit, trust = objective.ratio, objective.credit, objective.trust
    # A score function times a detached ratio keeps each decision's own gradient at every level.
    if credit.spreads and ratio.shared_gradient and not trust.score_function:
        names = ", ".join(link.kind for link in credit.links() if not link.masks)
        yield (
            f"credit ({names}) is ineffective under ratio.kind = {ratio.kind!r} with ratio.gradient = 'sequence': all"
            " decisions of a member share one gradient, so a credit of mean one cancels; write ratio.gradient ="
            " 'token', or leave the credit out"
        )
    yield from _trust_refusals(objective)
    yield from _unknown_fields(objective)
    for place, piece in _pieces(objective).items():
        yield from _sentences(place, piece, "refuses", objective)
    coefficients = {
        "entropy": objective.entropy,
        "policy_weight": objective.policy_weight,
        **{f"auxiliary.{name}": schedule for name, schedule in objective.auxiliary.items()},
    }
    for name, schedule in coefficients.items():
        if (lowest := schedule.extremes()[0]) < 0:
            yield f"{name} comes down to {lowest:g}, and below 0 the term would be unlearned; write numbers from 0 up"
    if objective.compat is not None:
        yield from incompatible(objective)


def _unknown_fields(objective: Objective) -> Iterator[str]:
    """Yields a sentence for every piece that reads a field which neither rollouts nor scores have."""
    fields = {*batches.OPTIONAL, "reward_history", *(field.name for field in dataclasses.fields(Scored))} - {
        "auxiliary"
    }
    for place, piece in _pieces(objective).items():
        for name in ("reads", "uses"):
            read = getattr(piece, name)
            if not isinstance(read, frozenset) or (unknown := sorted(read - fields)):
                value = repr(unknown[0]) if isinstance(read, frozenset) else repr(read)
                yield (
                    f"{place}: its class says {name} = {value}, and it must be a frozenset of fields among"
                    f" {', '.join(sorted(fields))}"
                )


def _trust_refusals(objective: Objective) -> Iterator[str]:
    trust, ratio, smoothing = objective.trust, objective.ratio, objective.smoothing
    if trust.per_decision is not None and not smoothing.neutral:
        yield (
            f"trust.kind = {trust.kind!r} reads each decision's own {trust.per_decision}, which smoothing.kind ="
            f" {smoothing.kind!r} would replace; write smoothing.kind = 'identity'"
        )
    if trust.per_decision is not None and not ratio.plain:
        yield (
            f"trust.kind = {trust.kind!r} reads each decision's own {trust.per_decision}, and ratio.kind is"
            f" {ratio.kind!r}; write ratio.kind = 'token'"
        )
    if trust.whole_member and objective.credit.spreads:
        yield (
            f"credit is ineffective under trust.kind = {trust.kind!r}: all decisions of a member share one gradient, so"
            " a credit of mean one cancels; leave the credit out"
        )
    if trust.weighs_behaviour and not objective.correction.neutral:
        yield (
            f"trust.kind = {trust.kind!r} weighs by the sampler's own probabilities, so correction.kind ="
            f" {objective.correction.kind!r} would count the mismatch twice; write correction.kind = 'none'"
        )
    if ratio.ignores_smoothing and not smoothing.neutral:
        yield (
            f"smoothing.kind = {smoothing.kind!r} is ineffective under ratio.kind = {ratio.kind!r}, which does not read"
            " log-ratios; write smoothing.kind = 'identity'"
        )


def warnings(objective: Objective, updates_per_batch: int, chosen: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yields a sentence for each legal setting that is rarely intended. A run prints them once, at its start.

    Args:
        objective: a sound objective.
        updates_per_batch: optimiser steps on each batch of rollouts.
        chosen: dotted keys that the user set by hand.
    """
    if updates_per_batch == 1 and any(key.startswith("objective.trust.") for key in chosen):
        yield (
            f"trust.kind = {objective.trust.kind!r} was set, but every batch of rollouts gets one update, on-policy:"
            " the ratio is always 1 and no trust region can act; set train.updates_per_batch above 1 to see it"
        )
    for name in PIECES:
        yield from _sentences(name, getattr(objective, name), "advises", objective)


def _pieces(objective: Objective) -> dict[str, Slot]:
    """Returns every piece of an objective by its place, those of the credit's chain included."""
    pieces: dict[str, Slot] = {name: getattr(objective, name) for name in PIECES}
    return pieces | {f"credit.{link.kind}": link for link in objective.credit.links()}


def _sentences(place: str, piece: Slot, method: str, objective: Objective) -> list[str]:
    """Returns the sentences that a piece yields. If a user's class fails or returns something else, the only sentence
    reports that.
    """
    try:
        sentences: Any = getattr(piece, method)(objective)
        if isinstance(sentences, Iterable) and not isinstance(sentences, str):
            return [str(sentence) for sentence in sentences]
    except ConfigError:
        raise
    except Exception as error:
        if not isinstance(piece, PieceFromPath):
            raise
        return [f"{place}: {method}(objective) of its class raised {why_failed(error)}"]
    return [f"{place}: {method}(objective) of its class returned {sentences!r}; write yield, one sentence each"]


_LOSS_SLOTS = ("matching", "smoothing", "ratio", "trust", "correction", "divergence")


class Slots(Config):
    """The slots of an objective, which are at the top of an experiment."""

    advantage: Advantage = ZScore()
    admission: Admission = Everything()
    matching: Matching = NoMatching()
    smoothing: Smoothing = Identity()
    ratio: Ratio = Token()
    trust: Trust = Clip()
    credit: Credit = Credit()
    correction: Correction = NoCorrection()
    aggregation: Aggregation = TokenMean()
    divergence: Divergence = NoDivergence()
    entropy: EntropySchedule = Constant(value=0.0)
    """Coefficient of the entropy bonus; a kind that measures follows the mean entropy of a decision, in nats."""
    policy_weight: Schedule = Constant(value=1.0)
    """Coefficient of the policy term (`lambda_pg`); at 0 nothing is sampled."""
    auxiliary: dict[str, Schedule] = Field(default_factory=dict)
    """Coefficients of auxiliary terms by name (`supervised`, `consistency`, ...)."""
    partial_rewards: batches.Partial = "drop"
    """The effect of a missing reward on its member: `drop` treats the member as if it had not been sampled, `sum` gives
    it the sum of its other rewards, as TRL does. A reward that is missing for a whole group leaves no member out.
    """
    reward_rounding: float = Field(default=batches.FP32_NOISE, ge=1e-14, lt=1)
    """Rewards of a group that differ by no more than this part of the largest are equal. The default is the noise of a
    reward model that computes in fp32; write 1e-14 to compare rewards that are finer.
    """
    mask_truncated: bool = False
    """Overlong filtering: a member that was cut off by a limit trains no decision. Its reward stays in its group's
    statistics, and the aggregation divides as its source does: means over decisions leave it out, means over members
    count it.
    """
    compat: Literal["verl_rl"] | None = None
    """The original computation of source 000, for ablation."""


@final
class Objective(Slots):
    """A group-relative objective, which is its own configuration.

    Example:
        >>> objective = Objective.preset("grpo", **{"trust.high": 0.28})
        >>> state = objective.init()
        >>> rollouts = Rollouts(
        ...     group=torch.tensor([0, 0]),
        ...     mask=torch.ones(2, 3, dtype=torch.bool),
        ...     old_log_prob=torch.full((2, 3), -1.0),
        ...     rewards={"correct": torch.tensor([1.0, 0.0])},
        ...     reference_log_prob=torch.full((2, 3), -1.0),
        ... )
        >>> batch = objective.prepare(rollouts, state)
        >>> [round(a, 4) for a in batch.advantage[:, 0].tolist()]
        [0.7071, -0.7071]
        >>> plan = objective.plan(batch)
        >>> log_prob = torch.full((2, 3), -1.0, requires_grad=True)
        >>> objective.loss(Scored(log_prob), plan).backward()
        >>> [round(g, 4) for g in log_prob.grad[:, 0].tolist()]
        [-0.1179, 0.1179]
    """

    name: str = "custom"
    """The name of the preset, with `+edited` where a key was changed."""

    @model_validator(mode="after")
    def _sound(self) -> Self:
        problems = list(refusals(self))
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @staticmethod
    def preset(name: str, **overrides: Any) -> Objective:
        """Returns a published method by name, with changed keys: `Objective.preset("dapo", **{"trust.kind": "gaussian",
        "trust.sigma": 0.3})`.

        Overlays are written `dapo+tis`. An unknown name raises `ConfigError` with the nearest ones.
        """
        from groupwise.objective.preset import objective_from

        return objective_from(name, overrides)

    def on(self, *, density: bool) -> Objective:
        """Returns the objective for discrete decisions or for densities: a slot whose input depends on it (`signal =
        "auto"`) is settled.

        Args:
            density: whether log-probs are of densities.

        Example:
            >>> sorted(Objective.preset("balanced").on(density=True).requires)
            ['log_prob', 'score_norm']
        """
        link = self.credit.gradient_adaptive
        if link is None or (settled := link.on(density=density)) is link:
            return self
        return self.model_copy(update={"credit": self.credit.model_copy(update={"gradient_adaptive": settled})})

    @cached_property
    def requires(self) -> frozenset[str]:
        """The fields of `Scored` that the loss reads."""
        entropy = {"entropy"} if self.entropy.may_be_positive() else set()
        return frozenset({"log_prob"} | entropy | self._reads - batches.OPTIONAL)

    @cached_property
    def requires_sampled(self) -> frozenset[str]:
        """The fields of `Scored` that the sampler is asked for: all that the loss reads; the log-prob alone where the
        domain noises the samples again after sampling (`matching`); none where such samples are drawn without noise,
        since none of their transitions is scored.
        """
        if self.matching.neutral:
            return self.requires
        return frozenset() if self.matching.deterministic else frozenset({"log_prob"})

    @cached_property
    def requires_rollouts(self) -> frozenset[str]:
        """The optional fields of `Rollouts` that the objective reads."""
        return self._reads & batches.OPTIONAL | self.advantage.reads

    @cached_property
    def _stages(self) -> dict[str, Slot]:
        """Returns the stages of the loss by their keys in a configuration. A stage that reads more than log-probs and
        advantages names the fields in `reads`.
        """
        slots: dict[str, Slot] = {
            f"{slot}.kind = {getattr(self, slot).kind!r}": getattr(self, slot) for slot in _LOSS_SLOTS
        }
        return slots | {f"credit.{link.kind}": link for link in self.credit.links()}

    @cached_property
    def _reads(self) -> frozenset[str]:
        return frozenset().union(*(stage.reads for stage in self._stages.values()))

    @cached_property
    def needs_reference(self) -> bool:
        """True when a reference policy takes part."""
        return "reference_log_prob" in self.requires_rollouts or (
            self.divergence.needs_reference and self.divergence.beta.may_be_positive()
        )

    @cached_property
    def discrete_only(self) -> str | None:
        """The reason why densities cannot be served, with advice; `None` where they can."""
        for label, stage in self._stages.items():
            if stage.discrete_only is not None:
                return f"{label} needs the probabilities of discrete decisions; {stage.discrete_only}"
        return None

    @cached_property
    def scope(self) -> str:
        """The extent of an update that one term of the loss reads: `decision`, `member` or `batch`."""
        scopes = [stage.scope for stage in self._stages.values()]
        if self.compat is not None:
            scopes.append("member")
        return max(scopes, key=SCOPES.index)

    def init(self) -> ObjectiveState:
        """Returns the state before the first update."""
        return ObjectiveState(beta=self.divergence.beta.init(), entropy=self.entropy.init())

    def adopt(self, state: ObjectiveState, previous: Objective) -> ObjectiveState:
        """Returns the state at the start of a stage: schedules begin anew; the adaptive coefficients and
        running statistics survive unless their kind changed.
        """
        same_beta = same_kind(self.divergence.beta, previous.divergence.beta)
        same_entropy = same_kind(self.entropy, previous.entropy)
        same_running = same_kind(self.advantage, previous.advantage)
        fresh = self.init()
        return ObjectiveState(
            beta=state.beta if same_beta else fresh.beta,
            entropy=state.entropy if same_entropy else fresh.entropy,
            running=state.running if same_running else fresh.running,
        )

    def prepare(self, rollouts: Rollouts, state: ObjectiveState, reduce: Reduce = sum_over_one_process) -> Batch:
        """Computes advantages and admission of a batch of rollouts: whole groups, no gradient, once.

        Args:
            rollouts: whole groups; a group lives on one process.
            reduce: sum over processes, for statistics of the whole batch.

        Returns:
            The batch. `batch.statistics` holds the reward metrics, `batch.state` the state with the running statistics
            of this batch.

        Raises:
            ValueError: a field that the objective reads is missing, densities where it reads probabilities, a reward
                map where it takes one advantage a member, rewards or weights so large that advantages overflow.
        """
        self._check_rollouts(rollouts)
        if (
            rollouts.rewards
            and self.policy_weight.at(state.step) != 0
            and not any(rollouts.reward_weights.get(name, 1.0) for name in rollouts.rewards)
        ):
            raise ValueError(
                "Rollouts.reward_weights are all 0, so nothing is rewarded; give at least one reward a weight"
            )
        if not rollouts.rewards and self.policy_weight.at(state.step) != 0:
            raise ValueError(
                "Rollouts.rewards is empty: a policy term needs at least one reward; pass Rollouts(...,"
                " rewards={'name': values})"
            )
        unpenalised = batches.grouped_rewards(rollouts, self.partial_rewards, reduce, self.reward_rounding)
        penalty = self._reward_penalty(rollouts, state) if self.divergence.place == "reward" else None
        rewards = unpenalised if penalty is None else unpenalised.with_value(unpenalised.value - penalty[:, None])
        if rewards.value.shape[1] > 1 and self.trust.whole_member:
            raise ValueError(
                f"trust.kind = {self.trust.kind!r} takes one advantage a member, and a reward is a map [B, T]; "
                "pass one number a member, or write another trust.kind"
            )
        advantage, running = self.advantage(rewards, state.running)
        batches.check_size(advantage, f"advantage.kind = {self.advantage.kind!r}")
        groups = self.admission(rewards)
        # If no reward has a weight, no member can lack one.
        is_rewarded = any(rewards.weights.values())
        sampled = rewards.present.any(dim=1) if is_rewarded else torch.ones_like(rewards.index, dtype=torch.bool)
        summands = self.advantage.summands(unpenalised) if rollouts.rewards else {}
        statistics = (
            batches.measure_rewards(unpenalised, advantage, groups, rollouts, summands, penalty)
            if rollouts.rewards
            else {}
        )
        return Batch(
            acted=self._training(rollouts, rewards.present if is_rewarded else sampled[:, None]),
            advantage=advantage,
            sampled=sampled,
            admitted=groups[rewards.index] & sampled,
            prompt=rewards.index,
            num_prompts=rewards.num_groups,
            state=ObjectiveState(step=state.step, beta=state.beta, entropy=state.entropy, running=running),
            auxiliary_count=rollouts.auxiliary_count,
            statistics=statistics,
        )

    def _training(self, rollouts: Rollouts, present: Bool[Tensor, "B K"]) -> Acted:
        """Returns the decisions that may train: of a reward map, those at which nothing is missing. A member without an
        id gets its place in the batch as id.
        """
        mask = rollouts.mask & present
        if self.mask_truncated and rollouts.truncated is not None:
            mask = mask & ~rollouts.truncated[:, None]
        member = torch.arange(len(mask), device=mask.device) if rollouts.member is None else rollouts.member
        return Acted(
            mask,
            rollouts.old_log_prob,
            member=member,
            density=rollouts.density,
            packed=batches.is_packed(mask),
            **rollouts.decision_fields(),
        )

    def _check_rollouts(self, rollouts: Rollouts) -> None:
        for label, stage in self._stages.items():
            for name in sorted(batches.OPTIONAL & stage.reads):
                if getattr(rollouts, name) is None:
                    raise ValueError(
                        f"Rollouts.{name} is missing, and {label} reads it; pass Rollouts(..., {name}=...)"
                    )
        if rollouts.density and self.discrete_only is not None:
            raise ValueError(f"Rollouts(density=True) holds densities, and {self.discrete_only}")

    def _reward_penalty(self, rollouts: Rollouts, state: ObjectiveState) -> Float[Tensor, " B"] | None:
        if rollouts.reference_log_prob is None:
            return None
        beta = self.divergence.beta.at(state.step, state.beta)
        gap = torch.where(rollouts.mask, rollouts.old_log_prob - rollouts.reference_log_prob, 0.0)
        return beta * gap.sum(1, dtype=torch.float64)

    def plan(
        self,
        update: Batch,
        state: ObjectiveState | None = None,
        reduce: Reduce = sum_over_one_process,
        detail: bool = True,
        not_finite: Literal["refused", "counted"] = "refused",
    ) -> Plan:
        """Computes weights and coefficients of one optimiser step, from global counts.

        Args:
            update: the members of this step on this process: a batch, or `batch.select(rows)`.
            state: the objective's state now; the batch's own if not given (right for the first update on it).
            reduce: sum over processes.
            detail: measure percentiles too.
            not_finite: the treatment of a live log-prob that is NaN or infinite at a valid decision: an error that
                names the place, or, as in training runs, a decision that counts as unmoved, weighs nothing and is
                counted in `log_prob/not_finite`.
        """
        current = update.state if state is None else state
        acted = replace(update.acted, mask=logical_and(update.acted.mask, update.admitted[:, None]))
        real = torch.ones_like(update.admitted)
        counts = Counts(acted.mask, update.admitted, update.sampled, update.prompt, update.num_prompts, reduce)
        correction = None
        if not self.correction.neutral:
            assert acted.behaviour_log_prob is not None
            gap = acted.old_log_prob - acted.behaviour_log_prob
            # Log-probs recorded by another trainer may be infinite; the loss leaves such a decision out.
            gap = torch.where(logical_and(acted.mask, gap.isfinite()), gap, 0.0)
            correction = self.correction(gap.double(), acted.mask)
        auxiliary = {}
        for name, schedule in self.auxiliary.items():
            if name in update.auxiliary_count:
                count = reduce(update.auxiliary_count[name].double().sum())
                auxiliary[name] = torch.where(count > 0, schedule.at(current.step) / count, 0.0)
        running = update.state.running
        constants: dict[str, float] = {}
        if running.weight > 0:
            constants = {"state/running_mean_sum": running.mean_sum, "state/running_std_sum": running.std_sum}
            constants |= {
                "state/running_centred_std_sum": running.centred_std_sum,
                "state/running_weight": running.weight,
            }
            constants |= {
                "global_reward_mean": running.mean,
                "global_reward_std": running.std,
                "global_centred_std": running.centred_std,
            }
        return Plan(
            acted=acted,
            real=real,
            weight=self.aggregation(counts) if self.compat is None else compat_weight(self, counts),
            correction=correction,
            advantage=update.advantage,
            draw=current.step,
            policy_weight=self.policy_weight.at(current.step),
            beta=self.divergence.beta.at(current.step, current.beta) if self.divergence.place == "loss" else 0.0,
            entropy=self.entropy.at(current.step, current.entropy),
            auxiliary=auxiliary,
            constants=constants,
            reduce=reduce,
            detail=detail,
            not_finite=not_finite,
        )

    def loss(self, scored: Scored, plan: Plan) -> Loss:
        """Returns the loss of one micro-batch of whole members; micro-batches sum to the whole.

        Args:
            scored: the same members under the live policy, with gradient.
            plan: `plan.select(rows)` of the step's plan.

        Raises:
            ValueError: a field is missing or of another shape, a log-prob is not finite at a valid decision, one that
                is not a density's is above zero, or a part was given of what the objective's scope needs whole.
        """
        scored = self._checked(scored, plan)
        if plan.sliced and self.scope != "decision":
            raise ValueError(
                f"a slice of members' decisions was given, and this objective has scope {self.scope!r}; use"
                " objective.cotangents(scored_without_gradient, plan) and backpropagate (cotangent * field).sum() over"
                " the slices"
            )
        if plan.sliced and scored.auxiliary:
            raise ValueError(
                "a slice of members' decisions was given with auxiliary sums, which belong to whole members; use"
                " objective.cotangents"
            )
        if not plan.whole and self.scope == "batch":
            raise ValueError(
                "a micro-batch was given, and this objective has scope 'batch'; use objective.cotangents on the whole"
                " update"
            )
        return loss_of(self, scored, plan)

    def cotangents(self, scored: Scored, plan: Plan) -> Cotangents:
        """Returns `d loss / d field` for each scored field, exact for every objective.

        Backpropagate `(cotangent * field).sum()` over any slices of the update. Auxiliary terms come with theirs.

        Args:
            scored: whole members (the whole update for scope `batch`) under the live policy, without gradient.
            plan: the plan of the same members.
        """
        scored = self._checked(scored, plan)
        if not plan.whole and self.scope == "batch":
            raise ValueError(
                "a part of the update was given, and this objective has scope 'batch'; pass the plan of the whole"
                " update"
            )
        leaves = {name: tensor.detach().requires_grad_() for name, tensor in scored.tensors().items()}
        with torch.enable_grad():
            loss = loss_of(self, Scored.from_tensors(leaves), plan)
        inputs = list(leaves.values())
        gradients = (
            torch.autograd.grad(loss.total, inputs, allow_unused=True)
            if loss.total.requires_grad
            else [None] * len(inputs)
        )
        gradient_of = {
            name: torch.zeros_like(leaf) if g is None else g
            for (name, leaf), g in zip(leaves.items(), gradients, strict=True)
        }
        return Cotangents(Scored.from_tensors(gradient_of), Loss(loss.total.detach(), loss.statistics))

    def observe(self, state: ObjectiveState, metrics: Mapping[str, float]) -> ObjectiveState:
        """Returns the state after an update, from its globally reduced metrics (`kl` moves an adaptive beta, `entropy`
        an adaptive entropy coefficient; a metric that is not finite moves nothing).
        """
        running = state.running
        if "state/running_weight" in metrics:
            running = batches.Running(
                **{name: metrics[f"state/running_{name}"] for name in batches.Running.model_fields}
            )
        finite = {name: number for name in ("kl", "entropy") if math.isfinite(number := metrics.get(name, math.nan))}
        return ObjectiveState(
            step=state.step + 1,
            beta=self.divergence.beta.observe(state.beta, finite.get("kl")),
            entropy=self.entropy.observe(state.entropy, finite.get("entropy")),
            running=running,
        )

    def _checked(self, scored: Scored, plan: Plan) -> Scored:
        for name in sorted(self.requires):
            if getattr(scored, name) is None:
                raise ValueError(f"Scored.{name} is missing, and this objective requires {sorted(self.requires)}")
        for name, value in scored.tensors().items():
            if not isinstance(value, Tensor) or not value.is_floating_point():
                raise ValueError(
                    f"Scored.{name} must be a float tensor, got"
                    f" {value.dtype if isinstance(value, Tensor) else type(value).__name__}"
                )
            if name.startswith("auxiliary."):
                if value.shape != (len(plan),):
                    raise ValueError(
                        f"Scored.{name} must hold one sum a member, [{len(plan)}], got {list(value.shape)}"
                    )
            elif value.shape != plan.acted.mask.shape:
                raise ValueError(
                    f"Scored.{name} has shape {list(value.shape)}, and the plan's members and decisions are"
                    f" {list(plan.acted.mask.shape)}; pass plan.select(rows)"
                )
        if scored.log_prob.device.type == "cpu":
            check_log_prob(scored.log_prob.detach(), plan)
        return scored
