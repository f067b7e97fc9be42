"""A folder from which a person trains on the stand-in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.tinker.http_standin import BASE

from groupwise.causal_lm.small import character_tokenizer
from groupwise.experiment import load_experiment

EXPERIMENT = """
name = "on a server"
method = "{method}"

[domain]
kind = "language"
model = {{ kind = "tinker", address = "{address}", base_model = "{base}", tokenizer = "{tokenizer}", \
timeout_seconds = {seconds} }}
sampling = {{ max_new_tokens = 3 }}
evaluation = {{ num_prompts = 4, num_texts = 1 }}

[domain.data]
num_held_out = 4
source = {{ kind = "files", paths = ["{data}"] }}

[domain.rewards.sevens]
kind = "callable"
path = "tests.tinker.place:sevens"

[train]
num_steps = 4
prompts_per_step = 4
group_size = 8
evaluate_every = 2

[checkpoint]
every = 1

[optimiser]
learning_rate = 1.0
"""


def sevens(completions: list[str]) -> list[float]:
    return [float(text.count("7")) for text in completions]


class Place:
    """A folder with data, a tokenizer and an experiment on a stand-in."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder, self.address = folder, address
        character_tokenizer("0123456789+= ").save_pretrained(folder / "tokenizer")
        rows = [f'{{"prompt": "{first}+{second}="}}' for first in range(5) for second in range(4)]
        (folder / "rows.jsonl").write_text("\n".join(rows))

    def experiment(self, *overrides: str, method: str = "grpo", seconds: float = 60.0) -> Any:
        text = EXPERIMENT.format(
            method=method,
            address=self.address,
            base=BASE,
            tokenizer=self.folder / "tokenizer",
            data=self.folder / "rows.jsonl",
            seconds=seconds,
        )
        path = self.folder / "experiment.toml"
        path.write_text(text)
        return load_experiment(str(path), overrides, run_code=True)
