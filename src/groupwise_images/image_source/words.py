"""Words of three to six letters, drawn in real fonts on patterned paper. Nothing is downloaded: the fonts are inside
matplotlib, unless others are named, the words are next to this file.
"""

from functools import cache, lru_cache
from pathlib import Path
from typing import Annotated, Literal, final

import numpy as np
from pydantic import Field

from groupwise.config import Config, ConfigError
from groupwise.config.errors import Seed
from groupwise.config.files import check_file
from groupwise_images.image_source.base import Picture, Pictures

HEIGHT, WIDTH = 16, 64
"""Size of a picture, pixels."""
FONTS = (
    "DejaVuSans",
    "DejaVuSans-Bold",
    "DejaVuSans-Oblique",
    "DejaVuSansMono",
    "DejaVuSerif",
    "DejaVuSerif-Bold",
    "DejaVuSerif-Italic",
    "STIXGeneral",
    "STIXGeneralBol",
    "cmr10",
    "cmss10",
    "cmtt10",
)
"""Files of matplotlib's folder of fonts."""
_LETTERS = 12
_FEWEST_HELD_OUT = 8


@final
class Words(Config):
    """Pictures of 16 x 64 pixels, one grey channel: a black word in one of twelve fonts, or of yours, on paper with a
    cloudy pattern.

    The first `num_train` words of a fixed shuffle are trained on, each in `copies` fonts and papers; the last
    `num_held_out` words are held out, so that the network never saw a held-out word. A picture's column `text` is its
    word.

    Args:
        num_train: words trained on.
        num_held_out: words held out, one picture each.
        copies: pictures of a word trained on.
        fonts: font files (TrueType or OpenType) in place of the twelve, each with all letters a to z.
        paper: darkness of the pattern where it is darkest, 0 (white paper) to 1 (black).
        seed: the seed of the shuffle, the fonts and the papers. It is not the run's seed.

    Example:
        >>> pictures = Words(num_train=4, num_held_out=8).read()
        >>> len(pictures.train), pictures.train[0].clean.shape, sorted(pictures.train[0].columns)
        (8, (1, 16, 64), ['text'])
    """

    kind: Literal["words"] = "words"
    num_train: Annotated[int, Field(ge=1, le=600)] = 600
    num_held_out: Annotated[int, Field(ge=_FEWEST_HELD_OUT, le=200)] = 200
    copies: Annotated[int, Field(ge=1, le=16)] = 2
    fonts: tuple[str, ...] = ()
    paper: Annotated[float, Field(ge=0, le=1)] = 0.6
    seed: Seed = 0

    @property
    def channels(self) -> int:
        """1, grey."""
        return 1

    def read(self, key: str = "source") -> Pictures:
        """Draws all pictures.

        Args:
            key: the key of the configuration that holds this source, for errors.

        Raises:
            ConfigError: a file of `fonts` that is missing, is not a font or lacks a letter.
        """
        for font in self.fonts:
            _check_font(font, f"{key}.fonts: {font!r}")
        words = np.random.default_rng(self.seed).permutation(np.array(word_list())).tolist()
        train = words[: self.num_train]
        held_out = words[len(words) - self.num_held_out :]
        return Pictures(
            [self._picture(word, copy) for copy in range(self.copies) for word in train],
            [self._picture(word, 0) for word in held_out],
        )

    def _picture(self, word: str, copy: int) -> Picture:
        random = np.random.default_rng([self.seed, copy, *word.encode()])
        fonts = self.fonts or FONTS
        ink = draw(word, fonts[int(random.integers(len(fonts)))])
        return Picture(f"{word}-{copy}", (ink * self._paper(random))[None].astype("float32"), columns={"text": word})

    def _paper(self, random: np.random.Generator) -> np.ndarray:
        """Draws smooth clouds between white and `1 - paper`, `[H, W]`; their size differs from picture to picture."""
        from scipy.ndimage import gaussian_filter

        margin = 8
        noise = random.standard_normal((HEIGHT + 2 * margin, WIDTH + 2 * margin))
        clouds = gaussian_filter(noise, random.uniform(1.0, 2.0))[margin:-margin, margin:-margin]
        clouds = (clouds - clouds.min()) / (clouds.max() - clouds.min())
        return 1 - self.paper * random.uniform(0.6, 1.0) * clouds


@lru_cache(maxsize=1)
def word_list() -> tuple[str, ...]:
    """Reads the words, in alphabetical order.

    Example:
        >>> len(word_list()), {len(word) for word in word_list()} == {3, 4, 5, 6}
        (809, True)
    """
    return tuple((Path(__file__).parent / "words.txt").read_text(encoding="utf-8").split())


def draw(word: str, font: str) -> np.ndarray:
    """Draws a word in black on white, in the middle of the picture, in letters as large as fit, fp32 `[H, W]` in
    [0, 1].

    Args:
        word: text to draw.
        font: one of `FONTS`, or a font file.
    """
    from PIL import Image, ImageDraw

    face, (left, top, right, bottom) = _fitted(word, font)
    image = Image.new("L", (WIDTH, HEIGHT), 255)
    place = ((WIDTH - (right - left)) // 2 - left, (HEIGHT - (bottom - top)) // 2 - top)
    ImageDraw.Draw(image).text(place, word, font=face, fill=0)
    return np.asarray(image).astype("float32") / 255


def _fitted(word: str, font: str):  # type: ignore[no-untyped-def]
    """Returns the font in the largest size in which the word fits, and the word's box."""
    face = _face(font, 6)
    for size in range(_LETTERS, 6, -1):
        face = _face(font, size)
        left, top, right, bottom = face.getbbox(word)
        if right - left <= WIDTH - 4 and bottom - top <= HEIGHT - 2:
            break
    return face, tuple(int(side) for side in face.getbbox(word))


@cache
def _face(font: str, size: int):  # type: ignore[no-untyped-def]
    import matplotlib
    from PIL import ImageFont

    file = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{font}.ttf" if font in FONTS else Path(font)
    return ImageFont.truetype(str(file), size)


def _check_font(font: str, place: str) -> None:
    """Refuses a font file that cannot draw every word: a letter that it lacks would be drawn as an empty box."""
    from matplotlib.ft2font import FT2Font
    from PIL import ImageFont

    if not Path(font).is_file():
        raise ConfigError(f"{place}: no such file; write the path of a .ttf or .otf file")
    try:
        check_file(Path(font))
        ImageFont.truetype(font, _LETTERS)
        charmap = FT2Font(font).get_charmap()
    except (OSError, RuntimeError) as error:
        raise ConfigError(
            f"{place} cannot be read as a font ({error}); write the path of a .ttf or .otf file"
        ) from error
    letters = sorted(set("".join(word_list())))
    lacking = [letter for letter in letters if ord(letter) not in charmap]
    if lacking:
        word = next(word for word in word_list() if set(word) & set(lacking))
        raise ConfigError(
            f"{place} has no {', '.join(lacking)}, and {word!r} could not be drawn; write a font with the letters"
            f" {letters[0]} to {letters[-1]}"
        )
