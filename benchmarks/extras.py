"""Each extra alone in a fresh environment: what it installs, how large it is, how long it imports, and that it runs.

    python benchmarks/extras.py                    # `make extras`: all of them, some minutes each, from a package index
    python benchmarks/extras.py --only language

Every environment is made in a temporary folder and removed. `size` and `packages` are of the whole environment without
pip; `beyond torch` is what `import groupwise` and its first use take after `import torch`, in CPU seconds, which other
work on the machine lengthens least. The table is `results/extras.md`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "benchmarks" / "results" / "extras.md"
USES = {
    "none": ["groupwise", "methods", "grpo"],
    "language": [
        "groupwise",
        "train",
        "language",
        "--no-controls",
        "stages.warm_up.num_steps=2",
        "stages.grpo.num_steps=2",
    ],
    "diffusion": ["groupwise", "check", "diffusion"],
    "restoration": ["groupwise", "check", "restoration"],
    "selection": ["groupwise", "check", "selection"],
    "report": ["python", "-c", "import matplotlib, scipy, PIL, jinja2, groupwise_look.report, groupwise.experiment"],
    "all": ["groupwise", "check", "language"],
}
"""One small use of each extra."""
SECONDS = """
import json, time
start = time.process_time()
import torch
before = time.process_time()
from groupwise import Objective, Rollouts, Scored
Objective.preset("grpo")
print(json.dumps([before - start, time.process_time() - before]))
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=sorted(USES), action="append", help="one extra; may be given again")
    asked = parser.parse_args()
    rows, failed = [], False
    for name in asked.only or USES:
        row, error = tried(name)
        failed = failed or bool(error)
        rows.append(row)
        print(row, flush=True)
        if error:
            print(error, file=sys.stderr)
    columns = (
        *("extra", "packages beside this one", "MB"),
        *("import torch, CPU s", "groupwise beyond torch, CPU s", "its use"),
    )
    head = "| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|"
    if not asked.only:
        build = (
            "Written by `make extras`, with the PyTorch that pip finds here; its CUDA build is some gigabytes larger."
        )
        TABLE.write_text(f"# Extras, each alone\n\n{build}\n\n{head}\n" + "\n".join(rows) + "\n")
        print(f"written to {TABLE}")
    return int(failed)


def tried(name: str) -> tuple[str, str]:
    """Install an extra into an environment of its own and use it.

    Returns:
        its line of the table, and what went wrong, empty where nothing did.
    """
    with tempfile.TemporaryDirectory(prefix="groupwise-extra-") as scratch:
        folder = Path(scratch) / "environment"
        venv.create(folder, with_pip=True)
        python = folder / "bin" / "python"
        what = str(ROOT) if name == "none" else f"{ROOT}[{name}]"
        constraints = ROOT / "constraints.txt"
        install = [python, "-m", "pip", "install", "-q", "-c", constraints, what]
        installed = subprocess.run(install, capture_output=True, text=True)
        if installed.returncode:
            return f"| {name} | - | - | - | - | not installed |", f"{name}: {installed.stderr[-2000:]}"
        listed = json.loads(subprocess.check_output([python, "-m", "pip", "list", "--format=json"], text=True))
        packages = [package["name"] for package in listed if package["name"] not in ("pip", "groupwise")]
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and not file.is_symlink())
        size -= sum(file.stat().st_size for file in folder.glob("lib/*/site-packages/pip/**/*") if file.is_file())
        # The second time: the first one writes the compiled files.
        torch_seconds, own_seconds = [
            json.loads(subprocess.check_output([python, "-c", SECONDS], text=True)) for _ in range(2)
        ][1]
        command, *arguments = USES[name]
        done = subprocess.run(
            [folder / "bin" / command, *arguments], cwd=scratch, capture_output=True, text=True, timeout=600
        )
        use = " ".join(USES[name]) if len(" ".join(USES[name])) < 80 else " ".join(USES[name][:3])
        error = "" if done.returncode == 0 else f"{name}: `{use}` ended with {done.returncode}: {done.stderr[-2000:]}"
        verdict = f"`{use}`" + (" fails" if error else "")
    row = f"| {name} | {len(packages)} | {size / 1e6:.0f} | {torch_seconds:.1f} | {own_seconds:.2f} | {verdict} |"
    return row, error


if __name__ == "__main__":
    sys.exit(main())
