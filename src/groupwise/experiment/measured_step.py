"""One training step of an experiment, measured on this machine, for `groupwise estimate`."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import torch

from groupwise.experiment.runner import job_of, open_domain
from groupwise.experiment.schema import Experiment
from groupwise.reference import ReferencePolicy
from groupwise.runs import RunFolder
from groupwise.streams import Streams, seed_everything
from groupwise.track import MetricsFile, Trackers, read_metrics
from groupwise.training.device import exact_arithmetic
from groupwise.training.distributed import World
from groupwise.training.job import Domains
from groupwise.training.run.loop import Interrupt, Session, run_stage
from groupwise.training.run.preflight import check_configuration, check_domain, check_memory, device_of
from groupwise.training.run.stages import stage_reference
from groupwise.training.step.passes import fit_passes
from groupwise.training.step.state import Progress, TrainState


def measured_step(span: Experiment) -> Mapping[str, float]:
    """Runs two steps of a stage that samples, and returns the metrics of the second: the first also pays for what is
    made once. Nothing is evaluated, and nothing is kept.

    Args:
        span: the stage, as one of `Experiment.spans`.

    Returns:
        metric -> number; `seconds/...` and `step_time` in seconds, `memory/peak_mib` of the device, or on a CPU of this
        process.

    Raises:
        ConfigError: as a run of the experiment.
    """
    # A stage whose time is over ends after its step, without an evaluation.
    timed = span.train.model_copy(update={"max_seconds": 1e-9, "num_steps": 10**9, "callbacks": []})
    job = job_of(span.model_copy(update={"train": timed, "controls": {}, "start": None}))
    check_configuration(job)
    device, streams, world = device_of(job.recipes[0]), Streams(span.seed), World()
    check_memory(job.recipes[0], device)
    torch.set_num_threads(span.train.num_threads)
    seed_everything(span.seed)
    with (
        exact_arithmetic(timed, device),
        tempfile.TemporaryDirectory() as folder,
        closing(Domains(open_domain(span, device))) as domains,
    ):
        recipe = job.recipes[0].on(density=domains.base.density)
        domain = domains.of(recipe)
        check_domain(domain, recipe, streams, world)
        state = TrainState(Progress(), recipe.objective.init(), domain.learner)
        state.learner.checkpoint_activations(recipe.train.gradient_checkpointing)
        if "optimisers" in state.learner.offers:
            state.learner.use_optimiser(recipe.optimiser.source)
        state.reference = ReferencePolicy(stage_reference(recipe), state.learner)
        state.begin_average(recipe.train.weight_average)
        fit_passes(domain, state, world)
        state.memory.begin_stage(recipe)
        run = RunFolder(Path(folder))
        metrics = MetricsFile(run.metrics)
        session = Session(domain, streams, world, device, run, metrics, Trackers([]), None, Interrupt(), watch=None)
        for _ in range(2):
            run_stage(session, recipe, state)
            state.progress.stage_ended = ""
        return {
            name: value for name, value in list(read_metrics(run.metrics))[-1].items() if isinstance(value, float | int)
        }
