"""The arguments of `groupwise.train` as an experiment's table, with the objects that no table can describe."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from groupwise.config import ConfigError, ImportPath, check_plain, object_path
from groupwise.config.layers import set_nested
from groupwise.domain.exported import EvaluationObjects, RowsObject
from groupwise.experiment.object_record import (
    DOMAIN_INSTANCE,
    MODULE,
    Arguments,
    import_path_of,
    record_of,
    type_name,
    wrong_type,
)
from groupwise.reward import Reward

# The argument `domain` of `groupwise.train`: an object, a class, or the name of a kind.


def read_domain(arguments: Arguments, domain: Any) -> None:
    """Checks the argument, and writes the keys that it sets.

    Args:
        arguments: the record to which the object and the keys are added.
        domain: the value of the argument; None where it was left out.

    Raises:
        ConfigError: the value is not a domain, or a member of the domain is missing.
    """
    from groupwise.domain.base import Domain
    from groupwise.domain.settings import DomainConfig

    if domain is None:
        return
    if isinstance(domain, str):
        arguments.domain = {"kind": domain}
        return
    if isinstance(domain, DomainConfig):
        arguments.domain = domain.model_dump(mode="json")
        return
    if inspect.isclass(domain) and issubclass(domain, Domain):
        arguments.domain = {"kind": "callable", "path": str(arguments.refer("domain", domain, "domain"))}
        return
    if not isinstance(domain, Domain):
        advice = "an object or a class of groupwise.Domain, or the name of a kind; write class Mine(groupwise.Domain)"
        raise wrong_type("domain", domain, f'allowed: {advice}, or domain="language"')
    settings = _settings_of(domain)
    path = import_path_of(type(domain))
    arguments.objects[DOMAIN_INSTANCE] = domain
    arguments.records[DOMAIN_INSTANCE] = record_of(domain.checked(), "domain")
    if path is None or settings is None:
        arguments.records["domain"] = record_of(domain, "domain")
        arguments.objects["domain"] = _class_of(domain)
        arguments.domain = {"kind": "callable", "path": str(object_path("domain"))}
    elif isinstance(settings, DomainConfig):
        arguments.domain = settings.model_dump(mode="json")
    else:
        arguments.domain = {"kind": "callable", "path": path, "settings": settings.model_dump(mode="json")}


def _settings_of(domain: Any) -> BaseModel | None:
    """Returns the settings that a domain keeps as an attribute; None where its class declares settings and it keeps
    none.
    """
    from groupwise.domain.settings import DomainConfig

    settings_class = type(domain).Settings
    for base in (DomainConfig, settings_class):
        for value in vars(domain).values():
            if isinstance(value, base):
                return value
    return settings_class() if not settings_class.model_fields else None


def _class_of(domain: Any) -> type[Any]:
    """Returns a class whose `open` returns this domain. A configuration that names a domain's class needs one."""
    from groupwise.domain.base import NoSettings

    def opened(cls: type[Any], settings: Any, **placement: Any) -> Any:
        return domain.checked()

    return type(type(domain).__name__, (type(domain),), {"Settings": NoSettings, "open": classmethod(opened)})


# The argument `rewards` of `groupwise.train`: functions and configured rewards, with names.

_WRITE_REWARD = "write def reward(completions, **columns): return [...], one number a completion"
ATTRIBUTES = ("weight", "timeout_seconds", "on_error", "role", "bounds", "completions")
"""Attributes of a function that set its keys as a reward."""
_ONE_A_MEMBER = frozenset({"prompts", "completions", "completion_ids"})


def read_rewards(arguments: Arguments, rewards: Any, columns: frozenset[str] | None) -> dict[str, dict[str, Any]]:
    """Returns the table of each reward by its name.

    Args:
        arguments: the record to which the objects are added.
        rewards: a function or configured reward, a list of them, or a dict by name.
        columns: the columns of the data, where they are known.

    Raises:
        ConfigError: there is no reward, or one cannot be called as rewards are.
    """
    several = isinstance(rewards, Sequence) and not isinstance(rewards, str)
    pairs = list(rewards.items() if isinstance(rewards, Mapping) else numbered(rewards if several else [rewards]))
    if not pairs:
        raise ConfigError("rewards: none was given; give a function, a list of functions, or a dict name -> function")
    tables: dict[str, dict[str, Any]] = {}
    for name, reward in pairs:
        if not isinstance(name, str) or not name:
            raise ConfigError(f"rewards: the name {name!r} is of type {type_name(name)}; a reward's name is a text")
        tables[name] = _reward(arguments, name, reward, columns)
    return tables


def numbered(rewards: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Yields (name, reward). The name is that of a function or the kind of a configured reward, with a number if it
    repeats.
    """
    rewards, names = list(rewards), list[str]()
    for reward in rewards:
        name = getattr(reward, "kind", None) if isinstance(reward, Reward) else getattr(reward, "__name__", None)
        names.append(name if isinstance(name, str) and name.isidentifier() else "reward")
    yield from zip(distinct_names(names), rewards, strict=True)


def distinct_names(names: Iterable[str]) -> Iterator[str]:
    """Yields the names, with a number from the second time on that one comes.

    Example:
        >>> list(distinct_names(["correct", "short", "correct"]))
        ['correct', 'short', 'correct_2']
    """
    used: dict[str, int] = {}
    for name in names:
        used[name] = used.get(name, 0) + 1
        yield name if used[name] == 1 else f"{name}_{used[name]}"


def _reward(arguments: Arguments, name: str, reward: Any, columns: frozenset[str] | None) -> dict[str, Any]:
    from groupwise.reward.config import REWARDS

    argument = f"rewards[{name!r}]"
    if isinstance(reward, Reward) and getattr(reward, "kind", None) in REWARDS.names():
        return reward.model_dump(mode="json")
    if isinstance(reward, str) and ":" in reward:
        return {"kind": "callable", "path": reward}
    if isinstance(reward, str) and Path(reward).is_dir():
        return {"kind": "reward_model", "path": reward}
    if isinstance(reward, str):
        raise ConfigError(
            f"{argument}: {reward!r:.200} is no function; a reward model is written as"
            f" groupwise.reward.RewardModel(path={reward!r:.200}), a function of a module as 'package.module:name'"
        )
    # TRL takes a model of transformers for a reward.
    if hasattr(reward, "save_pretrained") and hasattr(reward, "forward"):
        advice = "write the folder that the model is saved in, as groupwise.reward.RewardModel(path=FOLDER)"
        raise wrong_type(argument, reward, advice)
    if not callable(reward):
        allowed = "allowed: a function, an object that can be called, a configured reward of groupwise.reward"
        raise wrong_type(argument, reward, f"{allowed}; {_WRITE_REWARD}")
    if not isinstance(reward, Reward):
        _check_signature(argument, reward, columns)
    place = re.sub(r"\W", "_", f"rewards_{name}")
    while place in arguments.objects:
        place += "_"
    table: dict[str, Any] = {"kind": "callable", "path": str(arguments.refer(place, reward, argument))}
    for key in ATTRIBUTES:
        value = getattr(reward, key, None)
        if value is not None and not callable(value):
            table[key] = list(value) if isinstance(value, tuple) else value
    return table


def _check_signature(argument: str, reward: Callable[..., Any], columns: frozenset[str] | None) -> None:
    """Refuses a reward that cannot be called with keyword arguments."""
    if inspect.isclass(reward):
        return
    try:
        signature = inspect.signature(reward)
    except (TypeError, ValueError):
        raise ConfigError(f"{argument}: {reward!r} does not name its parameters; {_WRITE_REWARD}") from None
    parameters = inspect.signature(reward).parameters.values()
    described = f"{argument}: {getattr(reward, '__name__', type(reward).__name__)}{signature}"[:250]
    if any(parameter.kind is parameter.POSITIONAL_ONLY for parameter in parameters):
        raise ConfigError(
            f"{described} has a parameter without a name, and a reward is called by names; {_WRITE_REWARD}"
        )
    names = {parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_POSITIONAL}
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters) or names & _ONE_A_MEMBER:
        return
    if not names or (columns is not None and not names <= columns):
        raise ConfigError(
            f"{described} takes none of prompts, completions and completion_ids, and a reward is called as"
            f" reward(prompts=..., completions=..., COLUMN=...); {_WRITE_REWARD}"
        )


def columns_of(data: Any) -> frozenset[str] | None:
    """Returns the columns of rows, with those that a domain adds, as far as they are known without reading a stream."""
    names = getattr(data, "column_names", None)
    if names is None and isinstance(data, list) and data and isinstance(data[0], dict):
        names = list(data[0])
    if not isinstance(names, list):
        return None
    return frozenset(map(str, names)) | {"num_tokens", "truncated", "answer", "prompt"}


# The arguments `data` and `eval_data` of `groupwise.train`: rows, or the path of a file.

_ALLOWED = (
    "a list of dicts, a datasets.Dataset, an IterableDataset, or the path of a file"
    " (.jsonl, .json, .csv, .tsv, .parquet, .txt)"
)


def read_evaluation(arguments: Arguments, eval_data: Any) -> EvaluationObjects:
    """Checks the argument `eval_data`: rows, the path of a file, or a dict of several sets by name.

    Args:
        arguments: takes the objects.
        eval_data: as the caller of `groupwise.train` wrote it; None where it was left out.

    Raises:
        ConfigError: a set holds no rows, or there is none.
    """
    if not isinstance(eval_data, Mapping):
        return read_rows(arguments, "eval_data", eval_data)
    if not eval_data:
        raise ConfigError('eval_data: the dict names no set; write eval_data={"test": ROWS}, or leave it out')
    sets: dict[str, RowsObject | str] = {}
    for place, (name, rows) in enumerate(eval_data.items()):
        read = read_rows(arguments, f"eval_data[{name!r}]", rows, f"eval_data_{place}")
        if read is None:
            raise ConfigError(f"eval_data[{name!r}]: there are no rows (None); give {_ALLOWED}")
        sets[str(name)] = read
    return sets


def read_rows(
    arguments: Arguments, argument: str, rows: Any, object_name: str | None = None
) -> RowsObject | str | None:
    """Checks the rows of an argument.

    Args:
        arguments: the record to which the object is added.
        argument: `data`, `eval_data`, or a set of it.
        rows: the rows as the caller wrote them; None where they were left out.
        object_name: the name of the object in the run; that of the argument where unset.

    Raises:
        ConfigError: the value cannot be read as rows, or holds none.
    """
    if rows is None:
        return None
    if isinstance(rows, str | Path):
        return str(rows)
    if advice := _advice(rows):
        raise wrong_type(argument, rows, f"allowed: {_ALLOWED}; write {advice}")
    num_rows = len(rows) if hasattr(rows, "__len__") else None
    if num_rows == 0:
        raise ConfigError(f"{argument}: it holds no rows; give at least {'two' if argument == 'data' else 'one'}")
    return RowsObject(arguments.hold(object_name or argument, rows, argument), num_rows)


def _advice(rows: Any) -> str | None:
    """Returns advice for an object that cannot be read as rows repeatedly; None for an object that can."""
    library = type(rows).__module__.partition(".")[0]
    if isinstance(rows, Mapping):
        return 'data["train"], one of its splits' if library == "datasets" else '[{"prompt": ...}, ...]'
    if library in ("pandas", "polars"):
        return 'data.to_dict("records")' if library == "pandas" else "data.to_dicts()"
    if hasattr(rows, "__next__"):
        return "list(data): a generator can be read only once"
    return None if hasattr(rows, "__iter__") else '[{"prompt": ...}, ...]'


def read_arguments(
    model: Any = None,
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
        domain, objective, rewards, data, eval_data, callbacks, tools: as in `groupwise.train`; None or an
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
        paths = _read_functions(arguments, "callbacks", callbacks, "a function of (step, metrics)")
        arguments.callbacks = list(map(str, paths))
    if tools is not None and tools != ():
        paths = _read_functions(arguments, "tools", tools, "a function with type hints and a docstring")
        arguments.tools = tuple(paths)
    return arguments


def _read_model(arguments: Arguments, model: Any, domain: Any) -> None:
    if model is None or isinstance(model, str):
        arguments.model = model
        return
    if isinstance(model, tuple | list) and len(model) == 2:
        module, tokenizer = model
        if not _is_module(module) or not hasattr(module, "get_input_embeddings"):
            advice = "write (model, tokenizer), a causal language model of transformers and its tokenizer"
            raise wrong_type("model[0]", module, advice)
        if not (callable(tokenizer) and hasattr(tokenizer, "decode") and hasattr(tokenizer, "eos_token_id")):
            advice = "write (model, tokenizer), where the tokenizer is one of transformers"
            raise wrong_type("model[1]", tokenizer, advice)
        arguments.model = (
            arguments.hold("model", module, "model"),
            arguments.hold("tokenizer", tokenizer, "model[1]"),
        )
    elif not _is_module(model):
        allowed = "an Experiment, the name or path of one, the folder of a model, (model, tokenizer), or a torch module"
        advice = f'allowed: {allowed} beside domain=; write groupwise.train("language")'
        raise wrong_type("experiment_or_model", model, advice)
    elif domain is None or isinstance(domain, str):
        advice = (
            "a language model needs its tokenizer; write groupwise.train((model, tokenizer), ...)"
            if hasattr(model, "get_input_embeddings")
            else "a module alone does not say what it is asked; give domain=, an object of a groupwise.Domain"
        )
        raise wrong_type("model", model, advice)
    else:
        arguments.hold(MODULE, model, "model")


def _read_objective(arguments: Arguments, objective: Any) -> None:
    from groupwise.objective import Objective

    if objective is None:
        return
    if isinstance(objective, str | Path):
        arguments.objective = {"method": str(objective)}
        return
    if not isinstance(objective, Objective):
        allowed = "a groupwise.Objective, the name of a method or its file"
        advice = 'write objective="dapo" or objective=groupwise.Objective.preset("dapo")'
        raise wrong_type("objective", objective, f"allowed: {allowed}; {advice}")
    method = objective.name.removesuffix("+edited")
    try:
        Objective.preset(method)
    except ConfigError:
        # No preset has the objective's name, so all its slots are stated and laid over those of GRPO.
        method = "grpo"
    arguments.objective = {"method": method, **objective.model_dump(mode="json", exclude={"name"})}


def _read_functions(arguments: Arguments, argument: str, functions: Any, description: str) -> list[ImportPath]:
    """Returns the import paths of a list of functions."""
    if callable(functions) or isinstance(functions, str) or not isinstance(functions, Iterable):
        raise wrong_type(argument, functions, f"give a list, each {description}; write {argument}=[function]")
    paths: list[ImportPath] = []
    for place, function in enumerate(functions):
        if isinstance(function, str):
            paths.append(ImportPath(function))
            continue
        if not callable(function):
            raise wrong_type(f"{argument}[{place}]", function, f"write {description}")
        paths.append(arguments.refer(f"{argument}_{place}", function, f"{argument}[{place}]"))
    return paths


def _is_module(value: Any) -> bool:
    from torch import nn

    return isinstance(value, nn.Module)


# Further keyword arguments of `groupwise.train`: keys of the experiment, as nested tables.


def nested_changes(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns changes as nested tables: `{"train.num_steps": 3}` and `train=dict(num_steps=3)` are equivalent.

    Args:
        changes: keys of an experiment, dotted or nested, with their values.

    Raises:
        ConfigError: a value of a type that no configuration holds, or a key that is written twice.

    Example:
        >>> nested_changes({"train.num_steps": 3, "train": {"group_size": 4}, "seed": 1})
        {'train': {'num_steps': 3, 'group_size': 4}, 'seed': 1}
    """
    tree: dict[str, Any] = {}
    for key, value in changes.items():
        if not all(names := key.split(".")):
            message = f"the key {key!r} cannot be read; write names joined by dots, for example 'train.num_steps'"
            raise ConfigError(message)
        set_nested(tree, names, _plain(value, key), key, once=True)
    check_plain(tree, "changes")
    return tree


def _plain(value: Any, key: str) -> Any:
    """Returns a value as a configuration holds it: tables, lists, texts, numbers, flags, None."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {str(name): _plain(inner, f"{key}.{name}") for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner, f"{key}[{place}]") for place, inner in enumerate(value)]
    if callable(getattr(value, "item", None)) and getattr(value, "ndim", None) == 0:
        return value.item()
    setting = "a setting is a number, a text, a flag, None, a list or a dict"
    raise wrong_type(key, value, f"{setting}; functions go to rewards= or callbacks=, rows to data=")
