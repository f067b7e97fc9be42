"""The heavy modules that each verb of the command loads: those of the family that it uses, and no others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from groupwise.cli.app import app

pytestmark = pytest.mark.slow

_PROGRAM = """
import contextlib, io, json, sys
from groupwise.cli.app import app

loaded = []
for arguments in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()):
        app(arguments, standalone_mode=False)
    loaded.append(sorted(sys.modules))
print("LOADED" + json.dumps(loaded))
"""
_OF_OTHER_FAMILIES = (
    *("peft", "datasets", "reasoning_gym", "math_verify", "sklearn", "matplotlib", "pyarrow", "wandb", "tensorboard"),
    *("diffusers", "torchmetrics", "skimage", "trl", "ray", "tinker", "vllm", "gguf"),
    *(f"groupwise_{domain}.domain" for domain in ("images.diffusion", "images.restoration", "selection")),
)
"""What neither a small model of the language domain nor a text needs."""
_MODELS = ("transformers", "tokenizers", "scipy", "groupwise.domain.language.domain")
_SMALL = (
    *("stages.warm_up.num_steps=1", "stages.grpo.num_steps=1", "controls=null", "domain.data.num_held_out=2"),
    *("domain.data.num_train=16", "domain.demonstrations.num=16", "domain.evaluation.num_texts=2"),
)
# In the order in which they are called: a module that one has loaded would be no news of the next.
_WITHOUT_TORCH = {
    "init": ["init", "mine"],
    "experiments": ["experiments"],
    "methods": ["methods"],
    "methods gspo": ["methods", "gspo"],
    "methods as JSON": ["methods", "--json"],
    "doctor": ["doctor", "run"],
    "report": ["report", "run"],
}
_WITHOUT_MODELS = {"schema": ["schema"]}
_WITH_MODELS = {
    "check": ["check", "language", *_SMALL],
    "train": ["train", "language", *_SMALL, "--out", "run"],
    "resume": ["resume", "run"],
    "estimate": ["estimate", "language", *_SMALL],
    "evaluate": ["evaluate", "run", "--which", "final"],
    "sample": ["sample", "run", "--prompt", "ball 1 swap 1-2 ?"],
    "export": ["export", "run", "--out", "exported"],
}


def _loaded(folder: Path, calls: dict[str, list[str]]) -> dict[str, set[str]]:
    """Calls verbs one after another in one process; returns the modules that were there after each."""
    ended = subprocess.run(
        [sys.executable, "-c", _PROGRAM, json.dumps(list(calls.values()))],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    modules = json.loads(ended.stdout.rpartition("LOADED")[2])
    return {name: set(loaded) for name, loaded in zip(calls, modules, strict=True)}


def test_a_verb_loads_only_the_family_that_it_uses(tmp_path: Path) -> None:
    loaded = _loaded(tmp_path, _WITHOUT_MODELS | _WITH_MODELS)
    found = {name: sorted(modules.intersection(_OF_OTHER_FAMILIES)) for name, modules in loaded.items()}
    assert found == {name: [] for name in loaded}
    assert [name for name in _WITHOUT_MODELS if loaded[name].intersection(_MODELS)] == []
    assert loaded["check"].issuperset(("torch", *_MODELS)), "the names are those of modules"

    # These read the run that the verbs above have made.
    loaded = _loaded(tmp_path, _WITHOUT_TORCH)
    heavy = ("torch", *_OF_OTHER_FAMILIES, *_MODELS)
    found = {name: sorted(modules.intersection(heavy)) for name, modules in loaded.items()}
    assert found == {name: [] for name in loaded}


def test_what_only_reads_loads_neither_torch_nor_a_model_library() -> None:
    modules = ["groupwise", "groupwise.cli", "groupwise.config", "groupwise.reward", "groupwise.track"]
    modules += ["groupwise.objective.preset", "groupwise_look.diagnosis", "groupwise_look.report", "groupwise.runs"]
    modules += ["groupwise.domain.language.config", "groupwise_images.diffusion.config", "groupwise.training.config"]
    modules += ["groupwise.training.optimiser_config", "groupwise.track.config"]
    heavy = ("torch", *_OF_OTHER_FAMILIES, *_MODELS)
    code = f"import importlib, sys\nfor name in {modules}:\n    importlib.import_module(name)\n"
    code += f"    print(name, [heavy for heavy in {heavy} if heavy in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines() == [f"{name} []" for name in modules]


def test_every_verb_is_asked() -> None:
    called = {call[0] for call in (*_WITH_MODELS.values(), *_WITHOUT_TORCH.values(), *_WITHOUT_MODELS.values())}
    # A comparison runs every variant in a process of its own, by the modules of `train`.
    assert called | {"compare"} == {
        command.callback.__name__ for command in app.registered_commands if command.callback
    }
