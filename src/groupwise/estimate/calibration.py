"""A machine's rates, measured on it: short real runs of small models through `groupwise.train`, and a fit of the cost
model to what they took.

The result is kept in the cache under a hash of the device, the threads and the versions, so a machine is measured once.
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

from groupwise.checkpoint.cache import cache_folder, content_key
from groupwise.config import merge
from groupwise.estimate.machine import Measured
from groupwise.estimate.shape import Shape
from groupwise.estimate.work import Step, work

Train = Callable[[Mapping[str, Any], Path], None]
"""Runs an experiment's table into a folder: given by whoever knows experiments, since this room lies below them."""

_PROBE = resources.files("groupwise.presets") / "probe.toml"
"""The run that is measured, but for its sizes and prompts."""

VERSION = 1
"""The version of the calibration. Every change of the code that changes the rates that it measures raises
it, and a stored one of an earlier version is not used.
"""

NUM_STEPS = 5
PROMPT_WORDS, NEW_TOKENS = 16, 16
_PARTS = ("sampling", "scoring", "update")


@final
@dataclass(frozen=True)
class Probe:
    """A small model and the step it is measured on.

    Args:
        width, layers, words: of the model; `words` is what its prompts are made of, and so its vocabulary.
        prompts, group_size: of the step.

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
        """The model's.

        Args:
            vocabulary: what its tokenizer came to.
        """
        heads = max(2, self.width // 64)
        return Shape(self.width, 3 * self.width, vocabulary, self.layers, heads, heads, self.width // heads)

    def experiment(self, num_threads: int) -> dict[str, Any]:
        """The run that is measured: rewards that always differ, so that every member learns.

        Args:
            num_threads: on a CPU.
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
            " ".join(f"w{(PROMPT_WORDS * place + word) % self.words}" for word in range(PROMPT_WORDS)) + f" n{place}"
            for place in range(count)
        ]
        over = {
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
        return merge(tomllib.loads(_PROBE.read_text(encoding="utf-8")), over)


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
class Taken:
    """The mean seconds of each part of one probe's step.

    Args:
        shape: the shape of the model that the probe built.
        step: the sizes of the step, with the lengths that were sampled.
    """

    shape: Shape
    step: Step
    seconds: Mapping[str, float]


def differs(prompts: Sequence[str], completions: Sequence[str], **columns: Any) -> list[float]:
    """A reward that gives every second member 1.

    Example:
        >>> differs(["a", "a", "a"], ["", "", ""])
        [0.0, 1.0, 0.0]
    """
    return [float(place % 2) for place in range(len(completions))]


def calibrated(
    train: Train,
    *,
    num_threads: int = 1,
    device: str = "cpu",
    again: bool = False,
    say: Callable[[str], None] | None = None,
) -> Measured:
    """The rates of this machine: those kept in the cache, or measured now, which takes about a minute.

    Args:
        train: runs an experiment.
        num_threads: on a CPU.
        device: its name.
        again: measure even though something is kept.
        say: receives a sentence before a measurement.

    Returns:
        the rates.
    """
    import torch

    about = {
        "device": device if device != "cpu" else _processor(),
        "num_threads": num_threads,
        "versions": {name: metadata.version(name) for name in ("groupwise", "torch", "transformers")},
        "probes": [asdict(probe) for probe in PROBES],
        "run": _PROBE.read_text(encoding="utf-8"),
        "calibration": VERSION,
    }
    path = cache_folder() / "calibration" / f"{content_key(about)}.json"
    if path.is_file() and not again:
        try:
            return Measured(**json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError):
            pass
    if say is not None:
        say("measuring this machine with small runs; it takes about a minute and is kept")
    before = torch.get_num_threads()
    try:
        taken = [measure(probe, train, num_threads) for probe in PROBES]
    finally:
        torch.set_num_threads(before)
    calibration = fit(
        taken,
        str(about["device"]) + (f", {num_threads} thread{'s' if num_threads > 1 else ''}" if device == "cpu" else ""),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}.partial")
    partial.write_text(json.dumps(asdict(calibration), indent=2) + "\n", encoding="utf-8")
    partial.replace(path)
    return calibration


def measure(probe: Probe, train: Train, num_threads: int) -> Taken:
    """Runs one probe.

    Args:
        probe: which.
        train: runs an experiment.
        num_threads: on a CPU.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        seconds, rows = timed(probe.experiment(num_threads), train, out)
        vocabulary = int(json.loads((out / "model" / "config.json").read_text(encoding="utf-8"))["vocab_size"])
    written = statistics.mean(row["completions/mean_length"] for row in rows)
    return Taken(
        probe.shape(vocabulary),
        Step(probe.prompts, probe.group_size, PROMPT_WORDS + 1, written, NEW_TOKENS, reference=True),
        seconds,
    )


def timed(table: Mapping[str, Any], train: Train, out: Path) -> tuple[dict[str, float], Sequence[Mapping[str, Any]]]:
    """Seconds a step by part, as they would be on a quiet machine, and the rows they come from.

    On a CPU a process that has to wait for others takes longer by the clock than it computes; the clock's seconds are
    scaled to those computed.

    Args:
        table: an experiment that calls `tick` after every step.
        train: runs it.
        out: the run folder.

    Returns:
        `sampling`, `scoring` where there is any, and `update`, means over all steps but the first, which pays for what
        is done once.
    """
    import torch

    from groupwise.runs import read_run

    _ticks.clear()
    train(table, out)
    rows = [row for row in read_run(out).rows if "seconds/update" in row][1:]
    (clock, computed), (last_clock, last_computed) = _ticks[-1 - len(rows)], _ticks[-1]
    quiet = 1.0 if torch.cuda.is_available() else min(1.0, (last_computed - computed) / (last_clock - clock))
    return {
        part: quiet * statistics.mean(row[f"seconds/{part}"] for row in rows)
        for part in _PARTS
        if f"seconds/{part}" in rows[0]
    }, rows


def tick(step: int, metrics: Mapping[str, float]) -> None:
    """Notes the clock and the processor's own time after a step.

    Args:
        step: of the run.
        metrics: not looked at.
    """
    _ticks.append((time.perf_counter(), time.process_time()))


_ticks: list[tuple[float, float]] = []


def fit(taken: Sequence[Taken], name: str) -> Measured:
    """The rates that fit what was taken: least squares of relative errors, no rate negative.

    Args:
        taken: of the probes.
        name: of the device.

    Returns:
        the rates, with how well they fit.
    """
    from scipy.optimize import nnls

    widths = sorted({probe.shape.hidden for probe in taken})
    part_rates, residuals = {}, {}
    for part in _PARTS:
        rows = [_features(probe, part, widths) for probe in taken]
        seconds = np.array([probe.seconds[part] for probe in taken])
        weighed = np.array(rows) / seconds[:, None]
        scale = weighed.max(axis=0)
        scale[scale == 0] = 1.0
        costs = nnls(weighed / scale, np.ones(len(taken)))[0] / scale
        errors = np.abs(weighed @ costs - 1)
        residuals[part] = [round(float(np.median(errors)), 3), round(float(errors.max()), 3)]
        # A width whose arithmetic could not be told from nothing is as fast as the fastest.
        rates = [1 / cost if cost > 0 else 0.0 for cost in costs[5:].tolist()]
        layer, head = rates[: len(widths)], rates[len(widths) :]
        part_rates[part] = {
            **dict(zip(("call", "layer", "token", "parameter", "logit"), costs[:5].tolist(), strict=True)),
            "layer_rates": {str(width): rate or max(layer) for width, rate in zip(widths, layer, strict=True)},
            "head_rates": {
                str(width): rate or max(head) or max(layer) for width, rate in zip(widths, head, strict=True)
            },
        }
    return Measured(name, part_rates, widest=widths[-1], tokens=PROMPT_WORDS + 1 + NEW_TOKENS, residuals=residuals)


def _features(taken: Taken, part: str, widths: Sequence[int]) -> list[float]:
    """The columns of the fit: calls, layers called, tokens, parameters changed, logits, operations in layers and in the
    head by width.
    """
    part_work = work(taken.shape, taken.step)[part]
    is_width = [float(taken.shape.hidden == width) for width in widths]
    changed = float(taken.shape.parameters) if part == "update" else 0.0
    layers, heads = (
        [indicator * flops for indicator in is_width] for flops in (part_work.layer_flops, part_work.head_flops)
    )
    return [
        part_work.calls,
        part_work.calls * taken.shape.layers,
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
