"""The arguments of `groupwise.train` as an experiment's table, with the objects that no table can describe."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from groupwise.config import ConfigError, ImportPath
from groupwise.experiment.domain_argument import read_domain
from groupwise.experiment.python_objects import MODULE, Arguments, type_name
from groupwise.experiment.reward_arguments import columns_of, read_rewards
from groupwise.experiment.row_arguments import read_evaluation, read_rows


def read_arguments(
    model: Any = None,
    *,
    domain: Any = None,
    objective: Any = None,
    rewards: Any = None,
    data: Any = None,
    eval_data: Any = None,
    callbacks: Any = (),
    tools: Any = (),
) -> Arguments:
    """Checks the arguments of `groupwise.train`, one after another.

    Args:
        model: the folder of a model, a pair of model and tokenizer, or a module for a domain.
        domain, objective, rewards, data, eval_data, callbacks, tools: as of `groupwise.train`; None or an
            empty tuple where left out.

    Raises:
        ConfigError: an argument cannot be used; names it, its type, what is allowed and what to write.

    Example:
        >>> read_arguments(rewards=lambda completions, **columns: [0.0] * len(completions)).records[
        ...     "rewards_reward"
        ... ].argument
        "rewards['reward']"
    """
    arguments = Arguments()
    read_domain(arguments, domain)
    _read_model(arguments, model, domain)
    _read_objective(arguments, objective)
    if rewards is not None:
        arguments.rewards = read_rewards(arguments, rewards, columns_of(data))
    arguments.data = read_rows(arguments, "data", data)
    arguments.eval_data = read_evaluation(arguments, eval_data)
    if callbacks is not None and callbacks != ():
        arguments.callbacks = [
            str(path) for path in _read_functions(arguments, "callbacks", callbacks, "a function of (step, metrics)")
        ]
    if tools is not None and tools != ():
        function = "a function with type hints and a docstring"
        arguments.tools = tuple(_read_functions(arguments, "tools", tools, function))
    return arguments


def _read_model(arguments: Arguments, model: Any, domain: Any) -> None:
    if model is None or isinstance(model, str):
        arguments.model = model
        return
    if isinstance(model, tuple | list) and len(model) == 2:
        module, tokenizer = model
        if not _is_module(module) or not hasattr(module, "get_input_embeddings"):
            raise ConfigError(
                f"model: the first of the pair is of type {type_name(module)}; write (model, tokenizer), a causal"
                " language model of transformers and its tokenizer"
            )
        if not (callable(tokenizer) and hasattr(tokenizer, "decode") and hasattr(tokenizer, "eos_token_id")):
            raise ConfigError(
                f"model: the second of the pair is of type {type_name(tokenizer)}; write (model, tokenizer), where the"
                " tokenizer is one of transformers"
            )
        arguments.model = (
            arguments.hold("model", module, "model"),
            arguments.hold("tokenizer", tokenizer, "tokenizer"),
        )
        return
    if _is_module(model):
        if domain is None or isinstance(domain, str):
            advice = (
                "a language model needs its tokenizer; write groupwise.train((model, tokenizer), ...)"
                if hasattr(model, "get_input_embeddings")
                else "a module alone does not say what it is asked; give domain=, an object of a groupwise.Domain"
            )
            raise ConfigError(f"model: a {type_name(model)} was given; {advice}")
        arguments.hold(MODULE, model, "model")
        return
    raise ConfigError(
        f"experiment_or_model: an object of type {type_name(model)} was given; allowed: an Experiment, the name or path"
        " of one, the folder of a model, (model, tokenizer), or a torch module beside domain=; write"
        ' groupwise.train("language")'
    )


def _read_objective(arguments: Arguments, objective: Any) -> None:
    from groupwise.objective import Objective

    if objective is None:
        return
    if isinstance(objective, str | Path):
        arguments.objective = {"method": str(objective)}
        return
    if not isinstance(objective, Objective):
        raise ConfigError(
            f"objective: an object of type {type_name(objective)} was given; allowed: a groupwise.Objective, the name"
            ' of a method or its file; write objective="dapo" or objective=groupwise.Objective.preset("dapo")'
        )
    method = objective.name.removesuffix("+edited")
    try:
        Objective.preset(method)
    except ConfigError:
        # No preset has the objective's name, so all its slots are stated and laid over those of GRPO.
        method = "grpo"
    arguments.objective = {
        "method": method,
        **objective.model_dump(mode="json", exclude={"name"}),
    }


def _read_functions(arguments: Arguments, argument: str, functions: Any, description: str) -> list[ImportPath]:
    """Returns the import paths of a list of functions."""
    if callable(functions) or isinstance(functions, str) or not isinstance(functions, Iterable):
        raise ConfigError(
            f"{argument}: an object of type {type_name(functions)} was given; give a list, each {description}; write"
            f" {argument}=[function]"
        )
    paths: list[ImportPath] = []
    for place, function in enumerate(functions):
        if isinstance(function, str):
            paths.append(ImportPath(function))
            continue
        if not callable(function):
            raise ConfigError(
                f"{argument}[{place}]: an object of type {type_name(function)} was given; write {description}"
            )
        paths.append(arguments.refer(f"{argument}_{place}", function, f"{argument}[{place}]"))
    return paths


def _is_module(value: Any) -> bool:
    from torch import nn

    return isinstance(value, nn.Module)
