"""Arguments that several verbs share, and what they do to an experiment."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from groupwise.cli import completion
from groupwise.config import ConfigError, Problem, flatten, nearest
from groupwise.experiment.catalogue import PROMPTS, find, kind_of_models, shipped

if TYPE_CHECKING:
    from groupwise.experiment import Experiment


def _complete_change(ctx: typer.Context, incomplete: str) -> list[str]:
    words = [ctx.params.get("experiment"), *(ctx.params.get("overrides") or ())]
    return completion.changes([str(word) for word in words if word is not None], incomplete)


_EXPERIMENT_HELP = "A shipped name (`groupwise experiments`), a .toml file, a run folder, or its config.json."
ExperimentName = Annotated[
    str, typer.Argument(metavar="EXPERIMENT", help=_EXPERIMENT_HELP, autocompletion=completion.experiments)
]
ExperimentOrPrompts = Annotated[
    str,
    typer.Argument(
        metavar="[EXPERIMENT]",
        help=f"{_EXPERIMENT_HELP} Left out: prompts, which takes --model, --prompts and --reward.",
        autocompletion=completion.experiments,
        show_default=False,
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...",
        help="Changes, for example method=dapo train.group_size=16 optimiser.learning_rate=1e-5.",
        autocompletion=_complete_change,
    ),
]
Model = Annotated[str | None, typer.Option(help="A model folder or hub id, in place of the experiment's model.")]
Prompts = Annotated[
    str | None,
    typer.Option(
        help=(
            "A file with your prompts (.txt, .csv, .tsv, .json, .jsonl, .parquet), in place of the experiment's data; a"
            " shipped experiment then runs as its twin for any prompts, where it has one."
        )
    ),
]
Rewards = Annotated[
    list[str] | None,
    typer.Option(
        "--reward",
        help=(
            "A function of yours (my_rewards:correct) or a shipped kind (exact_answer), in place of the experiment's"
            " rewards; may be given several times."
        ),
    ),
]
Minutes = Annotated[
    float | None,
    typer.Option(help="Minutes of the clock for the whole run, its last evaluation included.", show_default=False),
]
Seed = Annotated[int | None, typer.Option(help="Seed of everything random, in place of the experiment's.")]
RunCode = Annotated[
    bool,
    typer.Option("--run-code", help="Let the code run that a run folder names."),
]
Threads = Annotated[int | None, typer.Option(min=1, max=1024, help="Threads on a CPU; one is usually the fastest.")]


def load(
    name: str,
    overrides: Sequence[str] | None,
    *,
    model: str | None = None,
    prompts: str | None = None,
    rewards: Sequence[str] | None = None,
    minutes: float | None = None,
    seed: int | None = None,
    threads: int | None = None,
    run_code: bool = False,
) -> "Experiment":
    """Loads the experiment that a command line names, with its options as the uppermost layer.

    Args:
        name: the experiment; a change `key=value` in its place changes the experiment `prompts`.
        overrides: `key=value` items.
        model: a model folder or hub id in place of the experiment's.
        prompts: a file of prompts in place of the experiment's data; a shipped experiment is then its twin for any
            prompts, whose rewards and stages depend on no other data.
        rewards: functions and kinds in place of the experiment's rewards.
        minutes: the minutes of the whole run.
        seed: the seed of the run.
        threads: threads on a CPU.
        run_code: the code that a run folder names may run.

    Returns:
        the experiment.

    Raises:
        ConfigError: anything that is wrong with it.
    """

    items = list(overrides or ())
    if "=" in name and not Path(name).is_file():
        name, items = PROMPTS, [name, *items]
    # An unknown name is reported before anything heavy is imported.
    source = find(name)
    if prompts is not None and name in shipped():
        family = name.partition("_")[0]
        if f"{family}_prompts" in shipped():
            name = f"{family}_prompts"
        elif family == kind_of_models():
            name = PROMPTS
        source = find(name)
    if name == PROMPTS:
        _check_whole(items, {"--model": model, "--prompts": prompts, "--reward": rewards})
    from groupwise.domain.callable import DOMAINS
    from groupwise.domain.settings import DomainConfig
    from groupwise.experiment import load_experiment

    kind = source.tree.get("domain", {}).get("kind")
    config: Any = DOMAINS.config(kind) if isinstance(kind, str) and DOMAINS.can_read(kind) else DomainConfig
    domain: dict[str, Any] = {} if model is None else config.on_model(model)
    if prompts is not None:
        domain |= config.on_prompts(prompts)
    if rewards:
        from groupwise.experiment.arguments import distinct_names

        source = source.without_rewards()
        names, tables = zip(*map(_reward, rewards), strict=True)
        domain["rewards"] = dict(zip(distinct_names(names), tables, strict=True))
    items += [f"domain.{key}={json.dumps(value)}" for key, value in flatten(domain).items()]
    options = {"minutes": minutes, "seed": seed, "train.num_threads": threads}
    items += [f"{key}={value}" for key, value in options.items() if value is not None]
    return load_experiment(source if rewards else name, items, run_code=run_code)


def _reward(text: str) -> tuple[str, dict[str, str]]:
    """Returns the name and the table of a reward that the command line names."""
    from groupwise.reward.config import REWARDS

    module, colon, function = text.partition(":")
    if colon:
        return function.replace(".", "_"), {"kind": "callable", "path": text}
    if text in REWARDS.names():
        return text, {"kind": text}

    names = REWARDS.names()
    said = "is neither a function nor a kind of reward; write MODULE:FUNCTION, for example my_rewards:correct"
    raise ConfigError(Problem(f"--reward {text}", said, names, nearest(module, names)))


def _check_whole(items: Sequence[str], options: Mapping[str, object]) -> None:
    """Refuses the experiment `prompts` without a model, prompts or a reward."""
    keys = {"--model": "domain.model", "--prompts": "domain.data", "--reward": "domain.rewards"}
    missing = [
        option
        for option, value in options.items()
        if not value and not any(item.startswith(keys[option]) for item in items)
    ]
    if missing:
        raise ConfigError(
            f"{', '.join(missing)}: missing; write --model MODEL (a folder, a hub id, a .gguf file or package:NAME)"
            " --prompts FILE --reward MODULE:FUNCTION, or the name of an experiment (groupwise experiments)"
        )
