"""The versions of TRL that the trainer goes with: 1.16, for which it is written, and later 1.x that still have every
key and method that it builds on.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Set
from typing import Any

WRITTEN_FOR = (1, 16)
METHODS = {
    "_tokenize_prompts": ("prompts",),
    "_calculate_rewards": ("inputs", "prompts", "completions", "completion_ids_list"),
    "_generate_and_score_completions": ("inputs",),
    "_compute_loss": ("model", "inputs"),
    "_get_per_token_logps_and_entropies": (
        "model",
        "input_ids",
        "attention_mask",
        "logits_to_keep",
        "batch_size",
        "compute_entropy",
        "compute_aux_loss",
    ),
    "_save_checkpoint": ("model", "trial"),
    "_load_optimizer_and_scheduler": ("checkpoint",),
}
"""Methods of TRL's trainer that ours extends or calls, with the parameters that it passes."""
KEYS = frozenset(
    re.findall(
        r"\w+",
        """
        model_init_kwargs trust_remote_code router_aux_loss_coef disable_dropout cast_lm_head_to_fp32
        num_generations num_generations_eval max_completion_length ds3_gather_for_generation shuffle_dataset
        pad_to_multiple_of generation_batch_size steps_per_generation temperature top_p top_k min_p
        generation_kwargs chat_template_kwargs repetition_penalty cache_implementation use_vllm vllm_mode
        vllm_model_impl vllm_enable_sleep_mode vllm_structured_outputs_regex vllm_server_base_url vllm_server_host
        vllm_server_port vllm_server_timeout vllm_group_port vllm_gpu_memory_utilization vllm_max_model_length
        vllm_tensor_parallel_size beta num_iterations epsilon delta epsilon_high sapo_temperature_neg
        sapo_temperature_pos vespo_k_pos vespo_lambda_pos vespo_k_neg vespo_lambda_neg importance_sampling_level
        reward_weights multi_objective_aggregation scale_rewards loss_type mask_truncated_completions sync_ref_model
        ref_model_mixup_alpha ref_model_sync_steps top_entropy_quantile entropy_coef use_adaptive_entropy
        entropy_coef_min entropy_coef_max entropy_coef_delta entropy_target max_tool_calling_iterations
        vllm_importance_sampling_correction vllm_importance_sampling_mode vllm_importance_sampling_clip_max
        vllm_importance_sampling_clip_min off_policy_mask_threshold use_bias_correction_kl log_completions
        log_multimodal num_completions_to_print log_unique_prompts log_completions_hub_repo
        use_transformers_continuous_batching transformers_continuous_batching_config use_transformers_paged
        vllm_importance_sampling_cap
        """,
    )
)
"""The keys that the `GRPOConfig` of 1.16 adds to those of `transformers.TrainingArguments`."""


def too_different(version: str) -> str | None:
    """Returns why a TRL of another major version, or one older than 1.16, is refused, and `None` for the others.

    Example:
        >>> too_different("1.17.0") is None, too_different("1.9.0") is None
        (True, False)
    """
    numbers = _numbers(version)
    if numbers[:1] == WRITTEN_FOR[:1] and numbers >= WRITTEN_FOR:
        return None
    return (
        f"groupwise.integrations.trl goes with TRL 1.16 and later versions 1.x, and {version} is installed; write: pip"
        " install 'trl>=1.16,<2'"
    )


def missing(trainer: type, keys: Set[str], decided: Set[str]) -> Iterator[str]:
    """Yields what an installed TRL lacks of what the trainer builds on.

    Args:
        trainer: TRL's `GRPOTrainer`.
        keys: the fields of its `GRPOConfig`.
        decided: the keys that an objective decides.
    """
    for name in sorted(decided - keys):
        yield f"GRPOConfig.{name}"
    for name, parameters in METHODS.items():
        method = getattr(trainer, name, None)
        if method is None:
            yield f"GRPOTrainer.{name}"
            continue
        accepted = inspect.signature(method).parameters
        for parameter in parameters:
            if parameter not in accepted:
                yield f"GRPOTrainer.{name}({parameter}=...)"


def remark(version: str, config: Any, inherited: Set[str]) -> str | None:
    """Returns the sentence about a TRL that is newer than the trainer is written for, and `None` for TRL 1.16.

    Args:
        version: that is installed.
        config: the arguments of a run.
        inherited: the keys that `transformers.TrainingArguments` has.
    """
    if _numbers(version) == WRITTEN_FOR:
        return None
    defaults = {name: field.default for name, field in config.__dataclass_fields__.items()}
    changed = [
        f"{name} = {getattr(config, name)!r}"
        for name in sorted(set(defaults) - KEYS - inherited)
        if getattr(config, name) != defaults[name]
    ]
    sentence = f"TRL {version} is newer than 1.16, for which this trainer is written; it has every key and method used"
    if not changed:
        return sentence
    return f"{sentence}, and keys that are new and that the objective does not read: {', '.join(changed)}"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])
