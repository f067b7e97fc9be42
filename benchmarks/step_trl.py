"""TRL's side of `language_step.py`: runs in TRL's own environment, reads a JSON specification, prints a JSON result as
its last line.
"""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import json
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any, ClassVar

import measure
import torch
import transformers
import transformers.models.qwen3.modeling_qwen3
import trl
import trl.trainer.utils as trl_utils
from datasets import Dataset
from measure import Clock, differences, memory_bytes, reset_peak
from step_task import evenness
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer


def best_settings(specification: dict[str, Any]) -> dict[str, Any]:
    """The settings under which TRL was fastest here (`language_step.py --tune` prints the alternatives)."""
    members = specification["num_prompts"] * specification["group_size"]
    micro_batch = specification.get("micro_batch") or members
    return {
        "per_device_train_batch_size": micro_batch,
        "gradient_accumulation_steps": members // micro_batch,
        "steps_per_generation": members // micro_batch,  # one update a generation: no second scoring for old log-probs
        "num_iterations": 1,
        "num_generations": specification["group_size"],
        "max_completion_length": specification["completion_tokens"],
        "beta": 0.0,  # no reference model, no reference pass
        "loss_type": "dapo",
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "disable_dropout": True,
        "gradient_checkpointing": False,  # TRL's default is true, which computes each layer twice
        "bf16": specification.get("autocast") == "bfloat16",  # TRL's default is true
        "optim": "adamw_torch_fused",
        "learning_rate": 1e-6,
        "lr_scheduler_type": "constant",
        "max_grad_norm": 1.0,
        "weight_decay": 0.0,
        "max_steps": specification["num_warm_up"] + specification["num_updates"],
        "logging_strategy": "no",
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "dataloader_num_workers": 0,
        "dataloader_pin_memory": False,
        "use_cpu": True,
        "seed": specification["seed"],
        **specification.get("trl", {}),
    }


def adapter(specification: dict[str, Any]) -> Any:
    """The adapter that is trained instead of all weights, or none."""
    if "lora_rank" not in specification:
        return None
    from peft import LoraConfig

    rank = specification["lora_rank"]
    return LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM")


class Timed(GRPOTrainer):
    """GRPOTrainer with a clock around its own methods; nothing it does is changed."""

    clock = Clock()
    num_tokens: ClassVar[list[int]] = []

    def _generate_and_score_completions(self, inputs):
        with self.clock.part("rollout"):
            output = super()._generate_and_score_completions(inputs)
        self.num_tokens.append(int(output["completion_mask"].sum()))
        return output

    def _generate(self, prompts):
        with self.clock.part("sampling"):
            return super()._generate(prompts)

    def _calculate_rewards(self, *arguments):
        with self.clock.part("reward"):
            return super()._calculate_rewards(*arguments)


class Ticks(TrainerCallback):
    """From the end of a step to the end of the next: everything is in some step."""

    def on_train_begin(self, *arguments, **named):
        measure.tick()

    def on_step_end(self, *arguments, **named):
        measure.tick()


def main(specification: dict[str, Any]) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(specification["num_threads"])
    torch.manual_seed(specification["seed"])
    if specification.get("compact_head"):
        # On a CPU TRL scores every position, prompts and padding too. This name is read by its fused forward alone.
        trl_utils._use_triton = lambda device: True
    after_import = reset_peak()

    folder = Path(specification["folder"])
    rows = [json.loads(line) for line in (folder / "prompts.jsonl").read_text().splitlines()]
    with tempfile.TemporaryDirectory() as output:
        trainer = Timed(
            model=AutoModelForCausalLM.from_pretrained(
                folder / "model", dtype=torch.float32, attn_implementation="sdpa"
            ),
            reward_funcs=evenness,
            args=GRPOConfig(output_dir=output, **best_settings(specification)),
            train_dataset=Dataset.from_list(rows),
            processing_class=AutoTokenizer.from_pretrained(folder / "model", padding_side="left"),
            callbacks=[Ticks()],
            peft_config=adapter(specification),
        )
        trainer.train()

    peak = memory_bytes("VmHWM")
    skip = specification["num_warm_up"]
    step = differences(measure.WALL)[skip:]
    rollout = trainer.clock.seconds["rollout"][skip:]
    return {
        "system": f"trl {trl.__version__}, transformers {transformers.__version__}, torch {torch.__version__}",
        "step": step,
        "cpu": differences(measure.CPU)[skip:],
        "sampling": trainer.clock.seconds["sampling"][skip:],
        "update": [whole - part for whole, part in zip(step, rollout, strict=True)],
        "num_tokens": trainer.num_tokens[skip:],
        "peak_bytes": peak - after_import,
    }


if __name__ == "__main__":
    print(json.dumps(main(json.loads(Path(sys.argv[1]).read_text()))))
