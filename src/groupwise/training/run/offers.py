"""The abilities that a run needs of its learner, checked before anything is computed."""

from __future__ import annotations

from groupwise.config import ConfigError
from groupwise.learner.protocol import OFFERS, Learner
from groupwise.reference import resolve_reference
from groupwise.reference.policy import switches_off
from groupwise.training.distributed import World
from groupwise.training.job import Recipe


def check_offers(learner: Learner, recipe: Recipe, world: World) -> None:
    """Refuses a stage that needs an ability which the learner does not offer.

    Raises:
        ConfigError: the learner lacks an ability, or names one that does not exist.
    """
    unknown = sorted(learner.offers - OFFERS.keys())
    if unknown:
        raise ConfigError(f"{_name(learner)}.offers: {unknown[0]!r} is no offer; allowed: {', '.join(OFFERS)}")
    for offer, (key, cure) in _needs(learner, recipe, world).items():
        if offer not in learner.offers:
            raise ConfigError(f"{key}: the learner {_name(learner)} is not one that {OFFERS[offer]}; {cure}")


def _needs(learner: Learner, recipe: Recipe, world: World) -> dict[str, tuple[str, str]]:
    """Returns the offers that the stage needs, each with the key that asks for it and what to write."""
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


def _name(learner: Learner) -> str:
    return type(learner).__name__
