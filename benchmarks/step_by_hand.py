"""The loop by hand of `language_step.py --by-hand`: prompts once a group, a cache of fixed size, one packed pass, fused
AdamW, and nothing else: no metrics, no evaluation, no checks. What Groupwise does beyond it has to be cheap. Its JSON
result is printed as the last line. For Llama, Qwen2 and Qwen3 in fp32, all weights.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import measure
import torch
import torch.nn.functional as F
import transformers
from step_task import evenness
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]


def _norm(x: Tensor, module: Any) -> Tensor:
    return F.rms_norm(x, (x.shape[-1],), module.weight, module.variance_epsilon)


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


def body(model: Any, ids: Tensor, position: Tensor, attend: Attend) -> Tensor:
    """`[N]` tokens through all layers; `attend(layer, q, k, v)` is given `[N, heads, d]`."""
    x = model.model.embed_tokens(ids)
    cos, sin = (part[0].unsqueeze(1) for part in model.model.rotary_emb(x, position.unsqueeze(0)))
    for index, layer in enumerate(model.model.layers):
        attention, feed_forward = layer.self_attn, layer.mlp
        hidden = _norm(x, layer.input_layernorm)
        projections = (attention.q_proj, attention.k_proj, attention.v_proj)
        q, k, v = (projection(hidden).view(len(x), -1, attention.head_dim) for projection in projections)
        if hasattr(attention, "q_norm"):
            q, k = _norm(q, attention.q_norm), _norm(k, attention.k_norm)
        x = x + attention.o_proj(attend(index, _rotated(q, cos, sin), _rotated(k, cos, sin), v).flatten(1))
        hidden = _norm(x, layer.post_attention_layernorm)
        x = x + feed_forward.down_proj(F.silu(feed_forward.gate_proj(hidden)) * feed_forward.up_proj(hidden))
    return _norm(x, model.model.norm)


@torch.no_grad()
def generate(
    model: Any, prompts: Sequence[list[int]], group: int, new: int, eos: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Each prompt once, its keys copied to its members, then a token a step until all have ended."""
    longest = max(map(len, prompts))
    count, members = len(prompts), len(prompts) * group
    pad = torch.tensor([longest - len(prompt) for prompt in prompts])
    ids = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in prompts])
    seen = torch.arange(longest) >= pad[:, None]
    mask = seen[:, None, None, :] & torch.ones(longest, longest, dtype=torch.bool).tril()
    mask |= torch.eye(longest, dtype=torch.bool)  # padding sees itself
    cache: list[list[Tensor]] = []

    def prefill(index: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (part.view(count, longest, -1, part.shape[-1]).transpose(1, 2) for part in (q, k, v))
        room = [torch.empty(members, part.shape[1], longest + new, part.shape[3]) for part in (k, v)]
        for place, part in zip(room, (k, v), strict=True):
            place[:, :, :longest] = part.repeat_interleave(group, 0)
        cache.append(room)
        return F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True).transpose(1, 2).flatten(0, 1)

    x = body(model, ids.view(-1), (torch.arange(longest) - pad[:, None]).clamp(min=0).view(-1), prefill)
    x = x.view(count, longest, -1)[:, -1].repeat_interleave(group, 0)
    visible = torch.cat([seen.repeat_interleave(group, 0), torch.ones(members, new, dtype=torch.bool)], 1)
    visible, is_ragged = visible[:, None, None, :], bool((pad > 0).any())
    position = torch.tensor([len(prompt) for prompt in prompts]).repeat_interleave(group)
    tokens, log_prob = torch.zeros(members, new, dtype=torch.long), torch.zeros(members, new)
    alive, length = torch.ones(members, dtype=torch.bool), torch.full((members,), new)
    step = 0

    def decode(index: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys, values = cache[index]
        keys[:, :, longest + step - 1], values[:, :, longest + step - 1] = k, v
        filled, heads, width = longest + step, keys.shape[1], keys.shape[3]
        queries = q.reshape(members * heads, -1, width) * width**-0.5
        weight = torch.bmm(queries, keys.view(members * heads, -1, width)[:, :filled].transpose(1, 2))
        if is_ragged:
            weight = weight.view(members, heads, -1, filled).masked_fill(~visible[..., :filled], float("-inf"))
            weight = weight.view(members * heads, -1, filled)
        mixed = torch.bmm(weight.softmax(-1), values.view(members * heads, -1, width)[:, :filled])
        return mixed.view(members, -1, width)

    for step in range(1, new + 1):
        log_p = (x @ model.lm_head.weight.t()).log_softmax(-1)
        token = (log_p - torch.empty_like(log_p).exponential_().log_()).argmax(1)
        tokens[:, step - 1], log_prob[:, step - 1] = token, log_p.gather(1, token[:, None])[:, 0]
        ended = alive & torch.isin(token, eos)
        length[ended] = step
        alive &= ~ended
        if step == new or not alive.any():
            break
        x = body(model, token, position, decode)
        position = position + 1
    return tokens[:, :step], log_prob[:, :step], length


def update(
    model: Any,
    prompts: Sequence[list[int]],
    group: int,
    sampled: tuple[Tensor, Tensor, Tensor],
    advantage: Tensor,
    optimiser: torch.optim.Optimizer,
    micro: int | None,
) -> None:
    """One optimiser step, the clipped surrogate as a mean over tokens; a prompt is once in a pass."""
    tokens, old, length = sampled
    total = int(length.sum())
    for rows in torch.arange(len(tokens)).split(micro or len(tokens)):
        of_member = [row // group for row in rows.tolist()]
        mine = sorted(set(of_member))
        place = torch.tensor([mine.index(prompt) for prompt in of_member])
        widest, fed, count, num = max(len(prompts[m]) for m in mine), int(length[rows].max()) - 1, len(mine), len(rows)
        lengths = torch.tensor([len(prompts[m]) for m in mine])
        padded = torch.tensor([prompts[m] + [0] * (widest - len(prompts[m])) for m in mine])
        ids = torch.cat([padded.view(-1), tokens[rows][:, :fed].reshape(-1)])
        after = (lengths[place][:, None] + torch.arange(fed)).view(-1)
        position = torch.cat([torch.arange(widest).repeat(count), after])
        in_prompt = (torch.arange(widest) < lengths[place][:, None])[:, None].expand(num, fed, widest)
        own = torch.ones(fed, fed, dtype=torch.bool).tril().expand(num, fed, fed)
        see, split = torch.cat([in_prompt, own], -1)[:, None], count * widest

        def attend(
            index: int,
            q: Tensor,
            k: Tensor,
            v: Tensor,
            split=split,
            count=count,
            num=num,
            fed=fed,
            place=place,
            see=see,
        ) -> Tensor:
            first = [part[:split].view(count, split // count, *part.shape[1:]).transpose(1, 2) for part in (q, k, v)]
            rest = [part[split:].view(num, fed, *part.shape[1:]).transpose(1, 2) for part in (q, k, v)]
            shown = F.scaled_dot_product_attention(*first, is_causal=True, enable_gqa=True)
            keys, values = (torch.cat([x[place], y], 2) for x, y in zip(first[1:], rest[1:], strict=True))
            written = F.scaled_dot_product_attention(rest[0], keys, values, see, enable_gqa=True)
            return torch.cat([shown.transpose(1, 2).flatten(0, 1), written.transpose(1, 2).flatten(0, 1)])

        x = body(model, ids, position, attend)
        last = torch.arange(count) * widest + lengths - 1
        where = torch.cat([last[place][:, None], split + torch.arange(num * fed).view(num, fed)], 1)
        keep = torch.arange(fed + 1) < length[rows][:, None]
        log_p = -F.cross_entropy(model.lm_head(x[where[keep]]), tokens[rows][:, : fed + 1][keep], reduction="none")
        ratio = (log_p - old[rows][:, : fed + 1][keep]).exp()
        credit = advantage[rows][:, None].expand_as(keep)[keep]
        (-torch.minimum(ratio * credit, ratio.clamp(0.8, 1.2) * credit).sum() / total).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
    optimiser.step()
    optimiser.zero_grad()


def main(specification: dict[str, Any]) -> dict[str, Any]:
    torch.set_num_threads(specification["num_threads"])
    torch.manual_seed(specification["seed"])
    transformers.logging.set_verbosity_error()
    start, folder = measure.reset_peak(), Path(specification["folder"])
    model: Any = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder / "model")
    rows = [json.loads(line)["prompt"] for line in (folder / "prompts.jsonl").read_text().splitlines()]
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-6, weight_decay=0.0, fused=True)
    ends = model.generation_config.eos_token_id or model.config.eos_token_id
    eos = torch.tensor(ends if isinstance(ends, list) else [ends])
    count, group = specification["num_prompts"], specification["group_size"]
    sampling: list[float] = []
    updating: list[float] = []
    counts: list[int] = []
    measure.tick()
    for number in range(specification["num_warm_up"] + specification["num_updates"]):
        chosen = [rows[(number * count + place) % len(rows)] for place in range(count)]
        prompts = [
            tokenizer(text)["input_ids"]
            if isinstance(text, str)
            else tokenizer.apply_chat_template(text, add_generation_prompt=True, return_dict=False)
            for text in chosen
        ]
        begin = time.perf_counter()
        sampled = tokens, _, length = generate(model, prompts, group, specification["completion_tokens"], eos)
        sampling.append(time.perf_counter() - begin)
        written = [row[:num] for row, num in zip(tokens.tolist(), length.tolist(), strict=True)]
        rewards = evenness([], tokenizer.batch_decode(written, skip_special_tokens=True))
        reward = torch.tensor(rewards).view(count, group)
        advantage = ((reward - reward.mean(1, True)) / (reward.std(1, keepdim=True) + 1e-4)).view(-1)
        begin = time.perf_counter()
        update(model, prompts, group, sampled, advantage, optimiser, specification.get("micro_batch"))
        updating.append(time.perf_counter() - begin)
        counts.append(int(length.sum()))
        measure.tick()
    skip = specification["num_warm_up"]
    return {
        "system": f"a loop by hand, transformers {transformers.__version__}, torch {torch.__version__}",
        "step": measure.differences(measure.WALL)[skip:],
        "cpu": measure.differences(measure.CPU)[skip:],
        "sampling": sampling[skip:],
        "update": updating[skip:],
        "num_tokens": counts[skip:],
        "peak_bytes": measure.memory_bytes("VmHWM") - start,
    }


if __name__ == "__main__":
    print(json.dumps(main(json.loads(Path(sys.argv[1]).read_text()))))
