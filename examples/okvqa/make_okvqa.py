"""Makes files as OK-VQA publishes them, and two models for a run on pictures, where nothing can be downloaded.

    python make_okvqa.py okvqa
    groupwise train okvqa.toml

Pictures are scikit-learn's digits under COCO's names. A question names a person, who has a word of their own for each
digit; ten annotators answer with it, some wrongly. So only a solved question of the same person about the same digit
tells the answer. `clip/` is a CLIP of random weights; `llava/` is a LLaVA that is trained here to answer from such
demonstrations, with other words in every text.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional
from transformers import (
    CLIPConfig,
    CLIPImageProcessorPil,
    CLIPModel,
    CLIPTokenizer,
    CLIPVisionConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
)

from groupwise.causal_lm.small import character_tokenizer
from groupwise_selection.task_model.ticket_lm import shape_of
from groupwise_selection.task_model.trained import fit

PEOPLE = ("kim", "zoe", "ali", "bea")
ANSWERS = ("birch", "amber", "cedar", "delta", "ember", "flint", "grove", "heath", "islet", "jetty")
_SIZE, _TURNS, _KEYS = 8, 8, 3
_CHAT = (
    "{% for m in messages %}{% for part in m['content'] %}{{ '<image>' if part['type'] == 'image' else part['text'] }}"
    "{% endfor %}{% if m['role'] == 'assistant' %}{{ '\n' }}{% endif %}{% endfor %}"
)


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Returns scikit-learn's digits, `uint8` `[1797, 8, 8]`, and what they are."""
    from sklearn.datasets import load_digits

    found: Any = load_digits()
    return (found.images * 15.9).astype(np.uint8), found.target


def write_questions(folder: Path, subtype: str, places: range, seed: int) -> None:
    """Writes a split: one question about each of the digits at `places`."""
    images, kinds = digits()
    random = np.random.default_rng(seed)
    words = np.random.default_rng(0).integers(len(ANSWERS), size=(len(PEOPLE), 10))
    (folder / subtype).mkdir(parents=True, exist_ok=True)
    questions, annotations = [], []
    for place in places:
        Image.fromarray(images[place]).save(folder / subtype / f"COCO_{subtype}_{place:012d}.jpg", quality=95)
        person, ids = int(random.integers(len(PEOPLE))), {"image_id": place, "question_id": 10 * place}
        word, others = ANSWERS[words[person, kinds[place]]], random.integers(len(ANSWERS), size=10)
        wrong = random.random(10) < 0.1
        given = [ANSWERS[others[number]] if wrong[number] else word for number in range(10)]
        questions.append({**ids, "question": PEOPLE[person]})
        answers = [{"answer_id": number, "answer": text} for number, text in enumerate(given, 1)]
        annotations.append({**ids, "answer_type": "other", "question_type": "what", "answers": answers})
    head = {"info": {}, "license": {}, "data_type": "mscoco", "data_subtype": subtype}
    tree = {**head, "task_type": "Open-Ended", "questions": questions}
    (folder / f"OpenEnded_mscoco_{subtype}_questions.json").write_text(json.dumps(tree))
    (folder / f"mscoco_{subtype}_annotations.json").write_text(json.dumps({**head, "annotations": annotations}))


def write_llava(folder: Path, num_steps: int) -> None:
    """Trains the task model and writes its folder."""
    words = [*(f"{person}:" for person in PEOPLE), *(f" {answer}" for answer in ANSWERS)]
    tokenizer = character_tokenizer("abcdefghijklmnopqrstuvwxyz: \n", words=words, special=["<image>"])
    text = shape_of(tokenizer, 64)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision = CLIPVisionConfig(image_size=_SIZE, patch_size=_SIZE, **sizes)
    image_token = tokenizer.convert_tokens_to_ids("<image>")
    torch.manual_seed(0)
    model: Any = LlavaForConditionalGeneration(
        LlavaConfig(text_config=text, vision_config=vision, image_token_id=image_token, vision_feature_layer=-1)
    )
    processor = LlavaProcessor(
        _image_processor(),
        tokenizer,
        chat_template=_CHAT,
        patch_size=_SIZE,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    )
    images, kinds = digits()
    by_kind = [np.flatnonzero(kinds[:1000] == kind) for kind in range(10)]
    pixels = processor.image_processor([Image.fromarray(image) for image in images], return_tensors="pt")[
        "pixel_values"
    ]
    names = np.array([[image_token, ids] for ids in tokenizer.convert_tokens_to_ids([f"{p}:" for p in PEOPLE])])
    answers = np.array(tokenizer.convert_tokens_to_ids([f" {answer}" for answer in ANSWERS]))
    end, random = tokenizer.convert_tokens_to_ids("\n"), np.random.default_rng(0)

    # Pictures of a digit are alike for the model once it tells digits apart; a head that is not kept teaches that.
    head = torch.nn.Linear(64, 10)
    model.head_of_digits = head

    def loss(step: int) -> Tensor:
        shape = (32, _TURNS)
        person, kind = (random.integers(size, size=(32, _KEYS)) for size in (len(PEOPLE), 10))
        key = random.integers(_KEYS, size=shape)
        table = random.integers(len(ANSWERS), size=(32, len(PEOPLE), 10))
        person, kind = (np.take_along_axis(values, key, 1) for values in (person, kind))
        word = table[np.arange(32)[:, None], person, kind]
        columns = [names[person], answers[word][..., None], np.full((*shape, 1), end)]
        ids = torch.from_numpy(np.concatenate(columns, 2).reshape(32, -1))
        shown = torch.tensor([random.choice(by_kind[each]) for each in kind.flatten().tolist()])
        logits = model(input_ids=ids, pixel_values=pixels[shown], use_cache=False).logits
        seen = model.get_image_features(pixel_values=pixels[shown]).pooler_output
        told = functional.cross_entropy(head(torch.cat(list(seen))), torch.from_numpy(kind.flatten()))
        return functional.cross_entropy(logits[:, 1::4].flatten(0, 1), ids[:, 2::4].flatten()) + told

    fit(model, loss, num_steps=num_steps, learning_rate=3e-3, least=0.05, betas=(0.9, 0.98))
    del model.head_of_digits
    model.save_pretrained(folder)
    processor.save_pretrained(folder)


def _image_processor() -> Any:
    size = {"height": _SIZE, "width": _SIZE}
    return CLIPImageProcessorPil(size={"shortest_edge": _SIZE}, crop_size=size)


def write_clip(folder: Path) -> None:
    """Writes the embedder: a CLIP of random weights, which reads letters and pixels."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["<|startoftext|>", "<|endoftext|>", *letters, *(letter + "</w>" for letter in letters)]
    tokenizer = CLIPTokenizer(vocab={word: number for number, word in enumerate(words)}, merges=[], model_max_length=16)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 2}
    ids = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1, "vocab_size": len(words)}
    torch.manual_seed(0)
    model = CLIPModel(
        CLIPConfig(
            text_config={**sizes, **ids, "max_position_embeddings": 16},
            vision_config={**sizes, "image_size": _SIZE, "patch_size": 4},
            projection_dim=32,
        )
    )
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.2)  # with transformers' own, all pictures have nearly the same features
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    _image_processor().save_pretrained(folder)


def main() -> None:
    """Writes the folder."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where to write")
    parser.add_argument("--steps", type=int, default=600, help="training steps of the task model")
    arguments = parser.parse_args()
    write_questions(arguments.folder, "train2014", range(1000), 1)
    write_questions(arguments.folder, "val2014", range(1000, 1400), 2)
    write_clip(arguments.folder / "clip")
    write_llava(arguments.folder / "llava", arguments.steps)


if __name__ == "__main__":
    main()
