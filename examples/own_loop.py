"""GRPO in a loop of your own: transformers, torch, and one objective. No experiment, no trainer.

    python examples/own_loop.py MODEL_FOLDER

The task is a toy: the share of the digit that the prompt names, among what the model writes, is the reward.
"""

import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from groupwise import Objective, Rollouts, Scored

DIGITS = "1234"
GROUP_SIZE = 8
NUM_TOKENS = 8


def reward(text: str, digit: str) -> float:
    """Returns the share of the digit among the characters, spaces left out."""
    characters = text.replace(" ", "")
    return characters.count(digit) / max(len(characters), 1)


def log_probs(model: torch.nn.Module, ids: torch.Tensor, num_prompt: int) -> torch.Tensor:
    """Scores the completions, `[B, T]` in nats: what stands at a place is foretold by what stands before it."""
    logits = model(ids).logits[:, num_prompt - 1 : -1].float()
    return logits.log_softmax(-1).gather(-1, ids[:, num_prompt:, None])[..., 0]


def train(folder: str, num_steps: int = 40, learning_rate: float = 1e-2) -> list[float]:
    """Trains all weights of the model and returns the mean reward of every step."""
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    optimiser = torch.optim.AdamW(model.parameters(), lr=learning_rate)
    objective = Objective.preset("dr_grpo", **{"aggregation.length": NUM_TOKENS})
    state = objective.init()
    # One token a prompt, so that no row is padded.
    prompts = torch.tensor([tokenizer(digit, add_special_tokens=False)["input_ids"][-1:] for digit in DIGITS])
    digits = [digit for digit in DIGITS for _ in range(GROUP_SIZE)]
    means = []
    for step in range(num_steps):
        ids = model.generate(
            prompts.repeat_interleave(GROUP_SIZE, 0),
            attention_mask=torch.ones(len(digits), 1, dtype=torch.long),
            do_sample=True,
            top_k=0,
            min_new_tokens=NUM_TOKENS,
            max_new_tokens=NUM_TOKENS,
            pad_token_id=0,
        )
        texts = tokenizer.batch_decode(ids[:, 1:], skip_special_tokens=True)
        with torch.no_grad():
            old = log_probs(model, ids, 1)
        values = torch.tensor([reward(text, digit) for text, digit in zip(texts, digits, strict=True)])
        group = torch.arange(len(digits)) // GROUP_SIZE
        batch = objective.prepare(
            Rollouts(group, torch.ones_like(old, dtype=torch.bool), old, {"share": values}), state
        )
        plan = objective.plan(batch)
        for rows in torch.arange(len(digits)).split(16):  # micro-batches sum to the whole
            objective.loss(Scored(log_probs(model, ids[rows], 1)), plan.select(rows)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
        state = objective.observe(batch.state, {})
        means.append(float(values.mean()))
        print(f"step {step + 1}/{num_steps}  reward {means[-1]:.3f}")
    return means


if __name__ == "__main__":
    train(sys.argv[1])
