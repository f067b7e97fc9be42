"""The rates of this machine, measured by short real runs of small models and a fit of the cost model to their seconds.

The result is stored in the cache under a hash of the device, the threads and the versions, so that a machine is
measured once.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import tempfile
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata, resources
from pathlib import Path
from typing import Any, final

import numpy as np

from groupwise.checkpoint.tree import cache_folder, content_key
from groupwise.config import merge
from groupwise.estimate.machine import CalibratedRates, Step, work
from groupwise.estimate.shape import Shape

Train = Callable[[Mapping[str, Any], Path], None]
"""A function that runs an experiment's table into a folder; callers pass it: this package imports no experiment."""

_PROBE = resources.files("groupwise.presets") / "probe.toml"
"""The experiment of the measured runs, without its sizes and prompts."""

VERSION = 4
"""The version of the calibration. A change of the code that changes the measured rates has to raise this number; stored
rates of an earlier version are not used.
"""

NUM_STEPS = 5
PROMPT_WORDS, NEW_TOKENS = 16, 16
MEASURABLE_SHARE = 0.1
"""Two measurements of a machine in use differ by about this share of a probe's seconds; less of them is no measured
rate.
"""
_PARTS = ("sampling", "scoring", "update")


@final
@dataclass(frozen=True)
class Probe:
    """A small model, and the step on which its seconds are measured.

    Args:
        width, layers: sizes of the model.
        words: number of different words in the prompts, which sets the model's vocabulary.
        prompts, group_size: sizes of the measured step.

    Example:
        >>> Probe(64, 2, 64, 2, 4).shape(70).intermediate
        192
    """

    width: int
    layers: int
    words: int
    prompts: int
    group_size: int

    def shape(self, vocabulary: int) -> Shape:
        """Returns the shape of the model.

        Args:
            vocabulary: number of tokens of the tokenizer.
        """
        heads = max(2, self.width // 64)
        return Shape(self.width, 3 * self.width, vocabulary, self.layers, heads, heads, self.width // heads)

    def experiment(self, num_threads: int) -> dict[str, Any]:
        """Returns the experiment's table; its rewards always differ inside a group, so that every member learns.

        Args:
            num_threads: threads of the run on a CPU.
        """
        shape = self.shape(1)
        sizes = {"hidden_size": shape.hidden, "intermediate_size": shape.intermediate, "num_layers": shape.layers}
        heads = {
            "num_heads": shape.heads,
            "num_key_value_heads": shape.kv_heads,
            "max_positions": 2 * (PROMPT_WORDS + NEW_TOKENS),
        }
        count = max(2 * self.prompts, -(-self.words // PROMPT_WORDS)) + 1
        prompts = [
            " ".join(f"w{(PROMPT_WORDS * index + word) % self.words}" for word in range(PROMPT_WORDS)) + f" n{index}"
            for index in range(count)
        ]
        overrides = {
            "domain": {
                "model": {"shape": {**sizes, **heads}},
                "data": {"source": {"prompts": prompts}},
                "sampling": {"max_new_tokens": NEW_TOKENS},
            },
            "train": {
                "num_steps": NUM_STEPS,
                "prompts_per_step": self.prompts,
                "group_size": self.group_size,
                "num_threads": num_threads,
            },
        }
        return merge(tomllib.loads(_PROBE.read_text(encoding="utf-8")), overrides)


PROBES = tuple(
    Probe(width, layers, words, prompts, group)
    for width, sizes in {
        64: [(1, 64, 2, 4), (4, 64, 2, 4), (1, 64, 16, 8), (4, 64, 16, 8), (2, 2048, 8, 8)],
        192: [(1, 64, 2, 4), (4, 64, 2, 4), (1, 64, 8, 8), (4, 64, 8, 8), (2, 2048, 4, 8)],
        448: [(1, 64, 2, 4), (3, 64, 2, 4), (1, 64, 4, 8), (3, 64, 4, 8), (1, 8192, 4, 8)],
    }.items()
    for layers, words, prompts, group in sizes
)


@final
@dataclass(frozen=True)
class ProbeTiming:
    """The measured seconds of one probe: the mean over steps for each part of a step.

    Args:
        shape: the shape of the model that the probe built.
        step: the sizes of the step, with the lengths that were sampled.
    """

    shape: Shape
    step: Step
    seconds: Mapping[str, float]


def differs(prompts: Sequence[str], completions: Sequence[str], **columns: Any) -> list[float]:
    """Returns reward 1 for every second member and 0 for the others.

    Example:
        >>> differs(["a", "a", "a"], ["", "", ""])
        [0.0, 1.0, 0.0]
    """
    return [float(place % 2) for place in range(len(completions))]


def calibrate_machine(
    train: Train,
    *,
    num_threads: int = 1,
    device: str = "cpu",
    again: bool = False,
    say: Callable[[str], None] | None = None,
) -> CalibratedRates:
    """Returns the rates of this machine from the cache, or measures them, which takes about a minute.

    Args:
        train: function that runs an experiment's table into a folder.
        num_threads: number of threads on a CPU.
        device: name of the device; `cpu` takes the processor's name.
        again: whether the machine is measured even though the cache has its rates.
        say: function that receives a sentence before a measurement.
    """
    import torch

    identity = {
        "device": device if device != "cpu" else _processor(),
        "num_threads": num_threads,
        "versions": {name: metadata.version(name) for name in ("groupwise", "torch", "transformers")},
        "probes": [asdict(probe) for probe in PROBES],
        "run": _PROBE.read_text(encoding="utf-8"),
        "calibration": VERSION,
    }
    path = cache_folder() / "calibration" / f"{content_key(identity)}.json"
    if path.is_file() and not again:
        try:
            return CalibratedRates(**json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError):
            pass
    if say is not None:
        say("measuring this machine with small runs; it takes about a minute and is kept")
    num_threads_before = torch.get_num_threads()
    try:
        timings = [measure(probe, train, num_threads) for probe in PROBES]
    finally:
        torch.set_num_threads(num_threads_before)
    calibration = fit(
        timings,
        str(identity["device"])
        + (f", {num_threads} thread{'s' if num_threads > 1 else ''}" if device == "cpu" else ""),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}.partial")
    partial.write_text(json.dumps(asdict(calibration), indent=2) + "\n", encoding="utf-8")
    partial.replace(path)
    return calibration


def measure(probe: Probe, train: Train, num_threads: int) -> ProbeTiming:
    """Runs one probe and returns its seconds.

    Args:
        train: function that runs an experiment's table into a folder.
        num_threads: number of threads on a CPU.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        seconds, rows = time_probe(probe.experiment(num_threads), train, out)
        vocabulary = int(json.loads((out / "model" / "config.json").read_text(encoding="utf-8"))["vocab_size"])
    completion_tokens = statistics.mean(row["completions/mean_length"] for row in rows)
    return ProbeTiming(
        probe.shape(vocabulary),
        Step(probe.prompts, probe.group_size, PROMPT_WORDS + 1, completion_tokens, NEW_TOKENS, reference=True),
        seconds,
    )


def time_probe(
    table: Mapping[str, Any], train: Train, out: Path
) -> tuple[dict[str, float], Sequence[Mapping[str, Any]]]:
    """Runs an experiment and returns the seconds of each part of a step on an idle machine, and the rows of metrics.

    On a CPU a process that has to wait for others takes longer by the clock than it computes; the clock's seconds are
    scaled to the seconds that the process computed.

    Args:
        table: an experiment that calls `tick` after every step.
        train: function that runs the table into a folder.

    Returns:
        seconds of `sampling`, of `scoring` where a reference scores, and of `update`, as means over all steps but the
        first, which includes work that is done once.
    """
    import torch

    from groupwise.runs import read_run

    _ticks.clear()
    train(table, out)
    rows = [row for row in read_run(out).rows if "seconds/update" in row][1:]
    (first_clock, first_computed), (last_clock, last_computed) = _ticks[-1 - len(rows)], _ticks[-1]
    quiet_factor = (
        1.0 if torch.cuda.is_available() else min(1.0, (last_computed - first_computed) / (last_clock - first_clock))
    )
    return {
        part: quiet_factor * statistics.mean(row[f"seconds/{part}"] for row in rows)
        for part in _PARTS
        if f"seconds/{part}" in rows[0]
    }, rows


def tick(step: int, metrics: Mapping[str, float]) -> None:
    """Records the clock and the processor time of this process after a step."""
    _ticks.append((time.perf_counter(), time.process_time()))


_ticks: list[tuple[float, float]] = []


def fit(timings: Sequence[ProbeTiming], name: str) -> CalibratedRates:
    """Fits rates to the probes' seconds by least squares of relative errors, with no rate negative.

    Args:
        timings: measured seconds, one record a probe.
        name: name of the device.

    Returns:
        the rates, with the errors of the fit.
    """
    from scipy.optimize import nnls

    widths = sorted({timing.shape.hidden for timing in timings})
    part_rates, residuals, unmeasured = {}, {}, []
    for part in _PARTS:
        rows = [_features(timing, part, widths) for timing in timings]
        seconds = np.array([timing.seconds[part] for timing in timings])
        weighed = np.array(rows) / seconds[:, None]
        scale = weighed.max(axis=0)
        scale[scale == 0] = 1.0
        shares = nnls(weighed / scale, np.ones(len(timings)))[0]
        costs = shares / scale
        errors = np.abs(weighed @ costs - 1)
        residuals[part] = [round(float(np.median(errors)), 3), round(float(errors.max()), 3)]
        rates = [
            1 / cost if share > MEASURABLE_SHARE else 0.0
            for cost, share in zip(costs[5:].tolist(), shares[5:].tolist(), strict=True)
        ]
        layer, head = rates[: len(widths)], rates[len(widths) :]
        # A width whose arithmetic takes no measurable time gets the rate of the fastest width. Where that of no layer
        # does, the rate is the highest that a probe reached with everything beside the arithmetic: the machine is no
        # slower.
        reached = float((np.array(rows)[:, 5:].sum(axis=1) / seconds).max())
        if not any(layer):
            unmeasured.append(part)
        fastest_layer = max(layer) or reached
        fastest_head = max(head) or fastest_layer
        part_rates[part] = {
            **dict(zip(("call", "layer", "token", "parameter", "logit"), costs[:5].tolist(), strict=True)),
            "layer_rates": {str(width): rate or fastest_layer for width, rate in zip(widths, layer, strict=True)},
            "head_rates": {str(width): rate or fastest_head for width, rate in zip(widths, head, strict=True)},
        }
    tokens = PROMPT_WORDS + 1 + NEW_TOKENS
    return CalibratedRates(
        name, part_rates, widest=widths[-1], tokens=tokens, residuals=residuals, unmeasured=unmeasured
    )


def _features(timing: ProbeTiming, part: str, widths: Sequence[int]) -> list[float]:
    """Returns the columns of the fit: calls, calls times layers, tokens, changed parameters, logits, and operations in
    layers and in the head by width.
    """
    part_work = work(timing.shape, timing.step)[part]
    is_width = [float(timing.shape.hidden == width) for width in widths]
    changed = float(timing.shape.parameters) if part == "update" else 0.0
    layers, heads = (
        [indicator * flops for indicator in is_width] for flops in (part_work.layer_flops, part_work.head_flops)
    )
    return [
        part_work.calls,
        part_work.calls * timing.shape.layers,
        part_work.tokens,
        changed,
        part_work.logits,
        *layers,
        *heads,
    ]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
