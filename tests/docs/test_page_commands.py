"""Every command of the README, the tutorials and the how-to guides runs, shortened, in the order of its page."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.docs.page_commands import SHORTER, commands, on_a_small_model, own_task, page_files, shortened
from tests.docs.test_pages import ROOT, blocks

ROOMS = ("tutorials", "how_to")
PAGES = [ROOT / "README.md", *sorted(page for room in ROOMS for page in (ROOT / "docs" / room).glob("*.md"))]
# The page on other trainers needs their files: tests/look/test_foreign.py runs its commands.
PAGES = [page for page in PAGES if commands(page.read_text(encoding="utf-8")) and "other_trainers" not in page.stem]
ENDS_WITH = {"doctor": {0, 3}}
"""A shortened run may be healthy where the page's is not, and the other way round."""


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a short run of the default experiment, which pages call RUN."""
    from groupwise import load_experiment, train

    experiment = load_experiment("language", [*SHORTER["language"], "controls=null"])
    return train(experiment, out=tmp_path_factory.mktemp("runs") / "RUN").folder.path


def prepare(folder: Path, run_folder: Path, page: str) -> None:
    """Puts into a folder what a page assumes: its files, a run, models, prompts."""
    page_files(folder, page)
    own_task(folder)
    shutil.copytree(run_folder, folder / "runs/RUN")
    shutil.copytree(run_folder / "model", folder / "models/Qwen2.5-0.5B")
    if "python examples/" in page:
        (folder / "examples").symlink_to(ROOT / "examples")
    if "stable-diffusion-3.5-medium" in page:
        from tests.images.diffusion.models.tiny import saved

        saved("StableDiffusion3Pipeline", folder / "models/stable-diffusion-3.5-medium")
        (folder / "prompts.txt").write_text("a cat\na dog\n", encoding="utf-8")
    if "train.parquet" in page:
        import pandas

        rows = [{"prompt": f"ball {1 + number % 5} ?", "answer": str(1 + number % 5)} for number in range(24)]
        pandas.DataFrame(rows).to_parquet(folder / "train.parquet")


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=pytest.mark.slow if path.stem == "README" else pytest.mark.nightly)
        for path in PAGES
    ],
)
def test_every_command_of_the_page_runs(
    path: Path, run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    page = on_a_small_model(path.read_text(encoding="utf-8"))
    prepare(tmp_path, run_folder, page)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for block in blocks(path, "python"):
        if "ticket-selector" not in block:  # its folder is made by the commands
            exec(compile(on_a_small_model(block), str(path), "exec"), {})
    for command in commands(page):
        words = [str(run_folder) if word == "RUN" else word for word in shortened(command)]
        status, text = end(words, monkeypatch, capfd)
        assert status in ENDS_WITH.get(words[1], {0}), (command, text[-3000:])
    for name, module in list(sys.modules.items()):
        if str(tmp_path) in str(getattr(module, "__file__", "")):
            del sys.modules[name]


def end(words: list[str], monkeypatch: pytest.MonkeyPatch, capfd: Any) -> tuple[int, str]:
    """Runs a command, ours inside this process, and returns its status and what it printed."""
    if words[0] == "make":
        return printed_by(["make", "--dry-run", "--directory", str(ROOT), *words[1:]])
    if words[0] == "pip":
        # Nothing is installed anew: what the line asks for is there.
        return printed_by([sys.executable, "-c", "import groupwise, torch"])
    if words[0] == "torchrun":
        few = ["2" if before == "--nproc-per-node" else word for before, word in zip(["", *words], words, strict=False)]
        return printed_by(
            [sys.executable, "-m", "torch.distributed.run", *few[1:], *SHORTER["language"], "controls=null"]
        )
    if words[0] == "python":
        return printed_by([sys.executable, *words[1:]])
    assert words[0] == "groupwise", words
    from groupwise.cli.app import main

    monkeypatch.setattr(sys, "argv", words)
    capfd.readouterr()
    try:
        main()
        status = 0
    except SystemExit as ended:
        status = int(ended.code or 0)
    return status, "".join(capfd.readouterr())


def asks_for(requirement: str) -> tuple[int, str]:
    """Returns 0 where a line of pip names the checkout and extras that there are; nothing is installed anew."""
    extras = re.fullmatch(r"\.(?:\[([\w,]+)\])?", requirement)
    known = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    unknown = set((extras[1] or "").split(",")) - {"", *known} if extras else {requirement}
    return int(bool(unknown)), f"no such extra: {unknown}"


def printed_by(words: list[str]) -> tuple[int, str]:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_a_wrong_command_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    status, text = end(["groupwise", "train", "langage"], monkeypatch, capfd)
    assert status == 2
    assert "did you mean language" in text
    assert asks_for(".[langage]")[0] == 1
    assert asks_for(".[selection,report]")[0] == 0


def test_a_shortened_command_keeps_what_its_page_says() -> None:
    words = shortened("groupwise train restoration start=runs/a auxiliary.supervised=1.0 --out runs/b")
    assert words[:6] == ["groupwise", "train", "restoration", "start=runs/a", "auxiliary.supervised=1.0", "--out"]
    assert shortened("groupwise train language train.group_size=16").count("train.group_size=2") == 0


def test_the_notebooks_hold_every_block_of_their_pages(tmp_path: Path) -> None:
    import notebooks

    for path in notebooks.write(tmp_path):
        page = (ROOT / "docs/tutorials" / f"{path.stem}.md").read_text(encoding="utf-8")
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        code = "\n".join(cell["source"] for cell in cells if cell["cell_type"] == "code")
        assert [f"!{command}" for command in commands(page)] == [line for line in code.splitlines() if line[:1] == "!"]
        assert code.count("%%writefile") == page.count('title="')
        prose = "\n".join(cell["source"] for cell in cells if cell["cell_type"] == "markdown")
        assert prose.startswith("# Tutorial")
        assert "```bash" not in prose


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["language", "diffusion", "restoration", "selection"])
def test_the_notebook_runs(name: str, run_folder: Path, tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat", reason="run make .venv/.installed-dev, which installs nbclient")
    nbclient = pytest.importorskip("nbclient")
    import notebooks

    page = (ROOT / "docs/tutorials" / f"{name}.md").read_text(encoding="utf-8")
    prepare(tmp_path, run_folder, page)
    sheet = notebooks.notebook(page)
    for cell in sheet["cells"]:
        if cell["cell_type"] == "code":
            cell["source"] = "\n".join(map(_affordable, cell["source"].splitlines()))
    read = nbformat.reads(json.dumps(sheet), as_version=4)
    nbformat.validate(read)
    nbclient.NotebookClient(read, timeout=900, resources={"metadata": {"path": str(tmp_path)}}).execute()
    printed = "".join(part.get("text", "") for cell in read.cells for part in cell.get("outputs", []))
    assert "Run folder" in printed
    assert "error:" not in printed


def _affordable(line: str) -> str:
    """Returns a line of a cell that installs nothing and trains for a moment."""
    if line.startswith(("!pip", "!make")):
        return "pass"
    if not line.startswith("!groupwise"):
        return line
    words = [f"'{word}'" if " " in word else word for word in shortened(line[1:])]
    return " ".join([f"!{sys.executable} -m", *words])
