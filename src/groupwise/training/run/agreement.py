"""What several processes of a run have to agree on before it begins: its folder and settings, weights and prompts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from groupwise.config import ConfigError, difference
from groupwise.domain.base import Domain
from groupwise.runs import RunFolder
from groupwise.training.distributed import World
from groupwise.training.job import Job

_PROMPTS_COMPARED = 16
"""Training prompts, evenly spaced, of which processes compare the keys."""

_OF_ONE_PROCESS = frozenset({"name", "description", "track", "objects"})
"""Settings that may differ between processes: what the first one alone writes, and records of objects, whose hashes
another process need not find again. Weights and prompts are compared by themselves.
"""

_OF_A_MACHINE = ("train.callbacks", "train.num_threads", "train.memory_limit_gib")
"""Keys, of a stage too, that may differ as well: what callbacks of the first process say counts for all, and machines
have other sizes.
"""


def agreed_folder(job: Job, folder: RunFolder, world: World) -> RunFolder:
    """Returns the run folder of the first process, under the name that it has on this one: a folder that is named by
    the time has another name on a process that came a second later, and a shared one may on another machine.

    Args:
        job: what this process was given.
        folder: as this process names it.
        world: the processes; every process must call this function.

    Raises:
        ConfigError: the processes were given different settings, data or objects.
    """
    given = world.gather((str(folder.path), _shared_settings(job)))
    path, settings = given[0]
    for rank, (_, others) in enumerate(given):
        changed = difference(settings, others)
        for key, (first, other) in changed.items():
            if key.endswith(_OF_A_MACHINE):
                continue
            raise ConfigError(
                f"process {rank} was given other settings than process 0: {key} = {other!r} ({first!r} there); give all"
                " processes of a run the same, which share its prompts and draws by themselves"
            )
    return folder if folder.config.is_file() else RunFolder(Path(path))


def _shared_settings(job: Job) -> dict[str, Any]:
    return {key: value for key, value in job.resolved.items() if key not in _OF_ONE_PROCESS}


def check_same_start(domain: Domain, world: World) -> None:
    """Refuses processes that hold different weights, or that have read different prompts.

    Args:
        domain: of this process.
        world: the processes; every process must call this function.

    Raises:
        ConfigError: they differ.
    """
    if world.size == 1:
        return
    num_compared = min(_PROMPTS_COMPARED, domain.num_prompts)
    places = [place * domain.num_prompts // num_compared for place in range(num_compared)]
    keys = [prompt.key for prompt in domain.prompts(places)] if places else []
    starts = world.gather((domain.learner.fingerprint(), (domain.num_prompts, keys)))
    if len({fingerprint for fingerprint, _ in starts}) > 1:
        raise ConfigError(
            "the processes built different initial weights; build the model from the seeded global generators only"
        )
    first = starts[0][1]
    for rank, (_, prompts) in enumerate(starts):
        if prompts != first:
            raise ConfigError(
                f"process {rank} has other training prompts than process 0 ({prompts[0]} and {first[0]} of them); give"
                " all processes the same, in the same order: they share them by themselves"
            )
