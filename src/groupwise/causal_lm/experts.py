"""The remark on a mixture of experts: its router learns from the objective alone."""

from __future__ import annotations

from typing import Any

_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")


def router_remark(config: Any) -> str:
    """Writes a sentence on the loss that other trainers add for the router; empty for a model without experts.

    The loss that balances the experts' load is of the whole batch's shares, not a sum over tokens, so that it would
    depend on how a batch is cut into passes.

    Args:
        config: the model's, as transformers has it.

    Example:
        >>> from transformers import Qwen3Config, Qwen3MoeConfig
        >>> router_remark(Qwen3Config()), router_remark(Qwen3MoeConfig(num_experts=8, num_experts_per_tok=2))[:55]
        ('', 'model: a mixture of 8 experts, whose router learns from')
    """
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    counts = [count for name in _EXPERTS if isinstance(count := getattr(text, name, None), int) and count > 1]
    if not counts:
        return ""
    coefficient = getattr(text, "router_aux_loss_coef", None)
    coefficient_note = (
        f" (router_aux_loss_coef = {coefficient:g} in its config.json has no effect)"
        if isinstance(coefficient, int | float) and coefficient
        else ""
    )
    return (
        f"model: a mixture of {counts[0]} experts, whose router learns from the objective alone: no loss that balances"
        f" the experts' load is added{coefficient_note}; for one train with TRL's trainer and this objective, or leave"
        " the routers as they are with LoRA on the attention's layers (domain.model.lora)"
    )
