"""The guide *Your own pipeline* is true: its files stand in a folder of their own, its laws hold, its run trains, and
diffusers draws with what the run saved.
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

import diffusers
import pytest
from tests.docs.test_pages import ROOT, blocks, files
from tests.images.diffusion.models.tiny import build

from groupwise import plugins
from groupwise.config import ConfigError
from groupwise.testing import BrokenLaws, check_pipeline
from groupwise_images.diffusion.models.pipeline import adapter_for

PAGE = ROOT / "docs" / "guide" / "write_your_own_pipeline.md"
FILES = files(PAGE)
NAMES = {"make_folder.py", "prompts.txt", "aura.py", "test_aura.py", "draw.py", "kontext.py", "pyproject.toml"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the page and the pipeline that they make."""
    folder = tmp_path_factory.mktemp("page")
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    with contextlib.chdir(folder):
        runpy.run_path("make_folder.py")
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with a copy of them."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in FILES:
        sys.modules.pop(Path(name).stem, None)


def train(*words: str) -> None:
    from groupwise.cli.app import app

    app(["train", "diffusion", "--model", "models/tiny", "--prompts", "prompts.txt", *words], standalone_mode=False)


def test_the_files_of_the_page() -> None:
    assert set(FILES) == NAMES


@pytest.mark.slow
def test_what_is_not_known_is_told_with_the_door(folder: Path) -> None:
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
def test_the_laws_hold_and_notice_what_the_page_takes_away(folder: Path) -> None:
    importlib.import_module("test_aura").test_it_keeps_the_laws()
    assert FILES["aura.py"].count(" / 1000") == 1
    (folder / "aura.py").write_text(FILES["aura.py"].replace(" / 1000", ""), encoding="utf-8")
    for name in ("aura", "test_aura"):
        del sys.modules[name]
    importlib.invalidate_caches()
    with pytest.raises(BrokenLaws) as caught:
        importlib.import_module("test_aura").test_it_keeps_the_laws()
    (stated,) = [block for block in blocks(PAGE, "text") if "are broken" in block]
    number = re.compile(r"by up to [\d.]+")
    printed = [number.sub("", line) for line in str(caught.value).splitlines()]
    assert printed[: len(stated.splitlines())] == [number.sub("", line) for line in stated.splitlines()]
    assert [line[2:6] for line in printed[2:]] == ["save", "lora"]


@pytest.mark.slow
def test_the_adapter_that_is_shown_an_image_keeps_the_laws(folder: Path) -> None:
    flux = build("FluxPipeline")
    parts = {name: part for name, part in flux.components.items() if name not in ("image_encoder", "feature_extractor")}
    diffusers.FluxKontextPipeline(**parts).save_pretrained("models/kontext")
    check_pipeline(importlib.import_module("kontext").Kontext, "models/kontext", size=(16, 8))


@pytest.mark.slow
def test_the_run_of_the_page_ends_in_a_lora_that_diffusers_draws_with(folder: Path) -> None:
    (line,) = [line for block in blocks(PAGE, "bash") for line in block.splitlines() if "--out runs/aura" in line]
    words = line.split("prompts.txt ")[1].split()
    train(*words, "domain.num_steps=3", "train.num_steps=2", "domain.evaluation.num_images=2", "track.console=none")
    assert (folder / "runs/aura/model/pytorch_lora_weights.safetensors").is_file()
    runpy.run_path("draw.py")
    assert (folder / "cat.png").stat().st_size > 0


def test_a_package_brings_an_adapter_under_the_name_of_the_class(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tomllib.loads(FILES["pyproject.toml"])["project"]
    ((group, points),) = project["entry-points"].items()
    installed = folder / "groupwise_aura-1.0.dist-info"
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
