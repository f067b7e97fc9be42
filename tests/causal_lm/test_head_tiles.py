"""The head's tiles on a GPU: how they are chosen, what they launch and what they hold, on tensors without data."""

from __future__ import annotations

import contextlib
from collections import Counter
from unittest.mock import patch

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from groupwise.causal_lm import head
from groupwise.causal_lm.head_tiles import CPU_TILES, GPU_TILES, Tiles, choose_tiles, tiles_of
from groupwise.memory import peak_bytes

POSITIONS, WIDTH, VOCABULARY = 8192, 896, 151_936
WITHOUT_KERNELS = frozenset(
    ("view", "expand", "transpose", "t", "slice", "unsqueeze", "squeeze", "detach", "empty", "empty_like", "new_empty")
) | {"_unsafe_view", "as_strided", "alias"}


class Kernels(TorchDispatchMode):
    """Counts the operations that would start a kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = str(func.overloadpacket).removeprefix("aten.")
        if name not in WITHOUT_KERNELS:
            self.counts[name] += 1
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def said_to_be_a_gpu(tiles: Tiles):
    """Tensors without data take the branch of a GPU, with these tiles."""
    with (
        patch.object(head, "tiles_of", lambda device: tiles),
        patch.object(torch.Tensor, "is_cuda", property(lambda tensor: True)),
        patch.object(torch, "autocast", lambda *arguments, **named: contextlib.nullcontext()),
        torch.device("meta"),
    ):
        yield


def update(num: int) -> None:
    hidden = torch.zeros(num, WIDTH, dtype=torch.bfloat16)
    weight = torch.nn.Parameter(torch.zeros(VOCABULARY, WIDTH, dtype=torch.bfloat16))
    cotangents = {"log_prob": torch.zeros(num)}
    head.token_scores_backward(hidden, weight, torch.zeros(num, dtype=torch.long), cotangents)


def num_kernels(num: int, tiles: Tiles) -> int:
    with said_to_be_a_gpu(tiles), Kernels() as kernels:
        update(num)
    return kernels.counts.total()


def held(num: int, tiles: Tiles) -> int:
    with said_to_be_a_gpu(tiles):
        return peak_bytes(lambda: update(num), torch.device("cpu"))


def test_all_positions_start_fewer_kernels_than_one_small_chunk_did() -> None:
    chunk = CPU_TILES.memory_bytes // (4 * VOCABULARY)
    assert num_kernels(POSITIONS, GPU_TILES) < num_kernels(chunk, CPU_TILES)
    assert POSITIONS / chunk > 24, "of which there were as many"


def test_a_gpu_with_room_has_large_tiles_and_nothing_else_has() -> None:
    needed = 4 * GPU_TILES.memory_bytes
    assert choose_tiles("cuda", needed) is GPU_TILES
    assert choose_tiles("cuda", needed - 1) is CPU_TILES
    assert choose_tiles("cpu", 1e15) is CPU_TILES
    assert tiles_of(torch.device("cpu")) is CPU_TILES


def test_a_pass_of_few_members_holds_what_a_large_one_holds_of_them() -> None:
    """Else a measured pass of a few members would tell too much of each further one."""
    one, four, all_of_them = (held(num, GPU_TILES) for num in (256, 1024, 4096))
    # Beside the tiles: hidden states in bf16, their gradient in fp32 and bf16, and numbers a position.
    assert (four - one) / 768 < 12 * WIDTH
    assert (all_of_them - one) / 3840 < 12 * WIDTH
    # The weight in bf16, its gradient in fp32 and in bf16.
    assert one - VOCABULARY * WIDTH * (2 + 4 + 2) < 1.4 * 2**30


@pytest.mark.parametrize("tiles", [Tiles(7, 50, 4 * 23 * 8), Tiles(7, 50, 4 * 23 * 8, whole=True)])
def test_values_do_not_depend_on_the_tiles(tiles: Tiles, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    hidden, weight = (torch.randn(num, 5, generator=generator, dtype=torch.float64) for num in (3, 23))
    target, cotangents = torch.tensor([0, 22, 7]), {"entropy": torch.ones(3, dtype=torch.float64)}

    def found() -> list[Tensor]:
        own = weight.clone().requires_grad_()
        scores, grad_hidden = head.token_scores_backward(hidden, own, target, cotangents, head.FIELDS)
        other = weight.clone().requires_grad_()
        head.token_scores(hidden, other, target, ("entropy",))["entropy"].sum().backward()
        assert own.grad is not None
        assert other.grad is not None
        return [*scores.values(), grad_hidden, own.grad, other.grad]

    expected = found()
    monkeypatch.setattr(head, "tiles_of", lambda device: tiles)
    for there, right in zip(found(), expected, strict=True):
        torch.testing.assert_close(there, right, rtol=1e-12, atol=1e-12)
