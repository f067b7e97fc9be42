"""Shell completion of experiments, methods and keys of an experiment. Reads files, and loads no model
library.
"""

from glob import glob

from groupwise.config import ConfigError, flatten
from groupwise.experiment.catalogue import find, shipped


def experiments(incomplete: str) -> list[str]:
    """Lists the shipped experiments and the files that begin as the word does.

    Args:
        incomplete: the word before the cursor.

    Example:
        >>> experiments("language_kn")
        ['language_knights']
    """

    names = [name for name in shipped() if name.startswith(incomplete)]
    return names + sorted(glob(f"{incomplete}*.toml")) + sorted(glob(f"{incomplete}*/"))


def methods(incomplete: str) -> list[str]:
    """Lists the methods that begin as the word does; after a `+`, the overlays.

    Args:
        incomplete: the word before the cursor.

    Example:
        >>> methods("dual"), methods("dapo+ice")
        (['dual_clip'], ['dapo+icepop'])
    """
    from groupwise.objective.preset import method_names, overlay_names

    method, plus, overlay = incomplete.rpartition("+")
    if not plus:
        return [name for name in method_names() if name.startswith(incomplete)]
    return [f"{method}+{name}" for name in overlay_names() if name.startswith(overlay)]


def changes(words: list[str], incomplete: str) -> list[str]:
    """Lists the keys that begin as the word does, and the methods after `method=`.

    Args:
        words: the words before, the experiment among them.
        incomplete: the word before the cursor.

    Example:
        >>> changes(["language"], "train.gro")
        ['train.group_size=']
        >>> changes(["language"], "method=dual")
        ['method=dual_clip']
        >>> changes(["language", "method", "="], "dual")
        ['dual_clip']
    """

    key, equals, value = incomplete.partition("=")
    # bash splits words at the equals sign and completes only the part after it.
    if [word for word in words if word != "="][-1:] == ["method"]:
        return methods(incomplete)
    if equals:
        return [f"method={name}" for name in methods(value)] if key == "method" else []
    keys = {"method", "seed", "train.num_steps", "train.group_size", "train.prompts_per_step"}
    for word in words:
        try:
            keys |= set(flatten(find(word).tree))
        except ConfigError:
            continue  # an option, or a word that names no experiment
    keys = {name for name in keys if "[" not in name and name not in ("name", "description")}
    return sorted(f"{name}=" for name in keys if name.startswith(incomplete))
