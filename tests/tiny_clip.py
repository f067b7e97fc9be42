"""A CLIP of random weights with a tokenizer and an image processor, as folders hold it: small enough to be made in a
test.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import CLIPConfig, CLIPImageProcessorPil, CLIPModel, CLIPTokenizer

ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
IMAGE_SIZE, WIDTH = 8, 12


def clip_tokenizer(max_length: int = 16) -> Any:
    """A CLIP tokenizer in which every letter is a token, and every letter at a word's end another."""
    words = ["<|startoftext|>", "<|endoftext|>", *ALPHABET, *(letter + "</w>" for letter in ALPHABET)]
    return CLIPTokenizer(
        vocab={word: number for number, word in enumerate(words)}, merges=[], model_max_length=max_length
    )


def build_clip(folder: Path, projection: int = 6) -> CLIPModel:
    """Writes the folder and returns the model."""
    tokenizer = clip_tokenizer()
    sizes = {
        "hidden_size": WIDTH,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "initializer_range": 0.5,
    }
    text = {
        **sizes,
        "vocab_size": len(tokenizer),
        "max_position_embeddings": 16,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": 1,
    }
    vision = {**sizes, "image_size": IMAGE_SIZE, "patch_size": 4}
    torch.manual_seed(0)
    model = CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=projection)).eval()
    with torch.no_grad():
        # Fresh weights give every image nearly the same features.
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.5)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    size = {"height": IMAGE_SIZE, "width": IMAGE_SIZE}
    CLIPImageProcessorPil(size={"shortest_edge": IMAGE_SIZE}, crop_size=size).save_pretrained(folder)
    return model
