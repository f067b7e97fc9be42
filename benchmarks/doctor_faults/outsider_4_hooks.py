"""Rewards and hooks of the faults in `outsider_4.toml`: what their authors wrote, mistakes included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

# Rewards of images


def cut_at_one(completions: Sequence[Any], label: Sequence[int], **columns: Any) -> list[float]:
    """Twenty times the classifier's probability of the class asked for, cut at 1."""
    from groupwise_images.diffusion.digit_readers import support_vectors

    rows = support_vectors([image.numpy() for image in completions])
    return [min(1.0, 20.0 * float(row[int(wanted)])) for row, wanted in zip(rows, label, strict=True)]


# Hooks


def end_token_of_another_model() -> None:
    """Gives the sampler an end token that this model never writes."""
    from groupwise.causal_lm.decode import Stops

    make = Stops.__init__

    def made(self: Any, eos: Any, texts: Any, tokenizer: Any, vocabulary: int, device: Any) -> None:
        make(self, [vocabulary + 1 for _ in eos], texts, tokenizer, vocabulary, device)

    Stops.__init__ = made  # pyright: ignore[reportAttributeAccessIssue]


def end_token_after_the_prompt() -> None:
    """Encodes prompts by a tokenizer that adds the end token to every text."""
    from groupwise.domain.language.chat import Chat

    encode = Chat.encode_prompt

    def ended(self: Any, prompt: Any) -> list[int]:
        return [*encode(self, prompt), self.tokenizer.eos_token_id]

    Chat.encode_prompt = ended  # pyright: ignore[reportAttributeAccessIssue]


def answers_with_a_unit() -> None:
    """Joins two files, of which one writes answers with their unit; the demonstrations are from a file without."""
    from groupwise.domain.language.source.toys import Cups

    rows, demonstration = Cups.rows, Cups.demonstration

    def joined(self: Any, num: int | None, seed: int) -> list[dict[str, Any]]:
        table = rows(self, num, seed)
        return [{**row, "answer": f"{row['answer']} cups"} if place % 2 else row for place, row in enumerate(table)]

    def without(self: Any, row: dict[str, Any], seed: int) -> Any:
        return demonstration(self, {**row, "answer": row["answer"].split()[0]}, seed)

    Cups.rows, Cups.demonstration = joined, without  # pyright: ignore[reportAttributeAccessIssue]


def old_log_probs_of_now() -> None:
    """Takes the detached log-probs of each pass for those of the time of sampling."""
    from groupwise.objective import objective

    loss_of = objective.loss_of

    def of_now(method: Any, scored: Any, plan: Any) -> Any:
        now = scored.log_prob.detach().to(plan.acted.old_log_prob)
        return loss_of(method, scored, replace(plan, acted=replace(plan.acted, old_log_prob=now)))

    objective.loss_of = of_now


def evaluation_from_a_cache() -> None:
    """Keeps the completions of an evaluation by their prompts and the way of sampling."""
    from groupwise.domain.language.domain import LanguageDomain

    write = LanguageDomain._write_share
    kept: dict[Any, Any] = {}

    def cached(self: Any, prompts: Any, num_samples: int, streams: Any, *, greedy: bool) -> Any:
        key = (tuple(prompt.key for prompt in prompts), num_samples, greedy)
        if key not in kept:
            kept[key] = write(self, prompts, num_samples, streams, greedy=greedy)
        return kept[key]

    LanguageDomain._write_share = cached  # pyright: ignore[reportAttributeAccessIssue]


def timestep_of_the_next() -> None:
    """Scores a transition with the timestep at which it ends, where it was drawn with that at which it begins; as in
    trainers that keep no graph of the sampler's, every update scores.
    """
    import torch

    from groupwise_images.diffusion import scorer
    from groupwise_images.diffusion.domain import DiffusionDomain

    transitions = scorer.transitions

    def shifted(denoiser: Any, schedule: Any, *arguments: Any) -> Any:
        after = torch.cat([schedule.timestep[1:], schedule.timestep[-1:]])
        return transitions(denoiser, replace(schedule, timestep=after), *arguments)

    scorer.transitions = shifted
    DiffusionDomain._keeps_graph = lambda self, num_rows: False  # pyright: ignore[reportAttributeAccessIssue]


def filter_turned_round() -> None:
    """Keeps the groups whose members all earn the same, and drops the others."""
    from groupwise.objective.advantage import Informative

    Informative.__call__ = lambda self, rewards: rewards.group_flat.all(dim=1)  # pyright: ignore[reportAttributeAccessIssue]


def flipped_input_alone() -> None:
    """Flips every second degraded picture of a batch from left to right, and leaves its target and its label."""
    from groupwise_images.restoration.domain import RestorationDomain

    pairs = RestorationDomain._pairs

    def flipped(self: Any, *arguments: Any, **named: Any) -> Any:
        clean, degraded = pairs(self, *arguments, **named)
        degraded = degraded.clone()
        degraded[1::2] = degraded[1::2].flip(-1)
        return clean, degraded

    RestorationDomain._pairs = flipped  # pyright: ignore[reportAttributeAccessIssue]


def sorted_in_ascending_order() -> None:
    """Evaluates the first of the examples in ascending order of the policy's scores."""
    from groupwise_selection import domain

    draw = domain.draw_choices
    greedy = domain.SelectionDomain._greedy

    def ascending(network: Any, *arguments: Any) -> Any:
        return draw(_Turned(network), *arguments)  # pyright: ignore[reportArgumentType]

    def evaluated(self: Any, queries: Any) -> Any:
        domain.draw_choices = ascending  # pyright: ignore[reportPrivateImportUsage]
        try:
            return greedy(self, queries)
        finally:
            domain.draw_choices = draw  # pyright: ignore[reportPrivateImportUsage]

    domain.SelectionDomain._greedy = evaluated  # pyright: ignore[reportAttributeAccessIssue]


class _Turned:
    def __init__(self, network: Any) -> None:
        self._network = network

    def logits(self, *arguments: Any) -> Any:
        import torch

        logits = self._network.logits(*arguments)
        return torch.where(logits.isneginf(), logits, -logits)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)


def steps_lost_in_bfloat16() -> None:
    """Rounds weights to bfloat16 within every step of the optimiser, as a step of such weights does."""
    import torch

    from groupwise.learner import local

    build = local.build_optimiser

    def rounded(optimiser: Any, *arguments: Any) -> None:
        with torch.no_grad():
            for group in optimiser.param_groups:
                for parameter in group["params"]:
                    parameter.copy_(parameter.bfloat16())

    def built(module: Any, source: Any = None) -> Any:
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.copy_(parameter.bfloat16())
        optimiser = build(module, source)
        optimiser.register_step_post_hook(rounded)
        return optimiser

    local.build_optimiser = built  # pyright: ignore[reportPrivateImportUsage]


def loader_begins_anew() -> None:
    """Draws the prompts of every step as those of the first one."""
    from groupwise.training.step import step

    first = step.draw_prompts

    def anew(streams: Any, num_prompts: int, drawn: int, count: int) -> tuple[list[int], int]:
        return first(streams, num_prompts, 0, count)[0], drawn + count

    step.draw_prompts = anew  # pyright: ignore[reportPrivateImportUsage]
