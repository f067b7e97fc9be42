"""The head without its logits, and the tiles in which it computes."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from itertools import combinations
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from groupwise.causal_lm import head
from groupwise.causal_lm.head import FIELDS, token_scores, token_scores_backward
from groupwise.causal_lm.head_tiles import CPU_TILES, GPU_TILES, Tiles, choose_tiles, tiles_of
from groupwise.memory import peak_bytes

SUBSETS = [frozenset(c) for size in (1, 2, 3) for c in combinations(FIELDS, size)]


def plain(hidden, weight, target, *, bias=None, temperature=1.0, softcap=None, scale=1.0):
    """Full logits and textbook formulas, nothing shared with the head."""
    z = (hidden @ weight.t() + (0 if bias is None else bias)) * scale
    if softcap is not None:
        z = softcap * torch.tanh(z / softcap)
    log_p = torch.log_softmax(z / temperature, dim=-1)
    p = log_p.exp()
    log_prob = log_p.gather(1, target[:, None])[:, 0]
    one_hot = torch.nn.functional.one_hot(target, weight.shape[0]).to(p.dtype)
    return {"log_prob": log_prob, "entropy": -(p * log_p).sum(-1), "score_norm": (one_hot - p).square().sum(-1).sqrt()}


def case(seed=0, num=7, hidden=5, vocabulary=23, dtype=torch.float64, bias=False):
    g = torch.Generator().manual_seed(seed)
    make = lambda *shape: torch.randn(*shape, generator=g, dtype=torch.float64).to(dtype)  # noqa: E731
    h, w = make(num, hidden).requires_grad_(), make(vocabulary, hidden).requires_grad_()
    b = make(vocabulary).requires_grad_() if bias else None
    return h, w, b, torch.randint(vocabulary, (num,), generator=g), {name: make(num).double() for name in FIELDS}


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """Several blocks and tiles, the last of each incomplete, at the sizes of these tests."""
    monkeypatch.setattr(head, "tiles_of", lambda device: Tiles(6, 18, 192 * 2**20))


def gradients(scores, cotangents, leaves):
    total = sum((scores[name] * cotangents[name]).sum() for name in scores)
    return torch.autograd.grad(total, [leaf for leaf in leaves if leaf is not None])


def test_values_worked_out_by_hand():
    """u = (0, ln 3): p = (1/4, 3/4)."""
    weight = torch.tensor([[0.0], [math.log(3.0)]], dtype=torch.float64)
    scores = token_scores(torch.ones(1, 1, dtype=torch.float64), weight, torch.tensor([0]), FIELDS)
    assert scores["log_prob"].item() == pytest.approx(-math.log(4), abs=1e-14)
    assert scores["entropy"].item() == pytest.approx(0.25 * math.log(4) + 0.75 * math.log(4 / 3), abs=1e-14)
    assert scores["score_norm"].item() == pytest.approx(math.sqrt(0.75**2 + 0.75**2), abs=1e-14)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0.7},
        {"softcap": 2.0, "temperature": 1.3},
        {"softcap": 1.5, "scale": 3.0, "temperature": 0.6},
    ],
)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("requires", SUBSETS, ids=lambda s: "+".join(sorted(s)))
def test_equal_to_the_plain_computation(requires, bias, options):
    h, w, b, y, cotangents = case(bias=bias)
    expected = {name: value for name, value in plain(h, w, y, bias=b, **options).items() if name in requires}
    scores = token_scores(h, w, y, requires, bias=b, **options)
    assert scores.keys() == expected.keys()
    for name in requires:
        torch.testing.assert_close(scores[name], expected[name], rtol=0, atol=1e-10)
    for ours, theirs in zip(
        gradients(scores, cotangents, (h, w, b)), gradients(expected, cotangents, (h, w, b)), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)


@pytest.mark.parametrize("options", [{}, {"softcap": 1.5, "scale": 3.0, "temperature": 0.6}])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("requires", SUBSETS, ids=lambda s: "+".join(sorted(s)))
def test_known_cotangents_equal_to_the_plain_computation(requires, bias, options):
    h, w, b, y, cotangents = case(bias=bias)
    cotangents = {name: cotangents[name] for name in requires}
    expected = plain(h, w, y, bias=b, **options)
    theirs = gradients({name: expected[name] for name in requires}, cotangents, (h, w, b))
    w.grad = torch.ones_like(w)  # it must add, not replace
    scores, grad_hidden = token_scores_backward(h, w, y, cotangents, FIELDS, bias=b, memory_bytes=3 * 23 * 8, **options)
    for name in FIELDS:
        torch.testing.assert_close(scores[name], expected[name], rtol=0, atol=1e-10)
        assert not scores[name].requires_grad
    ours = (grad_hidden, w.grad - 1, *([] if b is None else [b.grad]))
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-10)


def test_gradcheck():
    h, w, b, y, _ = case(num=3, hidden=2, vocabulary=8, bias=True)
    assert torch.autograd.gradcheck(
        lambda h, w, b: tuple(token_scores(h, w, y, FIELDS, bias=b, temperature=0.9, softcap=3.0).values()), (h, w, b)
    )


@settings(max_examples=25, deadline=None)
@given(
    num=st.integers(1, 9),
    vocabulary=st.integers(2, 30),
    memory=st.integers(1, 4000),
    scale=st.floats(0.01, 30),
    seed=st.integers(0, 99),
)
def test_no_tile_size_changes_the_result(num, vocabulary, memory, scale, seed):
    h, w, _, y, cotangents = case(seed, num=num, vocabulary=vocabulary)
    expected = token_scores(h, w, y, FIELDS, scale=scale)
    theirs = gradients(expected, cotangents, (h, w))
    scores, grad_hidden = token_scores_backward(h, w, y, cotangents, scale=scale, memory_bytes=memory)
    for name in FIELDS:
        torch.testing.assert_close(scores[name], expected[name], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(grad_hidden, theirs[0], rtol=1e-8, atol=1e-7)


def test_bf16_weights_give_fp32_scores_and_fp32_accumulated_gradients():
    h, w, _, y, cotangents = case(num=64, dtype=torch.bfloat16)
    cotangents = {name: g.float() for name, g in cotangents.items()}
    exact = plain(h.double(), w.double(), y)
    scores = token_scores(h, w, y, FIELDS)
    for name in FIELDS:
        assert scores[name].dtype == torch.float32
        torch.testing.assert_close(scores[name].double(), exact[name], rtol=0, atol=1e-5)
    theirs = gradients(exact, {name: g.double() for name, g in cotangents.items()}, (h, w))
    ours = gradients(scores, cotangents, (h, w))
    _, grad_hidden = token_scores_backward(h, w, y, cotangents, memory_bytes=1)
    for mine in (ours, (grad_hidden, w.grad)):
        for value, other in zip(mine, theirs, strict=True):
            assert value.dtype == torch.bfloat16
            # One rounding to bf16 at the end (2^-9 relative), none on the way: summing 64 chunks in bf16 fails this.
            torch.testing.assert_close(value.double(), other.double(), rtol=2**-7, atol=1e-4)


def test_autocast_does_not_reach_the_head():
    h, w, _, y, cotangents = case(dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = token_scores(h, w, y, FIELDS)
        ours = gradients(inside, cotangents, (h, w))
    torch.testing.assert_close(ours, gradients(token_scores(h, w, y, FIELDS), cotangents, (h, w)), rtol=0, atol=0)


def test_a_certain_token_has_norm_zero_and_finite_gradients():
    h, w, y = (
        torch.ones(1, 1, dtype=torch.float64, requires_grad=True),
        torch.tensor([[900.0], [0.0]], dtype=torch.float64),
        torch.tensor([0]),
    )
    scores = token_scores(h, w, y, FIELDS)
    assert [scores[name].item() for name in FIELDS] == [0, 0, 0]
    (gradient,) = torch.autograd.grad(sum(scores.values()).sum(), [h])
    assert gradient.item() == 0


def test_large_logits_do_not_overflow():
    scores = token_scores(torch.ones(1, 1), torch.tensor([[1e4], [1e4 - 1]]), torch.tensor([1]), FIELDS)
    assert scores["log_prob"].item() == pytest.approx(-1 - math.log1p(math.exp(-1)), rel=1e-5)
    assert scores["entropy"].isfinite().all()


def test_a_frozen_weight_gets_no_gradient_and_an_empty_batch_is_legal():
    h, w, _, y, cotangents = case()
    w.requires_grad_(False)
    token_scores(h, w, y)["log_prob"].sum().backward()
    token_scores_backward(h, w, y, cotangents)
    assert w.grad is None
    w.requires_grad_(True)
    empty = {name: g[:0] for name, g in cotangents.items()}
    scores, grad_hidden = token_scores_backward(h[:0], w, y[:0], empty)
    assert scores["log_prob"].shape == (0,)
    assert grad_hidden.shape == (0, 5)
    assert not w.grad.any()
    token_scores(h[:0], w, y[:0])["log_prob"].sum().backward()


def test_errors_say_what_is_allowed():
    h, w, _, y, _ = case()
    with pytest.raises(ValueError, match=r"requires = \['kl'\].*log_prob"):
        token_scores(h, w, y, ["kl"])
    with pytest.raises(ValueError, match=r"temperature = 0.*greedy"):
        token_scores(h, w, y, temperature=0)
    with pytest.raises(ValueError, match="softcap = -1"):
        token_scores(h, w, y, softcap=-1)
    with pytest.raises(ValueError, match=r"expected \[N, H\]"):
        token_scores(h, w.t(), y)
    with pytest.raises(ValueError, match=r"no \.grad to add to"):
        token_scores_backward(h, w * 2, y, {"log_prob": torch.ones(7)})


def test_working_memory_does_not_grow_with_the_positions():
    """Counts what is allocated, by the largest tensor any operation makes: far below [N, V]."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Largest(TorchDispatchMode):
        size = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            for tensor in out if isinstance(out, (tuple, list)) else (out,):
                if isinstance(tensor, torch.Tensor):
                    self.size = max(self.size, tensor.numel())
            return out

    h, w, _, y, cotangents = case(num=50, hidden=2, vocabulary=100)
    with Largest() as largest:
        token_scores(h, w, y, FIELDS)
        token_scores_backward(h, w, y, cotangents, memory_bytes=800 * 5)
    assert largest.size <= 600 < 50 * 100


# The head's tiles on a GPU: how they are chosen, what they launch and what they hold, on tensors without data.


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


@pytest.mark.slow
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
