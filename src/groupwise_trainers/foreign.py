"""Common ground of trainers that give a policy loss log-probs, masks and advantages alone (verl, SkyRL): the advantages
of whole groups, and the sentences about what such a trainer cannot carry.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, final

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
        path: the path of the module.
        needed: names in it.
        room: the room of this package, for the error.
        requirement: what pip installs, `verl==0.9.1`.

    Raises:
        ImportError: it is not installed, or of a version without such a module or name; says what to install.

    Example:
        >>> module_of("math", ["sqrt", "cubed"], "verl", "verl==0.9.1")
        Traceback (most recent call last):
        ImportError: groupwise_trainers.verl needs verl 0.9.1, and the one that is installed has no cubed in math; write: pip install verl==0.9.1
    """  # noqa: E501
    needs = f"groupwise_trainers.{room} needs {requirement.replace('==', ' ')}"
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


def unmet_needs(
    objective: Objective,
    system: str,
    gives: frozenset[str],
    recorded: frozenset[str],
    refused_apart: frozenset[str] = frozenset(),
) -> Iterator[str]:
    """Yields a sentence for everything that an objective reads and a trainer of language models does not hold.

    Args:
        objective: a valid objective.
        system: name of the trainer, for the sentences.
        gives: fields of `Scored` that it computes.
        recorded: optional fields of `Rollouts` that it passes, or computes with by itself.
        refused_apart: fields of `Scored` for which the caller has words of its own.
    """
    if not objective.matching.neutral:
        yield (
            f"matching.kind = {objective.matching.kind!r} learns from noised copies of images, and {system} samples"
            " tokens; write matching.kind = 'none', or choose a method that reads log-probs"
        )
    for name in sorted(objective.requires - gives - refused_apart):
        instead = "write divergence.kind = 'k3_unbiased'" if name == "exact_divergence" else "leave that out"
        yield f"the objective reads Scored.{name}, and {system} gives only {', '.join(sorted(gives))}; {instead}"
    for name in sorted(objective.requires_rollouts - recorded):
        yield f"the objective reads {name}, which {system} does not record; leave that out"
    for name in sorted(objective.auxiliary):
        yield f"auxiliary.{name} needs data that {system} does not draw; leave it out"


def loss_refusals(objective: Objective, system: str, recorded: frozenset[str]) -> Iterator[str]:
    """Yields a sentence for everything that the loss of an objective needs and a micro-batch of log-probs, advantages
    and masks does not hold; arguments: see `unmet_needs`.
    """
    # An exact divergence is refused by its slot, and an entropy bonus by its coefficient.
    apart = frozenset({"entropy", "exact_divergence"} if objective.divergence.kind == "exact" else {"entropy"})
    yield from unmet_needs(objective, system, frozenset({"log_prob"}), recorded, apart)
    if any("entropy" in link.reads for link in objective.credit.links()):
        yield (
            f"a credit of the objective reads the entropy of each decision, and {system} gives its policy loss"
            " log-probs only; leave that credit out"
        )
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


@final
@dataclass(frozen=True)
class Trainer:
    """A trainer that calls a policy loss and an advantage estimator by their names, and computes the KL term, the
    entropy bonus, the divisor and the filter of groups by itself, as its own keys state.

    Args:
        name: for sentences.
        name_keys: its keys for the name of a policy loss, and of an advantage estimator.
        keys: returns its other keys that go with an objective, by their whole name.
        aggregations: those that its own reduction computes, each with its word for it.
        aggregation_reason: why it computes no others.
        kl_losses: the divergences that it computes, each with its words for it.
        admissions: the filters of groups that it has.
        admission_advice, reward_advice: what to write for another filter, and for rewards one by one.
    """

    name: str
    name_keys: tuple[str, str]
    keys: Callable[[Objective], dict[str, Any]]
    aggregations: Mapping[str, str]
    aggregation_reason: str
    kl_losses: Mapping[str, Sequence[str]]
    admissions: tuple[str, ...]
    admission_advice: str
    reward_advice: str

    def loss_refusals(self, objective: Objective) -> Iterator[str]:
        """Yields a sentence for everything that the loss of an objective needs and the trainer does not pass to it."""
        recorded = frozenset({"reference_log_prob", "behaviour_log_prob", "reward_history"})
        yield from loss_refusals(objective, self.name, recorded)
        if objective.aggregation.kind not in self.aggregations:
            yield (
                f"aggregation.kind = {objective.aggregation.kind!r} has no counterpart in {self.name}, which"
                f" {self.aggregation_reason}; write one of {', '.join(self.aggregations)}"
            )
        kl = objective.divergence
        in_loss = kl.kind != "none" and kl.place == "loss"
        if in_loss and (kl.kind not in self.kl_losses or kl.against != "reference"):
            yield (
                f"divergence.kind = {kl.kind!r} against the {kl.against} has no counterpart in {self.name}, which"
                f" computes the KL term by itself; write divergence.kind as one of {', '.join(self.kl_losses)}, against"
                " the reference"
            )

    def advantage_refusals(self, objective: Objective) -> Iterator[str]:
        """Yields a sentence for everything that the advantage of an objective needs and the trainer does not pass to an
        estimator.
        """
        kind = objective.advantage.kind
        if kind in _STATEFUL:
            yield (
                f"advantage.kind = {kind!r} remembers earlier batches, which {self.name}'s checkpoints do not; write"
                " another advantage.kind"
            )
        if kind == "per_reward":
            yield (
                f"advantage.kind = 'per_reward' needs each reward by itself, and {self.name} gives an estimator their"
                f" sum; write {self.reward_advice}"
            )
        if objective.admission.kind not in self.admissions:
            yield (
                f"admission.kind = {objective.admission.kind!r} leaves groups out of the counts, which an advantage"
                f" estimator of {self.name}'s cannot; write {self.admission_advice}"
            )

    def check(self, objective: Objective, config: Any, prefix: str) -> None:
        """Refuses a configuration of the trainer that contradicts the objective.

        Args:
            objective: the registered objective.
            config: the part of the trainer's configuration that `prefix` names.
            prefix: the prefix of the keys to look at; others are left out.

        Raises:
            ValueError: keys that contradict it, each with what to write.
        """
        kl_words = self.kl_losses.get(objective.divergence.kind, ())
        synonyms = {"kl_loss_type": kl_words, "kl_penalty": ("kl", "k1")}
        problems = []
        for key, agreeing in self.keys(objective).items():
            if not key.startswith(prefix):
                continue
            value = config
            for part in key.removeprefix(prefix).split("."):
                value = None if value is None else getattr(value, part, None)
            same = synonyms.get(key.rpartition(".")[2], ())
            if value != agreeing and value not in same and not (agreeing is False and value is None):
                problems.append(
                    f"{key} is {value!r}, and the objective {objective.name!r} says {agreeing!r}; write"
                    f" {key}={_plain(agreeing)}"
                )
        if problems:
            raise ValueError("; ".join(problems))

    def overrides(self, objective: Objective, name: str, estimator: bool = True) -> list[str]:
        """Returns the overrides for the trainer's command line that go with a registered objective."""
        names = dict.fromkeys(self.name_keys if estimator else self.name_keys[:1], name)
        return [f"{key}={_plain(value)}" for key, value in (names | self.keys(objective)).items()]

    def advantage_estimator(self, objective: Objective, prefix: str) -> "Estimator":
        """Returns the advantage of an objective with the signature of an estimator.

        Args:
            objective: a valid objective.
            prefix: the prefix of the keys that its configuration holds.

        Raises:
            ValueError: the objective needs something that the trainer cannot give; when called, a key of the trainer
                contradicts the objective.
        """
        refuse(self.advantage_refusals(objective))
        advantage = group_advantage(objective)

        def estimate(
            token_level_rewards: Tensor, response_mask: Tensor, index: Any = None, config: Any = None, **settings: Any
        ) -> tuple[Tensor, Tensor]:
            if config is not None:
                self.check(objective, config, prefix)
            if index is None:
                raise ValueError(f"{self.name} gave no uid to tell groups apart; its data need one")
            values = advantage(token_level_rewards, response_mask, list(index))
            return values, values

        return estimate


Estimator = Callable[..., tuple[Tensor, Tensor]]


def refuse(problems: Iterable[str]) -> None:
    """Raises a `ValueError` with all problems, where there are any."""
    if text := "; ".join(problems):
        raise ValueError(text)


def named(objective: str | Objective, edits: Mapping[str, Any] | None, name: str | None) -> tuple[Objective, str]:
    """Returns an objective, given by the name of a preset with its edits or as it is, and its name in a trainer."""
    if isinstance(objective, str):
        objective = Objective.preset(objective, **(edits or {}))
    elif edits:
        raise ValueError(
            "edits change a preset by its name; write register('grpo', edits=...), or change the Objective itself"
        )
    return objective, name or f"groupwise_{objective.name.replace('+', '_')}"


def _plain(value: Any) -> str:
    """Writes a value as an override on a command line."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
