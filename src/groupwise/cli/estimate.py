"""`groupwise estimate`: what a step will take, before it is run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from groupwise.cli import completion
from groupwise.cli.arguments import Overrides, RunCode

if TYPE_CHECKING:
    from groupwise.domain.costs import CausalLm
    from groupwise.estimate.estimate import Estimate
    from groupwise.estimate.machine import Machine, Step
    from groupwise.estimate.shape import Shape
    from groupwise.experiment import Experiment


Whose = Annotated[
    str,
    typer.Argument(
        metavar="[EXPERIMENT]", help="Whose step: sizes, method, precision.", autocompletion=completion.experiments
    ),
]
ModelFiles = Annotated[
    Path | None, typer.Option(help="A model folder or its config.json.", show_default="the experiment's model")
]
Gpus = Annotated[int, typer.Option(min=1, max=10**6, help="Devices that share the step's prompts.")]
Gpu = Annotated[
    str | None,
    typer.Option(
        help="A100, H100, H200, B200, L40S, RTX4090: by documented peaks.", show_default="this machine, measured"
    ),
]
PromptTokens = Annotated[
    float | None,
    typer.Option(min=1, max=1e9, help="Mean tokens of a prompt.", show_default="the experiment's data, or 128"),
]
CompletionTokens = Annotated[
    float | None,
    typer.Option(
        min=1, max=1e9, help="Mean tokens of a completion.", show_default="domain.sampling.max_new_tokens, the most"
    ),
]
Sharding = Annotated[
    Literal["none", "full"] | None,
    typer.Option(
        help="Whether weights and their optimiser's state are dealt to the devices.",
        show_default="the experiment's train.sharding",
    ),
]
Against = Annotated[
    Path | None, typer.Option(help="A run folder: its lengths are taken, and its seconds shown beside the estimate.")
]
Calibrate = Annotated[bool, typer.Option(help="Measure this machine again.")]


def estimate(
    experiment: Whose = "language",
    overrides: Overrides = None,
    model: ModelFiles = None,
    gpus: Gpus = 1,
    gpu: Gpu = None,
    prompt_tokens: PromptTokens = None,
    completion_tokens: CompletionTokens = None,
    sharding: Sharding = None,
    against: Against = None,
    calibrate: Calibrate = False,
    run_code: RunCode = False,
) -> None:
    """Say what a training step takes: memory, operations and seconds of sampling, scoring, update and communication.

    Rewards, evaluation and waiting are not in it. What was not measured on this machine is called extrapolated. Models
    that make images are counted from their configuration files, without their weights.
    """
    from rich.text import Text

    from groupwise.cli.output import console
    from groupwise.config import ConfigError
    from groupwise.estimate.estimate import Numbers
    from groupwise.estimate.estimate import estimate as estimated
    from groupwise.estimate.machine import GPUS
    from groupwise.streams import Streams

    if gpu is not None and gpu not in GPUS:
        raise ConfigError(
            f"--gpu {gpu}: its peaks are not known here; known are {', '.join(GPUS)}. Leave it out to measure this"
            " machine"
        )
    name = experiment if against is None else str(against)
    span = _sampling_span(name, list(overrides or ()), None if model is None else str(model), run_code)
    costs = span.domain.costs(streams=Streams(span.seed))
    if costs is None:
        from groupwise.cli.estimate_images import show_images

        taken = {} if against is None else _seconds_taken(_sampling_rows(against))
        show_images(span, name, gpu=gpu, gpus=gpus, taken=taken)
        return
    shape = _shape(costs, model, span.name)
    step = _step(span, costs, prompt_tokens or costs.prompt_tokens or 128.0, completion_tokens)
    taken = {}
    if against is not None:
        step, taken = _as_run(step, against)
    half = span.train.autocast == "bfloat16" or costs.bfloat16
    machine = _machine(gpu, half, span, calibrate)
    step_estimate = estimated(
        shape,
        _beside_server(step, costs, shape, machine),
        machine,
        num_processes=gpus,
        numbers=Numbers(2 if costs.bfloat16 else 4, 2 if half else 4, costs.lora_rank),
        sharding=sharding or span.train.sharding,
    )
    for line in _about(step_estimate):
        console().print(Text(line))
    _show(step_estimate, taken)
    for line in step_estimate.extrapolated:
        console().print(Text(f"extrapolated: {line}"))


def _sampling_span(name: str, overrides: Sequence[str], model: str | None, run_code: bool) -> Experiment:
    """Returns the first stage that samples, as an experiment."""
    from groupwise.cli.arguments import load
    from groupwise.config import ConfigError

    loaded = load(name, overrides, model=model, run_code=run_code)
    span = next((span for span in loaded.spans if span.samples), None)
    if span is None:
        raise ConfigError(
            f"{name}: no stage samples, so there is no step to estimate; set policy_weight above 0 in one"
        )
    return span


def _shape(costs: CausalLm, model: Path | None, name: str) -> Shape:
    from groupwise.estimate.shape import read_shape, shape_of

    # A GGUF file is named by `--model`, and its plain folder by the costs.
    return read_shape(costs.path or model or "") if costs.config is None else shape_of(costs.config, name)


def _step(span: Experiment, costs: CausalLm, prompt_tokens: float, completion_tokens: float | None) -> Step:
    from groupwise.estimate.machine import Step

    longest = costs.max_new_tokens
    size = span.train.micro_batch_members
    return Step(
        prompts=span.train.prompts_per_step,
        group_size=span.train.group_size,
        prompt_tokens=prompt_tokens,
        completion_tokens=min(float(longest), completion_tokens or float(longest)),
        longest=longest,
        updates=span.train.updates_per_batch,
        minibatches=span.train.minibatches,
        micro_batch=size if isinstance(size, int) else None,
        reference="reference_log_prob" in span.objective.requires_rollouts,
        extra_forward=span.objective.scope == "batch",
        checkpointing=span.train.gradient_checkpointing,
        served=costs.served,
        server_sleeps=costs.server_sleeps,
    )


def _beside_server(step: Step, costs: CausalLm, shape: Shape, machine: Machine) -> Step:
    """Returns the step with the memory of a server that samples on the same device."""
    from dataclasses import replace

    if not costs.server_share:
        return step
    # Without a device whose memory is known, what it holds at least.
    least = (2 if costs.bfloat16 else 4) * shape.parameters
    return replace(step, server_bytes=max(least, costs.server_share * (machine.memory or 0.0)))


def _as_run(step: Step, path: Path) -> tuple[Step, Mapping[str, float]]:
    """Returns the step with the lengths of a run, and the median seconds of its parts."""
    import statistics
    from dataclasses import replace

    rows = _sampling_rows(path)
    share = statistics.mean(row.get("scored_share") or 0.0 for row in rows)
    drawn = statistics.mean(row.get("num_prompts_drawn") or step.prompts for row in rows)
    seen = replace(
        step,
        prompts=round(drawn),
        completion_tokens=statistics.mean(row["completions/mean_length"] for row in rows),
        learning_share=share,
    )
    return seen, _seconds_taken(rows)


def _sampling_rows(path: Path) -> list[Mapping[str, Any]]:
    """Returns the metrics of the steps of a run that sampled, without the first."""
    from groupwise.config import ConfigError
    from groupwise.runs import read_run

    rows = [
        row
        for row in read_run(path).rows
        if row.get("seconds/sampling") is not None and row.get("completions/mean_length") is not None
    ][1:]
    if not rows:
        raise ConfigError(
            f"--against {path}: no step of it after the first sampled anything; give a run with more steps"
        )
    return rows


def _seconds_taken(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Returns the median seconds of the parts of a run's steps."""
    import statistics

    seconds_by_part = {
        part: [row.get(f"seconds/{part}", 0.0) for row in rows] for part in ("sampling", "scoring", "update")
    }
    return {part: statistics.median(seconds) for part, seconds in seconds_by_part.items() if any(seconds)}


def _machine(gpu: str | None, half: bool, span: Experiment, again: bool) -> Machine:
    from groupwise.estimate.machine import documented_machine

    if gpu is not None:
        return documented_machine(gpu, half=half)
    import torch
    from rich.text import Text

    from groupwise.cli.output import console
    from groupwise.estimate.calibration import calibrate_machine
    from groupwise.experiment import load_experiment, run

    def train(table: Mapping[str, Any], out: Path) -> None:
        path = out.with_suffix(".json")
        path.write_text(json.dumps(table), encoding="utf-8")
        run(load_experiment(path, run_code=True), out)

    on_gpu = span.train.device != "cpu" and torch.cuda.is_available()
    device = torch.cuda.get_device_name() if on_gpu else "cpu"
    return calibrate_machine(
        train,
        num_threads=span.train.num_threads,
        device=device,
        again=again,
        say=lambda text: console().print(Text(text)),
    ).machine()


def _about(step_estimate: Estimate) -> list[str]:
    shape, step = step_estimate.shape, step_estimate.step
    devices = (
        f"{step_estimate.num_processes} x {step_estimate.machine.name}"
        if step_estimate.num_processes > 1
        else step_estimate.machine.name
    )
    share = f", {step.learning_share:.0%} of them learn" if step.learning_share < 1 else ""
    idle = step_estimate.num_processes - step.prompts
    waits = (
        [
            f"{idle} of the {step_estimate.num_processes} devices get no prompt: a step has {step.prompts}; set"
            " train.prompts_per_step higher"
        ]
        if idle > 0
        else []
    )
    return [
        (
            f"{shape.parameters / 1e6:,.1f} million parameters: {shape.layers} layers of width {shape.hidden},"
            f" vocabulary {shape.vocabulary}"
        ),
        (
            f"a step: {step.prompts} prompts x {step.group_size} members, {step.prompt_tokens:.0f} +"
            f" {step.completion_tokens:.0f} tokens, {step.updates * step.minibatches} optimiser"
            f" step{'s' if step.updates * step.minibatches > 1 else ''}{share}"
        ),
        f"on {devices}, {'measured' if step_estimate.machine.is_measured else 'by documented peaks'}",
        *waits,
    ]


def _show(step_estimate: Estimate, taken: Mapping[str, float]) -> None:
    from groupwise.cli.output import console, table

    heads = ["seconds", "TFLOP a device", *(["measured seconds", "ratio"] if taken else [])]
    rows = []
    for part, seconds in [*step_estimate.seconds.items(), ("step, without rewards", step_estimate.total)]:
        flops = (
            sum(done.flops for done in step_estimate.work.values())
            if part not in step_estimate.seconds
            else step_estimate.work[part].flops
            if part in step_estimate.work
            else 0.0
        )
        measured_seconds = taken.get(part) if part in step_estimate.seconds else sum(taken.values())
        beside = (
            []
            if not taken
            else [f"{measured_seconds:.3g}", f"{seconds / measured_seconds:.2f}"]
            if measured_seconds
            else ["-", "-"]
        )
        rows.append([part, f"{seconds:.3g}", f"{flops / 1e12:.3g}", *beside])
    console().print(table(["part", *heads], rows, title="A step", numbers=heads))
    sizes = [[part, _gib(size)] for part, size in step_estimate.bytes.items() if size and part != "peak"]
    sizes.append(["held at once", _gib(step_estimate.bytes["peak"]) + _fits(step_estimate)])
    console().print(table(["part", "GiB a device"], sizes, title="Memory", numbers=["GiB a device"]))


def _fits(step_estimate: Estimate) -> str:
    if step_estimate.machine.memory is None:
        return ""
    return f" of {step_estimate.machine.memory / 2**30:.0f}" + (
        ", too much" if step_estimate.bytes["peak"] > 0.9 * step_estimate.machine.memory else ""
    )


def _gib(size: float) -> str:
    return f"{size / 2**30:.3g}"
