"""Registering an objective with verl: once in every process, by a module that verl imports
(`VERL_USE_EXTERNAL_MODULES`).
"""

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor

from groupwise.objective import Objective
from groupwise.statistics import finish
from groupwise_trainers.foreign import Estimator, Trainer, module_of, named, refuse
from groupwise_trainers.micro_batch import policy_term, step_share

# The values that an objective needs in verl's own keys: verl computes the KL term, the entropy bonus, the divisor and
# the filter of groups outside the policy loss, by these keys.

AGGREGATIONS = {
    "token_mean": "token-mean",
    "member_mean": "seq-mean-token-mean",
    "member_sum": "seq-mean-token-sum",
    "fixed_length": "seq-mean-token-sum-norm",
}
KL_LOSSES = {"k1": ("kl", "k1"), "abs": ("abs",), "k2": ("mse", "k2"), "k3": ("low_var_kl", "k3")}


def keys(objective: Objective) -> dict[str, Any]:
    """Returns verl's keys that go with an objective, in addition to the two that hold its name.

    Example:
        >>> keys(Objective.preset("grpo"))["actor_rollout_ref.actor.kl_loss_type"]
        'low_var_kl'
    """
    actor, algorithm = "actor_rollout_ref.actor.", "algorithm."
    divergence = objective.divergence
    in_loss = divergence.kind != "none" and divergence.place == "loss"
    in_reward = divergence.kind != "none" and divergence.place == "reward"
    table: dict[str, Any] = {
        f"{actor}loss_agg_mode": AGGREGATIONS[objective.aggregation.kind],
        f"{actor}use_kl_loss": in_loss,
        f"{actor}entropy_coeff": objective.entropy.at(0),
        f"{algorithm}use_kl_in_reward": in_reward,
    }
    if objective.aggregation.kind == "fixed_length":
        table[f"{actor}loss_scale_factor"] = objective.aggregation.length
    if in_loss:
        table |= {f"{actor}kl_loss_type": KL_LOSSES[divergence.kind][0], f"{actor}kl_loss_coef": divergence.beta.at(0)}
    if in_reward:
        table |= {
            f"{algorithm}kl_penalty": "kl",
            f"{algorithm}kl_ctrl.type": "fixed",
            f"{algorithm}kl_ctrl.kl_coef": divergence.beta.at(0),
        }
    if objective.admission.resamples:
        table[f"{algorithm}filter_groups.enable"] = True
    return table


VERL = Trainer(
    "verl",
    ("actor_rollout_ref.actor.policy_loss.loss_mode", "algorithm.adv_estimator"),
    keys,
    AGGREGATIONS,
    "gives its policy loss no groups",
    KL_LOSSES,
    admissions=("all", "resample"),
    admission_advice="admission.kind = 'all', or 'resample' with algorithm.filter_groups",
    reward_advice="register(..., estimator=False) and algorithm.adv_estimator=gdpo of verl's",
)


def loss_refusals(objective: Objective) -> Iterator[str]:
    """Yields a sentence for everything that the loss of an objective needs and verl does not pass to a policy loss."""
    yield from VERL.loss_refusals(objective)
    if objective.correction.kind != "none":
        yield (
            f"correction.kind = {objective.correction.kind!r} needs the sampler's log-probs, from which verl computes"
            " the weights by itself; write correction.kind = 'none' and algorithm.rollout_correction, whose weights"
            " the loss then takes"
        )


def advantage_estimator(objective: Objective) -> Estimator:
    """Returns the advantage of an objective with the signature that verl calls: over whole groups of the batch, joined
    by `index` (verl's `uid`).

    A reward is the sum of an answer's token rewards, so a KL in the reward is verl's (`algorithm.use_kl_in_reward`).
    Groups that `admission.kind = "resample"` would not admit are verl's to filter (`algorithm.filter_groups`).
    Advantages and returns are the same numbers, in verl's form `[B, T]`.

    Raises:
        ValueError: the objective needs something that verl cannot give; when called, a key of verl contradicts the
            objective.

    Example:
        >>> import torch
        >>> from types import SimpleNamespace
        >>> estimate = advantage_estimator(Objective.preset("dr_grpo"))
        >>> algorithm = SimpleNamespace(use_kl_in_reward=False)
        >>> rewards = torch.tensor([[0.0, 1.0], [0.0, 0.0]])
        >>> estimate(rewards, torch.ones(2, 2), index=["a", "a"], config=algorithm)[0].tolist()
        [[0.5, 0.5], [-0.5, -0.5]]
    """
    return VERL.advantage_estimator(objective, "algorithm.")


PolicyLoss = Callable[..., tuple[Tensor, dict[str, Any]]]


def policy_loss(objective: Objective) -> PolicyLoss:
    """Returns the policy term of an objective with the signature that verl calls.

    The weights are those of the whole optimiser step: its counts of tokens and answers are in verl's
    `config.global_batch_info`. Where verl gives none, the counts of the micro-batch take their place, as in verl.
    `rollout_is_weights` multiply each token's term, as `k`. The KL term and the entropy bonus are verl's own.

    Raises:
        ValueError: the objective needs something that verl cannot give; at the first call, a key of verl contradicts
            the objective.

    Example:
        >>> import torch
        >>> from types import SimpleNamespace
        >>> loss = policy_loss(Objective.preset("gspo"))
        >>> actor = SimpleNamespace(
        ...     loss_agg_mode="seq-mean-token-mean", use_kl_loss=False, entropy_coeff=0, global_batch_info={}
        ... )
        >>> live, old = torch.full((2, 2), -1.0, requires_grad=True), torch.full((2, 2), -1.0)
        >>> value, metrics = loss(old, live, torch.tensor([[1.0, 1.0], [-0.5, -0.5]]), torch.ones(2, 2), config=actor)
        >>> round(value.item(), 4)
        -0.25
    """
    refuse(loss_refusals(objective))
    # verl computes the divergence and the entropy bonus by itself.
    share = step_share(policy_term(objective))

    def loss(
        old_log_prob: Tensor,
        log_prob: Tensor,
        advantages: Tensor,
        response_mask: Tensor,
        loss_agg_mode: str = "token-mean",
        config: Any = None,
        rollout_is_weights: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, Any]]:
        VERL.check(objective, config, "actor_rollout_ref.actor.")
        batch_info = getattr(config, "global_batch_info", None)
        if batch_info is None:
            raise ValueError(
                f"verl calls the loss with {type(config).__name__}, which has no global_batch_info, as those of verl"
                " 0.9 have; write: pip install verl==0.9.1"
            )
        step_count = batch_info.get(
            "batch_num_tokens" if objective.aggregation.kind == "token_mean" else "global_batch_size"
        )
        result = share(log_prob, old_log_prob, advantages, response_mask, count=step_count, weight=rollout_is_weights)
        # verl averages gradients over its data-parallel processes.
        return result.total * batch_info.get("dp_size", 1), {
            f"actor/{name}": value for name, value in finish(result.statistics).items() if name != "loss"
        }

    return loss


def register(
    objective: str | Objective, edits: Mapping[str, Any] | None = None, name: str | None = None, estimator: bool = True
) -> list[str]:
    """Registers an objective as a policy loss and an advantage estimator of verl.

    Args:
        objective: a preset's name, or an `Objective`.
        edits: dotted changes of a preset.
        name: the name in verl; unset takes `groupwise_` and the objective's name.
        estimator: false registers the loss alone, for use with an advantage estimator of verl.

    Returns:
        the overrides for verl's command line.

    Raises:
        ImportError: verl is not installed, or another version of it.
        ValueError: the objective needs something that verl cannot give.
    """
    core = algorithms()
    objective, verl_name = named(objective, edits, name)
    loss = policy_loss(objective)
    if estimator:
        estimate = advantage_estimator(objective)
        # verl refuses another function under a registered name, and a notebook registers again on every reload.
        core.ADV_ESTIMATOR_REGISTRY.pop(verl_name, None)
        core.register_adv_est(verl_name)(estimate)
    core.register_policy_loss(verl_name)(loss)
    return VERL.overrides(objective, verl_name, estimator)


def algorithms() -> Any:
    """Imports verl's module of policy losses and advantage estimators.

    Raises:
        ImportError: verl is not installed, or another version of it, with what to install.
    """
    needed = ("ADV_ESTIMATOR_REGISTRY", "register_adv_est", "register_policy_loss")
    return module_of("verl.trainer.ppo.core_algos", needed, "verl", "verl==0.9.1")


# The plugin of verl (entry point `verl.plugins`): where this package is installed, `import verl` registers every
# published method as `groupwise_<name>`, in every process and without a module of the user's.
#
# Edited methods come from the environment variable `GROUPWISE_VERL`, several divided by `;`:
#
#     GROUPWISE_VERL="gspo trust.high=0.0005; dapo trust.high=0.3"
#
# `python -m groupwise_trainers.verl gspo trust.high=0.0005` prints that variable and the overrides to write.

VARIABLE = "GROUPWISE_VERL"

log = logging.getLogger("groupwise")


def edited_methods(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Reads methods and their edits, `"gspo trust.high=0.0005; dapo"`.

    Raises:
        ConfigError: an item that is no `key=value`.

    Example:
        >>> edited_methods("gspo trust.high=0.0005; dapo")
        [('gspo', {'trust.high': 0.0005}), ('dapo', {})]
    """
    from groupwise.config import ConfigError, parse_value

    methods = []
    for line in filter(None, (part.strip() for part in text.split(";"))):
        name, *items = line.split()
        if broken := [item for item in items if "=" not in item]:
            raise ConfigError(f"{VARIABLE}: {broken[0]!r} is no key=value; write {VARIABLE}='gspo trust.high=0.0005'")
        methods.append((name, {key: parse_value(value) for key, _, value in (item.partition("=") for item in items)}))
    return methods


def register_all(environment: Mapping[str, str]) -> list[str]:
    """Registers every published method, and those of the environment variable, with verl.

    A method is built at its first call, so that `import verl` stays fast. A published one that verl cannot carry is
    registered too, and its first call raises the reason.

    Returns:
        the names in verl.
    """
    from groupwise.objective.preset import method_names

    core = algorithms()
    names = []
    for method in method_names():
        name = f"groupwise_{method}"
        core.register_policy_loss(name)(_built_at_first_call(method, policy_loss))
        core.ADV_ESTIMATOR_REGISTRY.pop(name, None)
        core.register_adv_est(name)(_built_at_first_call(method, advantage_estimator))
        names.append(name)
    for method, edits in edited_methods(environment.get(VARIABLE, "")):
        lines = register(method, edits)
        names.append(lines[0].partition("=")[2])
    return names


def _built_at_first_call(method: str, part: Callable[[Objective], Callable[..., Any]]) -> Callable[..., Any]:
    built: list[Callable[..., Any]] = []

    def call(*arguments: Any, **settings: Any) -> Any:
        if not built:
            built.append(part(Objective.preset(method)))
        return built[0](*arguments, **settings)

    return call


def load() -> None:
    """Registers where verl is imported. verl hides the errors of plugins, so one is logged here."""
    try:
        register_all(os.environ)
    except Exception as error:
        log.error("the methods of groupwise are not registered with verl: %s", error)
        raise
