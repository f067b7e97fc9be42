"""An experiment that is real and small enough to run in a second or two."""

import functools
import json
import tempfile
from pathlib import Path

from groupwise.experiment import load_experiment

TINY = """\
description = "Sorting three digits, for tests."
method = "dapo"

[trust]
high = 0.3

[domain]
kind = "language"

[domain.model]
kind = "scratch"

[domain.model.shape]
hidden_size = 16
num_layers = 1
num_heads = 2
num_key_value_heads = 1
intermediate_size = 32
max_positions = 32

[domain.data]
num_train = 64
num_held_out = 8

[domain.data.source]
kind = "sorting"
min_length = 3
max_length = 3

[domain.rewards.correct]
kind = "exact_answer"

[domain.sampling]
max_new_tokens = 5

[domain.demonstrations]

[train]
prompts_per_step = 4
group_size = 4
demonstrations_per_step = 8

[optimiser]
learning_rate = 1e-3

[checkpoint]
every = 1

[track]
console = "none"

[[stages]]
name = "warm_up"
num_steps = 3
set = { policy_weight = 0.0, auxiliary = { supervised = 1.0 } }

[[stages]]
name = "grpo"
num_steps = 2

[controls.supervised]
description = "Supervised training goes on."
set = { policy_weight = 0.0, auxiliary = { supervised = 1.0 } }
"""


@functools.cache
def tiny_record() -> str:
    """What `config.json` holds of a run of it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tiny.toml"
        path.write_text(TINY, encoding="utf-8")
        return json.dumps(load_experiment(path).table())
