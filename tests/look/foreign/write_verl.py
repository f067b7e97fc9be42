"""Wrote `verl_*.jsonl` here, with verl 0.9.1: its FileLogger, its metrics of a batch, its advantages and its policy
loss, of rewards that are drawn. verl is no dependency of ours:

    pip install --no-deps verl==0.9.1 tensordict orjson codetiming omegaconf
    python tests/look/foreign/write_verl.py flat tests/look/foreign/verl_flat.jsonl
"""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import numpy as np
import torch

NUM_GROUPS, GROUP_SIZE, LENGTH, NUM_STEPS = 4, 4, 12, 24


def main(kind: str, path: str) -> None:
    os.environ["VERL_FILE_LOGGER_PATH"] = path
    from verl.trainer.ppo import core_algos  # pyright: ignore[reportMissingImports]
    from verl.trainer.ppo.metric_utils import compute_data_metrics  # pyright: ignore[reportMissingImports]
    from verl.utils.tracking import FileLogger  # pyright: ignore[reportMissingImports]

    draws, logger = torch.Generator().manual_seed(0), FileLogger("project", "experiment")
    num_members = NUM_GROUPS * GROUP_SIZE
    for step in range(1, NUM_STEPS + 1):
        share = {"healthy": 0.2 + 0.015 * step, "flat": 0.0}[kind]
        right = (torch.rand(num_members, generator=draws) < share).float()
        length = torch.randint(3, LENGTH, (num_members,), generator=draws)
        mask = (torch.arange(LENGTH) < length[:, None]).float()
        scores = torch.zeros(num_members, LENGTH)
        scores[torch.arange(num_members), length - 1] = right
        groups = np.repeat(np.arange(NUM_GROUPS), GROUP_SIZE)
        advantages, returns = core_algos.compute_grpo_outcome_advantage(scores, mask, groups)
        old = -torch.rand(num_members, LENGTH, generator=draws)
        new = (old + 0.01 * torch.randn(num_members, LENGTH, generator=draws)).requires_grad_()
        loss, clipped, kl, clipped_below = core_algos.compute_policy_loss(old, new, advantages, mask, cliprange=0.2)
        loss.backward()
        tensors = {
            **{"token_level_scores": scores, "token_level_rewards": scores, "advantages": advantages},
            **{"returns": returns, "response_mask": mask, "responses": torch.ones(num_members, LENGTH)},
            "prompts": torch.ones(num_members, 5),
            "attention_mask": torch.cat([torch.ones(num_members, 5), mask], 1),
        }
        metrics = {
            **compute_data_metrics(SimpleNamespace(batch=tensors, non_tensor_batch={}), use_critic=False),
            **{"actor/pg_loss": loss.item(), "actor/pg_clipfrac": clipped.item(), "actor/ppo_kl": kl.item()},
            **{"actor/pg_clipfrac_lower": clipped_below.item(), "actor/grad_norm": new.grad.norm().item()},
            **{"actor/lr": 1e-6, "actor/entropy": 0.9 - 0.005 * step, "training/global_step": step},
            **({"val-core/openai/gsm8k/acc/mean@1": share} if step % 10 == 0 else {}),
        }
        logger.log(metrics, step)
    logger.finish()


if __name__ == "__main__":
    main(*sys.argv[1:])
