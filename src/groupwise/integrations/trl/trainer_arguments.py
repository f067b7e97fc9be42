"""The arguments of TRL's `GRPOTrainer` beside its `GRPOConfig`: those that mean something here, and what to write for
the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from groupwise.config import ConfigError

_ELSEWHERE = {
    "model": "write it as the first argument of groupwise.train",
    "processing_class": "it belongs to the model: groupwise.train((model, processing_class), ...), or a folder",
    "reward_processing_classes": (
        "a reward model reads with the tokenizer of its folder: groupwise.reward.RewardModel(path=FOLDER)"
    ),
    "callbacks": "write functions of (step, metrics) as callbacks of groupwise.train",
    "optimizers": "write optimiser.kind = 'callable' with its path, and the schedule as optimiser.learning_rate",
    "quantization_config": "weights are trained as they are stored: leave it out, and write domain.model.dtype",
    "rollout_func": "write a conversation as domain.environment, or a server that samples as domain.engine",
    "environment_factory": "write the class's path as domain.environment = {kind = 'callable', path = ...}",
}
"""Argument -> what to write where it has no counterpart."""

_SAME = {"r", "lora_alpha", "lora_dropout", "target_modules"}
_SAYS_NOTHING = {"task_type", "peft_type", "peft_version", "auto_mapping", "base_model_name_or_path", "revision"}


def refused_arguments(others: Mapping[str, Any]) -> Iterator[str]:
    """Yields a sentence for every argument of the trainer that has no counterpart.

    Args:
        others: argument -> its value, those that `from_trl` does not name itself.

    Example:
        >>> list(refused_arguments({"callbacks": [print], "optimizers": (None, None)}))
        ['callbacks has no counterpart: write functions of (step, metrics) as callbacks of groupwise.train']
    """
    for name, value in others.items():
        if name not in _ELSEWHERE:
            known = "reward_funcs, train_dataset, eval_dataset, peft_config, tools"
            yield f"{name} is no argument of GRPOTrainer; those that are read here are {known}"
        elif not (value is None or (isinstance(value, Sequence) and all(part is None for part in value))):
            yield f"{name} has no counterpart: {_ELSEWHERE[name]}"


def adapter(peft_config: Any) -> dict[str, Any]:
    """Returns `domain.model.lora` of a `LoraConfig` of peft.

    Raises:
        ConfigError: it is another one, or has fields that change the adapter and have no counterpart.

    Example:
        >>> from peft import LoraConfig
        >>> adapter(LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"]))["target_modules"]
        ('q_proj', 'v_proj')
    """
    if not is_dataclass(peft_config) or type(peft_config).__name__ != "LoraConfig":
        raise ConfigError(
            f"from_trl: peft_config is of type {type(peft_config).__name__}; allowed: a peft.LoraConfig, which becomes"
            " domain.model.lora"
        )
    config: Any = peft_config
    changed = sorted(
        entry.name
        for entry in fields(config)
        if entry.name not in _SAME | _SAYS_NOTHING and not _is_default(entry, getattr(config, entry.name))
    )
    if changed:
        raise ConfigError(
            f"from_trl: peft_config.{changed[0]} = {getattr(config, changed[0])!r:.60} has no counterpart; leave it at"
            " its default (domain.model.lora has r, alpha, dropout and target_modules)"
        )
    targets = config.target_modules
    if targets is None or (isinstance(targets, str) and targets != "all-linear"):
        raise ConfigError(
            f"from_trl: peft_config.target_modules = {targets!r}; write the names of the layers, for example"
            ' ["q_proj", "v_proj"], or "all-linear"'
        )
    return {
        "r": config.r,
        "alpha": float(config.lora_alpha),
        "dropout": float(config.lora_dropout),
        "target_modules": targets if isinstance(targets, str) else tuple(sorted(targets)),
    }


def _is_default(entry: Any, value: Any) -> bool:
    if entry.default is not MISSING:
        return value == entry.default
    return entry.default_factory is MISSING or value == entry.default_factory()


def tool_turns(tools: Any, max_tool_calling_iterations: int | None) -> tuple[dict[str, Any], str]:
    """Returns the key for TRL's limit on rounds of tool calls, and a sentence on what differs; both empty without
    tools.

    Args:
        tools: as TRL takes them.
        max_tool_calling_iterations: of `GRPOConfig`; None there knows no limit.

    Example:
        >>> tool_turns([len], 3)
        ({'domain.environment.max_turns': 4}, '')
    """
    if not tools:
        return {}, ""
    if max_tool_calling_iterations is None:
        return {}, "a conversation with tools has at most 8 turns (domain.environment.max_turns); TRL's has no limit"
    # The answer to the last results is a turn too.
    return {"domain.environment.max_turns": max_tool_calling_iterations + 1}, ""
