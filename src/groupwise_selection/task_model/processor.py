"""The processor of an image-text model, also of one whose processor reads videos with torchvision, which is not
installed: only pictures are shown here.
"""

from __future__ import annotations

from typing import Any

from transformers import PROCESSOR_MAPPING, AutoConfig, AutoImageProcessor, AutoProcessor, AutoTokenizer

from groupwise.config import ConfigError
from groupwise.extras import torchvision_command

_VIDEOS = "video_processor"


def open_processor(path: str, revision: str) -> Any:
    """Loads the processor of a folder or hub id.

    Raises:
        ConfigError: it needs torchvision for pictures too.
    """
    arguments = {"revision": revision, "trust_remote_code": False}
    try:
        return AutoProcessor.from_pretrained(path, **arguments)
    except (ImportError, ValueError, RuntimeError) as error:
        if "torchvision" not in str(error).lower():
            raise
    try:
        return _without_videos(path, arguments)
    except (ImportError, ValueError, RuntimeError, TypeError, AttributeError, KeyError) as error:
        raise ConfigError(
            f"task_model.path = {path!r}: its processor needs torchvision, of a build that fits torch; write"
            f" {torchvision_command()}, or use a model with a LLaVA-type processor"
        ) from error


def _without_videos(path: str, arguments: dict[str, Any]) -> Any:
    whole: Any = PROCESSOR_MAPPING[type(AutoConfig.from_pretrained(path, **arguments))]

    def check(self: Any, part: str, value: Any) -> Any:
        return None if part == _VIDEOS else whole.check_argument_for_proper_class(self, part, value)

    parts = {"tokenizer": AutoTokenizer, "image_processor": AutoImageProcessor, _VIDEOS: None}
    loaded = [
        None if (loader := parts[part]) is None else loader.from_pretrained(path, **arguments)
        for part in whole.get_attributes()
    ]
    settings, _ = whole.get_processor_dict(path, **arguments)
    # The class inherits the signature, from which transformers takes the order of the parts.
    pictures_only: Any = type(whole.__name__, (whole,), {"check_argument_for_proper_class": check})
    return pictures_only.from_args_and_dict(loaded, settings)
