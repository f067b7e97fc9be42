"""The guide *From TRL in ten minutes*: TRL's own script and both ways on, run as they stand on a small model."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")

from tests.integrations.sums import model, rows

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "from_trl.md"


def scripts() -> dict[str, str]:
    blocks = re.findall(r'^```py title="(\w+)"\n(.*?)^```', PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return dict(blocks)


@pytest.mark.slow
def test_the_scripts_run_as_they_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    policy, tokenizer = model()
    policy.save_pretrained("my-model")
    tokenizer.save_pretrained("my-model")
    Path("prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows(8)), encoding="utf-8")
    found = scripts()
    assert list(found) == ["trl_script", "their_trainer", "our_trainer", "our_method", "resume"]
    namespace: dict[str, Any] = {}
    for name, text in found.items():
        exec(compile(text, f"{PAGE.name}:{name}", "exec"), namespace)
        if name in ("trl_script", "their_trainer"):
            logged = [line for line in namespace["trainer"].state.log_history if "train_loss" in line]
            assert len(logged) == 1
    said = capsys.readouterr().out
    assert "prompts are messages, so completions are too" in said
    assert "generation_batch_size, num_generations -> train.prompts_per_step = 2, train.group_size = 4" in said
    config = json.loads(Path("runs/first/config.json").read_text(encoding="utf-8"))
    weights = {name: reward["weight"] for name, reward in config["domain"]["rewards"].items()}
    assert weights == {"accuracy_reward": 1.0, "think_format_reward": 0.2}
    changed = json.loads(Path("runs/dapo/config.json").read_text(encoding="utf-8"))
    assert (changed["method"], changed["seed"]) == ("dapo", 7)
    for run in ("first", "dapo"):
        steps = [json.loads(line) for line in Path(f"runs/{run}/metrics.jsonl").read_text().splitlines()]
        assert sum("rewards/accuracy_reward/mean" in line for line in steps) == 2
