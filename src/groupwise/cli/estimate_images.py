"""`groupwise estimate` of a model that makes images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.text import Text

from groupwise.cli.output import console, table
from groupwise.config import ConfigError
from groupwise.estimate.images import ImageEstimate, ImageStep, estimate_images
from groupwise.estimate.machine import GPUS
from groupwise.reference import resolve_reference
from groupwise.streams import Streams

if TYPE_CHECKING:
    from groupwise.domain.costs import ImageCosts
    from groupwise.experiment import Experiment


def show_images(span: Experiment, name: str, *, gpu: str | None, gpus: int, taken: Mapping[str, float]) -> None:
    """Prints the estimate of a step of an experiment whose domain makes images.

    Args:
        span: the first stage that samples.
        name: the experiment as it was asked for.
        gpu: name of a GPU; None times passes on this machine.
        gpus: devices that share the step's prompts.
        taken: seconds of the parts of a run's step, to stand beside the estimate; empty where there is none.

    Raises:
        ConfigError: the domain's costs are not known.
    """
    costs, step, estimated = estimate_span(span, name, gpu=gpu, gpus=gpus)
    for line in _about(costs, step, gpu, gpus, estimated):
        console().print(Text(line))
    _show(estimated, gpu, taken)
    for line in estimated.assumptions:
        console().print(Text(f"extrapolated: {line}"))


def estimate_span(
    span: Experiment, name: str, *, gpu: str | None, gpus: int
) -> tuple[ImageCosts, ImageStep, ImageEstimate]:
    """Counts the costs of a step of an experiment whose domain makes images, and applies them.

    Args:
        span, name, gpu, gpus: as in `show_images`.

    Returns:
        the costs of the model, the sizes of the step, and the estimate.

    Raises:
        ConfigError: the domain's costs are not known.
    """
    import torch

    train, objective = span.train, span.objective
    torch.set_num_threads(train.num_threads)
    times = getattr(objective.matching, "times", None)
    costs = span.domain.image_costs(
        streams=Streams(span.seed),
        copies=0 if times is None else times.num,
        checkpointing=train.gradient_checkpointing,
        time=gpu is None,
    )
    if costs is None:
        raise ConfigError(
            f"{name} has the domain {span.domain.kind!r}, whose costs are not known; costs are known of causal language"
            " models and of models that make images: give such an experiment, for example `groupwise estimate` without"
            " a name"
        )
    reads_reference = "reference_log_prob" in objective.requires_rollouts or "exact_divergence" in objective.requires
    reference = resolve_reference(span.reference, required=reads_reference)
    switched_off = reference.adapter_off and costs.trained < costs.parameters
    step = ImageStep(
        prompts=train.prompts_per_step,
        group_size=train.group_size,
        updates=train.updates_per_batch,
        reference=reads_reference,
        copy_of_reference=reference.present and not switched_off,
    )
    # An adapter is in single precision whatever the weights below it are.
    adapts = costs.trained < costs.parameters
    below = costs.parameters - adapts * costs.trained
    half = train.autocast == "bfloat16" or costs.weight_bytes - adapts * costs.trained_bytes <= 2 * below
    estimated = estimate_images(costs, step, gpu=None if gpu is None else GPUS[gpu], half=half, num_processes=gpus)
    return costs, step, estimated


def _about(costs: ImageCosts, step: ImageStep, gpu: str | None, gpus: int, estimated: ImageEstimate) -> list[str]:
    trained = "" if costs.trained == costs.parameters else f", {costs.trained / 1e6:,.1f} million of them trained"
    device = "this machine" if gpu is None else gpu
    rows = ", ".join(f"{part} {rows:,}" for part, rows in estimated.rows.items())
    guided = " (two passes of the model each, for guidance)" if costs.rows_of_model == 2 else ""
    return [
        f"{costs.parameters / 1e6:,.1f} million parameters{trained}: {costs.name}",
        (
            f"a step: {step.prompts} prompts x {step.group_size} members, {costs.sampled_a_member or 1} transitions"
            f"{guided}, {step.updates} update{'s' * (step.updates > 1)}"
        ),
        f"on {gpus} x {device}" if gpus > 1 else f"on {device}",
        f"rows of a pass: {rows}",
    ]


def _row(part: str, seconds: float | None, flops: float, taken: float | None, beside: bool) -> list[str]:
    cells = [part, "-" if seconds is None else f"{seconds:.3g}", f"{flops / 1e12:.3g}"]
    if beside:
        ratio = "-" if taken is None or seconds is None else f"{seconds / taken:.2f}"
        cells += ["-" if taken is None else f"{taken:.3g}", ratio]
    return cells


def _show(estimated: ImageEstimate, gpu: str | None, taken: Mapping[str, float]) -> None:
    heads = ["seconds", "TFLOP a device", *(["measured seconds", "ratio"] if taken else [])]
    # A run's sampling includes the decoding, which is no part of its own there.
    seconds = dict(estimated.seconds)
    if taken and "decoding" in seconds:
        seconds["sampling"] += seconds.pop("decoding")
    total, total_taken = sum(seconds.values()), sum(taken.values())
    whole = sum(estimated.flops.values())
    rows = [
        _row(part, seconds.get(part), flops, taken.get(part), bool(taken)) for part, flops in estimated.flops.items()
    ]
    rows.append(_row("step, without rewards", total if seconds else None, whole, total_taken or None, bool(taken)))
    console().print(table(["part", *heads], rows, title="A step", numbers=heads))
    sizes = [[part, f"{size / 2**30:.3g}"] for part, size in estimated.bytes.items() if size and part != "peak"]
    peak = estimated.bytes["peak"]
    fits = ""
    if gpu is not None:
        memory = GPUS[gpu].memory
        fits = f" of {memory / 2**30:.0f}" + (", too much" if peak > 0.9 * memory else "")
    sizes.append(["held at once", f"{peak / 2**30:.3g}{fits}"])
    console().print(table(["part", "GiB a device"], sizes, title="Memory", numbers=["GiB a device"]))
