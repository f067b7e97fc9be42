"""TRL's keys and the objective: the translation of a `GRPOConfig` into our slots, and their contradictions."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields
from typing import Any

from trl.trainer.grpo_config import GRPOConfig

from groupwise.config import validate
from groupwise.experiment.counterparts import rows
from groupwise.objective import Objective
from groupwise_trainers.foreign import unmet_needs

DECIDED: dict[str, tuple[str, ...]] = {
    "loss_type": ("trust.kind", "aggregation.kind"),
    "importance_sampling_level": ("ratio.kind",),
    "epsilon": ("trust.low",),
    "epsilon_high": ("trust.high", "trust.maximum"),
    "delta": ("trust.bound",),
    "sapo_temperature_pos": ("trust.tau_pos",),
    "sapo_temperature_neg": ("trust.tau_neg",),
    "vespo_k_pos": ("trust.k_pos",),
    "vespo_lambda_pos": ("trust.lambda_pos",),
    "vespo_k_neg": ("trust.k_neg",),
    "vespo_lambda_neg": ("trust.lambda_neg",),
    "scale_rewards": ("advantage.kind",),
    "multi_objective_aggregation": ("advantage.kind",),
    "beta": ("divergence.beta.value", "divergence.beta.kind", "divergence.place", "divergence.against"),
    "use_bias_correction_kl": ("divergence.kind",),
    "entropy_coef": ("entropy.value", "entropy.initial"),
    "use_adaptive_entropy": ("entropy.kind",),
    "entropy_coef_min": ("entropy.low",),
    "entropy_coef_max": ("entropy.high",),
    "entropy_coef_delta": ("entropy.delta",),
    "entropy_target": ("entropy.target",),
    "top_entropy_quantile": ("credit.top_entropy.share",),
    "off_policy_mask_threshold": ("credit.off_policy_mask.threshold",),
    "vllm_importance_sampling_correction": ("correction.kind",),
    "vllm_importance_sampling_mode": ("correction.kind", "correction.level", "correction.by", "correction.weight"),
    "vllm_importance_sampling_clip_max": ("correction.maximum", "correction.upper"),
    "vllm_importance_sampling_clip_min": ("correction.minimum", "correction.lower"),
    "vllm_importance_sampling_cap": ("correction.maximum", "correction.upper"),
}
"""TRL's keys that the objective decides, each with the keys of ours that do it. Every other key of `GRPOConfig` keeps
its meaning.
"""

_AGGREGATIONS = {
    "grpo": "member_mean",
    "sapo": "member_mean",
    "luspo": "member_sum",
    "dr_grpo": "fixed_length",
    "bnpo": "token_mean",
    "dapo": "token_mean",
    "cispo": "token_mean",
    "vespo": "token_mean",
}
_TRUST_KEYS = {
    "sapo": {"tau_pos": "sapo_temperature_pos", "tau_neg": "sapo_temperature_neg"},
    "vespo": {name: f"vespo_{name}" for name in ("k_pos", "lambda_pos", "k_neg", "lambda_neg")},
}
_ADVANTAGES = {"group": "z_score", "batch": "batch_std", "none": "centred"}
_MODES = ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask")
_NO_LOWER_BOUND = 1e-30
_LEAST_SHARE = 1e-12  # TRL writes 0 to select the one token of the highest entropy


def objective_of(args: GRPOConfig) -> Objective:
    """Returns the objective that a `GRPOConfig` describes.

    Four things differ from TRL's own numbers: advantages are divided by `max(std, 1e-6)` instead of `std + 1e-4`;
    `bnpo` counts tokens over the whole optimiser step, TRL over a micro-batch; `dapo`, `cispo` and `vespo` are counted
    over the optimiser step too, by TRL over the whole generation, which is the same unless one generation serves
    several optimiser steps; an entropy bonus has the aggregation's weights, TRL's the mean over the tokens of each
    micro-batch. Where the keys of TRL's own trainer decide, `GRPOTrainer` takes the mean over the tokens of the
    optimiser step.

    Raises:
        ValueError: keys without a counterpart, each named.
        ConfigError: a value that a slot does not take.

    Example:
        >>> objective = objective_of(
        ...     GRPOConfig(output_dir="unused", use_cpu=True, bf16=False, loss_type="dr_grpo", epsilon_high=0.28)
        ... )
        >>> objective.aggregation.kind, objective.trust.high
        ('fixed_length', 0.28)
    """
    problems = list(_unsupported(args))
    if problems:
        raise ValueError("; ".join(problems))
    level = {"token": "token", "sequence": "geometric"}[args.importance_sampling_level]
    length = {"length": args.max_completion_length} if args.loss_type == "dr_grpo" else {}
    kind = "per_reward" if args.multi_objective_aggregation == "normalize_then_sum" else _ADVANTAGES[args.scale_rewards]
    table = {
        "advantage": {"kind": kind},
        "ratio": {"kind": "product" if args.loss_type == "vespo" else level},
        "trust": _trust(args),
        "correction": _correction(args),
        "aggregation": {"kind": _AGGREGATIONS[args.loss_type], **length},
        "divergence": (
            {"kind": "k3_unbiased" if args.use_bias_correction_kl else "k3", "beta": float(args.beta)}
            if args.beta
            else {"kind": "none"}
        ),
        "credit": _credit(args),
        "entropy": _entropy(args),
        "partial_rewards": "sum",
        "mask_truncated": bool(args.mask_truncated_completions),
    }
    return validate(Objective, table, source="GRPOConfig")


def contradictions(args: GRPOConfig, objective: Objective) -> Iterator[str]:
    """Yields a sentence for every key of a `GRPOConfig` that contradicts the objective. A key at its default
    contradicts nothing.
    """
    # Keys are compared by the slot that each would produce. Without a KL term, or without vLLM, some keys produce
    # nothing.
    as_read = copy.copy(args)
    as_read.beta = args.beta or float(objective.divergence.kind != "none" and not args.use_bias_correction_kl)
    as_read.use_vllm = args.use_vllm or objective.correction.kind != "none"
    try:
        described = objective_of(as_read)
    except ValueError as error:
        yield str(error)
        return
    defaults = {field.name: field.default for field in fields(GRPOConfig) if field.default is not MISSING}
    for key, paths in DECIDED.items():
        value = getattr(args, key)
        ours, theirs = _settings(objective, paths), _settings(described, paths)
        agrees = all(setting in (value, theirs.get(path)) for path, setting in ours.items()) if ours else not theirs
        if value == defaults[key] or agrees:
            continue
        says = " and ".join(f"{path} = {setting!r}" for path, setting in ours.items()) or "nothing of the kind"
        yield (
            f"{key} = {value!r} contradicts the objective {objective.name!r}, which says {says}: leave {key} out, or"
            " change the objective"
        )


def _settings(objective: Objective, paths: Sequence[str]) -> dict[str, Any]:
    """Returns the settings of an objective at these paths; `dual_clip` becomes `clip`, TRL's name for both."""
    found: dict[str, Any] = {}
    for path in paths:
        value: Any = objective
        for name in path.split("."):
            value = getattr(value, name, None)
        if value is not None:
            found[path] = "clip" if value == "dual_clip" else value
    return found


def _trust(args: GRPOConfig) -> dict[str, Any]:
    high = args.epsilon if args.epsilon_high is None else args.epsilon_high
    if args.loss_type == "cispo":
        return {"kind": "cispo", "maximum": float(high)}
    if args.loss_type in _TRUST_KEYS:
        keys = _TRUST_KEYS[args.loss_type]
        return {"kind": args.loss_type, **{name: float(getattr(args, key)) for name, key in keys.items()}}
    clip = {"low": float(args.epsilon), "high": float(high)}
    return {"kind": "clip", **clip} if args.delta is None else {"kind": "dual_clip", "bound": float(args.delta), **clip}


def _correction(args: GRPOConfig) -> dict[str, Any]:
    if not _corrects(args):
        return {"kind": "none"}
    mode = args.vllm_importance_sampling_mode
    low, high = args.vllm_importance_sampling_clip_min, args.vllm_importance_sampling_clip_max
    lower, upper = 0.0 if low is None else float(low), float("inf") if high is None else float(high)
    if mode == "token_mask":
        return {"kind": "interval", "lower": lower or _NO_LOWER_BOUND, "upper": upper}
    if mode == "sequence_mask":
        return {"kind": "mask", "weight": "product", "minimum": lower, "maximum": upper}
    level = "member" if mode == "sequence_truncate" else "decision"
    return {"kind": "truncate", "level": level, "minimum": lower, "maximum": upper}


def _credit(args: GRPOConfig) -> dict[str, Any]:
    credit: dict[str, Any] = {}
    if args.off_policy_mask_threshold is not None:
        credit["off_policy_mask"] = {"threshold": float(args.off_policy_mask_threshold)}
    if args.top_entropy_quantile < 1:
        credit["top_entropy"] = {"share": max(float(args.top_entropy_quantile), _LEAST_SHARE)}
    return credit


def _entropy(args: GRPOConfig) -> float | dict[str, Any]:
    if not args.use_adaptive_entropy:
        return float(args.entropy_coef)
    keys = {"initial": "coef", "target": "target", "delta": "coef_delta", "low": "coef_min", "high": "coef_max"}
    return {"kind": "threshold", **{name: float(getattr(args, f"entropy_{key}")) for name, key in keys.items()}}


def _corrects(args: GRPOConfig) -> bool:
    return bool(args.use_vllm and args.vllm_importance_sampling_correction)


def _unsupported(args: GRPOConfig) -> Iterator[str]:
    """Yields a sentence for every setting of this `GRPOConfig` that has no counterpart in the slots."""
    allowed = {
        "loss_type": _AGGREGATIONS,
        "importance_sampling_level": ("token", "sequence"),
        "scale_rewards": _ADVANTAGES,
    }
    for name, values in (allowed | ({"vllm_importance_sampling_mode": _MODES} if _corrects(args) else {})).items():
        if (value := getattr(args, name)) not in values:
            yield f"{name} = {value!r} is none of TRL's; write one of {', '.join(values)}"
    if args.loss_type == "vespo" and args.importance_sampling_level == "sequence":
        yield "loss_type = 'vespo' has its own sequence weight; write importance_sampling_level = 'token'"
    if args.delta is not None and args.delta < 1 + (args.epsilon if args.epsilon_high is None else args.epsilon_high):
        yield (
            f"delta = {args.delta} stands below 1 + epsilon_high and would cut good tokens inside the clip; write a"
            " delta above it"
        )
    if args.beta and args.use_bias_correction_kl and args.importance_sampling_level == "sequence":
        yield (
            "use_bias_correction_kl with importance_sampling_level = 'sequence' multiplies a token's KL by its answer's"
            " ratio, which has no counterpart; write use_bias_correction_kl = False, or pass objective="
        )
    if args.top_entropy_quantile < 1 and (args.use_adaptive_entropy or args.entropy_coef):
        yield (
            "top_entropy_quantile beside an entropy bonus gives the bonus to the chosen tokens alone in TRL, which has"
            " no counterpart: ours acts on every token; write entropy_coef = 0 and use_adaptive_entropy = False"
        )
    if _corrects(args) and args.loss_type == "vespo":
        yield (
            "loss_type = 'vespo' takes TRL's correction into its own weight, which has no counterpart; write"
            " vllm_importance_sampling_correction = False"
        )


# Every field of TRL's `GRPOConfig` that is not a key of ours: refused where it changes training, ignored where not.

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
"""Field -> values at which it changes nothing here, and what to write for any other value."""

_OPTIMISERS = ("adamw_torch", "adamw_torch_fused")
_SCHEDULES = ("linear", "cosine", "constant", "constant_with_warmup")

# fmt: off
MAPPED = frozenset({
    "sync_ref_model", "ref_model_sync_steps", "ref_model_mixup_alpha", "reward_weights", "generation_batch_size",
    "num_generations", "steps_per_generation", "gradient_accumulation_steps", "num_iterations", "max_completion_length",
    "temperature", "top_p", "top_k", "num_generations_eval", "disable_dropout", "chat_template_kwargs", "max_steps",
    "num_train_epochs", "per_device_train_batch_size", "learning_rate", "lr_scheduler_type", "warmup_steps", "optim",
    "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm", "bf16", "activation_checkpointing",
    "use_cpu", "full_determinism", "seed", "eval_strategy", "eval_steps", "save_strategy", "save_steps",
    "load_best_model_at_end", "save_total_limit", "report_to", "project", "gradient_checkpointing",
    "mask_truncated_completions",
})
# fmt: on
"""Fields that have a counterpart among the keys of the experiment; those of `DECIDED` have theirs in the objective."""

_SAYS_NOTHING = {"output_dir", "do_train", "do_eval", "do_predict", "accelerator_config", "disable_tqdm"}
_SAYS_NOTHING |= {"dataloader_pin_memory", "run_name"}
"""Fields that change nothing here, or that `GRPOConfig` fills in itself."""


def refused_fields(args: GRPOConfig, *, has_tools: bool = False) -> Iterator[str]:
    """Yields a sentence for every field that changes training and has no counterpart.

    Args:
        args: the arguments of TRL's trainer.
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
    """Yields name, value and default of every field that differs from its default and that nothing here reads."""
    for config_field in fields(args):
        name, value = config_field.name, getattr(args, config_field.name)
        if name in MAPPED or name in DECIDED or name in REFUSED or name in _SAYS_NOTHING:
            continue
        default = config_field.default if config_field.default is not MISSING else None
        if value != default and value not in (None, [], {}, ""):
            yield name, value, default


# Refusals of what an objective needs and TRL's trainer cannot give: raised before the first step, each with its
# reason and what to write.

SUPPLIES = frozenset({"log_prob", "entropy", "score_norm"})
"""Fields of `Scored` that TRL's fused head gives."""


def refusals(objective: Objective, args: GRPOConfig, own_sampler: bool) -> Iterator[str]:
    """Yields a sentence for every reason why this objective cannot run under these arguments of TRL.

    Args:
        objective: a valid objective.
        args: the arguments of TRL's trainer.
        own_sampler: true where a `rollout_func` samples in TRL's place.
    """
    yield from unmet_needs(objective, "TRL", SUPPLIES, frozenset({"behaviour_log_prob", "reference_log_prob"}))
    if objective.admission.resamples:
        yield (
            f"admission.kind = {objective.admission.kind!r} draws further prompts until the batch is full, and TRL's"
            " sampler draws a fixed number; write admission.kind = 'informative' (flat groups do not train, the batch"
            " is not filled up)"
        )
    recorded = args.use_vllm or own_sampler
    if objective.correction.kind != "none" and not recorded:
        yield (
            f"correction.kind = {objective.correction.kind!r} needs the log-probs of another sampler, and TRL samples"
            " here with the model itself; write correction.kind = 'none', use_vllm = True, or a rollout_func that"
            " returns logprobs"
        )
    if objective.trust.kind == "dppo" and not recorded and (cutting_settings := _cutting_settings(args)):
        yield (
            f"trust.kind = 'dppo' is anchored to what really sampled, and with {', '.join(cutting_settings)} TRL does"
            " not say what that was; sample from the whole distribution, or write use_vllm = True"
        )
    num_local_members = args.per_device_train_batch_size * int(args.steps_per_generation or 0)
    if objective.aggregation.kind == "prompt_mean" and num_local_members % int(args.num_generations or 1):
        yield (
            f"aggregation.kind = 'prompt_mean' needs whole groups on a process, and {num_local_members} members a"
            f" process are cut inside a group of {args.num_generations}; write per_device_train_batch_size *"
            " steps_per_generation as a multiple of num_generations"
        )


def passes(args: GRPOConfig) -> int:
    """Counts the micro-batches that a process trains on one generation, over all passes."""
    return int(args.steps_per_generation or 0) * args.num_iterations


def _cutting_settings(args: GRPOConfig) -> list[str]:
    """Lists the settings under which TRL's own sampler does not draw from the whole distribution."""
    plain = {"top_p": (1.0, None), "top_k": (0, None)}
    plain |= {key: REFUSED[key][0] for key in ("min_p", "repetition_penalty", "generation_kwargs")}
    return [f"{key} = {getattr(args, key)!r}" for key, values in plain.items() if getattr(args, key) not in values]


def remarks(objective: Objective, args: GRPOConfig) -> Iterator[str]:
    """Yields a sentence for every legal setting that is rarely intended, and names the key that wins."""
    aggregation = objective.aggregation
    if aggregation.kind == "fixed_length" and aggregation.length != args.max_completion_length:
        yield (
            f"aggregation.length = {aggregation.length} is the divisor, not max_completion_length ="
            f" {args.max_completion_length}; write 'aggregation.length': {args.max_completion_length} for TRL's"
        )
    if args.use_vllm and objective.correction.kind == "none" and objective.trust.kind != "dppo":
        yield (
            "the mismatch between vLLM and the model is not corrected; write the method with an overlay: +tis, +seq_mis"
            " (TRL's own default), +icepop, ..."
        )
    if args.sync_ref_model and not objective.needs_reference:
        yield (
            "sync_ref_model has no effect, because the objective has no reference; write a divergence, or"
            " sync_ref_model = False"
        )
