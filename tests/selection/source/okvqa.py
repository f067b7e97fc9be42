"""Files as OK-VQA and VQAv2 have them: two questions a picture, ten answers each, pictures named as COCO's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image


def write(folder: Path, num_questions: int = 12, subtype: str = "train2014", first: int = 0) -> dict[str, str]:
    """Writes a split and returns its keys of `source`."""
    (folder / subtype).mkdir(parents=True)
    questions, annotations = [], []
    for number in range(first, first + num_questions):
        image_id, question_id = number // 2 + 7, 10 * number + 5
        pixels = np.random.default_rng(image_id).integers(0, 255, (40, 52, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / subtype / f"COCO_{subtype}_{image_id:012d}.jpg")
        questions.append({"image_id": image_id, "question": f"what is number {number}?", "question_id": question_id})
        words = ["blue"] * 4 + ["red"] * 6 if number % 3 else ["blue"] * 5 + ["red"] * 5
        answers = [
            {"answer_id": 10 - place, "answer": word, "answer_confidence": "yes"} for place, word in enumerate(words)
        ]
        annotations.append(
            {"image_id": image_id, "question_id": question_id, "answer_type": "other", "answers": answers}
        )
    head = {"info": {}, "license": {}, "data_type": "mscoco", "data_subtype": subtype}
    for name, rows in (("questions", questions), ("annotations", annotations)):
        (folder / f"{subtype}_{name}.json").write_text(json.dumps({**head, name: rows}))
    paths = {name: str(folder / f"{subtype}_{name}.json") for name in ("questions", "annotations")}
    return {**paths, "images": str(folder / subtype)}


def changed(path: str, *keys: Any, value: Any) -> None:
    """Changes one value of a JSON file; `None` takes it out."""
    tree = inner = json.loads(Path(path).read_text())
    for key in keys[:-1]:
        inner = inner[key]
    if value is None:
        del inner[keys[-1]]
    else:
        inner[keys[-1]] = value
    Path(path).write_text(json.dumps(tree))
