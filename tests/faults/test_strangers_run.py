"""A run folder that names code, in processes as a user starts them: nothing of it runs without `--run-code`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.experiment.tiny import TINY

# As the console command starts: without the working directory on the path.
COMMAND = [sys.executable, "-P", "-m", "groupwise"]
SHADOWS = ("json", "typing", "numpy", "torch", "pydantic", "groupwise", "mine")
MINE = """\
import os, signal
from pathlib import Path

def note(step, metrics):
    with open("steps.txt", "a") as file:
        file.write(f"{os.environ.get('RANK', '0')} {step}\\n")
    if step == 4 and Path("kill").exists():
        Path("kill").unlink(missing_ok=True)
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("GROUPWISE_RUN_CODE", raising=False)
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "mine.toml").write_text(TINY.replace("[train]\n", '[train]\ncallbacks = ["mine:note"]\n'))
    (tmp_path / "tiny.toml").write_text(TINY)
    return tmp_path


def call(*arguments: object, cwd: Path, start: list[str] = COMMAND) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*start, *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        env={**os.environ},
    )


def stranger(here: Path, run: Path, path: str = "subprocess:Popen") -> None:
    """Makes a run somebody else's, whose map is a command."""
    table: dict[str, Any] = json.loads((run / "config.json").read_text())
    table["domain"]["data"] |= {"map": path, "source": {"kind": "files", "paths": ["rows.jsonl"]}}
    (run / "config.json").write_text(json.dumps(table))
    for place in (here, run):
        (place / "rows.jsonl").write_text('{"touch": 1, "PWNED": 2}\n' * 99)


def marked(folder: Path, seconds: float) -> bool:
    """Whether the command left its mark; a process that was started may take a moment."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if list(folder.rglob("PWNED*")):
            return True
        time.sleep(0.05)
    return False


@pytest.mark.nightly
def test_every_verb_on_a_strangers_run(here: Path) -> None:
    assert call("train", "tiny.toml", "--out", "run", cwd=here).returncode == 0
    stranger(here, here / "run")
    # A file of the folder that is called like a library is no library, wherever the command is given.
    for name in SHADOWS:
        (here / "run" / f"{name}.py").write_text(f"open({str(here / 'PWNED-by-import')!r}, 'w')\n")
    verbs = [
        "sample .",
        "evaluate .",
        "estimate .",
        "resume .",
        "train . --out new",
        "compare . --vary train.group_size=2,4 --seeds 1 --out compared",
    ]
    for verb in verbs:
        ended = call(*verb.split(), cwd=here / "run")
        assert ended.returncode == 2, (verb, ended)
        assert "domain.data.map = subprocess:Popen" in ended.stderr, (verb, ended)
        assert not marked(here, 0.3), verb
    for verb in ["sample . --prompt 312", "export . --out ../exported", "report .", "doctor ."]:
        ended = call(*verb.split(), cwd=here / "run")
        assert ended.returncode in (0, 3), (verb, ended)
        assert not marked(here, 0.3), verb
    for name in SHADOWS:
        (here / "run" / f"{name}.py").unlink()
    call("sample", "run", "--run-code", cwd=here)
    assert marked(here, 60)


@pytest.mark.nightly
def test_the_children_of_a_comparison_and_of_rewards_import_nothing_of_the_folder_they_stand_in(here: Path) -> None:
    reward = '[domain.rewards.apart]\nkind = "length"\ntarget = 3\nisolation = "process"\n\n[domain.sampling]'
    (here / "apart.toml").write_text(TINY.replace("[domain.sampling]", reward))
    assert call("train", "apart.toml", "--out", "run", cwd=here).returncode == 0
    for name in SHADOWS:
        (here / "run" / f"{name}.py").write_text(f"open({str(here / 'PWNED-by-import')!r}, 'w')\n")
    ended = call(
        "compare", ".", "--vary", "train.group_size=2,4", "--seeds", 1, "--out", "../compared", cwd=here / "run"
    )
    assert ended.returncode == 0, ended
    assert call("evaluate", ".", cwd=here / "run").returncode == 0
    assert not marked(here, 0.3)


@pytest.mark.nightly
def test_a_run_with_code_goes_on_after_a_kill(here: Path) -> None:
    (here / "kill").write_text("")
    assert call("train", "mine.toml", "--out", "run", cwd=here).returncode == -signal.SIGKILL
    asked = call("resume", "run", cwd=here)
    assert asked.returncode == 2, asked
    assert "train.callbacks[0] = mine:note" in asked.stderr
    ended = call("resume", "run", "--run-code", cwd=here)
    assert (ended.returncode, ended.stderr) == (0, ""), ended
    assert (here / "run" / "summary.json").is_file()
    steps = [int(line.split()[1]) for line in (here / "steps.txt").read_text().splitlines()]
    assert steps[:5] == [1, 2, 3, 4, 4]
