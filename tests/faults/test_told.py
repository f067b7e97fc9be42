"""What once ended in a traceback, one by one: each is told in a line that names it, before anything is computed where
that is possible.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.experiment.tiny import TINY
from tests.faults.processes import command

ALONE = ["stages=[]", "controls=null", "domain.demonstrations=null", "train.num_steps=1"]


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUPWISE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "tiny.toml").write_text(TINY)


def refused(arguments: list[str], folder: Path, *, memory_bytes: int = 4 * 2**30) -> str:
    """The one message of a refused command."""
    status, said = command(arguments, folder, memory_bytes)
    assert "Traceback" not in said, said[-3000:]
    assert (status, said.count("error: ")) == (2, 1), said[-3000:]
    return said[said.index("error: ") :].strip()


def test_half_a_surrogate_pair_in_the_data(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"prompt": "1", "answer": "1"}\n{"prompt": "\\ud800 1", "answer": "1"}\n')
    source = [
        'domain.data.source={kind="files", paths=["rows.jsonl"]}',
        "domain.data.num_train=null",
        "domain.data.num_held_out=1",
    ]
    said = refused(["train", "tiny.toml", *source, *ALONE, "--out", "out"], tmp_path)
    assert said.startswith(
        "error: rows.jsonl, line 2: prompt = '\\ud800 1': character 1 is '\\ud800', half of a surrogate pair"
    )


MODEL_FILES = {
    "tokenizer_config.json": ("[]", "its tokenizer cannot be loaded"),
    "generation_config.json": ('{"eos_token_id": {"a": 1}}', "eos_token_id = \"{'a': 1}\""),
    "config.json": ("[]", "model"),
    "tokenizer.json": ("[" * 100_000, "its tokenizer cannot be loaded"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODEL_FILES)
def test_a_strangers_model_folder(name: str, finished: Path, tmp_path: Path) -> None:
    content, says = MODEL_FILES[name]
    shutil.copytree(finished / "model", tmp_path / "model")
    (tmp_path / "model" / name).write_text(content)
    assert says in refused(["train", "tiny.toml", "--model", "model", *ALONE, "--out", "out"], tmp_path)


@pytest.mark.slow
def test_memory_that_runs_out_on_a_cpu_is_told_as_on_a_gpu(tmp_path: Path) -> None:
    shape = ["domain.model.shape.hidden_size=16384", "domain.model.shape.intermediate_size=65536"]
    said = refused(["train", "tiny.toml", *shape, *ALONE, "--out", "out"], tmp_path, memory_bytes=2**30)
    assert said.startswith("error: memory ran out (")
    assert "write a smaller train.micro_batch_members" in said


CLOSING = """
import sys

def close(completions, **columns):
    sys.stdout.close()
    return [float(len(text)) for text in completions]
"""


def test_a_reward_that_closes_standard_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "closing.py").write_text(CLOSING)
    reward = 'domain.rewards.close={kind="callable", path="closing:close"}'
    said = refused(["train", "tiny.toml", reward, *ALONE, "--out", "out"], tmp_path)
    assert "standard output was closed by something that this command called (a reward, a callback)" in said
    assert (tmp_path / "out" / "summary.json").is_file()
