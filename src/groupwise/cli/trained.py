"""A trained model with the experiment it belongs to, from a run folder or a model folder."""

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from groupwise.config import ConfigError, import_paths, read_json, read_json_lines, restrict_code
from groupwise.experiment.catalogue import find, kind_of_models
from groupwise.runs.folder import RunFolder, naming_start, natural, require_known_version, with_slots_at_top

if TYPE_CHECKING:
    from groupwise.domain.base import Domain
    from groupwise.experiment import Experiment


Place = Annotated[
    Path, typer.Argument(metavar="RUN|MODEL", help="A run folder, or a model folder together with --experiment.")
]
ExperimentOption = Annotated[
    str | None, typer.Option("--experiment", help="Whose data and rewards to use with a plain model folder.")
]
Which = Annotated[
    str,
    typer.Option(
        help=(
            "Which model of a run: final (of a run that has not ended the newest checkpoint), best, or the number of a"
            " step whose model or checkpoint was kept."
        )
    ),
]


@contextmanager
def trained(place: Path, experiment: str | None, which: str, *, run_code: bool = False) -> "Iterator[Experiment]":
    """Yields the experiment on the trained model, whose folder may be gone after the block.

    Args:
        place: a run folder, or a model folder.
        experiment: the experiment whose data and rewards are used; a run has its own.
        which: the name of the model in a run.
        run_code: allows the code that the folder names.

    Yields:
        the experiment, its model replaced.

    Raises:
        ConfigError: the place is neither a run nor a model with an experiment named, the run has no such model, or
            the folder names code and `run_code` is not set.
    """
    from groupwise.experiment import load_experiment
    from groupwise.experiment.code_consent import code_of_model_folders, require_consent
    from groupwise.experiment.runner import with_model

    with naming_start(RunFolder(place)), _parts(place, experiment, which, run_code) as (name, model):
        replaced = with_model(load_experiment(name, run_code=run_code), model)
        require_consent(code_of_model_folders(replaced), run_code)
        yield replaced


def to_sample(
    place: Path,
    experiment: str | None,
    which: str,
    *,
    data: bool,
    raw: bool = False,
    run_code: bool = False,
) -> "Domain":
    """Opens the domain on the trained model with only the parts that writing an answer needs, and runs only the code
    that these parts name.

    Args:
        place: a run folder, or a model folder.
        experiment: the experiment whose data are used; a run has its own, and a language model answers without any.
        which: the name of the model in a run.
        data: training prompts are shown, so that they are read, and answered by the environment.
        raw: a typed text is asked as it is, also where the run's prompts were messages.
        run_code: the code that is needed may run.

    Raises:
        ConfigError: as `trained`.
    """
    from groupwise.domain.callable import DOMAINS
    from groupwise.experiment.code_consent import code_of_model_folders, code_of_source, is_foreign, require_consent
    from groupwise.experiment.loading import read_experiment
    from groupwise.experiment.runner import with_model
    from groupwise.streams import Streams

    if experiment is None and not RunFolder(place).metrics.is_file():
        of_model: Any = DOMAINS.config(kind_of_models())
        if (bare_model := of_model.of_folder(place, raw=raw)) is not None:
            if data:
                message = "is a model without prompts; write --prompt TEXT, --chat, or --experiment NAME"
                raise ConfigError(f"{place} {message}")
            bare_model.require_extra()
            return bare_model.open(streams=Streams(0), device="cpu")
    with naming_start(RunFolder(place)), _parts(place, experiment, which, run_code) as (name, model):
        with restrict_code():
            loaded = read_experiment(name)
            settings = with_model(loaded, model).domain.to_sample(data=data)
            if raw:
                settings = settings.asked_raw()
            elif not data and (prompt := _recorded_prompt(RunFolder(place))) is not None:
                settings = settings.asked_like(prompt)
        source, beside = find(name), list(code_of_model_folders(settings))
        named_code = list(import_paths(settings, "domain"))
        require_consent([*([code_of_source(source, named_code, {})] if is_foreign(source) else []), *beside], run_code)
        with restrict_code([code.path for code in (*named_code, *(code for file in beside for code in file.code))]):
            settings.require_extra()
            domain: Any = settings.open(streams=Streams(loaded.seed), device="cpu")
        return domain


def _recorded_prompt(run: RunFolder) -> Any:
    """Returns a prompt that the run recorded; None where it recorded none."""

    for file in sorted(run.rollouts.glob("*.jsonl")):
        for _, record in read_json_lines(file, "rollouts"):
            if "prompt" in record:
                return record["prompt"]
    return None


@contextmanager
def _parts(place: Path, experiment: str | None, which: str, run_code: bool) -> Iterator[tuple[str | Path, Path]]:
    """Yields the experiment's name or file, and the model's folder."""

    if not place.is_dir():
        raise ConfigError(f"no such folder: {place}; give a run folder, or a model folder with --experiment NAME")
    if RunFolder(place).metrics.is_file():
        if experiment is None:
            require_known_version(RunFolder(place))
        with model_of(place, which, run_code=run_code) as model:
            yield experiment or place, model
        return
    if experiment is None:
        raise ConfigError(
            f"{place} is not a run folder (it has no metrics.jsonl); for a model folder say whose data to use,"
            " --experiment NAME"
        )
    yield experiment, place


@contextmanager
def model_of(run: Path, which: str, *, run_code: bool = False) -> Iterator[Path]:
    """Yields the folder of a run's model. Where only a checkpoint was kept of it, the folder is written from that for
    the length of the block; nothing of the processes that trained is needed.

    Args:
        run: the run folder.
        which: `final`, `best`, or the number of a step; of a run that has not ended `final` is the newest checkpoint.
        run_code: allows the code that the folder names.

    Raises:
        ConfigError: the run has no such model.
    """
    from groupwise.checkpoint import CheckpointConfig, CheckpointStore

    folder, checkpoint = RunFolder(run), None
    store = CheckpointStore(folder.checkpoints, CheckpointConfig())
    if which.isdecimal() and not folder.model_at(int(which)).is_dir():
        checkpoint = next((each for each in store.complete() if which == str(each.step)), None)
    elif which == "final" and not folder.model.is_dir():
        checkpoint = store.latest()
    if checkpoint is None:
        yield model_folder(run, which)
        return
    from groupwise.experiment import load_experiment
    from groupwise.experiment.runner import open_domain
    from groupwise.training.run.evaluation import write_model_of

    if which == "final":
        said = "%s has not ended: its checkpoint of step %d is used; `groupwise resume %s` goes on"
        logging.getLogger("groupwise").warning(said, run, checkpoint.step, run)
    domain = open_domain(load_experiment(folder.config, run_code=run_code))
    with closing(domain), TemporaryDirectory(prefix="groupwise-model-") as temporary:
        # A temporary folder is private (0700), and an exported folder should have normal permissions.
        (model := Path(temporary) / "model").mkdir()
        write_model_of(checkpoint, domain, model)
        yield model


# Checks of run folders that the user names, and lookup of the models in them.


def require_run(folder: Path) -> None:
    """Refuses a path that is not a run folder.

    Args:
        folder: what the user named.

    Raises:
        ConfigError: absent, or without the `config.json` that every run folder has.

    Example:
        >>> require_run(Path("nowhere"))
        Traceback (most recent call last):
        groupwise.config.errors.ConfigError: no such run folder: nowhere; runs lie in runs/ unless --out said otherwise
    """
    if not folder.is_dir():
        raise ConfigError(f"no such run folder: {folder}; runs lie in runs/ unless --out said otherwise")
    if not RunFolder(folder).is_run:
        raise ConfigError(
            f"{folder} is not a run folder: it has no config.json; give the folder that `groupwise train` printed"
        )


def run_config(folder: Path) -> dict[str, Any]:
    """Reads the resolved configuration of a run.

    Args:
        folder: the run folder.

    Raises:
        ConfigError: it is not a run folder, or its `config.json` is damaged or states not every key.
    """
    require_run(folder)
    table = with_slots_at_top(read_json(RunFolder(folder).config))
    missing = [key for key in ("name", "method", "seed", "trust", "domain") if key not in table]
    if missing:
        raise ConfigError(
            f"{RunFolder(folder).config} lacks {', '.join(missing)}: it is not what `groupwise train` wrote; repeat the"
            " run, or put the file back"
        )
    return table


def require_new(folder: Path) -> None:
    """Refuses a folder that exists already.

    Args:
        folder: what the user named.

    Raises:
        ConfigError: it exists.

    Example:
        >>> require_new(Path("nowhere"))
    """
    if folder.exists():
        raise ConfigError(f"{folder} exists; nothing is overwritten, so give a new name with --out")


def model_folder(run: Path, which: str = "final") -> Path:
    """Returns the folder of a run's model: the final one, the best one, or that of a step.

    Args:
        run: the run folder.
        which: `final`, `best`, or the number of a step.

    Raises:
        ConfigError: the run has no such model (yet); those it has are named.

    Example:
        >>> model_folder(Path("nowhere"), "best")
        Traceback (most recent call last):
        groupwise.config.errors.ConfigError: nowhere has no best model yet; finish it with `groupwise resume nowhere`
    """
    folder = RunFolder(run)
    places = {"final": folder.model, "best": folder.best}
    places |= {path.name.removeprefix("step-"): path for path in folder.models.glob("step-*")}
    # Model folders are moved into place when they are complete, so an existing one is whole.
    existing_models = tuple(name for name, path in places.items() if path.is_dir())
    if which not in existing_models:
        advice = (
            f"; it has {', '.join(existing_models)}"
            if existing_models
            else f" yet; finish it with `groupwise resume {run}`"
        )
        steps = [path.name.removeprefix("step-") for path in sorted(folder.checkpoints.glob("step-*"), key=natural)]
        checkpoints = f"; --which N takes a checkpoint: {', '.join(steps)}" if steps else ""
        raise ConfigError(f"{run} has no {which} model{advice}{checkpoints}")
    return places[which]
