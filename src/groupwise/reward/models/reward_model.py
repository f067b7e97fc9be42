"""A reward model: a sequence classifier that reads prompt and completion."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, final

from pydantic import Field

from groupwise.config.errors import Count, PerStep, Positive
from groupwise.reward.base import Noted, Reward, RewardError, RewardFunction, Value
from groupwise.reward.completions import Text, completion_text, content_text, prompt_text


@final
class RewardModel(Reward):
    """The output of an `AutoModelForSequenceClassification` for prompt and completion, without gradient.

    Chats are written with the tokenizer's chat template where it has one; otherwise the completion follows the prompt
    directly. A text longer than the model reads loses its beginning, and is counted as `truncated`.

    Example:
        >>> RewardModel(path="models/judge", weight=0.5).batch_size
        8
    """

    kind: Literal["reward_model"] = "reward_model"
    path: str
    """A local folder of transformers with safetensors weights and a tokenizer, or a hub id."""
    batch_size: PerStep = 8
    """Texts in one forward pass."""
    label: Count = 0
    """Index of the output that is the reward; reward models have one output."""
    output: Literal["logit", "probability"] = "logit"
    """The raw output, or its softmax over the labels (sigmoid where there is one)."""
    max_length: Positive | None = None
    """Tokens read at most; where absent, what the model can read."""
    device: str = "auto"
    """A torch device, or `auto`: the accelerator where there is one."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Type of the weights; `auto` keeps the type of the folder. The reward is read in float32."""
    timeout_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = 600.0

    def open(self) -> RewardFunction:
        import torch
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        try:
            tokenizer: Any = AutoTokenizer.from_pretrained(self.path, trust_remote_code=False)
            model: Any = AutoModelForSequenceClassification.from_pretrained(
                self.path, dtype=self.dtype, use_safetensors=True, trust_remote_code=False
            )
        except (OSError, ValueError, ImportError) as error:
            advice = "write a folder with config.json, model.safetensors and a tokenizer"
            raise RewardError(f"reward_model cannot be loaded from path = {self.path!r}: {error}; {advice}") from error
        if self.label >= model.config.num_labels:
            raise RewardError(
                f"reward_model at {self.path!r} has {model.config.num_labels} outputs; label = {self.label} must be"
                " below that"
            )
        device = self.device
        if device == "auto":
            device = str(torch.accelerator.current_accelerator()) if torch.accelerator.is_available() else "cpu"
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        # The classifier reads the last token that is not padding, and must know which that is.
        model.config.pad_token_id = (
            tokenizer.pad_token_id if model.config.pad_token_id is None else model.config.pad_token_id
        )
        tokenizer.padding_side, tokenizer.truncation_side = "right", "left"
        return LoadedRewardModel(self, model.to(device).eval().requires_grad_(False), tokenizer)

    def __call__(self, prompts: Sequence[Text], completions: Sequence[Text], **columns: Sequence[Any]) -> Any:
        return self.open()(prompts, completions, **columns)


@final
@dataclass(frozen=True)
class LoadedRewardModel:
    """A reward model in memory."""

    config: RewardModel
    model: Any
    tokenizer: Any

    def __call__(self, prompts: Sequence[Text], completions: Sequence[Text], **columns: Sequence[Any]) -> list[Value]:
        ids = [self._ids(prompt, completion) for prompt, completion in zip(prompts, completions, strict=True)]
        limit = self._limit()
        scores: list[Value] = [None] * len(ids)
        # Texts of like length share a forward pass, so that little is padded.
        order = sorted(range(len(ids)), key=lambda member: len(ids[member]))
        for start in range(0, len(order), self.config.batch_size):
            members = order[start : start + self.config.batch_size]
            for member, score in zip(members, self._forward([ids[member][-limit:] for member in members]), strict=True):
                scores[member] = (
                    score
                    if len(ids[member]) <= limit
                    else Noted(score, "truncated", f"{len(ids[member])} tokens, {limit} read")
                )
        return scores

    def _forward(self, rows: list[list[int]]) -> list[float]:
        import torch

        batch = self.tokenizer.pad({"input_ids": rows}, return_tensors="pt").to(self.model.device)
        with torch.inference_mode():
            logits = self.model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits.float()
        # The sigmoid of infinity is an ordinary probability.
        if not bool(logits.isfinite().all()):
            raise RewardError(f"reward_model at {self.config.path!r} gives NaN or infinity; are its weights whole?")
        if self.config.output == "probability":
            logits = logits.sigmoid() if logits.shape[-1] == 1 else logits.softmax(-1)
        return logits[:, self.config.label].tolist()

    def _limit(self) -> int:
        limits = [
            self.config.max_length,
            getattr(self.model.config, "max_position_embeddings", None),
            self.tokenizer.model_max_length,
        ]
        return min(int(limit) for limit in limits if limit)

    def _ids(self, prompt: Text, completion: Text) -> list[int]:
        text = self._text(prompt, completion)
        ids = list(self.tokenizer(text, add_special_tokens=not self._chat(prompt))["input_ids"])
        # The tokenizer puts the token of the beginning before a text that already begins with it.
        is_doubled = self.tokenizer.bos_token_id is not None and ids[:2] == [self.tokenizer.bos_token_id] * 2
        return ids[1:] if is_doubled else ids

    def _chat(self, prompt: Text) -> bool:
        return not isinstance(prompt, str) and bool(self.tokenizer.chat_template)

    def _text(self, prompt: Text, completion: Text) -> str:
        if not self._chat(prompt):
            return prompt_text(prompt) + completion_text(completion)
        completion_messages = (
            [{"role": "assistant", "content": completion}] if isinstance(completion, str) else completion
        )
        messages = [
            {"role": message.get("role", "assistant"), "content": content_text(message.get("content"))}
            for message in [*prompt, *completion_messages]
        ]
        return self.tokenizer.apply_chat_template(messages, tokenize=False)
