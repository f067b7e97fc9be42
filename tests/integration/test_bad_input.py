"""What can be wrong with a model folder, its data or the disk is one message before anything is computed, or an event
that is counted and told.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.integration.small import experiment, rows
from transformers import AutoTokenizer

from groupwise import train
from groupwise.checkpoint import StorageError
from groupwise.cli.app import main
from groupwise.config import ConfigError
from groupwise.experiment.runner import open_domain, resume

Command = Callable[..., tuple[int, str]]


@pytest.fixture
def groupwise(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command in this process: its exit status and what it said."""

    def call(*arguments: object) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["groupwise", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.err if ended.value.code else captured.out

    return call


def without_tokens(model: Path, folder: Path, *names: str) -> Path:
    """The model folder with some special tokens that nobody named."""
    shutil.copytree(model, folder)
    for file in ("tokenizer_config.json", "config.json", "generation_config.json"):
        found: dict[str, Any] = json.loads((folder / file).read_text())
        for name in names:
            found.pop(name, None)
            found.pop(f"{name}_id", None)
        (folder / file).write_text(json.dumps(found))
    return folder


def write(path: Path, prompts: list[str]) -> dict[str, Any]:
    path.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts))
    return {"data": {"source": {"kind": "files", "paths": [str(path)]}, "num_train": None, "num_held_out": 2}}


@pytest.mark.slow
def test_a_prompt_longer_than_the_context(qwen: Path, tmp_path: Path, groupwise: Command) -> None:
    # The context is 64 and a completion may take 6 of it.
    data = write(tmp_path / "prompts.jsonl", ["a" * 58, "b" * 59, *"cdefgh"])
    chosen = experiment(qwen, domain=data)
    (tmp_path / "long.json").write_text(json.dumps(chosen.table()))
    status, said = groupwise("train", tmp_path / "long.json", "--out", tmp_path / "run")
    assert status == 2
    assert "has 59 tokens and there is room for 58" in said
    assert not (tmp_path / "run").exists()
    status, said = groupwise(
        "train", tmp_path / "long.json", "domain.overlong=drop", "track.console=lines", "--out", tmp_path / "run"
    )
    assert status == 0
    assert "data: prompts left out, longer than 58 tokens (domain.overlong = 'drop'): 1" in said
    cut = open_domain(experiment(qwen, "domain.overlong=truncate", domain=data))
    assert cut.num_prompts == 6
    with pytest.raises(
        ConfigError, match=r"sampling.max_new_tokens = 64 leaves no room for a prompt in the model's context of 64"
    ):
        open_domain(experiment(qwen, "domain.sampling.max_new_tokens=64"))


def test_a_tokenizer_without_a_pad_token_pads_with_its_end(qwen: Path, tmp_path: Path) -> None:
    folder = without_tokens(qwen, tmp_path / "model", "pad_token")
    assert AutoTokenizer.from_pretrained(folder).pad_token is None
    run, usual = (
        train(experiment(each), out=tmp_path / f"run-{each.parent.name}").folder.path for each in (folder, qwen)
    )
    (before, first, _), (usual_before, usual_first, _) = rows(run), rows(usual)
    assert before == usual_before, "what stands where nothing is read changes nothing"
    # Gradients may differ: an embedding without a pad row trains all of its rows.
    assert all(first[name] == usual_first[name] for name in ("reward", "num_decisions", "loss", "advantages_std"))
    assert first["updates/taken"] == 1


def test_a_tokenizer_without_an_end_takes_the_models_or_is_refused(
    qwen: Path, tmp_path: Path, groupwise: Command
) -> None:
    folder = without_tokens(qwen, tmp_path / "model", "eos_token")
    experiment(qwen)  # writes the file
    status, said = groupwise("train", qwen.parent / "small.toml", "--model", folder, "--out", tmp_path / "run")
    assert status == 2
    assert "no end-of-sequence token" in said
    assert "tokenizer_config.json" in said
    assert not (tmp_path / "run").exists()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "eos_token_id": 1}))
    assert open_domain(experiment(folder)).tokenizer.eos_token_id == 1


@pytest.mark.parametrize(
    ("prompts", "overrides", "message"),
    [
        ([], [], "prompts.jsonl' is empty"),
        (["a", "b"], [], "ask for more different prompts than there are: the 2 rows"),
        (["a", "b", "", "d", "e"], [], "the prompt is empty in the row {'prompt': ''}"),
        (list("abcdef"), ["train.group_size=1"], "write train.group_size = 2 or more"),
        (list("abcdef"), ["domain.data.prompt_column=question"], "columns present: prompt"),
        (list("abcdef"), ["domain.rewards.right={kind = 'exact_answer'}"], "needs the column 'answer'"),
        (list("abcdef"), ["train.device=cuda"], "PyTorch sees no CUDA device"),
        (
            list("abcdef"),
            ["domain.chat.use=always", "domain.chat.template_arguments={}", "domain.model.path=PLAIN"],
            "no chat template",
        ),
    ],
)
def test_data_that_cannot_be_trained_on(
    qwen: Path, tmp_path: Path, groupwise: Command, prompts: list[str], overrides: list[str], message: str
) -> None:
    shutil.copytree(qwen, tmp_path / "plain", ignore=shutil.ignore_patterns("chat_template*"))
    (tmp_path / "data.json").write_text(
        json.dumps(experiment(qwen, domain=write(tmp_path / "prompts.jsonl", prompts)).table())
    )
    overrides = [each.replace("PLAIN", str(tmp_path / "plain")) for each in overrides]
    status, said = groupwise("train", tmp_path / "data.json", *overrides, "--out", tmp_path / "run")
    assert status == 2, said
    assert message in said
    assert "Traceback" not in said
    assert not (tmp_path / "run").exists()


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """A small file system of its own; only root can have one."""
    folder.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, check=False
        ).returncode
        != 0
    ):
        pytest.skip("mounting needs root")
    try:
        yield folder
    finally:
        # Lazily: a tracker whose last write failed may still hold its file.
        subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("size", [120, 24, 240])
def test_a_disk_that_is_full_anywhere_loses_nothing(qwen: Path, tmp_path: Path, size: int) -> None:
    chosen = experiment(
        qwen, "train.num_steps=3", "checkpoint.model_every=2", "track.rollouts_every=1", "track.tensorboard=true"
    )
    untouched = train(chosen, out=tmp_path / "untouched").folder.path
    with mounted(tmp_path / "disk", f"size={size}k") as disk:
        with pytest.raises(
            StorageError,
            match=r"no space is left for it.*(complete; nothing before step|No earlier checkpoint of this run exists)",
        ):
            train(chosen, out=disk / "run")
        subprocess.run(["mount", "-o", "remount,size=8m", disk], check=True)
        assert resume(disk / "run").summary["steps"] == 3
        assert rows(disk / "run") == rows(untouched)
        one, other = (load_file(run / "model" / "model.safetensors") for run in (disk / "run", untouched))
        assert all(torch.equal(one[name], value) for name, value in other.items())
