"""A column that some rows lack is None for these, in every domain that reads rows, and reaches the rewards of all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image
from tests.images.diffusion.small_pairs import PAIRS

from groupwise.config import merge, validate
from groupwise.streams import Streams
from groupwise_images.diffusion.config import DiffusionConfig
from groupwise_images.diffusion.domain import DiffusionDomain

GIVEN: list[list[Any]] = []


def hinted(completions: Sequence[Any], hint: Sequence[Any]) -> list[float]:
    """Keeps the column as it was given."""
    GIVEN.append(list(hint))
    return [0.0] * len(completions)


def hints(given: DiffusionDomain, indices: Sequence[int]) -> list[list[Any]]:
    """Returns what the reward was given of two images of each prompt."""
    GIVEN.clear()
    requires = frozenset({"log_prob"})
    given.reward(given.sample(given.prompts(indices), 2, streams=Streams(0), step=0, settings={}, requires=requires))
    return GIVEN


HINTED = {"bright": None, "hinted": {"kind": "callable", "path": "tests.domain.test_filled_columns:hinted"}}


def test_a_reward_of_images_of_a_table_gets_the_column_of_the_other_rows(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = []
    for number in range(4):
        for name, level in (("degraded", 40), ("target", 60)):
            Image.new("L", (8, 8), level + number).save(tmp_path / f"{name}{number}.png")
        rows.append({"image": f"degraded{number}.png", "target": f"target{number}.png"})
    # The first row that is trained on lacks the columns, and so does the one that is held out.
    rows[3] |= {"hint": "bright", "text": "seven"}
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    images = {"kind": "table", "path": str(tmp_path / "pairs.jsonl"), "channels": 1, "num_held_out": 1}
    changes = {"data": {"source": {"kind": "image_pairs", "images": images}}, "rewards": {"hinted": HINTED["hinted"]}}
    table = merge({**PAIRS, "data": {}, "rewards": {}}, changes)
    given = DiffusionDomain(validate(DiffusionConfig, table), streams=Streams(0))
    assert hints(given, [0, 2]) == [[None, None, "bright", "bright"]]
    evaluated = given.evaluate(streams=Streams(0))
    assert GIVEN[1:] == [[None]]
    assert "images" in evaluated.pictures
