"""A causal LM taken apart at its head: the hidden states below it, and the weight, bias, scale and cap that turn them
into logits.

The scale and the cap of a model family are tried instead of trusted: the candidates that its configuration names are
compared once with the logits of the model itself, and a model that none of them reproduces is refused.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer
from transformers.models.llama.modeling_llama import LlamaModel
from transformers.models.qwen2.modeling_qwen2 import Qwen2Model
from transformers.models.qwen3.modeling_qwen3 import Qwen3Model

from groupwise.causal_lm.head import HeadShape, token_scores, token_scores_backward
from groupwise.config import ConfigError

if TYPE_CHECKING:
    from groupwise.causal_lm.sharded import ShardedLM


_SCALES = ("logits_scaling", "logit_scale", "lm_head_multiplier", "output_multiplier", "logits_mup_width_multiplier")
_CAPS = ("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap")
# Rotary tables that do not depend on the length of the sequence.
_FIXED_ROTATIONS = ("default", "linear", "llama3", "yarn")
_CAP_SHOWING_LOGIT = 100.0
"""Logits this large show any cap that a model family uses."""


def base_of(model: Any) -> Any:
    """Returns the model below an adapter of peft; the model itself where it has none."""
    return model.get_base_model() if hasattr(model, "peft_config") else model


@final
class Backbone:
    """The parts of a causal LM: ``body`` (ids to hidden states) and the head.

    Args:
        model: any causal LM of transformers, or one wrapped by peft (LoRA).

    Raises:
        ConfigError: an encoder-decoder, an encoder, prompt-learning adapters, an adapter on the head, or a head whose
            logits are not ``cap tanh(scale (W h + b) / cap)``.

    Example:
        >>> from groupwise.causal_lm.config import SmallModelConfig
        >>> from groupwise.causal_lm.small import character_tokenizer, small_model
        >>> backbone = Backbone(
        ...     small_model(SmallModelConfig(hidden_size=8, num_heads=2), character_tokenizer("ab"), seed=0)
        ... )
        >>> ids = torch.tensor([[3, 4, 3]])
        >>> torch.allclose(backbone.logits(backbone.hidden(ids)[0]), backbone.model(ids).logits[0], atol=1e-6)
        True
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        adapter = getattr(model, "active_peft_config", None)
        if adapter is not None and adapter.is_prompt_learning:
            raise ConfigError(
                f"{type(adapter).__name__} adds virtual tokens to the prompt, which shifts every position; train a LoRA"
                " adapter or the whole model"
            )
        inner = base_of(model)
        name = type(inner).__name__
        if getattr(inner.config, "is_encoder_decoder", False):
            raise ConfigError(
                f"{name} is an encoder-decoder; Groupwise trains decoder-only causal language models, such as"
                " Qwen/Qwen2.5-0.5B"
            )
        body = getattr(inner, inner.base_model_prefix, None) if getattr(inner, "base_model_prefix", "") else None
        # In a few families the body is not at the attribute that the family's own prefix names.
        body = body if body is not None else getattr(inner, "model", None)
        head = inner.get_output_embeddings() if hasattr(inner, "get_output_embeddings") else None
        if body is None or body is inner or head is None:
            raise ConfigError(
                f"{name} has no body and language-model head that can be told apart, so this family is not supported;"
                " train another model"
            )
        if type(head) is not nn.Linear:
            raise ConfigError(f"the head of {name} {_why_not_plain(head)}")
        if hasattr(model, "peft_config"):
            _check_embedding(inner, head)
        self.body: nn.Module = body
        if hasattr(body, "warn_if_padding_and_no_attention_mask"):
            # GPT-2 takes a sampled end token for padding, and looks for padding at every step.
            body.warn_if_padding_and_no_attention_mask = _no_warning
        self.head: nn.Linear = head
        self.config: Any = inner.config
        # The arguments of forward are read from the class, because peft and accelerate wrap the instance.
        parameters = inspect.signature(type(body).forward).parameters
        self._positions = "position_ids" in parameters
        self.max_positions: int | None = getattr(inner.config, "max_position_embeddings", None)
        """The longest sequence that the model has positions for; None where its configuration states none."""
        layers = DynamicCache(config=self.config).layers
        self.keeps_every_token = bool(layers) and all(type(layer) is DynamicLayer for layer in layers)
        """True where every layer is full attention: its cache keeps the keys and values of all tokens."""
        self.scale: float = 1.0
        self.softcap: float | None = None
        self._check_causal(name)
        self._find_shape()
        self.sharded = False
        """True where the weights are sharded, so that only whole layers can be called."""
        self.shards: ShardedLM | None = None
        """The sharded copy of this model that is trained in its place, where there is one."""
        self.packs: bool | None = None
        """True where the packed passes of `groupwise.causal_lm.scoring` give this model's own numbers; None before the
        first trial.
        """

    @property
    def device(self) -> torch.device:
        return self.head.weight.device

    @property
    def trained_on(self) -> torch.device:
        """The device on which this model is trained: that of its shards, where the whole may be elsewhere."""
        return self.device if self.shards is None else self.shards.backbone.device

    @property
    def takes_position_ids(self) -> bool:
        """The model takes the positions of tokens; otherwise it derives them from the attention mask."""
        return self._positions

    @property
    def plain_rotary(self) -> bool:
        """The model is of the family whose decode step and training pass are written out (`decode`, `fused_pass`): its
        class, fp32 weights as they were loaded, no adapter, no autocast, full attention, no hooks.
        """
        body: Any = self.body
        unwrapped = getattr(self.model, "model", None) is body
        if type(body) not in (LlamaModel, Qwen2Model, Qwen3Model) or not unwrapped:
            return False
        if torch.is_autocast_enabled(self.device.type) or body.embed_tokens.weight.dtype != torch.float32:
            return False
        rope = getattr(self.config, "rope_parameters", None) or {}
        first = body.layers[0]
        return (
            self.config.hidden_act == "silu"
            and rope.get("rope_type", "default") in _FIXED_ROTATIONS
            and rope.get("partial_rotary_factor", 1.0) == 1.0
            and self.keeps_every_token
            and all(type(module) is nn.Linear for module in (first.self_attn.q_proj, first.mlp.down_proj))
            and not any(module._forward_hooks or module._forward_pre_hooks for module in body.modules())
        )

    def hidden(self, input_ids: Tensor, **inputs: Any) -> Tensor:
        """Computes the hidden states before the head, ``[B, L, H]``. `inputs` as the body takes them; ``None`` and
        positions that the body does not take are left out.
        """
        return self.forward(input_ids, **inputs).last_hidden_state

    def forward(self, input_ids: Tensor, **inputs: Any) -> Any:
        if not self._positions:
            inputs.pop("position_ids", None)
        return self.body(
            input_ids=input_ids,
            return_dict=True,
            **{name: value for name, value in inputs.items() if value is not None},
        )

    @torch.no_grad()
    def logits(self, hidden: Tensor, temperature: float = 1.0, weight: Tensor | None = None) -> Tensor:
        """Computes the detached ``[N, V]`` logits of `hidden [N, H]` over the temperature, fp32 (fp64), for a few
        positions; `weight` may be the head's in another dtype.
        """
        dtype = torch.float64 if hidden.dtype == torch.float64 else torch.float32
        shape = HeadShape(temperature, self.softcap, self.scale)
        with torch.autocast(hidden.device.type, enabled=False):
            return shape.logits(hidden, self.head.weight if weight is None else weight, self.head.bias, dtype)

    def scores(self, hidden: Tensor, target: Tensor, requires: frozenset[str], temperature: float) -> dict[str, Tensor]:
        """Calls `groupwise.causal_lm.head.token_scores` with this model's head."""
        return token_scores(
            hidden,
            self.head.weight,
            target,
            requires,
            bias=self.head.bias,
            temperature=temperature,
            softcap=self.softcap,
            scale=self.scale,
        )

    def scores_backward(
        self,
        hidden: Tensor,
        target: Tensor,
        cotangents: dict[str, Tensor],
        requires: frozenset[str],
        temperature: float,
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Calls `groupwise.causal_lm.head.token_scores_backward` with this model's head."""
        return token_scores_backward(
            hidden,
            self.head.weight,
            target,
            cotangents,
            requires,
            bias=self.head.bias,
            temperature=temperature,
            softcap=self.softcap,
            scale=self.scale,
        )

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Switches to eval mode without gradient, and restores every module's own mode at the end. Weights do not
        change inside, so autocast casts them once, not at every token.
        """
        training = [module for module in self.model.modules() if module.training]
        if training:
            self.model.eval()
        kind = self.device.type
        is_cast, dtype = torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)
        # A weight that was cast before the block must not be used in it.
        torch.clear_autocast_cache()
        try:
            with torch.no_grad(), torch.autocast(kind, dtype=dtype, enabled=is_cast, cache_enabled=True):
                yield
        finally:
            # Autocast drops its cache only at its outermost end, when the weights may be another policy's.
            torch.clear_autocast_cache()
            for module in training:
                module.training = True

    @torch.no_grad()
    def _check_causal(self, name: str) -> None:
        """Refuses an encoder. The model is tried, because some families have encoders and decoders that differ in one
        setting only.
        """
        ids = torch.arange(min(8, self.config.vocab_size), device=self.device).unsqueeze(0)
        changed_ids = torch.cat([ids[:, :-1], torch.zeros_like(ids[:, -1:])], 1)
        with self.evaluating(), torch.autocast(self.device.type, enabled=False):
            states, changed_states = (self.hidden(tokens, use_cache=False)[0, :-1] for tokens in (ids, changed_ids))
        # A causal model gives equal states for both texts. The tolerance is for mixtures of experts: another last token
        # changes how many rows each expert multiplies, and so the rounding.
        tolerance = 2e-2 if states.dtype.itemsize < 4 else 1e-4
        if len(states) and bool((states - changed_states).abs().max() > tolerance * states.abs().max()):
            raise ConfigError(
                f"{name} is an encoder: what it says of a token depends on the tokens after it, so that no text can be"
                " sampled from it token by token; train a decoder-only causal language model, such as"
                " Qwen/Qwen2.5-0.5B"
            )

    def _find_shape(self) -> None:
        ids = torch.arange(min(8, self.config.vocab_size), device=self.device).unsqueeze(0)
        with self.evaluating(), torch.autocast(self.device.type, enabled=False):
            expected = self._model_logits(ids, 1.0)
            if not bool(expected.isfinite().all()):
                raise ConfigError(
                    f"{type(self.model).__name__} gives logits that are NaN or infinite: its weights are damaged, or"
                    " overflow; load other weights"
                )
            hidden = self.hidden(ids, use_cache=False)[0]
            # Small logits do not show a cap, so the head is also given hidden states that are long enough.
            factor = max(1.0, _CAP_SHOWING_LOGIT / max(expected.abs().max().item(), 1e-6))
            trials = [(hidden, expected), (hidden * factor, self._model_logits(ids, factor))]
            for scale, softcap in self._candidates():
                self.scale, self.softcap = scale, softcap
                if all(_near(self.logits(states), logits, hidden.dtype) for states, logits in trials):
                    return
        raise ConfigError(
            f"the logits of {type(self.model).__name__} are not those of its head's weight, with any scale or cap its"
            " configuration names; this model family is not supported (supported: linear heads, also with"
            f" {', '.join((*_CAPS, *_SCALES))})"
        )

    def _model_logits(self, ids: Tensor, factor: float) -> Tensor:
        """Computes the logits with the whole model, after the input of its head is multiplied by `factor`."""
        hook = self.head.register_forward_pre_hook(lambda module, inputs: (inputs[0] * factor,))
        try:
            logits = self.model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).logits[0]
        finally:
            hook.remove()
        return logits if logits.dtype == torch.float64 else logits.float()

    def _candidates(self) -> list[tuple[float, float | None]]:
        scales = [1.0]
        for name in _SCALES:
            value = getattr(self.config, name, None)
            if isinstance(value, int | float) and value not in (0, 1):
                scales += [float(value), 1 / float(value)]
        caps = [float(cap) for name in _CAPS if (cap := getattr(self.config, name, None))]
        return [(scale, softcap) for softcap in [*caps, None] for scale in scales]


def _near(logits: Tensor, expected: Tensor, dtype: torch.dtype) -> bool:
    tolerance = (2e-2 if dtype.itemsize < 4 else 1e-4) * max(expected.abs().max().item(), 1e-6)
    return (logits - expected).abs().max().item() <= tolerance


# LoRA layers without their bookkeeping, for sampling.
#
# At every call, a peft layer looks up which adapters are active, whether they are merged, and of which variant they
# are. For a token of a small batch this costs more than the arithmetic, most of all on a GPU, whose kernels end before
# the next one is started. The operations that remain are peft's own, in its order, and so give the same bits:
#
#     y = W x + (B A x) s


@contextmanager
def quick_adapters(model: nn.Module) -> Iterator[None]:
    """Makes every plain LoRA layer of a model compute its product without peft's bookkeeping within the block. Layers
    of any other kind, and those that are merged, switched off, hooked or in dropout when it begins, are left as they
    are.

    Args:
        model: a causal language model; one without an adapter is left as it is.

    Example:
        >>> with quick_adapters(nn.Linear(2, 2)):
        ...     pass
    """
    replaced: list[nn.Module] = []
    try:
        # If peft was never imported, the model has no layer of it.
        if hasattr(model, "peft_config") and "peft.tuners.lora.layer" in sys.modules:
            for layer in model.modules():
                product = _product(layer)
                if product is not None:
                    vars(layer)["forward"] = product
                    replaced.append(layer)
        yield
    finally:
        for layer in replaced:
            vars(layer).pop("forward", None)


def _product(layer: Any) -> Callable[[Tensor], Tensor] | None:
    """Returns a function for the product of a plain LoRA layer; None for any other module."""
    from peft.tuners.lora.layer import Linear

    if type(layer) is not Linear or "forward" in vars(layer) or layer.disable_adapters or layer.merged:
        return None
    names = [name for name in layer.active_adapters if name in layer.lora_A]
    if len(names) != 1 or names[0] in layer.lora_variant:
        return None
    parts: tuple[Any, Any, Any] = layer.base_layer, layer.lora_A[names[0]], layer.lora_B[names[0]]
    base, down, up = parts
    dropout, scaling = layer.lora_dropout[names[0]], layer.scaling[names[0]]
    if any(type(part) is not nn.Linear or _is_changed(part) for part in parts):
        return None
    if not (isinstance(dropout, nn.Identity) or (type(dropout) is nn.Dropout and not dropout.training)):
        return None
    if not getattr(layer, "cast_input_dtype_enabled", True):
        return None

    def product(x: Tensor) -> Tensor:
        # Weights are looked up at every call: a sharded layer has its weights only during its own pass.
        result = functional.linear(x, base.weight, base.bias)
        weight = down.weight
        low = functional.linear(x if x.dtype == weight.dtype else x.to(weight.dtype), weight, down.bias)
        return (result + functional.linear(low, up.weight, up.bias) * scaling).to(result.dtype)

    return product


def _is_changed(module: nn.Module) -> bool:
    """Returns whether a module does more than its class defines. For example, accelerate replaces the `forward` of a
    module to put weights in place.
    """
    return bool(module._forward_hooks or module._forward_pre_hooks) or "forward" in vars(module)


def _check_embedding(model: Any, head: nn.Linear) -> None:
    """Refuses an adapter on an embedding that is tied to the head: merging it would change the head too."""
    embedding = model.get_input_embeddings()
    if getattr(getattr(embedding, "base_layer", None), "weight", None) is head.weight:
        layer = next(name for name, module in model.named_modules() if module is embedding).rpartition(".")[2]
        raise ConfigError(
            f"the head of {type(model).__name__} shares the weight of its embedding, so that no saved weights hold an"
            f" adapter of the embedding alone; take {layer} out of target_modules"
        )


def _no_warning(*_: Any) -> None:
    """Replaces GPT-2's warning about padding without an attention mask, which is wrong here: padded positions are
    masked or never read.
    """


def _why_not_plain(head: nn.Module) -> str:
    """Returns a description of what replaces a plain linear head, and what to write."""
    name = type(head).__name__
    if name == "ModulesToSaveWrapper":
        return (
            "is trained as a whole beside the adapter: modules_to_save names it, or the embedding whose weights it"
            " shares (ensure_weight_tying); take both out of modules_to_save"
        )
    if name == "TrainableTokensWrapper":
        return "shares its weights with an embedding of trained tokens; leave trainable_token_indices out"
    if hasattr(head, "base_layer"):
        return "has an adapter on it; take lm_head out of target_modules"
    return f"is a {name}, not a plain linear layer; such a model cannot be trained here"


# The remark on a mixture of experts: its router learns from the objective alone.

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
