"""TRL's trainer with an objective of Groupwise in place of its loss.

    pip install '.[language,trl]'
    python examples/inside_trl.py MODEL_FOLDER OUT

TRL samples, rewards, logs and saves. Only the import and the argument `objective` differ from a script of TRL.
"""

import sys

from datasets import Dataset
from trl import GRPOConfig

from groupwise_trainers.trl import GRPOTrainer


def many_ones(completions: list[str], **columns: object) -> list[float]:
    """Returns the share of the digit 1 in each completion."""
    return [text.count("1") / max(len(text), 1) for text in completions]


def train(model: str, out: str, num_steps: int = 20) -> list[dict[str, float]]:
    """Trains, saves the model in OUT, and returns what TRL logged."""
    data = Dataset.from_dict({"prompt": ["1", "2", "3", "4"] * 8})
    args = GRPOConfig(
        output_dir=out,
        max_steps=num_steps,
        per_device_train_batch_size=16,
        num_generations=8,
        max_completion_length=8,
        learning_rate=1e-2,
        logging_steps=1,
        report_to=[],
        bf16=False,
    )
    trainer = GRPOTrainer(model=model, reward_funcs=many_ones, args=args, train_dataset=data, objective="bnpo")
    trainer.train()
    trainer.save_model(out)
    return [row for row in trainer.state.log_history if "reward" in row]


if __name__ == "__main__":
    train(sys.argv[1], sys.argv[2])
