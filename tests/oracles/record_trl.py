"""Records what TRL 1.16's own loss gives on one small batch, for every loss type x level x KL x clip x accumulation.

    python tests/oracles/record_trl.py

Run in an environment that has trl 1.16.0 (`make oracles` makes one); writes tests/golden/trl_1_16.json, which the tests
read without TRL. The loss is `GRPOTrainer._compute_loss` as it is; only the model's forward is replaced by the recorded
log-probs, and all is fp64.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

GOLDEN = Path(__file__).parents[1] / "golden" / "trl_1_16.json"
MAX_COMPLETION_LENGTH = 7
CLIPS: dict[str, list[dict[str, float]]] = {
    "plain": [{"epsilon": 0.2}, {"epsilon": 0.2, "epsilon_high": 0.28}, {"epsilon": 0.2, "delta": 1.5}],
    "cispo": [{"epsilon_high": 5.0}, {"epsilon_high": 1.25}],
    "sapo": [{}, {"sapo_temperature_pos": 0.7, "sapo_temperature_neg": 1.3}],
    "vespo": [{}, {"vespo_k_pos": 1.5, "vespo_lambda_pos": 0.5, "vespo_k_neg": 0.75, "vespo_lambda_neg": 1.25}],
}
KLS: list[dict[str, Any]] = [
    {"beta": 0.0},
    *({"beta": 0.04, "use_bias_correction_kl": corrected} for corrected in (False, True)),
]


def batch() -> dict[str, list[Any]]:
    """Six members of at most four tokens, one without any; ratios on both sides of every clip, advantages of both signs
    and zero.
    """
    import torch

    generator = torch.Generator().manual_seed(7)

    def draw(low: float, high: float) -> list[list[float]]:
        return [
            [round(value, 4) for value in row]
            for row in (low + (high - low) * torch.rand(6, 4, generator=generator, dtype=torch.float64)).tolist()
        ]

    old, gap, away = draw(-3.0, -0.8), draw(-0.7, 0.7), draw(-0.6, 0.6)
    gap[1] = [value / 1000 for value in gap[1]]

    def moved(rows: list[list[float]], by: list[list[float]]) -> list[list[float]]:
        return [
            [round(value + step, 7) for value, step in zip(row, steps, strict=True)]
            for row, steps in zip(rows, by, strict=True)
        ]

    return {
        "mask": [[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]],
        "old_log_prob": old,
        "log_prob": moved(old, gap),
        "reference_log_prob": moved(moved(old, gap), away),
        "advantage": [1.2, -0.7, -1.5, 0.8, 0.4, 0.0],
    }


def settings() -> list[dict[str, Any]]:
    """Every case; accumulation over two micro-batches beside the plain ones."""
    cases = []
    for loss_type, level in itertools.product(
        ("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo"), ("token", "sequence")
    ):
        if loss_type == "vespo" and level == "sequence":
            continue  # refused by TRL
        clips = CLIPS.get(loss_type, CLIPS["plain"])
        for clip, kl in itertools.product(clips, KLS):
            cases.append({"loss_type": loss_type, "importance_sampling_level": level, **clip, **kl, "accumulation": 1})
        cases += [
            {"loss_type": loss_type, "importance_sampling_level": level, **clips[0], **kl, "accumulation": 2}
            for kl in KLS[:2]
        ]
    return cases


def record(case: dict[str, Any], given: dict[str, list[Any]]) -> dict[str, Any]:
    """The loss of one optimiser step and its gradient by the log-probs."""
    import torch
    from trl import GRPOConfig, GRPOTrainer

    chosen = dict(case)
    accumulation = chosen.pop("accumulation")
    config = GRPOConfig(
        output_dir="unused",
        use_cpu=True,
        bf16=False,
        report_to=[],
        max_completion_length=MAX_COMPLETION_LENGTH,
        **chosen,
    )
    config.steps_per_generation = accumulation
    trainer = GRPOTrainer.__new__(GRPOTrainer)
    trainer.args, trainer.model = config, SimpleNamespace(training=True)
    trainer.loss_type, trainer.importance_sampling_level, trainer.beta = (
        config.loss_type,
        config.importance_sampling_level,
        config.beta,
    )
    trainer.epsilon_low = config.epsilon
    trainer.epsilon_high = config.epsilon if config.epsilon_high is None else config.epsilon_high
    trainer.max_completion_length, trainer.current_gradient_accumulation_steps = MAX_COMPLETION_LENGTH, accumulation
    trainer.top_entropy_quantile, trainer.off_policy_mask_threshold = 1.0, None
    trainer.use_vllm = trainer.vllm_importance_sampling_correction = trainer.aux_loss_enabled = (
        trainer._entropy_bonus_enabled
    ) = False
    trainer._metrics = {"train": defaultdict(list)}
    trainer.accelerator = SimpleNamespace(
        num_processes=1, gather=lambda value: value, reduce=lambda value, reduction: value
    )
    tensors = {name: torch.tensor(rows, dtype=torch.float64) for name, rows in given.items()}
    log_prob = tensors["log_prob"].requires_grad_()
    total = 0.0
    for rows in torch.arange(6).chunk(accumulation):
        live = log_prob[rows]
        trainer._get_per_token_logps_and_entropies = lambda *_, live=live, **__: (live, torch.zeros_like(live), None)
        mask = tensors["mask"][rows]
        ids = torch.zeros(len(rows), mask.shape[1], dtype=torch.long)
        inputs = {
            "prompt_ids": ids[:, :1],
            "prompt_mask": ids[:, :1],
            "completion_ids": ids,
            "completion_mask": mask,
            "advantages": tensors["advantage"][rows],
            "old_per_token_logps": tensors["old_log_prob"][rows],
            "ref_per_token_logps": tensors["reference_log_prob"][rows],
            "num_items_in_batch": tensors["mask"].sum(),
        }
        loss = trainer._compute_loss(trainer.model, inputs)
        loss.backward()
        total += loss.item()
    return {
        **case,
        "loss": rounded(total),
        "gradient": [[rounded(value) for value in row] for row in log_prob.grad.tolist()],
    }


def rounded(value: float) -> float:
    """Thirteen significant digits."""
    return float(f"{value:.13g}") if math.isfinite(value) else value


def main() -> None:
    import torch
    import trl

    assert trl.__version__ == "1.16.0", f"this records trl 1.16.0, and {trl.__version__} is installed"
    # TRL writes temperatures as numbers, which become tensors of the default type.
    torch.set_default_dtype(torch.float64)
    given = batch()
    cases = [record(case, given) for case in settings()]
    head = {
        "source": f"trl {trl.__version__}, GRPOTrainer._compute_loss",
        "command": "python tests/oracles/record_trl.py",
        "torch": torch.__version__,
    }
    lines = ",\n".join(json.dumps(case) for case in cases)
    text = (
        f'{{"head": {json.dumps(head)},\n"max_completion_length": {MAX_COMPLETION_LENGTH},\n"batch":'
        f' {json.dumps(given)},\n"cases": [\n{lines}\n]}}\n'
    )
    GOLDEN.write_text(text, encoding="utf-8")
    print(f"{len(cases)} cases, {len(text) // 1024} KiB: {GOLDEN}")


if __name__ == "__main__":
    main()
