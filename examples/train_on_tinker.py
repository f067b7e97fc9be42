"""Group-relative training on a server of the Tinker API in a loop of your own: the library, and no experiment.

    pip install '.[language,tinker]'
    python examples/train_on_tinker.py http://127.0.0.1:8000 BASE_MODEL [TOKENIZER]

The server samples, scores, differentiates and steps; rewards, advantages and the loss are computed here. The task is a
toy: of what the model writes, the share of the digit that the prompt names is the reward.
"""

import sys

import torch

from groupwise import Objective, Rollouts, Scored
from groupwise.causal_lm.config import BuiltinEngine, SamplingConfig
from groupwise.causal_lm.sampler import GroupBatch
from groupwise.causal_lm.scoring import ScoringInputs
from groupwise.learner.protocol import StepNumbers
from groupwise_tinker.config import Tinker
from groupwise_tinker.policy import TinkerPolicy

DIGITS = "1234"
GROUP_SIZE = 8
NUM_STEPS = 20


def reward(text: str, digit: str) -> float:
    """Returns the share of the digit among the characters, spaces left out."""
    characters = text.replace(" ", "")
    return characters.count(digit) / max(len(characters), 1)


def train(address: str, base_model: str, tokenizer: str | None) -> list[float]:
    """Trains an adapter and returns the mean reward of every step."""
    config = Tinker(address=address, base_model=base_model, tokenizer=tokenizer)
    policy = TinkerPolicy(config, BuiltinEngine(), seed=0)
    print(*policy.remarks, sep="\n")
    objective = Objective.preset("gspo")
    state = objective.init()
    prompts = [policy.tokenizer(digit)["input_ids"] for digit in DIGITS]
    members = [prompt for prompt in prompts for _ in range(GROUP_SIZE)]
    digits = [digit for digit in DIGITS for _ in range(GROUP_SIZE)]
    means = []
    try:
        for step in range(NUM_STEPS):
            seeds = [step * len(members) + number for number in range(len(members))]
            settings = SamplingConfig(max_new_tokens=8)
            sampled = policy.sample(GroupBatch(prompts, GROUP_SIZE, settings, seeds))
            texts = policy.tokenizer.batch_decode(sampled.tokens, skip_special_tokens=True)
            rewards = torch.tensor([reward(text, digit) for text, digit in zip(texts, digits, strict=True)])
            rollouts = Rollouts(
                group=torch.arange(len(members)) // GROUP_SIZE,
                mask=sampled.mask,
                old_log_prob=sampled.log_prob,
                rewards={"digits": rewards},
            )
            batch = objective.prepare(rollouts, state)
            plan = objective.plan(batch)
            # The server wants the loss's derivative by every log-prob, whatever the method.
            cotangents = objective.cotangents(Scored(sampled.log_prob), plan).scored.log_prob
            gradient = {"log_prob": cotangents}
            policy.backward(ScoringInputs(members, sampled.tokens, sampled.mask), gradient)
            policy.learner.step(StepNumbers(learning_rate=2e-3))
            state = batch.state
            means.append(float(rewards.mean()))
            print(f"step {step + 1}/{NUM_STEPS}  reward {means[-1]:.3f}")
    finally:
        policy.learner.close()  # frees the server's place
    return means


if __name__ == "__main__":
    train(sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None)
