"""Named random streams: every draw is keyed by (seed, name, ids), so that a resumed run needs only its counters."""

import hashlib
import random
from typing import Any

import numpy as np
import torch

_SEED_BITS = 63


class Streams:
    """Stateless random streams of one run.

    `seed(name, *key) = blake2b(run seed, name, key)`, so that a draw depends on its purpose and never on earlier draws.

    Args:
        seed: the seed of the run, any integer.

    Example:
        >>> streams = Streams(0)
        >>> streams.seed("sample", 3, "prompt-7") == Streams(0).seed("sample", 3, "prompt-7")
        True
        >>> streams.seed("sample", 3) == streams.seed("sample", 4)
        False
    """

    def __init__(self, seed: int) -> None:
        self.run_seed = int(seed)

    def seed(self, name: str, *key: int | str) -> int:
        """Returns a 63-bit seed for one purpose. Keys of different types differ: `1` is not `"1"`."""
        text = "\x1f".join([repr(self.run_seed), name, *(repr(part) for part in key)])
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> (64 - _SEED_BITS)

    def generator(self, name: str, *key: int | str, device: str | torch.device = "cpu") -> torch.Generator:
        """Returns a fresh torch generator for one purpose."""
        return torch.Generator(device=device).manual_seed(self.seed(name, *key))

    def numpy(self, name: str, *key: int | str) -> np.random.Generator:
        """Returns a fresh numpy generator for one purpose."""
        return np.random.default_rng(self.seed(name, *key))


def seed_everything(seed: int) -> None:
    """Seeds the global generators (python, numpy, torch, every CUDA device), which only dropout and third-party code
    should use.
    """
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def capture() -> dict[str, Any]:
    """Returns the state of the global generators as JSON-able values, for a checkpoint."""
    version, internal, gauss = random.getstate()
    numpy_state = np.random.get_state(legacy=True)
    assert isinstance(numpy_state, tuple)
    name, keys, position, has_gauss, cached = numpy_state
    return {
        "python": [version, list(internal), gauss],
        "numpy": [name, keys.tolist(), position, has_gauss, cached],
        "torch": torch.get_rng_state().tolist(),
        # Only the device of this process: asking another device would take some hundred megabytes of its memory.
        "cuda": [torch.cuda.get_rng_state().tolist()] if torch.cuda.is_initialized() else [],
    }


def restore(captured: dict[str, Any]) -> None:
    """Puts the global generators back to a captured state, apart from a CUDA state where no CUDA device exists."""
    version, internal, gauss = captured["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, position, has_gauss, cached = captured["numpy"]
    np.random.set_state((name, np.asarray(keys, dtype=np.uint32), position, has_gauss, cached))
    torch.set_rng_state(torch.tensor(captured["torch"], dtype=torch.uint8))
    if captured["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state(torch.tensor(captured["cuda"][0], dtype=torch.uint8))
