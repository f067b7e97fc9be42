"""Wrote the files of verl and prime-rl in this folder with those packages' own code: their loggers, and their metrics
of members whose rewards are drawn. Neither is a dependency of ours; in an environment that has them:

    python write.py verl flat           (verl 0.9.1, tensordict)
    python write.py prime_rl flat       (prime-rl 559b447, verifiers 0.4.0)
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from pathlib import Path
from types import SimpleNamespace

NUM_GROUPS, GROUP_SIZE, LENGTH, NUM_STEPS = 4, 4, 12, 24


def share(kind: str, step: int) -> float:
    """The share of members that earn 1."""
    return {"healthy": 0.2 + 0.015 * step, "flat": 0.0}[kind]


def verl(kind: str) -> None:
    os.environ["VERL_FILE_LOGGER_PATH"] = f"verl_{kind}.jsonl"
    import numpy as np
    import torch
    from verl.trainer.ppo import core_algos  # pyright: ignore[reportMissingImports]
    from verl.trainer.ppo.metric_utils import compute_data_metrics  # pyright: ignore[reportMissingImports]
    from verl.utils.tracking import FileLogger  # pyright: ignore[reportMissingImports]

    draws, logger = torch.Generator().manual_seed(0), FileLogger("project", "experiment")
    num_members = NUM_GROUPS * GROUP_SIZE
    for step in range(1, NUM_STEPS + 1):
        right = (torch.rand(num_members, generator=draws) < share(kind, step)).float()
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
            **({"val-core/openai/gsm8k/acc/mean@1": share(kind, step)} if step % 10 == 0 else {}),
        }
        logger.log(metrics, step)
    logger.finish()


def prime_rl(kind: str) -> None:
    import verifiers.v1 as vf  # pyright: ignore[reportMissingImports]
    from prime_rl.configs.monitors import FileMonitorConfig  # pyright: ignore[reportMissingImports]
    from prime_rl.monitors.file import FileMonitor  # pyright: ignore[reportMissingImports]
    from prime_rl.orchestrator.metrics import TraceRecord, TrainMetrics  # pyright: ignore[reportMissingImports]
    from verifiers.v1.episode import GroupInfo  # pyright: ignore[reportMissingImports]
    from verifiers.v1.trace import AgentInfo, Reward, TraceTask  # pyright: ignore[reportMissingImports]

    random.seed(0)

    def episode(step: int, group: int) -> vf.Episode:
        task = TraceTask(type="x", data={})
        trace = vf.Trace(task=task, agent=AgentInfo(config={}, name="solver"))
        trace.rewards = {"right": Reward(score=float(random.random() < share(kind, step)))}
        return vf.Episode(task=task, group=GroupInfo(id=str(group)), traces=[trace])

    async def log() -> None:
        monitor = FileMonitor(FileMonitorConfig(path=Path(f"prime_rl_{kind}.jsonl")))
        await monitor.init(output_dir=Path())
        for step in range(NUM_STEPS):
            episodes = [episode(step, group) for group in range(NUM_GROUPS) for _ in range(GROUP_SIZE)]
            records = [TraceRecord(one, one.traces[0], True, True, False) for one in episodes]
            await monitor.log(TrainMetrics(episodes, records).to_wandb(prefix="train/agg", subset="all"), step=step)
            await monitor.log({"optim/lr": 1e-6, "optim/grad_norm": 0.3, "step": step}, step=step)
        await monitor.finalize()

    asyncio.run(log())


if __name__ == "__main__":
    {"verl": verl, "prime_rl": prime_rl}[sys.argv[1]](sys.argv[2])
