from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from groupwise.config import ConfigError, validate
from groupwise_images.image_source import Folder
from groupwise_images.image_source.base import as_float


def write(folder: Path, name: str, size: tuple[int, int] = (8, 6), mode: str = "RGB", value: int = 0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    shape = (size[1], size[0], 3) if mode == "RGB" else (size[1], size[0])
    Image.fromarray(np.full(shape, value, "uint8")).save(folder / name)
    return folder / name


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    for number in (1, 2, 9, 10):
        write(tmp_path / "clean", f"image{number}.png", value=10 * number)
        write(tmp_path / "degraded", f"image{number}.jpg", value=10 * number)
    return tmp_path


def source(path: Path, **changes: object) -> Folder:
    return Folder.model_validate(
        {"clean": str(path / "clean"), "degraded": str(path / "degraded"), "num_held_out": 1, **changes}
    )


def test_pairs_in_natural_order(pairs: Path) -> None:
    found = source(pairs).read()
    assert [picture.key for picture in found.train] == ["image1", "image2", "image10"] or len(found.train) == 3
    everything = sorted([*found.train, *found.held_out], key=lambda each: int(each.key.removeprefix("image")))
    assert [each.key for each in everything] == ["image1", "image2", "image9", "image10"]
    assert everything[2].clean.shape == (3, 6, 8)
    # As the file holds them: a quarter of the memory of what the network is given.
    assert everything[2].clean.dtype == np.uint8
    assert as_float(everything[2].clean)[0, 0, 0] == np.float32(90 / 255)
    assert everything[2].degraded is not None


def test_pairs_are_found_by_the_form_of_their_names(tmp_path: Path) -> None:
    for number in range(1, 5):
        write(tmp_path / "clean", f"{number:04}_gt.png", size=(8, 6), value=number)
        write(tmp_path / "clean", f"{number:04}x2.jpg", size=(4, 3), value=number)
    write(tmp_path / "clean", "0009x4.png")
    forms = {"degraded": str(tmp_path / "clean"), "clean_name": "{name}_gt", "degraded_name": "{name}x2", "scale": 2}
    found = source(tmp_path, **forms).read()
    pictures = [*found.train, *found.held_out]
    assert sorted(picture.key for picture in pictures) == ["0001", "0002", "0003", "0004"]
    for picture in pictures:
        assert picture.degraded is not None
        assert (picture.clean.max(), picture.degraded.max()) == (int(picture.key), int(picture.key))
    assert any("source.degraded_name = '{name}x2': 5" in remark for remark in found.remarks)
    (tmp_path / "clean" / "0003x2.jpg").unlink()
    with pytest.raises(ConfigError, match=r"'0003' is in .* and has no partner"):
        source(tmp_path, **forms).read()
    with pytest.raises(ConfigError, match=r"degraded_name = '\{name\}_low': no file is named so; '0001_gt' is there"):
        source(tmp_path, **{**forms, "degraded_name": "{name}_low"}).read()
    for name in ("x4", "{name}{name}", "a/{name}", "{name}_{n}"):
        with pytest.raises(ConfigError, match="degraded_name"):
            validate(Folder, {**forms, "clean": "c", "degraded_name": name}, "test")


def test_every_problem_names_its_file(pairs: Path) -> None:
    with pytest.raises(ConfigError, match="no such folder"):
        source(pairs / "nowhere").read()
    (pairs / "empty" / "clean").mkdir(parents=True)
    with pytest.raises(ConfigError, match="no image in it"):
        source(pairs / "empty").read()
    write(pairs / "empty" / "clean" / "inside", "image1.png")
    with pytest.raises(
        ConfigError, match=r"no image in it.*what lies there: 1 \(inside/\), and folders inside it are not searched"
    ):
        source(pairs / "empty").read()
    (pairs / "file").touch()
    with pytest.raises(ConfigError, match=r"source.clean = '.*file': it is a file and no folder"):
        source(pairs, clean=str(pairs / "file")).read()
    (pairs / "link").symlink_to(pairs / "clean")
    with pytest.raises(ConfigError, match=r"source.degraded = '.*link' is the folder of the clean images"):
        source(pairs, degraded=str(pairs / "link")).read()
    extra = write(pairs / "degraded", "image11.png")
    with pytest.raises(ConfigError, match=r"'image11' is in .*degraded and has no partner"):
        source(pairs).read()
    extra.unlink()
    write(pairs / "degraded", "image2.jpg", size=(4, 4))
    with pytest.raises(ConfigError, match=r"image2.jpg and .*image2.png are a pair of sizes \[4, 4\] and \[6, 8\]"):
        source(pairs).read()
    write(pairs / "degraded", "image2.jpg", mode="L")
    with pytest.raises(ConfigError, match=r"image2.jpg is grey \(L\), and source.channels = 3; write channels = 1"):
        source(pairs).read()
    write(pairs / "clean", "image1.bmp")
    with pytest.raises(ConfigError, match="have the same name"):
        source(pairs).read()
    (pairs / "clean" / "image1.bmp").unlink()
    write(pairs / "degraded", "image2.jpg")
    with pytest.raises(
        ConfigError,
        match=r"that can be read: 4, and 4 are to be held out; give at least 5, or a smaller source.num_held_out",
    ):
        source(pairs, num_held_out=4).read()


def broken_png(path: Path) -> None:
    """A chunk whose name is no name: Pillow raises a SyntaxError."""
    whole = bytearray(path.read_bytes())
    place = whole.index(b"IDAT")
    whole[place : place + 4] = b"-\x10\xd1\n"
    path.write_bytes(whole)


def test_whatever_a_decoder_raises_the_file_is_left_out_and_it_is_the_broken_one_of_a_pair_that_is_named(
    pairs: Path,
) -> None:
    write(pairs / "degraded", "image1.png")
    (pairs / "degraded" / "image1.jpg").unlink()
    broken_png(pairs / "degraded" / "image1.png")
    (pairs / "clean" / "image2.png").unlink()
    (pairs / "clean" / "image2.png").symlink_to(pairs / "nowhere.png")
    (remark,) = source(pairs).read().remarks
    assert remark.startswith(
        "data: images left out because they cannot be read: 2 (degraded/image1.png, clean/image2.png); the first: "
    )
    broken_png(pairs / "clean" / "image9.png")
    with pytest.raises(
        ConfigError,
        match=(r"can be read: 1, and 1 are to be held out; give at least 2, .*: 3 \(.*clean/image9.png\)"),
    ):
        source(pairs).read()


def test_names_of_any_kind(tmp_path: Path) -> None:
    for name in ("a b.png", "e\u0301.PNG", "\u56fe 1.jpeg", "1\u00b23.png", "x.y.png"):
        write(tmp_path / "clean", name)
    for name in ("a b.jpg", "\u00e9.png", "\u56fe 1.png", "1\u00b23.png", "x.y.webp", "._a b.png"):
        (
            write(tmp_path / "degraded", name)
            if not name.startswith(".")
            else (tmp_path / "degraded" / name).write_bytes(b"no image")
        )
    found = source(tmp_path).read()
    assert {picture.key for picture in [*found.train, *found.held_out]} == {
        "a b",
        "\u00e9",
        "\u56fe 1",
        "1\u00b23",
        "x.y",
    }
    assert not found.remarks


def test_kinds_of_pixels(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    colour = Image.fromarray(random.integers(0, 256, (5, 7, 3), dtype="uint8"))
    grey = colour.convert("L")
    folder = tmp_path / "clean"
    folder.mkdir()

    def read(image: Image.Image, channels: int, suffix: str = "png") -> np.ndarray:
        for name in ("a", "b"):
            image.save(folder / f"{name}.{suffix}")
        try:
            return Folder(clean=str(folder), num_held_out=1, channels=channels).read().train[0].clean  # type: ignore[arg-type]
        finally:
            for path in folder.iterdir():
                path.unlink()

    assert read(colour.quantize(8), 3).shape == (3, 5, 7)
    assert np.array_equal(read(grey.convert("P"), 1), read(grey, 1))
    assert read(grey.convert("P"), 3).shape == (3, 5, 7)
    with pytest.raises(ConfigError, match=r"a.png is colour \(P\), and source.channels = 1; write channels = 3"):
        read(colour.quantize(8), 1)
    assert read(colour.convert("CMYK"), 3, "jpg").shape == (3, 5, 7)
    # Opaque throughout is as good as none.
    assert np.array_equal(read(colour.convert("RGBA"), 3), read(colour, 3))
    assert np.array_equal(read(grey.convert("LA"), 1), read(grey, 1))
    clear = colour.convert("RGBA")
    clear.putpixel((0, 0), (1, 2, 3, 0))
    with pytest.raises(ConfigError, match=r"a.png is transparent in places \(RGBA\)"):
        read(clear, 3)
    with pytest.raises(ConfigError, match=r"a.png has more than 8 bits a channel \(I;16\)"):
        read(Image.fromarray(random.integers(0, 65536, (5, 7)).astype("uint16")), 1)


def test_several_images_in_a_file_are_no_one_image(tmp_path: Path) -> None:
    write(tmp_path / "clean", "a.png")
    pages = [Image.new("RGB", (8, 6), (value, 0, 0)) for value in (1, 2)]
    pages[0].save(tmp_path / "clean" / "b.tiff", save_all=True, append_images=pages[1:])
    with pytest.raises(ConfigError, match=r"b.tiff holds 2 images \(TIFF\); store each as a file of its own"):
        Folder(clean=str(tmp_path / "clean"), num_held_out=1).read()
    (tmp_path / "clean" / "b.tiff").unlink()
    pages[0].save(tmp_path / "clean" / "b.jpg", format="MPO", save_all=True, append_images=pages[1:])
    assert len(Folder(clean=str(tmp_path / "clean"), num_held_out=1).read().train) == 1


def test_sixteen_bits_of_colour_are_not_cut_to_eight(tmp_path: Path) -> None:
    """Pillow would do it silently; the file is written by hand because Pillow cannot."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 2, 2, 16, 2, 0, 0, 0))
    rows = zlib.compress(b"".join(b"\0" + bytes(range(12)) for _ in range(2)))
    (tmp_path / "clean").mkdir()
    (tmp_path / "clean" / "deep.png").write_bytes(
        b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    )
    with pytest.raises(ConfigError, match=r"deep.png has more than 8 bits a channel \(RGB\); store it with 8 bits"):
        Folder(clean=str(tmp_path / "clean"), num_held_out=1).read()


def test_a_turned_photograph_is_turned(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    (tmp_path / "clean").mkdir()
    for name in ("a", "b"):
        Image.new("RGB", (9, 4)).save(tmp_path / "clean" / f"{name}.jpg", exif=exif)
    assert Folder(clean=str(tmp_path / "clean"), num_held_out=1).read().train[0].clean.shape == (3, 9, 4)
