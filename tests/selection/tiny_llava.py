"""A LLaVA of random weights, saved as a folder: 8 by 8 pictures in patches of 4, so four tokens a picture."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import (
    CLIPImageProcessorPil,
    CLIPVisionConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    Qwen3Config,
)

from groupwise.causal_lm.small import character_tokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789QA:?+ \n"
WORDS = ("red", "blue", "green")
CHAT = (
    "{% for m in messages %}<|{{ m['role'] }}|>{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for part"
    " in m['content'] %}{{ '<image>' if part['type'] == 'image' else part['text'] }}{% endfor %}{% endif %}<|end|>{%"
    " endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
ROLES = ("<|system|>", "<|user|>", "<|assistant|>")


def build_llava(folder: Path, max_positions: int = 160) -> Path:
    """Writes the folder and returns it."""
    tokenizer = character_tokenizer(LETTERS, words=[f" {word}" for word in WORDS], special=["<image>", *ROLES])
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    text = Qwen3Config(
        vocab_size=len(tokenizer),
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=max_positions,
        eos_token_id=1,
        pad_token_id=0,
        **sizes,
    )
    vision = CLIPVisionConfig(image_size=8, patch_size=4, **sizes)
    torch.manual_seed(0)
    config = LlavaConfig(
        text_config=text, vision_config=vision, image_token_id=tokenizer.convert_tokens_to_ids("<image>")
    )
    model = LlavaForConditionalGeneration(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(8)
    model.save_pretrained(folder)
    images = CLIPImageProcessorPil(size={"shortest_edge": 8}, crop_size={"height": 8, "width": 8})
    tokens = {"patch_size": 4, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1}
    LlavaProcessor(images, tokenizer, chat_template=CHAT, **tokens).save_pretrained(folder)
    return folder
