"""How sampling and an update of a small language model grow, one dimension at a time: CPU seconds and peak memory.

python benchmarks/growth.py                 every section
python benchmarks/growth.py ragged group    some: completion, ragged, prompt, group, vocabulary

The model is narrow (hidden size 64, two layers), so that attention weighs more than in a larger one.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import measure
import torch
from machine import describe
from transformers import Qwen3Config, Qwen3ForCausalLM

from groupwise.causal_lm import scoring
from groupwise.causal_lm.backbone import Backbone
from groupwise.causal_lm.config import SamplingConfig
from groupwise.causal_lm.sampler import GroupBatch, sample


def _model(vocabulary: int = 1000) -> Backbone:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=vocabulary, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=16, intermediate_size=192, tie_word_embeddings=True, max_position_embeddings=8192, eos_token_id=1,
        pad_token_id=0, bos_token_id=None,
    )  # fmt: skip
    return Backbone(Qwen3ForCausalLM(config).eval())


def _measured(call: Callable[[], Any]) -> tuple[Any, float, float]:
    """The result, its CPU seconds and MiB above what was resident before."""
    base, begin = measure.reset_peak(), time.process_time()
    result = call()
    return result, time.process_time() - begin, (measure.memory_bytes("VmHWM") - base) / 2**20


def _row(what: str, backbone: Backbone, prompts: Sequence[Sequence[int]], group: int, lengths: Sequence[int]) -> None:
    """Samples completions that no token ends, and makes the update of their first `lengths` tokens."""
    backbone.model.zero_grad(set_to_none=True)
    batch = GroupBatch(prompts, group, SamplingConfig(max_new_tokens=max(lengths)), seeds=list(range(len(lengths))))
    completions, sampling, sampling_mib = _measured(lambda: sample(backbone, batch, eos=[]))
    mask = torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)
    members = [prompt for prompt in prompts for _ in range(group)]
    inputs = scoring.ScoringInputs(members, completions.tokens, mask)
    weights = {"log_prob": mask.float()}
    scoring.backward(backbone, inputs, weights)  # allocates the gradients
    _, update, update_mib = _measured(lambda: scoring.backward(backbone, inputs, weights))
    cells, tokens = mask.numel(), int(mask.sum())
    print(
        f"| {what} | {1e6 * sampling / cells:,.0f} | {sampling_mib:,.0f} | {1e6 * update / tokens:,.0f} |"
        f" {update_mib:,.0f} |",
        flush=True,
    )


def _prompts(count: int, length: int) -> list[list[int]]:
    return [[(7 * prompt + place) % 900 + 5 for place in range(length)] for prompt in range(count)]


def completion(backbone: Backbone) -> None:
    for new in (64, 128, 256, 512, 1024):
        _row(f"completions of {new}, 4 prompts x 4", backbone, _prompts(4, 32), 4, [new] * 16)


def ragged(backbone: Backbone) -> None:
    for new in (256, 1024):
        mean = (new + 15 * 64) // 16
        _row(f"one of {new}, fifteen of 64", backbone, _prompts(4, 32), 4, [new] + [64] * 15)
        _row(f"as many tokens, all of {mean}", backbone, _prompts(4, 32), 4, [mean] * 16)


def prompt(backbone: Backbone) -> None:
    for length in (64, 512, 2048, 4096):
        _row(f"prompts of {length}, 2 x 8, 32 new", backbone, _prompts(2, length), 8, [32] * 16)
    common = [[5 + place % 900 for place in range(2048)] + own for own in _prompts(8, 16)]
    _row("8 prompts x 2 after 2,048 common tokens", backbone, common, 2, [32] * 16)
    _row("as long, nothing in common", backbone, [one[::-1] for one in common], 2, [32] * 16)


def group(backbone: Backbone) -> None:
    for size in (2, 8, 32, 128):
        _row(f"groups of {size}, 2 prompts of 256, 32 new", backbone, _prompts(2, 256), size, [32] * 2 * size)


def vocabulary(_: Backbone) -> None:
    for size in (1000, 50_000, 150_000):
        _row(f"vocabulary of {size:,}, 4 x 4, 32 new", _model(size), _prompts(4, 32), 4, [32] * 16)


SECTIONS = {section.__name__: section for section in (completion, ragged, prompt, group, vocabulary)}

if __name__ == "__main__":
    torch.set_num_threads(1)
    print(describe())
    print("| | sampling, CPU us a token | MiB | update, CPU us a token | MiB |\n|---|---|---|---|---|")
    small = _model()
    sample(
        small, GroupBatch(_prompts(2, 16), 2, SamplingConfig(max_new_tokens=4), seeds=[0, 1, 2, 3]), eos=[]
    )  # warm-up
    for name in sys.argv[1:] or SECTIONS:
        SECTIONS[name](small)
