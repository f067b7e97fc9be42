"""The code of docs/guide/integrations.md runs: TRL's on a tiny model, verl's and SkyRL's against their registries."""

import re
import sys
import warnings
from pathlib import Path

import pytest
from tests.integrations.skyrl.test_register import skyrl_registries
from tests.integrations.verl.test_register import registries

from groupwise_trainers.verl.__main__ import main

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "guide" / "integrations.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```py\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
__all__ = ["registries", "skyrl_registries"]


def test_each_is_about_ten_lines() -> None:
    assert len(BLOCKS) == 3
    assert all(len([line for line in block.splitlines() if line.strip()]) <= 11 for block in BLOCKS)


@pytest.mark.slow
def test_trl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.integrations.trl import tiny

    monkeypatch.chdir(tmp_path)
    tiny.model(tmp_path / "my-model")
    tiny.tokenizer().save_pretrained(tmp_path / "my-model")
    namespace: dict[str, object] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(BLOCKS[0], "integrations.md", "exec"), namespace)
    trainer = namespace["trainer"]
    assert trainer.objective_state.step == 2
    assert trainer.objective.trust.high == 0.0005


def overrides_on_the_page() -> list[str]:
    block = re.search(r"^export GROUPWISE_VERL=.*\n((?:\S+=\S+\n)+)^```", PAGE, re.MULTILINE)
    assert block is not None
    return block.group(1).split()


@pytest.mark.usefixtures("registries")
def test_verl(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(BLOCKS[1], "my_methods.py", "exec"), {})
    assert capsys.readouterr().out.split() == overrides_on_the_page()
    assert "groupwise_gspo_edited" in sys.modules["verl.trainer.ppo.core_algos"].POLICY


def test_the_printed_command_of_verl(capsys: pytest.CaptureFixture[str]) -> None:
    command = re.search(r"^python -m groupwise_trainers.verl (.+)$", PAGE, re.MULTILINE)
    assert command is not None
    assert main(command.group(1).split()) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first in PAGE
    assert lines == overrides_on_the_page()


@pytest.mark.usefixtures("skyrl_registries")
def test_skyrl(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(BLOCKS[2], "start.py", "exec"), {})
    printed = capsys.readouterr().out.split()
    assert {
        "trainer.algorithm.policy_loss_type=groupwise_gspo_edited",
        "trainer.algorithm.loss_reduction=sequence_mean",
    } <= set(printed)
    module = sys.modules["skyrl.backends.skyrl_train.utils.ppo_utils"]
    assert "groupwise_gspo_edited" in module.PolicyLossRegistry.functions
