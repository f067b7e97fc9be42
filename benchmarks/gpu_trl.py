"""TRL's GRPOTrainer on the model, prompts, reward and sizes of one of our language experiments, on the same device:
the peer of `gpu.py`. It samples with transformers where ours does so by itself, and with vLLM where a server samples.
"""

from __future__ import annotations

import itertools
import os
import statistics
import tempfile
import time
from importlib import import_module
from typing import Any

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

Result = dict[str, Any]


def measure(experiment: dict[str, Any], device: str) -> Result:
    """Trains; returns medians by part after the first step: seconds and tokens a second; and the peak."""
    import torch
    import trl
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback

    domain = experiment["domain"]
    module, _, name = domain["rewards"]["differs"]["path"].partition(":")
    reward = getattr(import_module(module), name)
    sampling: list[float] = []
    tokens: list[int] = []
    ends: list[float] = []

    class Timed(trl.GRPOTrainer):
        """The trainer with a clock around its generation; nothing it does is changed."""

        def _generate(self, prompts):
            begin = now(device)
            output = super()._generate(prompts)
            sampling.append(now(device) - begin)
            return output

        def _generate_and_score_completions(self, inputs):
            output = super()._generate_and_score_completions(inputs)
            tokens.append(int(output["completion_mask"].sum()))
            return output

    class Ticks(TrainerCallback):
        def on_train_begin(self, *arguments, **named):
            ends.append(now(device))

        def on_step_end(self, *arguments, **named):
            ends.append(now(device))

    model, adapter = domain["model"], domain["model"].get("lora")
    with tempfile.TemporaryDirectory() as output:
        arguments = trl.GRPOConfig(output_dir=output, **settings(experiment, device))
        trainer = Timed(
            model=AutoModelForCausalLM.from_pretrained(model["path"], dtype=torch.bfloat16, attn_implementation="sdpa"),
            reward_funcs=lambda prompts, completions, **columns: reward(prompts, completions),
            args=arguments,
            train_dataset=Dataset.from_list([{"prompt": text} for text in domain["data"]["source"]["prompts"]]),
            processing_class=AutoTokenizer.from_pretrained(model["path"], padding_side="left"),
            callbacks=[Ticks()],
            peft_config=adapter
            and LoraConfig(
                r=adapter["r"], lora_alpha=adapter["alpha"], target_modules="all-linear", task_type="CAUSAL_LM"
            ),
        )
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        trainer.train()
    steps = [after - before for before, after in itertools.pairwise(ends)][1:]
    rest = [step - part for step, part in zip(steps, sampling[1:], strict=True)]
    # Members of flat groups, which Groupwise leaves out of its update, TRL computes.
    result: Result = {
        "seconds_by_part": {"sampling": statistics.median(sampling[1:]), "scoring and update": statistics.median(rest)},
        "step_seconds": statistics.median(steps),
        "tokens_per_second": {
            "sampling": statistics.median(count / part for count, part in zip(tokens[1:], sampling[1:], strict=True))
        },
        "notes": [f"TRL {trl.__version__}: {statistics.median(steps):.3f} s a step"],
    }
    if device == "cuda":
        result["peak_mib"] = torch.cuda.max_memory_allocated() / 2**20
    return result


def settings(experiment: dict[str, Any], device: str) -> dict[str, Any]:
    """The experiment in TRL's words. Where a server samples for ours, TRL's process has vLLM in itself, which sleeps as
    ours does.
    """
    domain, train = experiment["domain"], experiment["train"]
    vllm = {
        "use_vllm": True,
        "vllm_mode": "colocate",
        "vllm_enable_sleep_mode": True,
        "vllm_gpu_memory_utilization": 0.5,
        "vllm_max_model_length": 1024,
    }
    return {
        "per_device_train_batch_size": train["prompts_per_step"] * train["group_size"],
        "num_generations": train["group_size"],
        "steps_per_generation": 1,
        "max_completion_length": domain["sampling"]["max_new_tokens"],
        "beta": 0.04,
        "loss_type": "grpo",
        "temperature": 1.0,
        "gradient_checkpointing": False,
        "bf16": device == "cuda",
        "use_cpu": device == "cpu",
        "learning_rate": experiment["optimiser"]["learning_rate"],
        "lr_scheduler_type": "constant",
        "max_steps": train["num_steps"],
        "logging_strategy": "no",
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        **(vllm if "engine" in domain else {}),
    }


def now(device: str) -> float:
    """Seconds, once the device has done what it was given."""
    import torch

    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()
