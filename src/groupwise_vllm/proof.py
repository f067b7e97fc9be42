"""The proof that a server holds the trained weights: it answers a few prompts of the run, and the trainer computes the
log-probs of the same tokens.

A log-prob is computed from a state that is rounded some ten times in each of L layers (norms, projections, the residual
sums) and twice in the head. Each rounding changes its operand by at most the unit roundoff u, independently of the
others, so relative errors add as a random walk: u sqrt(10 L + 2). They move a log-prob in proportion to the spread of
the logits, which 1 + |log p| follows. Each operand is itself a sum of d products, d the width, which two programs add
in another order: that multiplies by sqrt(d). The root mean square over N tokens scatters by 1 / sqrt(2 N) of itself,
three of which are allowed:

    4 u sqrt(d (10 L + 2)) (1 + 3 / sqrt(2 N))

The 4 is room: between vLLM and this trainer, both in fp32 on a CPU, 1/240 of the bound was measured with 3 layers of
width 64 and 1/11 with 30 of width 576. Where a model is far from any trained one, rounding may pass it: of random
weights thirty times their usual size, with logits that spread over 430 nats, fp32 was 1.4 times the bound from fp64;
eight times their size, over 32 nats, an eighth of it. In half precision the bound is as wide as an update of the
weights. There the first proof, before any update, measures the rounding itself: it may be a tenth, and later ones four
times the first.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from groupwise.causal_lm import scoring
from groupwise.causal_lm.backbone import Backbone
from groupwise.causal_lm.sampler import Completions, GroupBatch
from groupwise.causal_lm.scoring import ScoringInputs
from groupwise_vllm.server import Piece

NUM_PROMPTS, NUM_TOKENS = 8, 16
"""The number of prompts of a proof, and of tokens that a server samples for each."""

_ROUNDINGS_A_LAYER = 10
_ROOM = 4.0
_MOST_IN_HALF_PRECISION = 0.1
_ROOM_OVER_FIRST = 4.0
_ANOTHER_MODEL = 0.5


@final
@dataclass(frozen=True)
class Difference:
    """The distance of a server's log-probs from the trainer's.

    Args:
        relative: root mean square of `(a - b) / (1 + |a|)`.
        nats: mean of `|a - b|`.
        num_tokens: number of log-probs compared.
    """

    relative: float
    nats: float
    num_tokens: int

    @staticmethod
    def between(expected: Tensor, served: Tensor) -> Difference:
        """Compares two vectors of log-probs; one that is not finite is infinitely far.

        Example:
            >>> Difference.between(torch.tensor([-1.0, -3.0]), torch.tensor([-1.0, -1.0])).nats
            1.0
        """
        expected, served = expected.double(), served.double()
        distance = (expected - served).abs()
        relative = (distance / (1 + expected.abs())).square().mean().sqrt()
        if not bool(distance.isfinite().all()):
            return Difference(math.inf, math.inf, len(expected))
        return Difference(float(relative), float(distance.mean()), len(expected))


def roundoff(backbone: Backbone) -> float:
    """Returns the unit roundoff at which the trainer scores; that of fp32 at least, in which a server computes."""
    device = backbone.trained_on.type
    dtype = next(backbone.model.parameters()).dtype
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
    return max(torch.finfo(dtype).eps, torch.finfo(torch.float32).eps) / 2


def bound(unit_roundoff: float, num_layers: int, width: int, num_tokens: int) -> float:
    """Returns the largest `Difference.relative` that rounding explains; the module derives it.

    Example:
        >>> f"{bound(2**-24, num_layers=30, width=576, num_tokens=200):.1e}"
        '1.1e-04'
    """
    scatter = 1 + 3 / math.sqrt(2 * max(num_tokens, 1))
    return _ROOM * unit_roundoff * math.sqrt(width * (_ROUNDINGS_A_LAYER * num_layers + 2)) * scatter


@contextmanager
def _all_threads() -> Iterator[None]:
    """Gives PyTorch this process's share of the machine's cores within the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))
    try:
        yield
    finally:
        torch.set_num_threads(before)


@final
class Proof:
    """The prompts of a run that its servers answer after every sync, and how far their log-probs may be from those that
    the trainer computes for the same tokens.

    Args:
        backbone: the trained model.
    """

    def __init__(self, backbone: Backbone) -> None:
        self.backbone = backbone
        self.prompts: list[list[int]] = []
        self.num_tokens = 0
        self._before: dict[str, list[Piece]] = {}
        self.first: float | None = None
        """The relative difference of the first proof that passed, on this process or on the one that sends weights."""
        self.proved: list[tuple[list[int], list[float]]] = []
        """The tokens of the answers to this version's newest proof with the trainer's log-probs, of this process or of
        the one that sends weights."""

    @property
    def has_weights(self) -> bool:
        """False of a model in shards whose whole weights another process alone has gathered."""
        return self.backbone.head.weight.numel() > 0

    def choose(self, prompts: Sequence[Sequence[int]], num_tokens: int) -> None:
        """Takes prompts out of the first batch, evenly; they stay those of the run.

        Args:
            num_tokens: the longest completion of the run.
        """
        every = max(1, len(prompts) // NUM_PROMPTS)
        self.prompts = [list(prompt) for prompt in prompts[::every][:NUM_PROMPTS]]
        longest = max(map(len, self.prompts))
        room = (self.backbone.max_positions or math.inf) - longest
        self.num_tokens = int(max(1, min(NUM_TOKENS, num_tokens, room)))

    def begin_version(self) -> None:
        """Forgets the trainer's log-probs, where the weights have changed."""
        self.proved = []

    def compare(self, pieces: Sequence[Piece]) -> Difference:
        """Compares the log-probs of a server's answers to the prompts with the trainer's of now, which are computed
        once a version where the answers are the same; without the weights, as far as the answers are those that
        another process has computed, with what that one found.
        """
        if not self.has_weights or self._has_computed(pieces):
            return self._compare_with_proved(pieces)
        longest = max(len(piece.tokens) for piece in pieces)
        tokens = torch.tensor([piece.tokens + [0] * (longest - len(piece.tokens)) for piece in pieces])
        mask = torch.arange(longest) < torch.tensor([[len(piece.tokens)] for piece in pieces])
        served = torch.tensor([value for piece in pieces for value in piece.log_prob])
        expected = self._score(self.prompts, tokens, mask, 1.0)
        self.proved = [
            (list(piece.tokens), row[: len(piece.tokens)].tolist()) for piece, row in zip(pieces, expected, strict=True)
        ]
        return Difference.between(expected[mask], served)

    def _has_computed(self, pieces: Sequence[Piece]) -> bool:
        """Tests that the trainer has already computed the log-probs of these answers."""
        return [piece.tokens for piece in pieces] == [tokens for tokens, _ in self.proved]

    def _compare_with_proved(self, pieces: Sequence[Piece]) -> Difference:
        """Compares answers up to the first token that differs. A difference is legal where two tokens are nearly as
        probable.
        """
        expected, served = list[float](), list[float]()
        for piece, (tokens, log_prob) in zip(pieces, self.proved, strict=False):
            pairs = zip(piece.tokens, tokens, strict=False)
            same = next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(piece.tokens), len(tokens)))
            expected, served = expected + log_prob[:same], served + piece.log_prob[:same]
        if not expected:
            return Difference(math.inf, math.inf, 0)
        return Difference.between(torch.tensor(expected, dtype=torch.float64), torch.tensor(served))

    def compare_some(self, batch: GroupBatch, completions: Completions, num_servers: int) -> Difference:
        """Compares the log-probs of the first tokens of some members of a batch: as many as a proof has, of the first
        groups, which went to one server after another.
        """
        assert completions.behaviour_log_prob is not None
        size, number = batch.group_size, max(NUM_PROMPTS, num_servers)
        members = [group * size + member for member in range(size) for group in range(len(batch.prompts))][:number]
        tokens, mask, served = (
            values[members, :NUM_TOKENS].cpu()
            for values in (completions.tokens, completions.mask, completions.behaviour_log_prob)
        )
        prompts = [batch.prompts[member // size] for member in members]
        return Difference.between(self._score(prompts, tokens, mask, batch.settings.temperature)[mask], served[mask])

    def _score(self, prompts: Sequence[Sequence[int]], tokens: Tensor, mask: Tensor, temperature: float) -> Tensor:
        device = self.backbone.device
        # With shards on a GPU the gathered copy is on the CPU, where a run on a GPU uses one thread.
        spares = device.type == "cpu" != self.backbone.trained_on.type
        with self.backbone.evaluating(), _all_threads() if spares else nullcontext():
            inputs = ScoringInputs(prompts, tokens.to(device), mask.to(device), temperature=temperature)
            fields = scoring.score(self.backbone, inputs)
        return fields["log_prob"].cpu()

    def fault(self, address: str, pieces: Sequence[Piece], difference: Difference) -> str:
        """Returns what is wrong with a server's log-probs, in one sentence; empty where rounding explains them.

        Args:
            address: the address of the server.
            pieces: its answers.
            difference: the comparison of the answers.
        """
        before, self._before[address] = self._before.get(address), list(pieces)
        limit = self.limit(difference.num_tokens)
        if self.explains(difference):
            if self.first is None:
                self.first = difference.relative
            return ""
        text = (
            f"its log-probs of {difference.num_tokens} tokens are {difference.nats:.2g} nats from the trainer's in the"
            f" mean, relatively {difference.relative:.1e}, where rounding explains {limit:.1e}"
        )
        return f"{text}: {self._cause(before == list(pieces), difference)}"

    def explains(self, difference: Difference) -> bool:
        """Returns whether rounding explains a difference."""
        return difference.relative <= self.limit(difference.num_tokens)

    def limit(self, num_tokens: int) -> float:
        """Returns the largest relative difference that passes."""
        unit, single = roundoff(self.backbone), torch.finfo(torch.float32).eps / 2
        limit = self._bound(unit, num_tokens)
        if unit <= single:
            return limit
        first = _MOST_IN_HALF_PRECISION if self.first is None else _ROOM_OVER_FIRST * self.first
        return min(limit, max(first, self._bound(single, num_tokens)))

    def _bound(self, unit_roundoff: float, num_tokens: int) -> float:
        config = self.backbone.config
        layers = int(getattr(config, "num_hidden_layers", 0) or 32)
        return bound(unit_roundoff, layers, self.backbone.head.in_features, num_tokens)

    def _cause(self, is_unchanged: bool, difference: Difference) -> str:
        if is_unchanged:
            return "its answers are those of before the sync, which changed nothing though the server took it"
        if self.first is None:
            if difference.nats > _ANOTHER_MODEL:
                return "it serves another model; start it on the folder that is trained"
            if difference.relative <= _MOST_IN_HALF_PRECISION and roundoff(self.backbone) < 2**-20:
                return "that is the size of half precision; start it with --dtype float32, as the weights are trained"
            return "it serves other weights than are trained"
        if getattr(self.backbone.config, "tie_word_embeddings", False):
            return (
                "the sync did not reach all weights; the model's head is tied to its embedding, and vLLM on a CPU keeps"
                " an old copy of such a head: give the model a head of its own (tie_word_embeddings = false)"
            )
        return "the sync did not reach all weights"
