"""Common ground of trainers that give a policy loss log-probs, masks and advantages alone (verl, SkyRL): the advantages
of whole groups, and the sentences about what such a trainer cannot carry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from groupwise.objective import Objective
from groupwise.objective.advantage import Everything
from groupwise.objective.divergence import NoDivergence
from groupwise.records import Rollouts

_STATEFUL = ("running_std", "per_prompt")


def module_of(path: str, needed: Sequence[str], room: str, requirement: str) -> Any:
    """Imports a module of another trainer and checks that it has what is built on here.

    Args:
        path: of the module.
        needed: names in it.
        room: of this package, for the error.
        requirement: what pip installs, `verl==0.9.1`.

    Raises:
        ImportError: it is not installed, or of a version without such a module or name; says what to install.

    Example:
        >>> module_of("math", ["sqrt", "cubed"], "verl", "verl==0.9.1")
        Traceback (most recent call last):
        ImportError: groupwise.integrations.verl needs verl 0.9.1, and the one that is installed has no cubed in math; write: pip install verl==0.9.1
    """  # noqa: E501
    needs = f"groupwise.integrations.{room} needs {requirement.replace('==', ' ')}"
    try:
        module = import_module(path)
    except ImportError as error:
        raise ImportError(
            f"{needs}, which could not be imported ({error}); write: pip install {requirement}"
        ) from error
    if missing := [name for name in needed if not hasattr(module, name)]:
        raise ImportError(
            f"{needs}, and the one that is installed has no {', '.join(missing)} in {path}; write: pip install"
            f" {requirement}"
        )
    return module


def group_advantage(objective: Objective) -> Callable[[Tensor, Tensor, Sequence[Any]], Tensor]:
    """Returns the advantage of an objective as a function of token rewards `[B, T]`, mask `[B, T]` and the id of each
    answer's prompt.

    A reward is the sum of an answer's token rewards, also of those that the policy did not write: a trainer lays a
    reward on the last token, and the last one may be a tool's. The divergence and the filter of groups are the
    trainer's.

    Example:
        >>> advantage = group_advantage(Objective.preset("dr_grpo"))
        >>> advantage(torch.tensor([[0.0, 1.0], [0.0, 0.0]]), torch.ones(2, 2), ["a", "a"]).tolist()
        [[0.5, 0.5], [-0.5, -0.5]]
    """
    advantage_objective = objective.model_copy(update={"divergence": NoDivergence(), "admission": Everything()})
    state = advantage_objective.init()

    def advantage(token_rewards: Tensor, response_mask: Tensor, prompt_ids: Sequence[Any]) -> Tensor:
        places = {prompt_id: place for place, prompt_id in enumerate(dict.fromkeys(prompt_ids))}
        mask = response_mask.bool()
        rollouts = Rollouts(
            group=torch.tensor([places[prompt_id] for prompt_id in prompt_ids], device=mask.device),
            mask=mask,
            old_log_prob=torch.zeros(mask.shape, device=mask.device),
            rewards={"reward": token_rewards.sum(1)},
        )
        return advantage_objective.prepare(rollouts, state).advantage.to(token_rewards.dtype) * response_mask

    return advantage


def loss_refusals(objective: Objective, system: str, recorded: frozenset[str]) -> Iterator[str]:
    """Yields a sentence for everything that the loss of an objective needs and a micro-batch of log-probs, advantages
    and masks does not hold.

    Args:
        objective: a valid objective.
        system: name of the trainer, for the sentences.
        recorded: optional fields of `Rollouts` that the trainer passes, or computes with by itself.
    """
    if not objective.matching.neutral:
        yield (
            f"matching.kind = {objective.matching.kind!r} learns from noised copies of images, and {system} samples"
            " tokens; write matching.kind = 'none', or choose a method that reads log-probs"
        )
    exact = {"exact_divergence"} if objective.divergence.kind == "exact" else set[str]()
    for name in sorted(objective.requires - {"log_prob", "entropy"} - exact):
        yield f"the objective reads Scored.{name}, and {system} gives its policy loss log-probs only; leave that out"
    if any("entropy" in link.reads for link in objective.credit.links()):
        yield (
            f"a credit of the objective reads the entropy of each decision, and {system} gives its policy loss"
            " log-probs only; leave that credit out"
        )
    for name in sorted(objective.requires_rollouts - recorded):
        yield f"the objective reads {name}, and {system} samples tokens; leave that out"
    for name in sorted(objective.auxiliary):
        yield f"auxiliary.{name} needs data that {system} does not draw; leave it out"
    if objective.scope == "batch" and objective.trust.scope == "batch":
        yield (
            f"trust.kind = {objective.trust.kind!r} looks at a whole optimiser step, and {system} gives its policy loss"
            " a micro-batch; write trust.kind = 'clip'"
        )
    divergence = objective.divergence
    schedules = {"policy_weight": objective.policy_weight, "entropy": objective.entropy}
    schedules |= {} if divergence.kind == "none" else {"divergence.beta": divergence.beta}
    for name, schedule in schedules.items():
        if schedule.kind != "constant":
            yield (
                f"{name} follows a schedule ({schedule.kind}), and {system} does not tell its policy loss the step;"
                " write a number"
            )


def advantage_refusals(objective: Objective, system: str) -> Iterator[str]:
    """Yields a sentence for every advantage that needs more than the token rewards of one batch."""
    kind = objective.advantage.kind
    if kind in _STATEFUL:
        yield (
            f"advantage.kind = {kind!r} remembers earlier batches, which {system}'s checkpoints do not; write another"
            " advantage.kind"
        )


def disagreements(
    objective: Objective, agreeing: Mapping[str, Any], config: Any, prefix: str, synonyms: Mapping[str, Sequence[Any]]
) -> Iterator[str]:
    """Yields a sentence for every key of a trainer's configuration that contradicts the objective.

    Args:
        objective: the registered objective, for its name.
        agreeing: the keys that go with it, by their whole name.
        config: the part of the trainer's configuration that `prefix` names.
        prefix: of the keys to look at; others are left out.
        synonyms: further values that mean the same, by the end of a key.
    """
    for key, agreeing_value in agreeing.items():
        if not key.startswith(prefix):
            continue
        value = config
        for part in key.removeprefix(prefix).split("."):
            value = None if value is None else getattr(value, part, None)
        same = next((names for end, names in synonyms.items() if key.endswith(end)), ())
        if value != agreeing_value and value not in same and not (agreeing_value is False and value is None):
            yield (
                f"{key} is {value!r}, and the objective {objective.name!r} says {agreeing_value!r}; write"
                f" {key}={plain(agreeing_value)}"
            )


def plain(value: Any) -> str:
    """Writes a value as an override on a command line."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
