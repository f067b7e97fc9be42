"""Every field of TRL's `GRPOConfig` that is no key of ours: refused where it changes training, ignored where not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, fields

from trl.trainer.grpo_config import GRPOConfig

from groupwise.experiment.counterparts import rows

REFUSED: dict[str, tuple[tuple[object, ...], str]] = {
    "min_p": ((None, 0.0), "write min_p = None: the log-probs of what it samples are not kept"),
    "repetition_penalty": ((1.0,), "write repetition_penalty = 1.0: the log-probs of what it samples are not kept"),
    "generation_kwargs": ((None, {}), "write generation_kwargs = None, and stop texts in domain.sampling.stop"),
    "use_vllm": ((False,), "write use_vllm = False, and a server as domain.engine (kind = 'vllm')"),
    "use_transformers_continuous_batching": ((False,), "write False, or domain.engine.kind = 'transformers'"),
    "use_transformers_paged": ((False,), "write False, or domain.engine.kind = 'transformers'"),
    "max_tool_calling_iterations": ((None,), "write None, or give from_trl the tools whose rounds it limits"),
    "router_aux_loss_coef": ((None, 0.0), "write None: no loss balances the experts here"),
    "lr_scheduler_kwargs": ((None, {}), "write None, and the schedule as optimiser.learning_rate"),
    "optim_args": ((None,), "write None; another optimiser than AdamW is optimiser.path, with optimiser.arguments"),
    "optim_target_modules": ((None,), "write None: the optimiser is AdamW"),
    "fp16": ((False,), "write bf16 = True, or neither"),
    "neftune_noise_alpha": ((None,), "write None"),
    "label_smoothing_factor": ((0.0, 0), "write 0.0"),
    "model_init_kwargs": ((None, {}), "write None, and domain.model.dtype, attention or revision"),
    "trust_remote_code": ((False,), "write False: code from a model's folder is never run"),
    "fsdp": ((None, "", [], False), "write None, and train.sharding = 'full' for a language model in shards"),
    "fsdp_config": ((None,), "write None: train.sharding = 'full' has no settings"),
    "deepspeed": ((None,), "write None, and train.sharding = 'full' for a language model in shards"),
    "parallelism_config": ((None,), "write None: data parallelism by torchrun alone"),
    "push_to_hub": ((False,), "write False: nothing is uploaded"),
    "auto_find_batch_size": ((False,), "write False, and train.micro_batch_members = 'auto'"),
    "shuffle_dataset": ((True,), "write True: the order of prompts is a function of the seed"),
    "train_sampling_strategy": (("random",), "write 'random': the order of prompts is a function of the seed"),
    "resume_from_checkpoint": ((None,), "write None; groupwise.resume(FOLDER) goes on with a run"),
}
"""Field -> values at which it changes nothing, and what to write for any other."""

_OPTIMISERS = ("adamw_torch", "adamw_torch_fused")
_SCHEDULES = ("linear", "cosine", "constant", "constant_with_warmup")

# fmt: off
MAPPED = frozenset({
    "loss_type", "importance_sampling_level", "epsilon", "epsilon_high", "delta", "sapo_temperature_pos",
    "sapo_temperature_neg", "vespo_k_pos", "vespo_lambda_pos", "vespo_k_neg", "vespo_lambda_neg", "scale_rewards",
    "multi_objective_aggregation", "beta", "use_bias_correction_kl", "entropy_coef", "use_adaptive_entropy",
    "top_entropy_quantile", "off_policy_mask_threshold", "sync_ref_model", "ref_model_sync_steps",
    "ref_model_mixup_alpha", "reward_weights", "generation_batch_size", "num_generations", "steps_per_generation",
    "gradient_accumulation_steps", "num_iterations", "max_completion_length", "temperature", "top_p", "top_k",
    "num_generations_eval", "disable_dropout", "chat_template_kwargs", "max_steps", "num_train_epochs",
    "per_device_train_batch_size", "learning_rate", "lr_scheduler_type", "warmup_steps", "optim", "weight_decay",
    "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm", "bf16", "activation_checkpointing", "use_cpu",
    "full_determinism", "seed", "eval_strategy", "eval_steps", "save_strategy", "save_steps", "load_best_model_at_end",
    "save_total_limit", "report_to", "project", "gradient_checkpointing", "mask_truncated_completions",
})
# fmt: on
"""Fields that the objective or a key of the experiment says."""

_OF_THE_OBJECTIVE_OR_UNUSED = frozenset(
    {
        "entropy_coef_min",
        "entropy_coef_max",
        "entropy_coef_delta",
        "entropy_target",
        "output_dir",
        "do_train",
        "do_eval",
        "do_predict",
    }
)
"""Fields without an effect of their own here: they belong to others, or name what is written elsewhere."""


_DERIVED = frozenset({"accelerator_config", "disable_tqdm", "dataloader_pin_memory", "run_name"})
"""Fields that `GRPOConfig` fills in itself."""


def refused_fields(args: GRPOConfig, *, has_tools: bool = False) -> Iterator[str]:
    """Yields a sentence for every field that changes training and has no counterpart.

    Args:
        args: of TRL's trainer.
        has_tools: whether the trainer was given tools, whose rounds a field limits.
    """
    for name, (neutral, advice) in REFUSED.items():
        if has_tools and name == "max_tool_calling_iterations":
            continue
        if (value := getattr(args, name, neutral[0])) not in neutral:
            yield f"{name} = {value!r:.60} has no counterpart: {advice}"
    for name, allowed in (("optim", _OPTIMISERS), ("lr_scheduler_type", _SCHEDULES)):
        value = str(getattr(getattr(args, name), "value", getattr(args, name)))
        if value not in allowed:
            advice = "; another one is named by its path (optimiser.kind = 'callable')" if name == "optim" else ""
            yield f"{name} = {value!r} has no counterpart: write one of {', '.join(allowed)}{advice}"
    described = {row.key for row in rows() if row.system == "TRL"}
    for name, value, default in _changed(args):
        if name not in described:
            yield (
                f"{name} = {value!r:.60} is not known to from_trl, which was written for TRL 1.16; leave it at its"
                f" default {default!r:.60}"
            )
    if args.data_seed not in (None, args.seed):
        yield f"data_seed = {args.data_seed} beside seed = {args.seed}: one seed keys every draw; write None"


def ignored_fields(args: GRPOConfig) -> dict[str, str]:
    """Returns every field that is neither translated nor at its default, with the reason why it changes nothing.

    Args:
        args: after `refused_fields` yielded nothing for it.
    """
    notes = {row.key: row.table.get("note") for row in rows() if row.system == "TRL"}
    return {name: notes.get(name) or "it changes nothing that is trained here" for name, _, _ in _changed(args)}


def _changed(args: GRPOConfig) -> Iterator[tuple[str, object, object]]:
    """Yields name, value and default of every field that is not at its default and that nothing here reads."""
    for config_field in fields(args):
        name, value = config_field.name, getattr(args, config_field.name)
        if name in MAPPED or name in REFUSED or name in _OF_THE_OBJECTIVE_OR_UNUSED or name in _DERIVED:
            continue
        default = config_field.default if config_field.default is not MISSING else None
        if value != default and value not in (None, [], {}, ""):
            yield name, value, default
