from __future__ import annotations

import base64
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from groupwise_look.report.pictures import Pictures


def save(path: Path, size: int, seed: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (size, size, 3), dtype=np.uint8)).save(path)
    return path


def open_address(address: str) -> Image.Image:
    head, _, content = address.partition(",")
    assert head in ("data:image/png;base64", "data:image/webp;base64")
    return Image.open(io.BytesIO(base64.b64decode(content)))


def test_a_small_picture_stays_as_it_is_and_a_large_one_is_made_smaller(tmp_path: Path) -> None:
    small, large = save(tmp_path / "a.png", 8), save(tmp_path / "b.png", 400)
    pictures = Pictures(10**6)
    assert [pictures.add(tmp_path, path.name) for path in (small, large)] == [0, 1]
    assert np.array_equal(np.asarray(open_address(pictures.addresses[0])), np.asarray(Image.open(small)))
    assert open_address(pictures.addresses[1]).size == (160, 160)


def test_equal_pictures_are_held_once(tmp_path: Path) -> None:
    save(tmp_path / "a.png", 8), save(tmp_path / "b.png", 8), save(tmp_path / "c.png", 8, seed=1)
    pictures = Pictures(10**6)
    assert [pictures.add(tmp_path, f"{name}.png") for name in "abc"] == [0, 0, 1]


def test_the_budget_is_kept_and_what_is_left_out_counted(tmp_path: Path) -> None:
    for number in range(5):
        save(tmp_path / f"{number}.png", 32, seed=number)
    pictures = Pictures(10_000)
    picture_numbers = [pictures.add(tmp_path, f"{number}.png") for number in range(5)]
    assert picture_numbers == [0, 1, None, None, None]
    assert sum(map(len, pictures.addresses)) <= 10_000
    assert pictures.num_left_out == 3


@pytest.mark.parametrize(
    "place",
    [
        "../secret.png",
        "/etc/passwd",
        "none.png",
        "http://example.org/a.png",
        "a\0b.png",
        "broken.png",
        "",
        "x" * 5000 + ".png",
    ],
)
def test_nothing_outside_the_run_is_read_and_nothing_broken_stops_it(tmp_path: Path, place: str) -> None:
    save(tmp_path / "secret.png", 8)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\nrest")
    pictures = Pictures(10**6)
    assert pictures.add(tmp_path / "run", place) is None
    assert (pictures.addresses, pictures.num_unreadable) == ([], 1)
