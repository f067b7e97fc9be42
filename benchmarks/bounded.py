"""What image models hold with 10, 100 and 1,000 prompts: `python benchmarks/bounded.py`.

A pipeline of Stable Diffusion's shape with random weights is made in a temporary folder, and every number is measured
in a fresh process. First one step of so many prompts: it encodes, samples, decodes, scores and updates, and the bytes
of all tensors are counted at their peak, less those of the result (latents, images and log-probs of the members, which
the step has to hold). Then a run over so many prompts, ten of them a step, which evaluates all of them: its peak must
not grow. Last an evaluation of a restoration network on so many held-out images, whose peak must not grow either. The
tables are written to `benchmarks/results/bounded.md`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

COUNTS = (10, 100, 1000)
GROUP_SIZE = 8
PROMPTS_PER_STEP = 10
EVALUATED_IMAGES = 4
SIDE = 64
RESULTS = Path(__file__).parent / "results" / "bounded.md"


def main() -> None:
    """Measures each number of prompts in processes of its own and writes the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--prompts", type=int)
    parser.add_argument("--part", choices=MEASURES, default="step")
    arguments = parser.parse_args()
    if arguments.prompts:
        print(json.dumps(MEASURES[arguments.part](arguments.folder, arguments.prompts)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "pipeline"
        make_pipeline(folder)
        steps = {count: in_process(folder, count) for count in COUNTS}
        runs = {count: in_process(folder, count, "--part", "run") for count in COUNTS}
        evaluations = {count: in_process(folder, count, "--part", "evaluation") for count in COUNTS}
    text = tables(steps, runs, evaluations)
    RESULTS.write_text(text, encoding="utf-8")
    print(text)


def tables(
    steps: Mapping[int, dict[str, Any]], runs: Mapping[int, dict[str, Any]], evaluations: Mapping[int, dict[str, Any]]
) -> str:
    """Writes the tables of what `measure`, `measure_run` and `measure_evaluation` returned, by number of prompts."""
    heads = " | ".join(f"{count:,} prompts" for count in COUNTS)
    lines = [
        "# What is held",
        "",
        f"`python benchmarks/bounded.py`, one thread, seed 0; each number in a fresh process, {GROUP_SIZE} images a"
        " prompt. MiB of tensors are counted at the peak.",
        "",
        f"A run over so many prompts, {PROMPTS_PER_STEP} of them in each of its three steps, which evaluates"
        f" {EVALUATED_IMAGES} images of each:",
        "",
        f"| | {heads} |",
        f"|---|{'---|' * len(COUNTS)}",
    ]
    for name, label in (("tensors", "tensors"), ("resident", "most resident memory above the loaded libraries")):
        lines.append(f"| {label} | {' | '.join(f'{runs[count][name]:.0f}' for count in COUNTS)} |")
    lines += [
        "",
        "One step of so many prompts, tensors beside those of the result, which the step has to hold and which grows"
        " with its prompts:",
        "",
        f"| part | {heads} | their results |",
        f"|---|{'---|' * (len(COUNTS) + 1)}",
    ]
    for part in steps[COUNTS[0]]["held"]:
        held = " | ".join(f"{steps[count]['held'][part]:.1f}" for count in COUNTS)
        kept = ", ".join(f"{steps[count]['kept'][part]:.1f}" for count in COUNTS)
        lines.append(f"| {part} | {held} | {kept} |")
    resident = " | ".join(f"{steps[count]['resident']:.0f}" for count in COUNTS)
    lines.append(f"| most resident memory above the loaded model | {resident} | |")
    lines += [
        "",
        f"Rows of a pass: {json.dumps(steps[COUNTS[0]]['rows'])}. A step of 10 prompts has {GROUP_SIZE * 10}"
        " transitions: less than one such pass of an update. Encoded prompts stay in memory, at most 256 MiB.",
        "",
        f"An evaluation of a restoration network on so many held-out images of {SIDE} x {SIDE} pixels in colour, with a"
        " reward that is a map; beside the source's images, which stay in memory with 3 bytes a pixel:",
        "",
        f"| | {heads.replace('prompts', 'images')} |",
        f"|---|{'---|' * len(COUNTS)}",
    ]
    for name, label in (
        ("tensors", "tensors"),
        ("arrays", "arrays of numpy and objects of Python"),
        ("resident", "most resident memory above the opened domain"),
    ):
        lines.append(f"| {label} | {' | '.join(f'{evaluations[count][name]:.0f}' for count in COUNTS)} |")
    return "\n".join(lines) + "\n"


def in_process(folder: Path, count: int, *arguments: str) -> dict[str, Any]:
    """Measures so many prompts in a fresh process, whose cache is empty."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "GROUPWISE_CACHE": cache}
        command = [sys.executable, __file__, "--folder", str(folder), "--prompts", str(count), *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def make_pipeline(folder: Path) -> None:
    """Writes a small pipeline of Stable Diffusion's shape."""
    import torch
    from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionPipeline, UNet2DConditionModel
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import CLIPTextConfig, CLIPTextModel, PreTrainedTokenizerFast

    torch.manual_seed(0)
    words = Tokenizer(models.WordLevel({"<s>": 0, "</s>": 1, "a": 2, "cat": 3}, unk_token="</s>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()  # type: ignore[assignment]
    words.post_processor = processors.TemplateProcessing(  # type: ignore[assignment]
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    StableDiffusionPipeline(
        vae=AutoencoderKL(
            block_out_channels=(8, 8),
            layers_per_block=1,
            norm_num_groups=8,
            sample_size=32,
            down_block_types=("DownEncoderBlock2D",) * 2,
            up_block_types=("UpDecoderBlock2D",) * 2,
        ),
        text_encoder=CLIPTextModel(
            CLIPTextConfig(
                vocab_size=4,
                hidden_size=16,
                intermediate_size=32,
                num_hidden_layers=2,
                num_attention_heads=4,
                bos_token_id=0,
                eos_token_id=1,
                pad_token_id=1,
            )
        ),
        tokenizer=PreTrainedTokenizerFast(
            tokenizer_object=words,
            unk_token="</s>",
            pad_token="</s>",
            bos_token="<s>",
            eos_token="</s>",
            model_max_length=77,
        ),
        unet=UNet2DConditionModel(
            sample_size=16,
            block_out_channels=(16, 16),
            layers_per_block=1,
            cross_attention_dim=16,
            attention_head_dim=8,
            norm_num_groups=8,
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        ),
        scheduler=DDIMScheduler(clip_sample=False),
        safety_checker=None,  # type: ignore[arg-type]
        feature_extractor=None,  # type: ignore[arg-type]
        requires_safety_checker=False,
    ).save_pretrained(folder)


def settings(folder: Path, count: int) -> dict[str, Any]:
    """Returns the domain of so many prompts."""
    return {
        "kind": "diffusion",
        "model": {"kind": "pretrained", "path": str(folder)},
        "data": {"source": {"kind": "texts", "prompts": [f"a cat number {place}" for place in range(count)]}},
        "rewards": {"small": {"kind": "jpeg_size"}},
        "num_steps": 2,
        "evaluation": {"num_images": EVALUATED_IMAGES},
    }


def measure_run(folder: Path, count: int) -> dict[str, Any]:
    """Returns MiB of tensors at the peak of a run over so many prompts, and of resident memory."""
    import torch

    from groupwise.experiment import load_experiment
    from groupwise.experiment.runner import run
    from groupwise.memory import peak_bytes
    from groupwise.processes import peak_memory_bytes

    torch.set_num_threads(1)
    experiment = {
        "method": "grpo",
        "domain": settings(folder, count),
        "train": {"num_steps": 3, "prompts_per_step": PROMPTS_PER_STEP, "group_size": GROUP_SIZE},
        "track": {"console": "none"},
        "seed": 0,
    }
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary) / "experiment.json"
        file.write_text(json.dumps(experiment), encoding="utf-8")
        loaded = load_experiment(file)
        start = peak_memory_bytes() or 0
        peak = peak_bytes(lambda: run(loaded, Path(temporary) / "run"), torch.device("cpu"))
    return {"tensors": peak / 2**20, "resident": ((peak_memory_bytes() or 0) - start) / 2**20}


def measure(folder: Path, count: int) -> dict[str, Any]:
    """Returns MiB held beside the result, and MiB of the result, of each part of a step of so many prompts."""
    import torch

    from groupwise.config import validate
    from groupwise.memory import peak_bytes
    from groupwise.processes import peak_memory_bytes
    from groupwise.records import Scored
    from groupwise.streams import Streams
    from groupwise_images.diffusion.config import DiffusionConfig
    from groupwise_images.diffusion.domain import DiffusionDomain

    torch.set_num_threads(1)
    domain = DiffusionDomain(validate(DiffusionConfig, settings(folder, count)), streams=Streams(0))
    domain.fit_passes()
    start = peak_memory_bytes() or 0
    prompts = domain.prompts(range(count))
    held: dict[str, float] = {}
    kept: dict[str, float] = {}
    results: dict[str, Any] = {}

    def part(name: str, run: Callable[[], Any]) -> None:
        def keep() -> None:
            results[name] = run()

        peak = peak_bytes(keep, torch.device("cpu"))
        kept[name] = sum(value.numel() * value.element_size() for value in tensors(results[name])) / 2**20
        held[name] = peak / 2**20 - kept[name]

    def encode() -> None:
        conditions = domain._encoded.of(prompts)
        for first in range(0, count, 32):
            conditions.select(torch.arange(first, min(first + 32, count)))

    def sample() -> Any:
        with torch.no_grad():
            return domain.sample(
                prompts, GROUP_SIZE, streams=Streams(0), step=0, settings={}, requires=frozenset({"log_prob"})
            )

    part("text encoding", encode)
    part("sampling", sample)
    samples = results["sampling"]
    rows = torch.arange(len(samples))
    part("decoding", lambda: domain._decode(samples.payload["latents"]))
    del results["decoding"]
    part("scoring", lambda: torch.no_grad()(domain.score)(samples, rows, frozenset({"log_prob"})))
    ones = Scored(torch.ones_like(samples.old_log_prob))
    part("update", lambda: domain.backward(samples, rows, ones))
    end = peak_memory_bytes() or 0
    return {"held": held, "kept": kept, "resident": (end - start) / 2**20, "rows": domain.pass_sizes.record()}


def measure_evaluation(folder: Path, count: int) -> dict[str, Any]:
    """Returns MiB held by an evaluation on so many held-out images: of tensors, of what Python allocates, and of
    resident memory.
    """
    import tracemalloc

    import numpy as np
    import torch
    from PIL import Image

    from groupwise.config import validate
    from groupwise.memory import peak_bytes
    from groupwise.processes import peak_memory_bytes
    from groupwise.streams import Streams
    from groupwise_images.restoration.config import RestorationConfig
    from groupwise_images.restoration.domain import RestorationDomain

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as images:
        random = np.random.default_rng(0)
        for place in range(count + 10):
            pixels = random.integers(0, 256, (SIDE, SIDE, 3), dtype="uint8")
            Image.fromarray(pixels).save(Path(images) / f"{place}.png")
        network = {"kind": "residual", "width": 8, "depth": 2, "channels": 3}
        table = {
            "kind": "restoration",
            "model": {"kind": "network", "network": network},
            "source": {"kind": "folder", "clean": images, "num_held_out": count},
            "degradation": {"kind": "gaussian_noise", "sigma": 0.2},
            "rewards": {"near": {"kind": "squared_error", "result": "map"}},
        }
        domain = RestorationDomain(validate(RestorationConfig, table), streams=Streams(0))
    domain.fit_passes()
    start = peak_memory_bytes() or 0
    domain.evaluate(streams=Streams(0))
    resident = (peak_memory_bytes() or 0) - start
    tracemalloc.start()
    peak = peak_bytes(lambda: print(len(domain.evaluate(streams=Streams(0)).records)), torch.device("cpu"))
    arrays = tracemalloc.get_traced_memory()[1]
    return {"tensors": peak / 2**20, "arrays": arrays / 2**20, "resident": resident / 2**20}


def tensors(result: Any) -> list[Any]:
    """Lists the tensors of a result."""
    import torch

    from groupwise.domain.protocol import Samples

    if isinstance(result, torch.Tensor):
        return [result]
    if isinstance(result, Samples):
        values = [result.mask, result.old_log_prob, result.step_size, *result.payload.values()]
        return [value for value in values if isinstance(value, torch.Tensor)]
    if isinstance(result, tuple):
        return [value for value in result if isinstance(value, torch.Tensor)]
    return []


MEASURES = {"step": measure, "run": measure_run, "evaluation": measure_evaluation}

if __name__ == "__main__":
    main()
