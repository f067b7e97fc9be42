"""The arguments of `groupwise.train` as an experiment's table, with the objects that no table can describe."""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from pydantic import BaseModel

from groupwise.config import ConfigError, ImportPath, check_plain, object_path
from groupwise.config.tables import put
from groupwise.domain.exported import DomainObjects, EvaluationObjects, RowsObject
from groupwise.experiment.object_record import DOMAIN_INSTANCE, MODULE, ObjectRecord, import_path_of, record_of
from groupwise.reward import Reward


@final
@dataclass
class Arguments:
    """Objects of a program, and the keys that refer to them.

    Args:
        objects: name -> object, for `groupwise.config.holding`.
        records: name -> the record in `config.json` of an object that no import path names.
        model: the domain's model: a folder, or the import paths of a model and its tokenizer.
        domain: the keys of the domain's table that follow from its instance, class or kind.
        objective: the keys of the experiment that state the method.
        rewards, data, eval_data: the arguments in the form that the domain takes.
        callbacks, tools: import paths; None where the argument was left out.
    """

    objects: dict[str, Any] = field(default_factory=dict)
    records: dict[str, ObjectRecord] = field(default_factory=dict)
    model: str | tuple[ImportPath, ImportPath] | None = None
    domain: dict[str, Any] = field(default_factory=dict)
    objective: dict[str, Any] = field(default_factory=dict)
    rewards: dict[str, dict[str, Any]] | None = None
    data: RowsObject | str | None = None
    eval_data: EvaluationObjects = None
    callbacks: list[ImportPath] | None = None
    tools: list[ImportPath] | None = None

    @property
    def for_domain(self) -> DomainObjects:
        """The objects that the domain's configuration takes."""
        tools = None if self.tools is None else tuple(self.tools)
        return DomainObjects(self.model, self.rewards, self.data, self.eval_data, tools)

    def refer(self, name: str, value: Any, argument: str) -> ImportPath:
        """Returns the import path of an object: its own where another process can import it, otherwise that of an
        object which the run holds.

        Args:
            name: the object's name in the run.
            argument: the argument of `groupwise.train` that is the object.
        """
        path = import_path_of(value)
        if path is not None:
            return ImportPath(path)
        return self.hold(name, value, argument)

    def hold(self, name: str, value: Any, argument: str) -> ImportPath:
        """Adds an object to those that the run holds, and returns its import path.

        Args:
            name: the object's name in the run.
            argument: the argument of `groupwise.train` that is the object.
        """
        self.objects[name] = value
        self.records[name] = record_of(value, argument)
        return object_path(name)


def type_name(value: Any) -> str:
    """Returns the name of a value's type, or of a class itself, with its module.

    Example:
        >>> type_name(3), type_name(ImportPath)
        ('int', 'groupwise.config.import_path.ImportPath')
    """
    kind = value if inspect.isclass(value) else type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def wrong_type(argument: str, value: Any, advice: str) -> ConfigError:
    """Returns the error of an argument of a type that it does not take."""
    return ConfigError(f"{argument}: an object of type {type_name(value)} was given; {advice}")


# The argument `domain` of `groupwise.train`: an object, a class, or the name of a kind.


def _domain_keys(arguments: Arguments, domain: Any) -> dict[str, Any]:
    from groupwise.domain.base import Domain, NoSettings
    from groupwise.domain.settings import DomainConfig

    if domain is None or isinstance(domain, str):
        return {} if domain is None else {"kind": domain}
    if isinstance(domain, DomainConfig):
        return domain.model_dump(mode="json")
    if inspect.isclass(domain) and issubclass(domain, Domain):
        return {"kind": "callable", "path": str(arguments.refer("domain", domain, "domain"))}
    if not isinstance(domain, Domain):
        advice = "an object or a class of groupwise.Domain, or the name of a kind; write class Mine(groupwise.Domain)"
        raise wrong_type("domain", domain, f'allowed: {advice}, or domain="language"')
    arguments.hold(DOMAIN_INSTANCE, domain.checked(), "domain")
    path, settings_class = import_path_of(type(domain)), type(domain).Settings
    kept = (
        value for base in (DomainConfig, settings_class) for value in vars(domain).values() if isinstance(value, base)
    )
    settings = next(kept, None if settings_class.model_fields else settings_class())
    if path is not None and settings is not None:
        table = settings.model_dump(mode="json")
        return table if isinstance(settings, DomainConfig) else {"kind": "callable", "path": path, "settings": table}
    # A configuration names a domain's class, so the object gets one whose `open` returns it.
    members = {"Settings": NoSettings, "open": classmethod(lambda cls, settings, **placement: domain.checked())}
    arguments.hold("domain", type(type(domain).__name__, (type(domain),), members), "domain")
    return {"kind": "callable", "path": str(object_path("domain"))}


# The argument `rewards` of `groupwise.train`: functions and configured rewards, with names.

_WRITE_REWARD = "write def reward(completions, **columns): return [...], one number a completion"
ATTRIBUTES = ("weight", "timeout_seconds", "on_error", "role", "bounds", "completions")
"""Attributes of a function that set its keys as a reward."""


def read_rewards(arguments: Arguments, rewards: Any) -> dict[str, dict[str, Any]]:
    """Returns the table of each reward by its name.

    Args:
        arguments: the record to which the objects are added.
        rewards: a function or configured reward, a list of them, or a dict by name.

    Raises:
        ConfigError: there is no reward, or one cannot be called as rewards are.
    """
    several = isinstance(rewards, Sequence) and not isinstance(rewards, str)
    pairs = dict(rewards if isinstance(rewards, Mapping) else numbered(rewards if several else [rewards]))
    if not pairs:
        raise ConfigError("rewards: none was given; give a function, a list of functions, or a dict name -> function")
    return {name: _reward(arguments, name, reward) for name, reward in pairs.items()}


def numbered(rewards: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Yields (name, reward). The name is that of a function or the kind of a configured reward, with a number if it
    repeats.
    """
    rewards = list(rewards)
    names = [getattr(reward, "kind" if isinstance(reward, Reward) else "__name__", None) for reward in rewards]
    named = (name if isinstance(name, str) and name.isidentifier() else "reward" for name in names)
    yield from zip(distinct_names(named), rewards, strict=True)


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


def _reward(arguments: Arguments, name: Any, reward: Any) -> dict[str, Any]:
    from groupwise.reward.config import REWARDS

    argument = f"rewards[{name!r}]"
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{argument}: its name is of type {type_name(name)}; a reward's name is a text")
    if isinstance(reward, Reward) and getattr(reward, "kind", None) in REWARDS.names():
        return reward.model_dump(mode="json")
    if isinstance(reward, str):
        kind = "callable" if ":" in reward else "reward_model"
        if kind == "reward_model" and not Path(reward).is_dir():
            raise ConfigError(
                f"{argument}: {reward!r:.200} is no function; a reward model is written as"
                f" groupwise.reward.RewardModel(path={reward!r:.200}), a function of a module as 'package.module:name'"
            )
        return {"kind": kind, "path": reward}
    # TRL takes a model of transformers for a reward.
    if hasattr(reward, "save_pretrained") and hasattr(reward, "forward"):
        advice = "write the folder that the model is saved in, as groupwise.reward.RewardModel(path=FOLDER)"
        raise wrong_type(argument, reward, advice)
    if not callable(reward):
        allowed = "allowed: a function, an object that can be called, a configured reward of groupwise.reward"
        raise wrong_type(argument, reward, f"{allowed}; {_WRITE_REWARD}")
    if not isinstance(reward, Reward) and not inspect.isclass(reward):
        _check_signature(argument, reward)
    place = re.sub(r"\W", "_", f"rewards_{name}")
    while place in arguments.objects:
        place += "_"
    values = {key: getattr(reward, key, None) for key in ATTRIBUTES}
    return {
        "kind": "callable",
        "path": str(arguments.refer(place, reward, argument)),
        **{key: plain(value, key) for key, value in values.items() if value is not None and not callable(value)},
    }


def _check_signature(argument: str, reward: Callable[..., Any]) -> None:
    """Refuses a reward that cannot be called with keyword arguments."""
    kinds = set[Any]()
    with suppress(TypeError, ValueError):
        kinds = {parameter.kind for parameter in inspect.signature(reward).parameters.values()}
    unnamed = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL}
    if inspect.Parameter.POSITIONAL_ONLY in kinds or not kinds - unnamed:
        name = getattr(reward, "__name__", type(reward).__name__)
        raise ConfigError(
            f"{argument}: {name} cannot be called as reward(prompts=..., completions=..., COLUMN=...); {_WRITE_REWARD}"
        )


# The arguments `data` and `eval_data` of `groupwise.train`: rows, or the path of a file.

_ALLOWED = (
    "a list of dicts, a datasets.Dataset, an IterableDataset, or the path of a file"
    " (.jsonl, .json, .csv, .tsv, .parquet, .txt)"
)


def _evaluation(arguments: Arguments, eval_data: Any) -> EvaluationObjects:
    """Checks the argument `eval_data`: rows, the path of a file, or a dict of several sets by name."""
    if not isinstance(eval_data, Mapping):
        return _rows(arguments, "eval_data", eval_data, "eval_data")
    if not eval_data:
        raise ConfigError('eval_data: the dict names no set; write eval_data={"test": ROWS}, or leave it out')
    sets: dict[str, RowsObject | str] = {}
    for place, (name, rows) in enumerate(eval_data.items()):
        read = _rows(arguments, f"eval_data[{name!r}]", rows, f"eval_data_{place}")
        if read is None:
            raise ConfigError(f"eval_data[{name!r}]: there are no rows (None); give {_ALLOWED}")
        sets[str(name)] = read
    return sets


def _rows(arguments: Arguments, argument: str, rows: Any, name: str) -> RowsObject | str | None:
    """Returns the rows of an argument under the name of the object in the run, or the path of a file."""
    if rows is None or isinstance(rows, str | Path):
        return None if rows is None else str(rows)
    if advice := _advice(rows):
        raise wrong_type(argument, rows, f"allowed: {_ALLOWED}; write {advice}")
    num_rows = len(rows) if hasattr(rows, "__len__") else None
    if num_rows == 0:
        raise ConfigError(f"{argument}: it holds no rows; give at least {'two' if argument == 'data' else 'one'}")
    return RowsObject(arguments.hold(name, rows, argument), num_rows)


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
    arguments.domain = _domain_keys(arguments, domain)
    _read_model(arguments, model, domain)
    arguments.objective = _objective_keys(objective)
    if rewards is not None:
        arguments.rewards = read_rewards(arguments, rewards)
    arguments.data = _rows(arguments, "data", data, "data")
    arguments.eval_data = _evaluation(arguments, eval_data)
    if callbacks is not None and callbacks != ():
        arguments.callbacks = _paths_of(arguments, "callbacks", callbacks, "a function of (step, metrics)")
    if tools is not None and tools != ():
        arguments.tools = _paths_of(arguments, "tools", tools, "a function with type hints and a docstring")
    return arguments


def _read_model(arguments: Arguments, model: Any, domain: Any) -> None:
    from torch import nn

    if model is None or isinstance(model, str):
        arguments.model = model
    elif isinstance(model, tuple | list) and len(model) == 2:
        module, tokenizer = model
        is_model = isinstance(module, nn.Module) and hasattr(module, "get_input_embeddings")
        is_tokenizer = callable(tokenizer) and hasattr(tokenizer, "decode") and hasattr(tokenizer, "eos_token_id")
        advice = "write (model, tokenizer), a causal language model of transformers and its tokenizer"
        for place, (part, fits) in enumerate(((module, is_model), (tokenizer, is_tokenizer))):
            if not fits:
                raise wrong_type(f"model[{place}]", part, advice)
        arguments.model = arguments.hold("model", module, "model"), arguments.hold("tokenizer", tokenizer, "model[1]")
    elif not isinstance(model, nn.Module):
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


def _objective_keys(objective: Any) -> dict[str, Any]:
    from groupwise.objective import Objective

    if objective is None or isinstance(objective, str | Path):
        return {} if objective is None else {"method": str(objective)}
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
    return {"method": method, **objective.model_dump(mode="json", exclude={"name"})}


def _paths_of(arguments: Arguments, argument: str, functions: Any, description: str) -> list[ImportPath]:
    """Returns the import paths of a list of functions."""
    if callable(functions) or isinstance(functions, str) or not isinstance(functions, Iterable):
        raise wrong_type(argument, functions, f"give a list, each {description}; write {argument}=[function]")
    paths: list[ImportPath] = []
    for place, function in enumerate(functions):
        if not isinstance(function, str) and not callable(function):
            raise wrong_type(f"{argument}[{place}]", function, f"write {description}")
        path = ImportPath(function) if isinstance(function, str) else None
        paths.append(path or arguments.refer(f"{argument}_{place}", function, f"{argument}[{place}]"))
    return paths


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
        put(tree, names, plain(value, key), key, once=True)
    check_plain(tree, "changes")
    return tree


def plain(value: Any, key: str) -> Any:
    """Returns a value as a configuration holds it: tables, lists, texts, numbers, flags, None."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {str(name): plain(inner, f"{key}.{name}") for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner, f"{key}[{place}]") for place, inner in enumerate(value)]
    if callable(getattr(value, "item", None)) and getattr(value, "ndim", None) == 0:
        return value.item()
    setting = "a setting is a number, a text, a flag, None, a list or a dict"
    raise wrong_type(key, value, f"{setting}; functions go to rewards= or callbacks=, rows to data=")
