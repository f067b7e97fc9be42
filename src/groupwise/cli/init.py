"""`groupwise init`: the three files of a task of one's own."""

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from groupwise.cli.output import console, print_text
from groupwise.config import ConfigError

_REWARD = '''"""Rewards of {name}: plain functions. A reward that was written for TRL works as it is."""

import re


def correct(completions, answer, **columns):
    """1 where the last number of a completion is the answer, 0 otherwise."""
    numbers = [re.findall(r"-?\\d+", text) for text in completions]
    return [float(found[-1:] == [right]) for found, right in zip(numbers, answer, strict=True)]
'''

_EXPERIMENT = """extends = "prompts"
name = "{name}"

[domain.model]
kind = "pretrained"
path = {model}          # a folder, a hub id, a .gguf file or package:NAME

[domain.data]
source = {{ kind = "files", paths = ["{name}.jsonl"] }}   # also .csv, .tsv, .json, .parquet, .txt
# A tenth of the prompts is held out for evaluation; num_held_out = 64 keeps that many.

[domain.sampling]
max_new_tokens = 32

[domain.rewards.correct]
kind = "callable"
path = "{name}_rewards:correct"

[train]
num_steps = 100           # --minutes 15 ends the run earlier
prompts_per_step = 8      # so many prompts a step, each with a group of answers
group_size = 8
evaluate_every = 10
"""

_MODEL = "Qwen/Qwen2.5-0.5B-Instruct"
_NUM_PROMPTS = 40


def init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The task's name, and that of its files.")],
    model: Annotated[str, typer.Option(help="A model folder or hub id, a .gguf file or package:NAME.")] = _MODEL,
) -> None:
    """Write the files of a task of your own into this folder: an experiment, a reward, and prompts to replace."""
    import json

    if not name.isidentifier():
        raise ConfigError(f"NAME = {name!r}: the reward's file is a Python module; write letters, digits and _")
    pairs = [(place % 10 + 2, place // 10 + 3) for place in range(_NUM_PROMPTS)]
    rows = [{"prompt": f"What is {a} + {b}? Answer with a number.", "answer": str(a + b)} for a, b in pairs]
    files = {
        f"{name}.toml": _EXPERIMENT.format(name=name, model=json.dumps(model, ensure_ascii=False)),
        f"{name}_rewards.py": _REWARD.format(name=name),
        f"{name}.jsonl": "".join(json.dumps(row) + "\n" for row in rows),
    }
    if there := [file for file in files if Path(file).exists()]:
        raise ConfigError(f"{', '.join(there)}: stands here already; write another NAME, or move it away")
    for file, text in files.items():
        Path(file).write_text(text, encoding="utf-8")
    print_text(f"Wrote {', '.join(files)}: put your prompts and your reward in place of those. Then:")
    for command, meaning in (
        (f"groupwise check {name}.toml", "one group with its rewards, before anything is trained"),
        (f"groupwise evaluate {model} --experiment {name}.toml", "the score before training"),
        (f"groupwise train {name}.toml --minutes 15", "trains, with the score before and after"),
    ):
        console().print(Text(f"  {command}"), soft_wrap=True)
        print_text(f"      {meaning}")
