"""The doctor and the report read runs of other trainers, from files that those trainers' own code has written."""

from __future__ import annotations

import csv
import gzip
import json
import shutil
from pathlib import Path

import pytest
from tests.docs.page_commands import commands
from typer.testing import CliRunner

from groupwise.cli import app
from groupwise.config import ConfigError
from groupwise_look.diagnosis import diagnose
from groupwise_look.foreign import read_runs

RECORDED = Path(__file__).parent / "foreign"
PAGE = Path(__file__).parents[2] / "docs/how_to/doctor_for_other_trainers.md"


def recorded(name: str, folder: Path) -> Path:
    """Unpacks a file that another trainer's own logger has written; see `foreign/write.py`."""
    file = folder / f"{name}.jsonl"
    file.write_bytes(gzip.decompress((RECORDED / f"{name}.jsonl.gz").read_bytes()))
    return file


def found(path: Path) -> list[str]:
    (run,) = read_runs([path])
    return [finding.rule for finding in diagnose(run.rows, run.config)]


@pytest.fixture(scope="module")
def trl_runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs of TRL's own trainer: one that learns, and one whose reward is always the same."""
    trl = pytest.importorskip("trl")
    from tests.integrations.trl import tiny

    folder = tmp_path_factory.mktemp("trl")
    rewards = {"learns": tiny.early_letters, "constant": lambda completions, **columns: [1.0] * len(completions)}
    for name, reward in rewards.items():
        args = tiny.settings(folder / name, max_steps=25, logging_steps=1, save_strategy="no", max_completion_length=24)
        model = tiny.model(folder / "model")
        trainer = trl.GRPOTrainer(model, reward, args, tiny.data(), processing_class=tiny.tokenizer())
        trainer.train()
        trainer.save_state()
    return {name: folder / name for name in rewards}


def test_the_state_of_trl_is_read(trl_runs: dict[str, Path]) -> None:
    state = json.loads((trl_runs["learns"] / "trainer_state.json").read_text(encoding="utf-8"))
    (run,) = read_runs([trl_runs["learns"]])
    logged = [row["reward"] for row in state["log_history"] if "reward" in row]
    assert run.series("reward") == (list(range(1, 26)), logged)
    assert run.series("grad_norm")[1] == [row["grad_norm"] for row in state["log_history"] if "reward" in row]
    assert run.name == "learns"


def test_a_constant_reward_is_found_in_a_run_of_trl(trl_runs: dict[str, Path]) -> None:
    assert {"reward_constant", "all_flat"} <= set(found(trl_runs["constant"]))
    assert not {"reward_constant", "all_flat"} & set(found(trl_runs["learns"]))


def test_lines_of_verl_and_prime_rl_are_read(tmp_path: Path) -> None:
    for trainer in ("verl", "prime_rl"):
        assert "all_flat" in found(recorded(f"{trainer}_flat", tmp_path))
        healthy = recorded(f"{trainer}_healthy", tmp_path)
        assert found(healthy) == []
        (run,) = read_runs([healthy])
        assert {"reward", "learning_rate", "grad_norm", "completions/mean_length"} <= set(run.metrics)
    assert {"loss_pg", "entropy", "eval/openai/gsm8k/reward"} <= set(
        read_runs([tmp_path / "verl_healthy.jsonl"])[0].metrics
    )


def test_the_commands_of_the_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trl_runs: dict[str, Path]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trl_runs["learns"], "outputs")
    recorded("verl_flat", tmp_path).rename("verl_run.jsonl")
    recorded("prime_rl_flat", tmp_path).rename("metrics.jsonl")
    with open("wandb_export.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["Step", "a - train/reward"], *([step, step / 25] for step in range(25))])
    for command in commands(PAGE.read_text(encoding="utf-8")):
        done = CliRunner().invoke(app, command.split()[1:])
        assert done.exit_code in (0, 3), (command, done.output)
    assert Path("report.html").stat().st_size > 10_000


def test_runs_of_one_chart_are_apart(tmp_path: Path) -> None:
    file = tmp_path / "chart.csv"
    file.write_text(
        '"Step","a - train/reward","a - train/reward__MIN","b - train/reward"\n"1","0.5","0.1",""\n"2","0.6","","0.1"\n'
    )
    first, second = read_runs([file])
    assert (first.name, first.series("reward")) == ("a", ([1, 2], [0.5, 0.6]))
    assert (second.name, second.series("reward")) == ("b", ([2], [0.1]))


@pytest.mark.parametrize("text", ["", "not json\n", '{"step": 1, "loss": 2}\n'])
def test_a_file_without_rewards_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.jsonl").write_text(text)
    with pytest.raises(ConfigError, match="no reward by step in it"):
        read_runs([tmp_path / "x.jsonl"])


def test_an_update_that_is_not_finite_is_a_fault(tmp_path: Path) -> None:
    rows = [{"step": step, "data": {"critic/score/mean": 0.5, "actor/pg_loss": 0.1}} for step in range(10)]
    text = "\n".join(map(json.dumps, [*rows, *({**row, "step": row["step"] + 10} for row in rows)]))
    file = tmp_path / "run.jsonl"
    file.write_text(text + "\n")
    assert "not_finite" not in found(file)
    lines = text.splitlines()
    file.write_text("\n".join([*lines[:10], *(line.replace("0.1}", "NaN}") for line in lines[10:])]) + "\n")
    assert "not_finite" in found(file)
    (run,) = read_runs([file])
    assert run.remarks[0] == "actor/pg_loss is NaN or infinite in step 10, and perhaps later"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no reward by step"),
        ("Step,a - train/reward,a - train/reward\n1,2,3\n", "two columns are called 'a - train/reward'"),
        ("Step,train/reward\n1,2,3\n", "a row has 3 cells and the first line 2"),
    ],
)
def test_a_csv_file_that_is_none_is_refused_in_one_line(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(ConfigError, match=told):
        read_runs([tmp_path / "x.csv"])


def test_each_run_of_a_chart_keeps_its_steps_and_a_file_of_ours_is_its_folder(tmp_path: Path) -> None:
    file = tmp_path / "chart.CSV"
    file.write_text(
        "Step,a - _step,a - train/reward,b - _step,b - train/reward,c - loss\n1,1,.5,10,.1,\n2,2,.6,20,,3\n"
    )
    first, second = read_runs([file])
    assert (first.name, first.series("reward")) == ("a", ([1, 2], [0.5, 0.6]))
    assert (second.name, second.series("reward")) == ("b", ([1], [0.1]))
    (tmp_path / "own").mkdir()
    for name, text in (("environment.json", '{"starts": []}'), ("metrics.jsonl", '{"step": 1, "advantages_std": 1.0}')):
        (tmp_path / "own" / name).write_text(text)
    (run,) = read_runs([tmp_path / "own" / "metrics.jsonl"])
    assert run.series("advantages_std") == ([1], [1.0])
