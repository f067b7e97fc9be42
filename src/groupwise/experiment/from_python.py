"""Runs from Python: `groupwise.train` and `groupwise.resume`, which take objects as well as names."""

import os
import re
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from groupwise.config import ConfigError, Problem, holding, merge, nearest, read_json
from groupwise.domain.callable import DOMAINS
from groupwise.domain.exported import DomainObjects
from groupwise.experiment.arguments import Arguments, nested_changes, read_arguments, wrong_type
from groupwise.experiment.catalogue import PROMPTS, Source, find
from groupwise.experiment.loading import load_source
from groupwise.experiment.object_record import DOMAIN_INSTANCE, check_objects, objects_of
from groupwise.experiment.schema import Experiment

if TYPE_CHECKING:
    from groupwise.training.run.launch import Result


_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+(?<!\.toml)(?<!\.json)")


P = ParamSpec("P")
T = TypeVar("T")


def _without_frames(function: Callable[P, T]) -> Callable[P, T]:
    """Lets an error in what a user wrote begin at the user's line: no frame of ours says more than its message."""

    @wraps(function)
    def call(*arguments: P.args, **keywords: P.kwargs) -> T:
        __tracebackhide__ = True  # IPython and pytest leave this frame out too.
        try:
            return function(*arguments, **keywords)
        except ConfigError as error:
            if os.environ.get("GROUPWISE_TRACEBACK"):
                raise
            raise error.with_traceback(None) from error.__cause__

    return call


@_without_frames
def train(
    experiment_or_model: Any = None,
    *,
    domain: Any = None,
    objective: Any = None,
    rewards: Any = None,
    data: Any = None,
    eval_data: Any = None,
    callbacks: Any = (),
    tools: Any = (),
    out: str | Path | None = None,
    resume: bool = False,
    controls: bool = True,
    run_code: bool = False,
    **changes: Any,
) -> "Result":
    """Trains an experiment or a model, on Python objects where they are given. An argument replaces what the experiment
    says.

    Args:
        experiment_or_model: an `Experiment`, the name or path of one; or a model: its folder, its hub id, a GGUF file,
            `package:NAME`, `(model, tokenizer)`, or a torch module for the domain. It may be left out where `domain` is
            an object.
        domain: an object or a class of `groupwise.Domain`, or the name of a kind.
        objective: a `groupwise.Objective`, the name of a method or its file.
        rewards: a function `reward(prompts, completions, **columns) -> list[float | None]`, a list of them, or a dict
            name -> function or configured reward of `groupwise.reward`.
        data: rows to train on: a list of dicts, a `datasets.Dataset`, an `IterableDataset` (with
            `domain.data.num_train`), or the path of a file.
        eval_data: rows to evaluate on, or a dict of several sets by name; without it, a tenth of the rows in `data` and
            at most 256 are held out, of a file or a stream `domain.data.num_held_out`.
        callbacks: functions of `(step, metrics)`, called after every step; a true result ends the stage.
        tools: functions that a language policy may call through its chat template (`domain.environment.kind =
            "chat_tools"`), each with type hints and a docstring.
        out: the run folder, which must be new; unset makes `runs/<experiment>-<seed>-<timestamp>`.
        resume: continues with the run in `out`, where there is one.
        controls: whether the experiment's controls are trained as well.
        run_code: allows the code that a run folder names, where `experiment_or_model` is the path of one.
        **changes: keys of the experiment: `seed=4`, `train=dict(num_steps=3)`, `**{"train.num_steps": 3}`.

    Returns:
        The folder and what `summary.json` holds: metric, before, after, baseline, seconds by part, steps, seed, gains
            over controls.

    Raises:
        ConfigError: any mistake that can be found before the first step.

    Example:
        >>> train("langage")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        groupwise.config.errors.ConfigError: 'langage' is neither a shipped experiment nor a file; ...did you mean language?...
    """  # noqa: E501
    from groupwise.experiment import runner

    _check_options(out, resume=resume, controls=controls, run_code=run_code)
    model, source = _start(experiment_or_model, domain)
    arguments = read_arguments(model, domain, objective, rewards, data, eval_data, callbacks, tools)
    with holding(arguments.objects):
        experiment = _experiment(experiment_or_model, source, arguments, nested_changes(changes), run_code)
        if not resume:
            return runner.run(experiment, out, controls=controls)
        if out is None:
            raise ConfigError("resume = True: out is missing; write out=FOLDER, the folder of the run")
        return runner.begin_or_resume(experiment, Path(out), controls=controls)


@_without_frames
def resume(
    folder: str | Path,
    *,
    model: Any = None,
    domain: Any = None,
    rewards: Any = None,
    data: Any = None,
    eval_data: Any = None,
    callbacks: Any = (),
    tools: Any = (),
    run_code: bool = False,
) -> "Result":
    """Goes on with a run from its newest checkpoint, to the same end as if it had not been cut off.

    Args:
        model, domain, rewards, data, eval_data, callbacks, tools: the objects that `groupwise.train` took and that no file
            describes, as `train` took them; other arguments need not be repeated.
        run_code: allows the code that the folder names by import path.

    Returns:
        the result that `train` would have returned; a run that has ended is left as it is.

    Raises:
        ConfigError: there is no run in the folder, an object of the run is missing, or the folder names code that needs
            consent.

    Example:
        >>> resume("nowhere")
        Traceback (most recent call last):
        groupwise.config.errors.ConfigError: run folder nowhere: it holds no run (no config.json); give the folder that `groupwise train` printed
    """  # noqa: E501
    from groupwise.experiment import runner

    _check_options(None, run_code=run_code)
    arguments = read_arguments(model, domain, None, rewards, data, eval_data, callbacks, tools)
    with holding(arguments.objects):
        file = Path(folder) / "config.json"
        records = objects_of(read_json(file), str(file)) if file.is_file() else {}
        check_objects(Path(folder), records, arguments.records)
        return runner.resume(folder, run_code=run_code)


def _check_options(out: Any, **switches: Any) -> None:
    """Refuses a run folder that is not a path, and switches that are neither true nor false."""
    if not isinstance(out, str | Path | None):
        raise wrong_type("out", out, "write the path of the run folder")
    if "\0" in str(out):
        raise ConfigError(f"out = {str(out)!r}: a zero byte stands in it, which no path has; write another name")
    for name, value in switches.items():
        if not isinstance(value, bool):
            raise ConfigError(f"{name} = {value!r}: allowed: True, False")


def _start(experiment_or_model: Any, domain: Any) -> tuple[Any, Source]:
    """Decides whether the argument is an experiment or a model. Returns the model, if it is one, and the experiment's
    source.
    """
    if isinstance(experiment_or_model, Experiment):
        return None, Source(experiment_or_model.name, ((Path("experiment"), experiment_or_model.table()),))
    if isinstance(experiment_or_model, str | Path) and not _is_model(str(experiment_or_model)):
        return None, find(experiment_or_model)
    if experiment_or_model is None and domain is None:
        raise ConfigError(
            'experiment_or_model: nothing was given; write groupwise.train("language"), groupwise.train(MODEL_FOLDER,'
            " rewards=..., data=...) or groupwise.train(domain=...)"
        )
    model = str(experiment_or_model) if isinstance(experiment_or_model, Path) else experiment_or_model
    return model, find(PROMPTS)


def _is_model(name: str) -> bool:
    """Returns whether a text is something that `--model` accepts: a folder, a GGUF file, `package:NAME` or a hub id."""
    path = Path(name)
    try:
        if path.is_dir():
            file = path / "config.json"
            adapts = (path / "adapter_config.json").is_file()
            return adapts or (file.is_file() and "domain" not in read_json(file))
        if name.startswith("package:") or path.suffix == ".gguf":
            return True
        # `folder/name` with an existing folder is a missing file, not a hub id.
        return bool(_HUB_ID.fullmatch(name)) and not path.exists() and not path.parent.is_dir()
    except (OSError, ValueError):
        return False


def _experiment(
    experiment_or_model: Any, source: Source, arguments: Arguments, changes: dict[str, Any], run_code: bool
) -> Experiment:
    """Returns the experiment with the arguments and the changes."""
    argument_keys = _table(source, arguments, changes)
    if isinstance(experiment_or_model, Experiment) and not argument_keys and not changes:
        return experiment_or_model
    if DOMAIN_INSTANCE in arguments.objects and (domain_changes := changes.get("domain")):
        keys = ", ".join(f"domain.{key}" for key in domain_changes) if isinstance(domain_changes, Mapping) else "domain"
        raise ConfigError(f"{keys}: has no effect on a domain that is built already; give its class, or leave it out")
    if arguments.objective and "method" in changes:
        raise ConfigError(
            f"method = {changes['method']!r}: objective= says the method already; leave one of the two out"
        )
    if arguments.rewards is not None:
        source = source.without_rewards()
    from_model = source.name == PROMPTS
    label = "the arguments" if from_model else source.name + (" with the arguments" if argument_keys else "")
    experiment = load_source(source, merge(argument_keys, changes), label, run_code=run_code)
    return experiment.model_copy(update={"objects": arguments.records})


def _table(source: Source, arguments: Arguments, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the keys that the arguments set."""
    table: dict[str, Any] = dict(arguments.objective)
    domain = dict(arguments.domain)
    objects = arguments.for_domain
    if objects != DomainObjects():
        domain_changes = changes.get("domain")
        kinds = (domain, domain_changes if isinstance(domain_changes, Mapping) else {}, source.tree.get("domain", {}))
        kind = next((table["kind"] for table in kinds if "kind" in table), "")
        if kind not in DOMAINS.names():
            names = DOMAINS.names()
            raise ConfigError(Problem(f"domain = {kind!r}", "no such kind", names, nearest(kind, names)))
        config: Any = DOMAINS.config(kind)
        domain = merge(domain, config.on_objects(objects))
    if domain:
        table["domain"] = domain
    if arguments.callbacks is not None:
        table["train"] = {"callbacks": list(map(str, arguments.callbacks))}
    return table
