"""What works where no extra is installed and the system is not Linux, and the line that says what is missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from groupwise import extras
from groupwise.config import ConfigError

DOMAIN = Path(__file__).parent / "domain" / "callable"
"""A domain outside the package, with its experiment."""
README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
EXAMPLE = re.search(r"```python\n(import torch\n.*?)```", README, re.DOTALL)
assert EXAMPLE
KINDS = ("language", "diffusion", "restoration", "selection")
# As on a system without these modules, and in an environment into which no extra was installed. torch and its own
# dependencies are imported before: what they need on such a system is theirs.
LIGHT = """
import sys, torch, torch.distributed, typer.main, rich.console, safetensors.torch, numpy
from importlib.metadata import distribution

SYSTEM = {"fcntl", "resource", "pwd", "grp", "termios"}
EXTRAS = {
    "transformers", "tokenizers", "huggingface_hub", "peft", "datasets", "pyarrow", "reasoning_gym", "math_verify",
    "httpx", "regex", "diffusers", "sklearn", "skimage", "scipy", "torchmetrics", "PIL", "matplotlib",
}

class Light:
    def find_spec(self, name, path=None, target=None):
        caller = sys._getframe(1)
        if name.partition(".")[0] in EXTRAS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        while caller and ("importlib" in caller.f_code.co_filename):
            caller = caller.f_back
        if name in SYSTEM and caller and "groupwise" in caller.f_code.co_filename:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

import importlib.util
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name.partition(".")[0] in EXTRAS else find_spec(name, *rest)
for name in SYSTEM & set(sys.modules):
    del sys.modules[name]
assert not EXTRAS & {name.partition(".")[0] for name in sys.modules}
sys.meta_path.insert(0, Light())
"""


def light(program: str, *arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-c", LIGHT + program, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=folder,
        env=environment,
    )


@pytest.mark.slow
def test_the_objective_and_the_laws_need_no_extra_and_no_linux() -> None:
    everything = (
        "import groupwise.reference, groupwise.schedule, groupwise.testing, groupwise.reward\n"
        "import groupwise.experiment.runner, groupwise.track, groupwise_look.diagnosis, groupwise_look.report\n"
    )
    done = light(everything + EXAMPLE[1])
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=pytest.mark.slow if kind == "language" else pytest.mark.nightly) for kind in KINDS],
)
def test_a_domain_without_its_extra_is_refused_in_one_line(kind: str, tmp_path: Path) -> None:
    done = light("from groupwise.cli import main; main()", "train", kind, folder=tmp_path)
    assert done.returncode == 2, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"error: domain.kind = '{kind}': needs the extra {kind}; not installed are ")
    assert last.endswith(f"; write pip install '.[{kind}]'")
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("runs/*"))


@pytest.mark.nightly
def test_a_comparison_without_its_extra_is_refused_before_a_run(tmp_path: Path) -> None:
    done = light("from groupwise.cli import main; main()", "compare", "language", folder=tmp_path)
    assert done.returncode == 2
    assert "error: groupwise compare: needs the extra report" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.nightly
def test_a_domain_of_ones_own_is_trained_without_an_extra(tmp_path: Path) -> None:
    for name in ("reach.py", "reach.toml"):
        shutil.copy(DOMAIN / name, tmp_path)
    command = "sys.path.insert(0, '.')\nfrom groupwise.cli import main; main()"
    for verb in (
        ["check", "reach.toml"],
        ["train", "reach.toml", "--out", "run", "train.num_steps=3"],
        ["evaluate", "run", "--run-code"],
        ["sample", "run", "--run-code"],
        ["doctor", "run"],
        ["export", "run", "--out", "model"],
    ):
        done = light(command, *verb, folder=tmp_path)
        assert done.returncode == 0, (verb, done.stderr)


def test_what_a_missing_module_says() -> None:
    assert extras.advice("datasets") == (
        "datasets is not installed; the extra language brings it: pip install '.[language]'"
    )
    assert extras.advice("nothing_of_ours") is None


def test_a_missing_extra_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("groupwise.extras.find_spec", lambda name: None if name == "skimage" else object())
    extras.require("selection", "domain.kind = 'selection'")
    with pytest.raises(ConfigError) as error:
        extras.require("restoration", "domain.kind = 'restoration'")
    assert str(error.value) == (
        "domain.kind = 'restoration': needs the extra restoration; not installed are skimage;"
        " write pip install '.[restoration]'"
    )
