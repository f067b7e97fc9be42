"""`groupwise estimate`: the memory of a training step by formula, and one real step of this machine."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from groupwise.cli.arguments import ExperimentName, Model, Overrides, RunCode

if TYPE_CHECKING:
    from groupwise.domain.settings import CausalLm
    from groupwise.experiment import Experiment


def estimate(
    experiment: ExperimentName = "language",
    overrides: Overrides = None,
    model: Model = None,
    gpus: Annotated[int, typer.Option(min=1, max=10**6, help="Devices that share the step's prompts.")] = 1,
    prompt_tokens: Annotated[float, typer.Option(min=1, max=1e9, help="Mean tokens of a prompt.")] = 128.0,
    measure: Annotated[
        bool | None,
        typer.Option(
            "--measure/--no-measure", help="Run two steps here, and show the second.", show_default="where it fits"
        ),
    ] = None,
    run_code: RunCode = False,
) -> None:
    """Say what a training step takes: its memory by formula, and what a real step takes on this machine.

    The formula is that of causal language models, and reads a model's config.json alone. Seconds and memory of other
    models, and the seconds of another machine, are known only by a step there.
    """
    from groupwise.cli.arguments import load
    from groupwise.cli.output import print_text
    from groupwise.config import ConfigError
    from groupwise.streams import Streams

    loaded = load(experiment, overrides, model=model, run_code=run_code)
    span = next((span for span in loaded.spans if span.samples), None)
    if span is None:
        raise ConfigError(
            f"{loaded.name}: no stage samples, so there is no step to estimate; set policy_weight above 0 in one"
        )
    train = span.train
    members = f"{train.prompts_per_step} prompts x {train.group_size} members"
    updates = train.updates_per_batch * train.minibatches
    print_text(f"a step: {members}, {updates} optimiser step{'s' if updates > 1 else ''}")
    costs = span.domain.costs(streams=Streams(span.seed))
    peak = 0.0
    if costs is not None:
        peak = _show_formula(span, costs, gpus, prompt_tokens)
    elif measure is False:
        raise ConfigError(
            f"{loaded.name}: no formula for the memory of the domain {span.domain.kind!r}; leave --no-measure out"
        )
    here, total = _machine(span)
    if measure is None and (peak > total or (costs is not None and not costs.has_weights)):
        why = f"it has {total / 2**30:.3g} GiB" if peak > total else "there is a configuration without weights"
        print_text(f"No step was measured on {here}: {why}. Seconds are known only by a step on the machine itself.")
    elif measure is not False:
        from groupwise.experiment.trial import measured_step

        _show_step(measured_step(span), here)


def _show_formula(span: "Experiment", costs: "CausalLm", gpus: int, prompt_tokens: float) -> float:
    """Prints the memory by part, and returns its peak, in bytes."""
    import torch

    from groupwise.causal_lm.head_tiles import CPU_TILES, GPU_TILES
    from groupwise.cli.output import console, print_text, table
    from groupwise.estimate import Shape, Step, memory

    train, size = span.train, span.train.micro_batch_members
    shape = Shape.of(costs.config, costs.lora)
    step = Step(
        prompts=train.prompts_per_step,
        group_size=train.group_size,
        prompt_tokens=prompt_tokens,
        completion_tokens=costs.max_new_tokens,
        pass_members=size if isinstance(size, int) else None,
        minibatches=train.minibatches,
        processes=gpus,
        sharded=train.sharding == "full" and gpus > 1,
        weight_bytes=costs.weight_bytes,
        number_bytes=2 if train.autocast == "bfloat16" else costs.weight_bytes,
        reference="reference_log_prob" in span.objective.requires_rollouts,
        checkpointing=train.gradient_checkpointing,
        samples=not costs.served,
    )
    on_gpu = train.device != "cpu" and torch.cuda.is_available()
    parts = memory(shape, step, GPU_TILES if on_gpu else CPU_TILES)
    print_text(
        f"{shape.parameters / 1e6:,.1f} million weights, {shape.trained / 1e6:,.1f} million trained:"
        f" {shape.layers} layers of width {shape.hidden}, vocabulary {shape.vocabulary}"
    )
    rows = [(name, f"{part.size / 2**30:.3g}", part.formula) for name, part in parts.items()]
    title = f"Memory by formula, {prompt_tokens:.0f} + {costs.max_new_tokens} tokens"
    console().print(table(["part", "GiB a device", "formula"], rows, title=title, numbers=["GiB a device"]))
    if costs.server_share:
        print_text(
            f"Beside it a vLLM server takes {costs.server_share:.0%} of the device's memory"
            + (", while it samples." if costs.server_sleeps else ".")
        )
    return parts["peak"].size


def _machine(span: "Experiment") -> tuple[str, float]:
    """Returns the name and the bytes of the device on which a step would run here."""
    import os

    import torch

    if span.train.device != "cpu" and torch.cuda.is_available():
        return torch.cuda.get_device_name(), float(torch.cuda.mem_get_info()[1])
    threads = span.train.num_threads
    total = float(os.sysconf("SC_PHYS_PAGES")) * os.sysconf("SC_PAGE_SIZE")
    return f"this machine's CPU, {threads} thread{'s' if threads > 1 else ''}", total


def _show_step(metrics: Mapping[str, float], here: str) -> None:
    """Prints the seconds and the memory of a measured step."""
    from groupwise.cli.output import console, table

    seconds = {name.removeprefix("seconds/"): value for name, value in metrics.items() if name.startswith("seconds/")}
    rows = [(part, f"{spent:.3g} s") for part, spent in {**seconds, "whole step": metrics["step_time"]}.items()]
    if (peak := metrics.get("memory/peak_mib")) is not None:
        rows.append(("peak memory", f"{peak / 1024:.3g} GiB"))
    console().print(table(["part", "measured"], rows, title=f"A step on {here}", numbers=["measured"]))
