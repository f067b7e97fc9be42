"""An image file, read as pixels; what is no image of the expected kind is refused by name."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, final

from groupwise.config import ConfigError
from groupwise.config.files import check_file

if TYPE_CHECKING:
    import numpy as np
    from PIL.Image import Image


@final
class UnreadableImage(Exception):
    """A file that is damaged, missing, or no image.

    Args:
        path: of the file.
        error: of the decoder.

    Example:
        >>> str(UnreadableImage(Path("a.png"), OSError("cannot identify image file")))
        'OSError: cannot identify image file'
    """

    def __init__(self, path: Path, error: Exception) -> None:
        reason = str(error).replace(f" {str(path)!r}", "").rstrip(": ")
        super().__init__(f"{type(error).__name__}: {reason}")
        self.path = path


def read_image(path: Path, channels: int, key: str = "source", *, trained: bool = False) -> np.ndarray:
    """Reads uint8 `[C, H, W]`, turned as the EXIF data say.

    Args:
        path: of the file.
        channels: 3 reads colour, 1 grey.
        key: of the configuration that names the file, for errors.
        trained: whether a trained model has these channels, so that the file alone can be changed.

    Raises:
        UnreadableImage: it is damaged, missing, or no image.
        ConfigError: an image of another kind: more than 8 bits, transparent, several images, or other channels.

    Example:
        >>> import tempfile
        >>> from PIL import Image
        >>> file = Path(tempfile.mkdtemp()) / "a.png"
        >>> Image.new("L", (4, 2), 255).save(file)
        >>> read_image(file, 1).shape
        (1, 2, 4)
    """
    from PIL import Image, ImageOps

    try:
        check_file(path)
        with warnings.catch_warnings():
            # Pillow warns of large images; it refuses huge ones by itself, and sizes are compared by name.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            image = Image.open(path)
        with image:
            # Pillow reads a colour file of 16 bits as one of 8 without a warning.
            deep = image.mode.startswith("I") or image.mode == "F" or ";16" in str(image.tile)
            # A camera keeps a preview or a depth map behind the photograph (MPO).
            if getattr(image, "n_frames", 1) > 1 and image.format != "MPO":
                raise ConfigError(
                    f"{key}: {path} holds {image.n_frames} images ({image.format}); "  # type: ignore[attr-defined]
                    "store each as a file of its own"
                )
            return _pixels(path, ImageOps.exif_transpose(image), channels, deep, key, trained)
    except ConfigError:
        raise
    except Exception as error:
        # Pillow's decoders raise OSError, SyntaxError, DecompressionBombError and more for files that they cannot read.
        raise UnreadableImage(path, error) from error


def _named(channels: int) -> str:
    return "grey" if channels == 1 else "colour"


def _pixels(path: Path, image: Image, channels: int, deep: bool, key: str, trained: bool) -> np.ndarray:
    """Converts an opened image to uint8 `[C, H, W]`, and refuses an image of another kind than the source's."""
    import numpy as np

    if deep:
        raise ConfigError(
            f"{key}: {path} has more than 8 bits a channel ({image.mode}); store it with 8 bits, white at 255"
        )
    # A palette of greys can be either.
    grey = image.mode in ("L", "LA", "1")
    is_grey_palette = image.mode == "P" and all(
        r == g == b
        for _, (r, g, b) in image.convert("RGB").getcolors(maxcolors=256) or []  # type: ignore[misc]
    )
    if grey != (channels == 1) and not is_grey_palette:
        description = f"{path} is {_named(1 if grey else 3)} ({image.mode})"
        if trained:
            raise ConfigError(f"{key}: {description}, and the model restores {_named(channels)} images; convert it")
        raise ConfigError(
            f"{key}: {description}, and {key}.channels = {channels}; write channels = {1 if grey else 3}, or convert it"
        )
    if image.has_transparency_data and np.asarray(image.convert("RGBA"))[:, :, 3].min() < 255:
        raise ConfigError(
            f"{key}: {path} is transparent in places ({image.mode}), and a network restores {channels} channels; store"
            " it without transparency"
        )
    array = np.asarray(image.convert("L" if channels == 1 else "RGB"))
    return array[None] if channels == 1 else array.transpose(2, 0, 1)
