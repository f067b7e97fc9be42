"""TRL's keys and the objective: the translation of a `GRPOConfig` into our slots, and their contradictions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from typing import Any

from trl.trainer.grpo_config import GRPOConfig

from groupwise.config import validate
from groupwise.objective import Objective

DECIDED = {
    "loss_type": "trust.kind and aggregation.kind",
    "importance_sampling_level": "ratio.kind",
    "epsilon": "trust.low",
    "epsilon_high": "trust.high",
    "delta": "trust.bound",
    "sapo_temperature_pos": "trust.tau_pos",
    "sapo_temperature_neg": "trust.tau_neg",
    "vespo_k_pos": "trust.k_pos",
    "vespo_lambda_pos": "trust.lambda_pos",
    "vespo_k_neg": "trust.k_neg",
    "vespo_lambda_neg": "trust.lambda_neg",
    "scale_rewards": "advantage.kind",
    "multi_objective_aggregation": "advantage.kind",
    "beta": "divergence.beta",
    "use_bias_correction_kl": "divergence.kind",
    "entropy_coef": "entropy",
    "use_adaptive_entropy": "entropy",
    "entropy_coef_min": "entropy",
    "entropy_coef_max": "entropy",
    "entropy_coef_delta": "entropy",
    "entropy_target": "entropy",
    "top_entropy_quantile": "credit.top_entropy",
    "off_policy_mask_threshold": "credit.off_policy_mask.threshold",
    "vllm_importance_sampling_correction": "correction.kind",
    "vllm_importance_sampling_mode": "correction.kind",
    "vllm_importance_sampling_clip_max": "correction.maximum",
    "vllm_importance_sampling_clip_min": "correction.minimum, or correction.lower of an interval",
    "vllm_importance_sampling_cap": "correction.maximum",
}
"""TRL's keys that the objective decides, each with the key of ours that does it. Every other key of `GRPOConfig` keeps
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
_TRUST_LOSS_TYPES = ("cispo", "sapo", "vespo")
_ADVANTAGES = {"group": "z_score", "batch": "batch_std", "none": "centred"}
_CLIP = {"epsilon": "low", "epsilon_high": "high"}
_TRUST = {
    "clip": _CLIP,
    "dual_clip": {**_CLIP, "delta": "bound"},
    "cispo": {"epsilon_high": "maximum"},
    "sapo": {"sapo_temperature_pos": "tau_pos", "sapo_temperature_neg": "tau_neg"},
    "vespo": {f"vespo_{name}": name for name in ("k_pos", "lambda_pos", "k_neg", "lambda_neg")},
}
"""TRL's keys of the settings of each trust region."""
_ADAPTIVE_ENTROPY = {
    "entropy_coef": "initial",
    "entropy_coef_min": "low",
    "entropy_coef_max": "high",
    "entropy_coef_delta": "delta",
    "entropy_target": "target",
}
_MODES = ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask")
_NO_LOWER_BOUND = 1e-30
_LEAST_SHARE = 1e-12  # TRL writes 0 for the one token of the highest entropy


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
    agreeing_values = _agreeing_values(objective)
    defaults = {field.name: field.default for field in fields(GRPOConfig) if field.default is not MISSING}
    for key, our_key in DECIDED.items():
        value, agreeing = getattr(args, key), agreeing_values.get(key, ())
        if value == defaults[key] or value in agreeing:
            continue
        statement = f"which says {' or '.join(map(repr, agreeing))}" if agreeing else "where nothing corresponds"
        yield (
            f"{key} = {value!r} contradicts the objective {objective.name!r}, {statement}; {our_key} decides: leave"
            f" {key} out, or change the objective"
        )


def _agreeing_values(objective: Objective) -> dict[str, tuple[Any, ...]]:
    """Returns for each of TRL's keys the values that agree with an objective."""
    # The kind decides which fields a slot has.
    correction: Any = objective.correction
    divergence: Any = objective.divergence
    agreeing: dict[str, tuple[Any, ...]] = {
        "loss_type": tuple(
            name
            for name, kind in _AGGREGATIONS.items()
            if kind == objective.aggregation.kind and _fits(name, objective)
        ),
        "importance_sampling_level": (
            {"geometric": ("sequence",), "token": ("token",), "product": ("token",)}.get(objective.ratio.kind, ())
        ),
        "scale_rewards": tuple(name for name, kind in _ADVANTAGES.items() if kind == objective.advantage.kind),
        "multi_objective_aggregation": (
            ("normalize_then_sum",) if objective.advantage.kind == "per_reward" else ("sum_then_normalize",)
        ),
        "use_bias_correction_kl": (divergence.kind == "k3_unbiased",),
        "vllm_importance_sampling_correction": (correction.kind != "none",),
    }
    if (
        divergence.kind in ("k3", "k3_unbiased")
        and divergence.beta.kind == "constant"
        and (divergence.against, divergence.place) == ("reference", "loss")
    ):
        agreeing["beta"] = (divergence.beta.value,)
    if objective.entropy.kind == "constant":
        agreeing["entropy_coef"] = (objective.entropy.at(0),)
    if objective.entropy.kind == "threshold":
        agreeing |= {"use_adaptive_entropy": (True,), **_values(objective.entropy, _ADAPTIVE_ENTROPY)}
    if objective.credit.off_policy_mask is not None:
        agreeing["off_policy_mask_threshold"] = (objective.credit.off_policy_mask.threshold,)
    if objective.credit.top_entropy is not None:
        agreeing["top_entropy_quantile"] = (objective.credit.top_entropy.share,)
    return agreeing | _values(objective.trust, _TRUST.get(objective.trust.kind, {})) | _correction_values(correction)


def _values(slot: Any, names: Mapping[str, str]) -> dict[str, tuple[Any, ...]]:
    return {key: (getattr(slot, name),) for key, name in names.items()}


def _correction_values(correction: Any) -> dict[str, tuple[Any, ...]]:
    """Returns for each of TRL's keys of a correction the values that agree with ours."""
    if correction.kind == "truncate":
        mode = {"decision": "token_truncate", "member": "sequence_truncate"}[correction.level]
        return {"vllm_importance_sampling_mode": (mode,), **_bounds(correction.minimum, correction.maximum)}
    if correction.kind == "mask" and (correction.by, correction.weight, correction.truncate) == (
        "product",
        "product",
        None,
    ):
        bounds = _bounds(correction.minimum, correction.maximum)
        return {"vllm_importance_sampling_mode": ("sequence_mask",), **bounds}
    if correction.kind == "interval":
        return {
            "vllm_importance_sampling_mode": ("token_mask",),
            "vllm_importance_sampling_clip_max": (correction.upper,),
            "vllm_importance_sampling_clip_min": (correction.lower,),
        }
    return {}


def _bounds(low: float, high: float) -> dict[str, tuple[Any, ...]]:
    """Returns TRL's keys for the bounds of a weight; TRL writes `None` for a lower bound of 0."""
    return {
        "vllm_importance_sampling_clip_min": (low, None) if low == 0 else (low,),
        "vllm_importance_sampling_clip_max": (high,),
    }


def _fits(loss_type: str, objective: Objective) -> bool:
    """Tests whether the trust region is that of TRL's loss type."""
    return (
        objective.trust.kind == loss_type
        if loss_type in _TRUST_LOSS_TYPES
        else objective.trust.kind in ("clip", "dual_clip")
    )


def _trust(args: GRPOConfig) -> dict[str, Any]:
    high = args.epsilon if args.epsilon_high is None else args.epsilon_high
    if args.loss_type == "cispo":
        return {"kind": "cispo", "maximum": float(high)}
    if args.loss_type == "sapo":
        return {
            "kind": "sapo",
            "tau_pos": float(args.sapo_temperature_pos),
            "tau_neg": float(args.sapo_temperature_neg),
        }
    if args.loss_type == "vespo":
        return {
            "kind": "vespo",
            **{name: float(getattr(args, f"vespo_{name}")) for name in ("k_pos", "lambda_pos", "k_neg", "lambda_neg")},
        }
    clip = {"low": float(args.epsilon), "high": float(high)}
    return {"kind": "clip", **clip} if args.delta is None else {"kind": "dual_clip", "bound": float(args.delta), **clip}


def _correction(args: GRPOConfig) -> dict[str, Any]:
    if not _corrects(args):
        return {"kind": "none"}
    mode, low, high = (
        args.vllm_importance_sampling_mode,
        args.vllm_importance_sampling_clip_min,
        args.vllm_importance_sampling_clip_max,
    )
    lower, upper = 0.0 if low is None else float(low), float("inf") if high is None else float(high)
    if mode == "token_mask":
        return {"kind": "interval", "lower": lower or _NO_LOWER_BOUND, "upper": upper}
    if mode == "sequence_mask":
        return {"kind": "mask", "weight": "product", "minimum": lower, "maximum": upper}
    return {
        "kind": "truncate",
        "level": "member" if mode == "sequence_truncate" else "decision",
        "minimum": lower,
        "maximum": upper,
    }


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
    return {
        "kind": "threshold",
        "initial": float(args.entropy_coef),
        "target": float(args.entropy_target),
        "delta": float(args.entropy_coef_delta),
        "low": float(args.entropy_coef_min),
        "high": float(args.entropy_coef_max),
    }


def _corrects(args: GRPOConfig) -> bool:
    return bool(args.use_vllm and args.vllm_importance_sampling_correction)


def _unsupported(args: GRPOConfig) -> Iterator[str]:
    """Yields a sentence for every setting of this `GRPOConfig` that has no counterpart in the slots."""
    if args.loss_type not in _AGGREGATIONS:
        yield f"loss_type = {args.loss_type!r} is none of TRL's; write one of {', '.join(_AGGREGATIONS)}"
    if args.importance_sampling_level not in ("token", "sequence"):
        yield (
            f"importance_sampling_level = {args.importance_sampling_level!r} is none of TRL's; write 'token' or"
            " 'sequence'"
        )
    if args.scale_rewards not in _ADVANTAGES:
        yield f"scale_rewards = {args.scale_rewards!r} is none of TRL's; write one of {', '.join(_ADVANTAGES)}"
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
    if _corrects(args) and args.vllm_importance_sampling_mode not in _MODES:
        yield (
            f"vllm_importance_sampling_mode = {args.vllm_importance_sampling_mode!r} is none of TRL's; write one of"
            f" {', '.join(_MODES)}"
        )
    if _corrects(args) and args.loss_type == "vespo":
        yield (
            "loss_type = 'vespo' takes TRL's correction into its own weight, which has no counterpart; write"
            " vllm_importance_sampling_correction = False"
        )
