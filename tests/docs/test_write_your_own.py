"""The tutorial is true: its files stand in a folder of their own, its laws hold, its run trains, and its last section
registers it.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import runpy
import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import diffusers
import pytest
from tests.docs.test_pages import ROOT, blocks, files
from tests.experiment.tiny import TINY
from tests.images.diffusion.models.tiny import build

from groupwise import plugins
from groupwise.config import ConfigError
from groupwise.testing import BrokenLaws, check_pipeline
from groupwise_images.diffusion.models.pipeline import adapter_for

METHOD_PAGE = ROOT / "docs" / "guide" / "write_your_own_method.md"
METHOD_FILES = files(METHOD_PAGE)


@pytest.fixture
def folder_of_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the files of the page, and nothing else."""
    for name, text in METHOD_FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in METHOD_FILES:
        sys.modules.pop(Path(name).stem, None)


def cases(module: ModuleType) -> list[tuple[str, tuple[object, ...]]]:
    """The tests of a module with their arguments."""
    found = []
    for name in [name for name in vars(module) if name.startswith("test_")]:
        marks = [mark for mark in getattr(getattr(module, name), "pytestmark", []) if mark.name == "parametrize"]
        found += [(name, (value,)) for mark in marks for value in mark.args[1]] or [(name, ())]
    return found


def test_the_docstring_example_of_the_region(folder_of_method: Path) -> None:
    import doctest

    found = doctest.testmod(importlib.import_module("soft_clip"))
    assert found.attempted
    assert not found.failed


def test_the_guides_own_tests_hold(folder_of_method: Path) -> None:
    module = importlib.import_module("test_soft_clip")
    assert len(cases(module)) == 6
    for name, arguments in cases(module):
        getattr(module, name)(*arguments)


def test_the_laws_notice_a_wrong_region(folder_of_method: Path) -> None:
    # The gate is differentiated on the wrong side, and reads its neighbour.
    right = METHOD_FILES["soft_clip.py"]
    (folder_of_method / "soft_clip.py").write_text(
        right.replace("decisions.advantage * (ratio.detach() - 1) > 0", "ratio.detach().roll(1, 1) > 1")
    )
    module = importlib.import_module("test_soft_clip")
    with pytest.raises(AssertionError):
        module.test_the_laws()


@pytest.mark.slow
def test_the_run_of_the_page(folder_of_method: Path) -> None:
    from groupwise.experiment import load_experiment
    from groupwise.experiment.runner import run
    from groupwise.track import read_metrics

    assert load_experiment("language", ["method=soft.toml"]).objective.trust.kind == "callable"
    # The same method on an experiment that a test can afford.
    reward = (
        '[domain.rewards.digits]\nkind = "callable"\npath = "tests.golden_runs.language:digits"\n\n[domain.sampling]'
    )
    tiny = TINY.replace("[trust]\nhigh = 0.3\n", "").replace("[domain.sampling]", reward)
    (folder_of_method / "tiny.toml").write_text(tiny, encoding="utf-8")
    experiment = load_experiment("tiny.toml", ["method=soft.toml", "train.updates_per_batch=2"])
    result = run(experiment, folder_of_method / "run", controls=False)
    slopes = [
        row["soft_clip/slope_mean"] for row in read_metrics(result.folder.metrics) if "soft_clip/slope_mean" in row
    ]
    assert len(slopes) == 2
    assert all(0 < slope <= 1 for slope in slopes)


# The guide *Your own pipeline* is true: its files stand in a folder of their own, its laws hold, its run trains, and
# diffusers draws with what the run saved.


PIPELINE_PAGE = ROOT / "docs" / "guide" / "write_your_own_pipeline.md"
PIPELINE_FILES = files(PIPELINE_PAGE)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the page and the pipeline that they make."""
    folder = tmp_path_factory.mktemp("page")
    for name, text in PIPELINE_FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    with contextlib.chdir(folder):
        runpy.run_path("make_folder.py")
    return folder


@pytest.fixture
def folder_of_pipeline(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with a copy of them."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in PIPELINE_FILES:
        sys.modules.pop(Path(name).stem, None)


def train(*words: str) -> None:
    from groupwise.cli.app import app

    app(["train", "diffusion", "--model", "models/tiny", "--prompts", "prompts.txt", *words], standalone_mode=False)


@pytest.mark.slow
def test_what_is_not_known_is_told_with_the_door(folder_of_pipeline: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        adapter_for("AuraFlowPipeline", "models/tiny")
    message = str(caught.value)
    assert "\n" not in message
    assert (
        "holds a AuraFlowPipeline, and there is no adapter for it (there are those for StableDiffusionPipe" in message
    )
    assert "a class that extends groupwise_images.diffusion.pipeline_adapter.PipelineAdapter" in message
    assert 'domain.model.pipeline="mine:AuraFlow" (docs/guide/write_your_own_pipeline.md)' in message


@pytest.mark.slow
def test_the_laws_hold_and_notice_what_the_page_takes_away(folder_of_pipeline: Path) -> None:
    importlib.import_module("test_aura").test_it_keeps_the_laws()
    assert PIPELINE_FILES["aura.py"].count(" / 1000") == 1
    (folder_of_pipeline / "aura.py").write_text(PIPELINE_FILES["aura.py"].replace(" / 1000", ""), encoding="utf-8")
    for name in ("aura", "test_aura"):
        del sys.modules[name]
    importlib.invalidate_caches()
    with pytest.raises(BrokenLaws) as caught:
        importlib.import_module("test_aura").test_it_keeps_the_laws()
    (stated,) = [block for block in blocks(PIPELINE_PAGE, "text") if "are broken" in block]
    number = re.compile(r"by up to [\d.]+")
    printed = [number.sub("", line) for line in str(caught.value).splitlines()]
    assert printed[: len(stated.splitlines())] == [number.sub("", line) for line in stated.splitlines()]
    assert [line[2:6] for line in printed[2:]] == ["save", "lora"]


@pytest.mark.slow
def test_the_adapter_that_is_shown_an_image_keeps_the_laws(folder_of_pipeline: Path) -> None:
    flux = build("FluxPipeline")
    parts = {name: part for name, part in flux.components.items() if name not in ("image_encoder", "feature_extractor")}
    diffusers.FluxKontextPipeline(**parts).save_pretrained("models/kontext")
    check_pipeline(importlib.import_module("kontext").Kontext, "models/kontext", size=(16, 8))


@pytest.mark.slow
def test_the_run_of_the_page_ends_in_a_lora_that_diffusers_draws_with(folder_of_pipeline: Path) -> None:
    (line,) = [
        line for block in blocks(PIPELINE_PAGE, "bash") for line in block.splitlines() if "--out runs/aura" in line
    ]
    words = line.split("prompts.txt ")[1].split()
    train(*words, "domain.num_steps=3", "train.num_steps=2", "domain.evaluation.num_images=2", "track.console=none")
    assert (folder_of_pipeline / "runs/aura/model/pytorch_lora_weights.safetensors").is_file()
    runpy.run_path("draw.py")
    assert (folder_of_pipeline / "cat.png").stat().st_size > 0


@pytest.mark.slow
def test_a_package_brings_an_adapter_under_the_name_of_the_class(
    folder_of_pipeline: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tomllib.loads(PIPELINE_FILES["pyproject.toml"])["project"]
    ((group, points),) = project["entry-points"].items()
    installed = folder_of_pipeline / "groupwise_aura-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    lines = "".join(f"{name} = {value}\n" for name, value in points.items())
    (installed / "entry_points.txt").write_text(f"[{group}]\n{lines}")
    plugins._all_points.cache_clear()
    try:
        adapter = adapter_for("AuraFlowPipeline", "models/tiny")
        assert type(adapter).__name__ == "AuraFlow"
        with pytest.raises(ConfigError, match=r"holds a SanaPipeline, and there is no adapter .* AuraFlowPipeline"):
            adapter_for("SanaPipeline", "models/tiny")
    finally:
        monkeypatch.undo()
        plugins._all_points.cache_clear()
