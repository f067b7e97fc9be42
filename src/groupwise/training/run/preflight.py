"""Checks before the first step: a failure that can be foreseen is an error at the start."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from pydantic import BaseModel
from torch import Tensor

from groupwise.config import ConfigError, PieceError, PieceFromPath, Problem, import_paths, nearest
from groupwise.config.import_path import may_run
from groupwise.domain.base import Domain
from groupwise.domain.protocol import Matches, RewardsDecisions
from groupwise.learner.protocol import OFFERS, Learner
from groupwise.objective import Objective
from groupwise.objective.decisions import Deviation
from groupwise.objective.matching import CopyMatching, NoMatching
from groupwise.processes import can_spread, num_processes
from groupwise.records import DECISION_FIELDS, Rollouts, Scored
from groupwise.reference import (
    EmaReference,
    PeriodicReference,
    QualityGateReference,
    ReferenceRule,
    resolve_reference,
    switches_off,
)
from groupwise.schedule import Value
from groupwise.streams import Streams
from groupwise.training.distributed import World
from groupwise.training.job import Job, Recipe
from groupwise.training.run.loop import load_callbacks

# The abilities that a run needs of its learner, checked before anything is computed.


def check_offers(learner: Learner, recipe: Recipe, world: World) -> None:
    """Refuses a stage that needs an ability which the learner does not offer.

    Raises:
        ConfigError: the learner lacks an ability, or names one that does not exist.
    """
    unknown = sorted(learner.offers - OFFERS.keys())
    if unknown:
        raise ConfigError(f"{type(learner).__name__}.offers: {unknown[0]!r} is no offer; allowed: {', '.join(OFFERS)}")
    for offer, (key, cure) in _needs(learner, recipe, world).items():
        if offer not in learner.offers:
            raise ConfigError(f"{key}: the learner {type(learner).__name__} is not one that {OFFERS[offer]}; {cure}")


def _needs(learner: Learner, recipe: Recipe, world: World) -> dict[str, tuple[str, str]]:
    """Returns the abilities of a learner that the stage needs, each with the key that asks for it and what to write."""
    train, needs = recipe.train, dict[str, tuple[str, str]]()
    if recipe.samples:
        reference = resolve_reference(recipe.reference, required=recipe.needs_reference)
        key = f"reference.kind = {reference.kind!r}"
        if reference.present and not switches_off(reference, learner):
            needs["copies"] = key, "write a method without a reference, for example divergence.kind = none"
        if reference.mixes:
            needs["mixing"] = key, "write reference.kind = frozen"
        if train.l2_to_reference > 0:
            needs["pull"] = f"train.l2_to_reference = {train.l2_to_reference}", "write 0"
    if train.weight_average is not None:
        needs |= dict.fromkeys(("copies", "mixing"), ("train.weight_average", "write null"))
    if train.max_grad_norm is not None:
        needs["clipping"] = f"train.max_grad_norm = {train.max_grad_norm}", "write null"
    if recipe.optimiser.moments == "fresh":
        needs["moments"] = "optimiser.moments = 'fresh'", "write kept"
    if recipe.optimiser.source is not None:
        needs["optimisers"] = f"optimiser.path = {recipe.optimiser.source.path!r}", "write optimiser.kind = adamw"
    if train.micro_batch_members == "auto":
        needs["rehearsal"] = "train.micro_batch_members = 'auto'", "write a number of members"
    if train.sharding == "full":
        needs["sharding"] = "train.sharding = 'full'", "write none"
    if world.size > 1:
        needs["processes"] = f"{world.size} processes", "start one process, without torchrun"
    return needs


# A trial of a user's pieces (slots, schedules, a reference) before anything is computed: each is called once.

_MISTAKES = (TypeError, AttributeError, NameError, ImportError, NotImplementedError)
"""Exceptions that would occur with any rollouts."""
_NUM_GROUPS, _NUM_DECISIONS, _NUM_ELEMENTS = 2, 4, 3


def try_pieces(job: Job) -> None:
    """Refuses a user's piece that fails on two made-up groups, or returns something else than it should.

    A failure that may come from the made-up numbers (a `KeyError` for the name of a reward, another number of
    decisions) is left to the first batch.

    Args:
        job: the description of a run that can work.

    Raises:
        ConfigError: names the path of the piece, and what is wrong.
    """
    for recipe in [*job.recipes, *(recipe for recipes in job.controls.values() for recipe in recipes)]:
        configs = (recipe.objective, recipe.optimiser, recipe.reference, *recipe.sampling.values())
        pieces = [piece for piece in _pieces(configs) if may_run(piece.path)]
        for piece in pieces:
            if isinstance(piece, Value):
                _tried(lambda piece=piece: piece.at(0, piece.init()), ValueError)
            if isinstance(piece, ReferenceRule):
                _tried(partial(piece.follow, 1, 0.0, 0.0), ValueError)
        if pieces and recipe.samples:
            _tried(partial(_loss, recipe.objective, recipe.train.group_size))


def _pieces(configs: Iterable[BaseModel | None]) -> Iterator[PieceFromPath]:
    """Yields every user-written piece inside the configurations."""
    for config in configs:
        for place in () if config is None else import_paths(config):
            if isinstance(place.holder, PieceFromPath) and place.path is place.holder.path:
                yield place.holder


def _tried(attempt: Callable[[], object], *refused: type[Exception]) -> None:
    """Calls an attempt, and reports mistakes in a piece and exceptions of the classes `refused`; others are ignored.

    Args:
        attempt: what calls pieces.
        refused: exceptions of our own words that are errors as well.
    """
    try:
        attempt()
    except PieceError as error:
        if isinstance(error.__cause__, _MISTAKES) or (
            error.__cause__ is None and not _is_of_another_width(error.result)
        ):
            raise ConfigError(str(error)) from error
    # The numbers are made up, and may be refused for reasons that real numbers would not give.
    except Exception as error:
        if isinstance(error, refused):
            raise ConfigError(str(error)) from error


def _is_of_another_width(result: Any) -> bool:
    """Returns whether a result is a table with another number of decisions, which may be the number of real members."""
    table = result[0] if isinstance(result, tuple) and result else getattr(result, "value", result)
    return isinstance(table, Tensor) and table.dim() == 2 and table.shape[1] not in (1, _NUM_DECISIONS)


def _loss(objective: Objective, group_size: int) -> None:
    """Computes the loss of two made-up groups; the rewards of one of them are equal."""
    members = _NUM_GROUPS * group_size
    table = torch.ones(members, _NUM_DECISIONS)
    mask = table.bool()
    mask[1::2, -1] = False
    log_prob = -table - 0.1 * torch.arange(members)[:, None]
    scored = dict.fromkeys(objective.requires, table * 0.5)
    scored["log_prob"] = (log_prob - 0.01).requires_grad_()
    if not isinstance(matching := objective.matching, NoMatching):
        copies = {name: value.view_as(table) for name, value in _matched(matching, table.numel()).items()}
        mask, log_prob, scored = torch.ones_like(mask), copies["log_prob"].detach() - 0.01, scored | copies
    rewards = torch.full((members,), 0.5)
    rewards[:group_size] = torch.linspace(0.0, 1.0, group_size)
    recorded: dict[str, Any] = {
        name: log_prob - 0.1 if name.endswith("_log_prob") else table for name in DECISION_FIELDS
    }
    rollouts = Rollouts(
        torch.arange(_NUM_GROUPS).repeat_interleave(group_size),
        mask,
        log_prob,
        {"reward": rewards},
        reward_history=torch.full((members, max(1, objective.advantage.history_size)), 0.5),
        density=not objective.matching.neutral,
        **recorded,
    )
    plan = objective.plan(objective.prepare(rollouts, objective.init()))
    objective.loss(Scored.from_tensors(scored), plan)


def _matched(matching: CopyMatching, num_copies: int) -> Mapping[str, Tensor]:
    """Returns the fields of made-up copies with different deviations, on both sides of the old policy's."""
    old = torch.linspace(-1.0, 1.0, num_copies * _NUM_ELEMENTS).view(num_copies, _NUM_ELEMENTS)
    time = torch.linspace(0.1, 1.0, num_copies)
    return matching(Deviation((0.9 * old + 0.05).requires_grad_(), old, time, time))


_SAMPLED = frozenset(DECISION_FIELDS) - {"behaviour_log_prob", "reference_log_prob"}
"""The fields of decisions that only a sampler knows. Training fills in the two other fields."""


def check_configuration(job: Job) -> None:
    """Refuses a job whose configuration cannot work, before a model is built.

    Args:
        job: the resolved description of the run.

    Raises:
        ConfigError: a stage cannot work; the message names the key and what to write.
    """
    if not job.recipes:
        raise ConfigError("stages: there is none; give train.num_steps or at least one stage")
    for recipe in [*job.recipes, *(recipe for recipes in job.controls.values() for recipe in recipes)]:
        train, objective = recipe.train, recipe.objective
        if recipe.samples:
            resolve_reference(recipe.reference, required=recipe.needs_reference)
        load_callbacks(train.callbacks)
        if train.sharding != job.recipes[0].train.sharding:
            raise ConfigError(
                f"stage {recipe.name!r}: train.sharding = {train.sharding!r} belongs to the whole run and cannot differ"
                " between stages; set it outside"
            )
        if train.sharding == "full" and recipe.optimiser.source is not None:
            # A class may read whole matrices, of which a process has a part.
            raise ConfigError(
                f"optimiser.path = {recipe.optimiser.source.path!r}: weights that are spread are stepped by AdamW;"
                " write optimiser.kind = adamw"
            )
        if recipe.samples and train.prompts_per_step < num_processes():
            raise ConfigError(
                f"train.prompts_per_step = {train.prompts_per_step}: {num_processes()} processes need a prompt each;"
                f" write {num_processes()} or more"
            )
        if recipe.samples and objective.advantage.group_baseline and train.group_size < 2:
            raise ConfigError(
                f"train.group_size = {train.group_size}: an advantage that compares inside a group needs at least 2"
                " members; write train.group_size = 8"
            )
        if not recipe.samples and not _is_supervised(recipe):
            raise ConfigError(
                f"stage {recipe.name!r}: policy_weight is 0 and no auxiliary term has a coefficient, so nothing is"
                " trained; set one of them"
            )


def check_processes(job: Job) -> None:
    """Refuses a new run whose weights are to be spread over processes if no launcher started it: there are no other
    processes to spread them over. A run that continues may do so alone.

    Raises:
        ConfigError: torchrun did not start this process.
    """
    if job.recipes[0].train.sharding == "full" and not can_spread():
        raise ConfigError(
            'train.sharding = "full": this is one process, which has all weights; write train.sharding = none, or start'
            " several: torchrun --nproc-per-node 2 -m groupwise train ..."
        )


def check_domain(domain: Domain, recipe: Recipe, streams: Streams, world: World) -> None:
    """Refuses a domain without a feature that the stage needs.

    Args:
        domain: the domain of the stage.

    Raises:
        ConfigError: the domain lacks the feature; the message names the key and what to write.
    """
    train = recipe.train
    _check_learner(domain.learner, recipe, world)
    if train.metric is not None:
        _check_name(
            f'train.metric = "{train.metric}"',
            "is not a metric of this domain's evaluation",
            train.metric,
            domain.metric_names,
        )
    for name, schedule in recipe.objective.auxiliary.items():
        if schedule.may_be_positive():
            lacks = "has a coefficient, and this domain supplies no such term"
            _check_name(f"auxiliary.{name}", lacks, name, sorted(domain.auxiliary))
    if _is_supervised(recipe) and domain.demonstrations(1, streams=streams, step=0) is None:
        raise ConfigError(
            "auxiliary.supervised: the domain has no demonstrations; give it a corpus (domain.demonstrations, where the"
            " domain has that key; images that are prompts need targets too), or remove the term"
        )
    if not recipe.samples:
        if train.num_epochs is not None and not domain.demonstrates_prompts:
            raise ConfigError(
                f"stage {recipe.name!r}: num_epochs = {train.num_epochs:g} counts passes over the training set,"
                " and this stage learns from demonstrations of their own; write num_steps"
            )
        return
    _check_objective(domain, recipe.objective)
    if train.l2_to_reference > 0 and switches_off(resolve_reference(recipe.reference, required=True), domain.learner):
        raise ConfigError(
            f"train.l2_to_reference = {train.l2_to_reference}: the reference is the adapter switched off and has no"
            ' weights to be pulled to; write reference = { kind = "frozen", adapter = "copy" }'
        )
    if domain.num_prompts < 1:
        raise ConfigError("the training set has no prompts; give more data, or hold fewer out")


def _check_learner(learner: Learner, recipe: Recipe, world: World) -> None:
    """Refuses weights that cannot be trained with the settings of the stage."""
    if not learner.sizes().trained:
        raise ConfigError(
            "the model has no parameter with requires_grad: nothing can be trained; check the adapter's target modules"
        )
    if learner.sizes().float16:
        raise ConfigError(
            "the model has weights in float16, in which gradients below 6e-8 are lost (an adapter's too, which flow"
            " through them), and no loss is scaled here; write domain.model.dtype = bfloat16, or float32 with"
            " train.autocast = bfloat16"
        )
    if recipe.train.gradient_checkpointing and "checkpointing" not in learner.offers:
        raise ConfigError("train.gradient_checkpointing = true: this model does not offer it; set it to false")
    check_offers(learner, recipe, world)
    if recipe.optimiser.source is not None:
        # A class that does not take these weights is refused before anything is sampled.
        learner.use_optimiser(recipe.optimiser.source)


def _check_name(place: str, problem: str, name: str, known: Sequence[str]) -> None:
    if name not in known:
        raise ConfigError(Problem(place, problem, tuple(known), nearest(name, tuple(known))))


def _check_objective(domain: Domain, objective: Objective) -> None:
    """Refuses an objective that reads what the domain does not supply."""
    if domain.density and objective.discrete_only is not None:
        raise ConfigError(f"{objective.discrete_only}; this domain's decisions are continuous")
    supplies, source = domain.supplies, "this domain supplies"
    if not isinstance(matching := objective.matching, NoMatching):
        if not isinstance(domain, Matches):
            raise ConfigError(
                f"matching.kind = {matching.kind!r} learns from noised copies of what was sampled, and this domain has"
                " log-probs and no copies; choose a method that reads log-probs, for example method=grpo, or write"
                " matching.kind = 'none'"
            )
        domain.check_matching(matching)
        supplies, source = domain.copy_fields, "its noised copies have"
    missing = sorted((objective.requires | objective.requires_rollouts & _SAMPLED) - supplies)
    if missing:
        raise ConfigError(
            f"the objective reads {missing}, and {source} {sorted(supplies)}; choose a method that needs only those"
        )
    member_slots = [slot for slot in ("trust", "advantage") if getattr(objective, slot).whole_member]
    if member_slots and isinstance(domain, RewardsDecisions) and (key := domain.rewards_decisions):
        raise ConfigError(
            f"{member_slots[0]}.kind = {getattr(objective, member_slots[0]).kind!r} takes one reward a member, and"
            f" {key} rewards every decision; write another {member_slots[0]}.kind, or a reward that is one number"
        )


def device_of(recipe: Recipe) -> torch.device:
    """Returns the device of a run: that of `train.device`; under `auto` CUDA where PyTorch sees it.

    Args:
        recipe: the first stage of the run.

    Raises:
        ConfigError: the configuration asks for CUDA, which PyTorch does not see.
    """
    device_name = recipe.train.device
    if device_name == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            'train.device = "cuda": PyTorch sees no CUDA device here; write train.device = "cpu" or "auto"'
        )
    return torch.device("cuda" if device_name != "cpu" and torch.cuda.is_available() else "cpu")


def check_memory(recipe: Recipe, device: torch.device) -> None:
    """Refuses a measured micro-batch size where the available memory is unknown.

    Raises:
        ConfigError: on a CPU no memory limit is configured.
    """
    train = recipe.train
    if train.micro_batch_members == "auto" and train.memory_limit_gib is None and device.type != "cuda":
        raise ConfigError(
            'train.micro_batch_members = "auto": on a CPU memory is shared with everything else; write'
            " train.memory_limit_gib = 4 (what this process may take in all), or a number of members"
        )


def precision_remarks(domain: Domain) -> list[str]:
    """Returns a sentence about trained weights in bfloat16, which is legal and rarely meant.

    Args:
        domain: the domain with the learner of the weights.
    """
    num_weights = domain.learner.sizes().by_dtype.get("bfloat16")
    keep = (
        "Keep fp32 weights (for a language model domain.model.dtype = float32) with train.autocast = bfloat16, or train"
        " an adapter, whose weights are fp32"
    )
    if not num_weights:
        return []
    loss = "a change below about 1/256 of a weight is lost in rounding"
    return [f"{num_weights:,} trained weights are bfloat16 and are trained as they are: {loss}. {keep}"]


def idle_remarks(recipes: Sequence[Recipe], num_prompts: int) -> list[str]:
    """Returns a sentence for each setting that cannot have an effect in a run of these stages.

    Args:
        recipes: the stages of the run.
        num_prompts: size of the training set.
    """
    sampling = [recipe for recipe in recipes if recipe.samples]
    num_steps = sum(recipe.train.num_steps for recipe in sampling)
    return list(dict.fromkeys(text for recipe in sampling for text in _idle(recipe, num_steps, num_prompts)))


def _idle(recipe: Recipe, num_steps: int, num_prompts: int) -> Iterator[str]:
    train, reference = recipe.train, recipe.reference
    periodic = isinstance(reference, PeriodicReference | QualityGateReference)
    if periodic and reference.sync_steps >= num_steps:
        yield (
            f"reference.sync_steps = {reference.sync_steps}: the run samples in {num_steps} steps, so the reference is"
            " not mixed before its end and stays as it begins"
        )
    elif (periodic and reference.alpha == 0) or (isinstance(reference, EmaReference) and reference.decay == 1):
        yield f"reference.kind = {reference.kind!r} takes in nothing of the policy and stays as it begins, frozen"
    sizes = train.dynamic_group_size
    if sizes is not None and sizes.minimum == sizes.maximum:
        yield f"train.dynamic_group_size has one size between its bounds, {sizes.minimum}: no group grows or shrinks"
    for name in ("adaptive_sampling", "worst_first"):
        if getattr(train, name) is not None and train.prompts_per_step >= num_prompts:
            yield (
                f"train.{name} has no choice: a step draws {train.prompts_per_step} prompts of {num_prompts}; write a"
                " smaller train.prompts_per_step"
            )
    if train.evaluate_every > train.num_steps:
        yield (
            f"train.evaluate_every = {train.evaluate_every}: stage {recipe.name} has {train.num_steps} steps, so only"
            " its start and its end are evaluated"
        )
    early = train.early_stopping
    if early is not None and early.patience * train.evaluate_every >= train.num_steps:
        yield (
            f"train.early_stopping.patience = {early.patience}: stage {recipe.name} ends before so many evaluations, so"
            " nothing ends it early"
        )


def _is_supervised(recipe: Recipe) -> bool:
    schedule = recipe.objective.auxiliary.get("supervised")
    return schedule is not None and schedule.may_be_positive()
