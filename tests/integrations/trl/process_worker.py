"""One process of the test in test_refusals.py: trains under several objectives and writes every step's gradient."""

import os
import sys
import warnings
from pathlib import Path

import torch
from safetensors.torch import save_file
from tests.integrations.trl import tiny
from tests.integrations.trl.test_trainer import answers, run

from groupwise_trainers.trl import GRPOTrainer

# TRL's own sampler is not needed here: every process answers by the place of a prompt among those of all processes.
OBJECTIVES: dict[str, dict[str, object]] = {
    "grpo": {},
    "bnpo+tis": {"entropy": 0.1},
    "gmpo": {},
    "clip_cov": {"trust.share": 0.2, "trust.lower": 0.01},
    "lite_ppo": {},
    "opo": {},
    "reinforce_pp": {},
}


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    world = int(os.environ.get("WORLD_SIZE", "1"))
    keys = {"num_generations": 8, "per_device_train_batch_size": 4 // world, "num_iterations": 2, "max_steps": 2}
    gradients = {}
    for name, edits in OBJECTIVES.items():
        trainer, steps = run(
            GRPOTrainer,
            folder,
            keys,
            [tiny.early_letters, tiny.length],
            rollout_func=answers(True),
            objective=name,
            edits=edits,
        )
        gradients |= {f"{name}/{place}": step for place, step in enumerate(steps)}
        logged = [line for line in trainer.state.log_history if "on_policy_fraction" in line]
        names = ("loss", "entropy", "zero_gradient_fraction/positive", "rewards_mean")
        numbers = [line.get(key, 0.0) for line in logged for key in names]
        gradients[f"{name}/logged"] = torch.tensor(numbers, dtype=torch.float64)
    if trainer.accelerator.is_main_process:
        save_file(gradients, folder / f"gradients-{world}.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
