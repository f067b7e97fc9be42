"""A whole run through a real server, as a person starts it: killed, resumed, asked, exported."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
import torch
from peft import AutoPeftModelForCausalLM
from tests.tinker.conftest import Server

from groupwise.causal_lm import scoring
from groupwise.causal_lm.backbone import Backbone
from groupwise_tinker.client import Sequenced, Service
from groupwise_tinker.config import Tinker
from groupwise_tinker.saved import SavedState

pytestmark = pytest.mark.nightly

PROGRAM = [sys.executable, "-c", "from groupwise.cli import main; main()"]
SECONDS = 900
ROWS = [f'{{"prompt": "{first}+{second}=", "answer": "{first + second}"}}' for first in range(5) for second in range(5)]
EXPERIMENT = """
name = "sums on a server"

[domain]
kind = "language"
sampling = { max_new_tokens = 4 }
evaluation = { num_prompts = 4, num_texts = 1, sampled = false }

[domain.model]
kind = "tinker"
rank = 4

[domain.data]
num_held_out = 4
source = { kind = "files", paths = ["rows.jsonl"] }

[domain.rewards.short]
kind = "length"
target = 4
unit = "characters"

[train]
num_steps = 4
prompts_per_step = 4
group_size = 8
evaluate_every = 2

[checkpoint]
every = 1

[optimiser]
learning_rate = 1e-2
"""


def groupwise(*words: str, folder: Path) -> str:
    """Runs a command of the program and returns what it prints."""
    process = subprocess.run(
        [*PROGRAM, *words],
        cwd=folder,
        text=True,
        capture_output=True,
        timeout=SECONDS,
        env=os.environ | {"COLUMNS": "200"},
    )
    assert process.returncode == 0, process.stdout + process.stderr
    assert "Traceback" not in process.stderr, process.stderr
    return process.stdout


def test_a_run_on_a_real_server(server: Server, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("\n".join(ROWS))
    (tmp_path / "experiment.toml").write_text(EXPERIMENT)
    place = [f"domain.model.address={server.address}", f"domain.model.base_model={server.model}"]
    command = [*PROGRAM, "train", "experiment.toml", *place, "--out", "run"]
    with (tmp_path / "log").open("w") as log:
        killed = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log)
        end = time.monotonic() + SECONDS
        while not (tmp_path / "run" / "checkpoints" / "step-2").exists():
            assert killed.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < end
            time.sleep(0.05)
        killed.send_signal(signal.SIGKILL)
        killed.wait()
    assert not (tmp_path / "run" / "summary.json").exists(), "it was killed before its end"
    assert "resumed at step" in groupwise("resume", "run", folder=tmp_path)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if "reward" in row] == [1, 2, 3, 4]

    evaluated = json.loads(groupwise("evaluate", "run", "--json", folder=tmp_path))["metrics"]
    assert evaluated[summary["metric"]] == pytest.approx(summary["after"], abs=1e-6)
    assert "2+3=" in groupwise("sample", "run", "--prompt", "2+3=", folder=tmp_path)
    groupwise("report", "run", folder=tmp_path)
    groupwise("doctor", "run", folder=tmp_path)
    groupwise("export", "run", "--out", "adapter", folder=tmp_path)

    saved = SavedState.read(tmp_path / "run" / "model")
    config = Tinker(address=server.address, base_model=saved.base_model, rank=saved.rank)
    member = Sequenced([5, 6, 7], [8, 9, 10, 11], [True] * 4)
    with closing(Service(config)) as service:
        adapter = service.adapter(0)
        adapter.load(saved.state, moments=False)
        (served,) = adapter.log_probs([member])
    model = AutoPeftModelForCausalLM.from_pretrained(tmp_path / "adapter")
    mask = torch.ones(1, 4, dtype=torch.bool)
    tokens = torch.tensor([member.tokens])
    with torch.no_grad():
        local = scoring.score(Backbone(model), scoring.ScoringInputs([[5, 6, 7]], tokens, mask))
    torch.testing.assert_close(local["log_prob"][0], torch.tensor(served), atol=1e-5, rtol=0)
