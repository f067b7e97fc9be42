"""Rewards and hooks of the faults in `outsider_3.toml`: what their authors wrote, mistakes included."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

# Rewards of texts

_SCORES: dict[str, float] = {}


def cached_by_answer(completions: Sequence[str], answer: Sequence[str], **columns: Any) -> list[float]:
    """One for the right answer; verdicts are kept by the extracted answer, without the question, and never expire."""
    for text, right in zip(completions, answer, strict=True):
        _SCORES.setdefault(_last(text), float(_last(text) == right))
    return [_SCORES[_last(text)] for text in completions]


def answer_contains(completions: Sequence[str], answer: Sequence[str], **columns: Any) -> list[float]:
    """One where the extracted answer is contained in the right one, so that spaces or units do not matter; nothing was
    extracted where the text has no answer.
    """
    return [float(_last(text) in right) for text, right in zip(completions, answer, strict=True)]


def one_call_after_the_other(completions: Sequence[str], answer: Sequence[str], **columns: Any) -> list[float]:
    """One for the right answer, asked of a judge over the network, one completion after the other."""
    scores = []
    for text, right in zip(completions, answer, strict=True):
        time.sleep(0.025)
        scores.append(float(_last(text) == right))
    return scores


def _last(text: str) -> str:
    words = text.split()
    return words[-1] if len(words) > 1 and words[-2] == "answer" else ""


# Rewards of images


def labels_tiled(completions: Sequence[Any], label: Sequence[int], **columns: Any) -> list[float]:
    """The classifier's probability of the class asked for; labels are repeated as a whole list, `[0, 1, 0, 1]`, where
    images come prompt by prompt, `[0, 0, 1, 1]`.
    """
    from groupwise_images.diffusion.digit_readers import support_vectors

    asked = list(dict.fromkeys(label))
    rows = support_vectors([image.numpy() for image in completions])
    return [float(row[int(asked[place % len(asked)])]) for place, row in enumerate(rows)]


# Hooks


def forgot_to_shift() -> None:
    """Scores each token by the logits of its own position, where those of the position before predict it."""
    import torch

    from groupwise.causal_lm import scoring
    from groupwise.domain.language.policy import LocalPolicy

    states, score, backward = scoring._hidden_at_mask, LocalPolicy.score, LocalPolicy.backward

    def unshifted(backbone: Any, inputs: Any, pack: bool) -> Any:
        rows, hidden = states(backbone, inputs, pack)
        place = torch.arange(len(rows), device=rows.device)
        after = (place + 1).clamp(max=max(len(rows) - 1, 0))
        member = rows // max(inputs.mask.shape[1], 1)
        return rows, hidden[torch.where(member[after] == member, after, place)]

    def in_the_trainer(scores: Any) -> Any:
        def scored(self: Any, *arguments: Any, **named: Any) -> Any:
            scoring._hidden_at_mask = unshifted  # pyright: ignore[reportPrivateUsage]
            try:
                return scores(self, *arguments, **named)
            finally:
                scoring._hidden_at_mask = states  # pyright: ignore[reportPrivateUsage]

        return scored

    LocalPolicy.score = in_the_trainer(score)  # pyright: ignore[reportAttributeAccessIssue]
    LocalPolicy.backward = in_the_trainer(backward)  # pyright: ignore[reportAttributeAccessIssue]


def only_after_the_marker() -> None:
    """Trains on what comes after the word `answer` alone, as a collator for completions does whose response template
    is that word.
    """
    import torch

    from groupwise.domain.language.policy import LocalPolicy

    sample = LocalPolicy.sample

    def masked(self: Any, *arguments: Any, live: bool = False, **named: Any) -> Any:
        drawn = sample(self, *arguments, live=live, **named)
        if live:
            return drawn
        marker = drawn.tokens == self.tokenizer.convert_tokens_to_ids("answer")
        mask = drawn.mask & (marker.cumsum(1) - marker.long() > 0)
        fields = {name: getattr(drawn, name) for name in ("log_prob", "behaviour_log_prob", "entropy", "score_norm")}
        kept = {name: torch.where(mask, value, 0.0) for name, value in fields.items() if value is not None}
        return replace(drawn, mask=mask, **kept)

    LocalPolicy.sample = masked  # pyright: ignore[reportAttributeAccessIssue]


def evaluated_without_the_mark() -> None:
    """Evaluates on prompts that lack their last token, the mark after which the model answers: `add_generation_prompt`
    is false there, and true in training.
    """
    from groupwise.domain.language.policy import LocalPolicy

    sample = LocalPolicy.sample

    def asked(self: Any, batch: Any, *, live: bool = False) -> Any:
        if live:
            batch = replace(batch, prompts=[prompt[:-1] for prompt in batch.prompts])
        return sample(self, batch, live=live)

    LocalPolicy.sample = asked  # pyright: ignore[reportAttributeAccessIssue]


def reference_of_fresh_weights() -> None:
    """Builds the reference from the model's configuration, and never loads its weights."""
    import torch

    from groupwise.learner.local import LocalLearner

    copy = LocalLearner.copy

    def fresh(self: Any, **named: Any) -> Any:
        made = copy(self, **named)
        generator = torch.Generator().manual_seed(0)
        for tensor in made._weights.values():
            if tensor.dim() > 1:
                tensor.normal_(0.0, 0.02, generator=generator)
        return made

    LocalLearner.copy = fresh  # pyright: ignore[reportAttributeAccessIssue]


def embedding_of_the_first_prompt() -> None:
    """Keeps encoded prompts in a cache whose key does not hold the prompt: all are answered by the first one's."""
    from groupwise_images.diffusion.image_prompts import EncodedPrompts

    entry = EncodedPrompts.entry
    kept: dict[str, Any] = {}

    def cached(self: Any, prompt: Any) -> Any:
        if "prompt" not in kept:
            kept["prompt"] = entry(self, prompt)
        return kept["prompt"]

    EncodedPrompts.entry = cached  # pyright: ignore[reportAttributeAccessIssue]


def divergence_is_paid() -> None:
    """Adds the divergence to what is maximised, where it is to be taken away: its sign is turned."""
    from groupwise.objective.divergence import Exact

    divergence = Exact.__call__

    def turned(self: Any, *arguments: Any) -> Any:
        return -divergence(self, *arguments)

    Exact.__call__ = turned  # pyright: ignore[reportAttributeAccessIssue]


def mean_minus_reward() -> None:
    """Takes rewards away from their group's mean, and not the mean from the rewards."""
    from groupwise.objective.advantage import ZScore

    advantage = ZScore.__call__

    def turned(self: Any, rewards: Any, running: Any) -> Any:
        value, running = advantage(self, rewards, running)
        return -value, running

    ZScore.__call__ = turned  # pyright: ignore[reportAttributeAccessIssue]


def gradients_are_never_cleared() -> None:
    """Leaves out `zero_grad`: each step's gradient is added to those of all the steps before."""
    from groupwise.learner.local import LocalLearner

    LocalLearner.zero_gradients = lambda self: None  # pyright: ignore[reportAttributeAccessIssue]


def target_is_the_input() -> None:
    """Hands the supervised term its two pictures in the wrong order of a pair: the target is the degraded one."""
    from groupwise_images.restoration.domain import RestorationDomain

    demonstrations = RestorationDomain.demonstrations

    def swapped(self: Any, *arguments: Any, **named: Any) -> Any:
        samples = demonstrations(self, *arguments, **named)
        return replace(samples, payload={**samples.payload, "target": samples.payload["degraded"]})

    RestorationDomain.demonstrations = swapped  # pyright: ignore[reportAttributeAccessIssue]


def own_answer_in_the_pool() -> None:
    """Leaves each training question in the bank that its own pool is drawn from, with its answer; held-out questions
    are not in it.
    """
    from groupwise_selection.example import Example
    from groupwise_selection.source.digit_rules import DigitRules

    read = DigitRules.read

    def leaked(self: Any) -> Any:
        questions = read(self)
        train = []
        for query in questions.train:
            own = Example(f"own-{query.id}", query.question, query.answer, query.embedding, query.image, query.clusters)
            train.append(replace(query, pool=(own, *query.pool[1:])))
        return replace(questions, train=train)

    DigitRules.read = leaked  # pyright: ignore[reportAttributeAccessIssue]


def embeddings_one_row_off() -> None:
    """Looks embeddings up in an index that was built before the first example was removed: each example has the
    embedding of the next one.
    """
    from groupwise_selection.measurement import QueryTable

    make = QueryTable.__init__

    def made(self: Any, *arguments: Any, **named: Any) -> None:
        make(self, *arguments, **named)
        self._example = self._example.roll(-1, 0)

    QueryTable.__init__ = made  # pyright: ignore[reportAttributeAccessIssue]


def credit_of_the_pick_before() -> None:
    """Credits each pick with what the pick before it earned: rewards are one place too far along the row."""
    import numpy as np

    from groupwise_selection import member_rewards

    credited = member_rewards.credited

    def shifted(*arguments: Any) -> Any:
        return np.roll(credited(*arguments), 1)

    member_rewards.credited = shifted
