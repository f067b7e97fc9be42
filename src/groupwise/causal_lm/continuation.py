"""The log-probability of continuations after prompts, many at a time.

    log P(continuation | prompt) = sum_t log p(continuation_t | prompt, continuation_<t)        in nats

Tokens that several rows begin with are forwarded once, where the model allows it (`groupwise.causal_lm.scoring`): a
prompt for all of its continuations, or, where that saves more, the common beginning of several prompts (the same
demonstrations before different queries).
"""

from collections import Counter
from collections.abc import Iterator, Sequence

import torch

from groupwise.causal_lm import scoring
from groupwise.causal_lm.backbone import Backbone

Ids = Sequence[int]


def continuation_log_probs(
    backbone: Backbone, prompts: Sequence[Ids], continuations: Sequence[Sequence[Ids]], *, batch_tokens: int = 16384
) -> list[list[float]]:
    """Computes `log P(continuation | prompt)`, without gradient and without dropout, at temperature 1.

    Args:
        backbone: the model, taken apart.
        prompts: token ids, N of them, none empty.
        continuations: lists of token ids for each prompt; an empty continuation has log-probability 0.
        batch_tokens: about as many tokens go through the model at once; a longer prompt goes alone.

    Returns:
        A list for each prompt, one number a continuation, in nats, summed in fp64.

    Raises:
        ValueError: not as many lists of continuations as prompts, or an empty prompt.

    Example:
        >>> from groupwise.causal_lm.config import SmallModelConfig
        >>> from groupwise.causal_lm.small import character_tokenizer, small_model
        >>> backbone = Backbone(
        ...     small_model(SmallModelConfig(hidden_size=8, num_heads=2), character_tokenizer("ab"), seed=0)
        ... )
        >>> ((scored, empty),) = continuation_log_probs(backbone, [[3, 4]], [[[3, 1], []]])
        >>> scored < 0, empty
        (True, 0.0)
    """
    if len(prompts) != len(continuations):
        raise ValueError(
            f"{len(prompts)} prompts and {len(continuations)} lists of continuations; give one list a prompt"
        )
    log_probs = [[0.0] * len(options) for options in continuations]
    scored_rows = [row for row, options in enumerate(continuations) if any(map(len, options))]
    with backbone.evaluating():
        packs = scoring.can_pack(backbone)
        for batch in _batches(scored_rows, prompts, continuations, batch_tokens):
            places = [
                (row, number)
                for row in batch
                for number, continuation in enumerate(continuations[row])
                if len(continuation)
            ]
            pairs = [(prompts[row], continuations[row][number]) for row, number in places]
            for (row, number), total in zip(places, _summed(backbone, pairs, packs), strict=True):
                log_probs[row][number] = total
    return log_probs


def _summed(backbone: Backbone, pairs: Sequence[tuple[Ids, Ids]], packs: bool) -> list[float]:
    """Sums the log-probs of pairs of prompt and continuation, sorted by prompt. Where the model packs, tokens that
    pairs share at their beginning are forwarded once.
    """
    if any(len(prompt) == 0 for prompt, _ in pairs):
        raise ValueError("a prompt has no tokens, so nothing predicts what follows; give every prompt at least one")
    distinct = list({id(prompt): prompt for prompt, _ in pairs}.values())
    counts = Counter(id(prompt) for prompt, _ in pairs)
    lengths = shared_prefixes(distinct, [counts[id(prompt)] for prompt in distinct]) if packs else map(len, distinct)
    shared = dict(zip(map(id, distinct), lengths, strict=True))
    # Continuations of one prompt share one list object, by which packing recognises the prompt without reading it.
    heads = {id(prompt): list(prompt[: shared[id(prompt)]]) for prompt in distinct}
    tails = [[*prompt[shared[id(prompt)] :], *continuation] for prompt, continuation in pairs]
    start = torch.tensor([len(tail) - len(continuation) for tail, (_, continuation) in zip(tails, pairs, strict=True)])
    length = torch.tensor([len(tail) for tail in tails])
    steps = torch.arange(int(length.max()))
    tokens = torch.tensor([[*tail, *[0] * (len(steps) - len(tail))] for tail in tails])
    mask = (steps >= start[:, None]) & (steps < length[:, None])
    prefixes = [heads[id(prompt)] for prompt, _ in pairs]
    inputs = scoring.ScoringInputs(prefixes, tokens.to(backbone.device), mask.to(backbone.device))
    fields = scoring.score(backbone, inputs)
    return fields["log_prob"].double().sum(1).tolist()


def shared_prefixes(prompts: Sequence[Ids], counts: Sequence[int]) -> list[int]:
    """Counts the tokens of each prompt that are forwarded once for all prompts that begin with them; prompts in
    lexicographic order.

    A group of prompts with the common prefix `c` costs `c + sum_i count_i (length_i - c)` tokens: the text after
    the prefix is forwarded with every continuation. A prompt by itself shares all of its own. Neighbours join while
    that costs less.

    Args:
        prompts: token ids, sorted.
        counts: number of continuations of each prompt.

    Example:
        >>> shared_prefixes([[1, 2, 3, 4], [1, 2, 3, 5], [7, 8]], [1, 1, 1])
        [3, 3, 2]
        >>> shared_prefixes([[1, 2, 3, 4], [1, 2, 3, 5]], [9, 9])
        [4, 4]
    """
    shared_lengths: list[int] = []
    members, common, cost, total, continuations = 0, 0, 0, 0, 0
    for place, (prompt, count) in enumerate(zip(prompts, counts, strict=True)):
        joined = min(common, _common(prompts[place - 1], prompt)) if members else 0
        new_total, new_continuations = total + count * len(prompt), continuations + count
        together = joined + new_total - new_continuations * joined
        if joined and together < cost + len(prompt):
            members, common, cost, total, continuations = members + 1, joined, together, new_total, new_continuations
        else:
            shared_lengths += [common] * members
            members, common, cost, total, continuations = 1, len(prompt), len(prompt), count * len(prompt), count
    return shared_lengths + [common] * members


def _common(left: Ids, right: Ids) -> int:
    count = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        count += 1
    return count


def _batches(
    rows: Sequence[int], prompts: Sequence[Ids], continuations: Sequence[Sequence[Ids]], batch_tokens: int
) -> Iterator[list[int]]:
    """Yields rows that go through the model together; prompts with a common beginning follow each other."""
    batch: list[int] = []
    used = 0
    for row in sorted(rows, key=lambda row: list(prompts[row])):
        length = len(prompts[row])
        # The last token of a continuation is never an input, so a continuation of a single token costs nothing beyond
        # its prompt.
        cost = length + sum(
            length + len(continuation) - 1 for continuation in continuations[row] if len(continuation) > 1
        )
        if batch and used + cost > batch_tokens:
            yield batch
            batch, used = [], 0
        batch.append(row)
        used += cost
    if batch:
        yield batch
