"""The laws of a reward, each a function of what it gives for a small batch of an author's own members."""

from __future__ import annotations

import copy
import functools
import multiprocessing
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from groupwise.reward import Reward, RewardError, RewardFunction, Rewards
from groupwise.testing.broken import BrokenLaws
from groupwise.testing.hostile import MARK, SHORT

GUIDE = "docs/guide/rewards.md"
_NAME = "reward"
_TOGETHER = "hostile: all texts at once"
PATIENCE = 5.0
"""Seconds beyond its own time after which a batch is taken to hold the interpreter."""


@final
@dataclass(frozen=True)
class _Batch:
    """Members that a reward is asked about."""

    prompts: Sequence[Any]
    completions: Sequence[Any]
    columns: Mapping[str, Sequence[Any]]

    def __len__(self) -> int:
        return len(self.completions)

    def rows(self, places: Sequence[int]) -> _Batch:
        def pick(values: Sequence[Any]) -> list[Any]:
            return [values[place] for place in places]

        return _Batch(
            pick(self.prompts), pick(self.completions), {name: pick(values) for name, values in self.columns.items()}
        )

    def reading(self, names: Sequence[str]) -> _Batch:
        return _Batch(self.prompts, self.completions, {name: self.columns[name] for name in names})


@final
@dataclass(frozen=True)
class _Trial:
    """An opened reward, the author's members, and what it gave them."""

    rewards: Rewards
    batch: _Batch
    values: list[Any]
    needs: Sequence[str]
    compares: bool
    tolerance: float

    def differ(self, one: Sequence[Any], other: Sequence[Any]) -> int | None:
        """The first member for which two answers differ."""
        differ = (place for place, pair in enumerate(zip(one, other, strict=True)) if not self._same(*pair))
        return next(differ, None)

    def _same(self, one: Any, other: Any) -> bool:
        if one is None or other is None:
            return one is other
        return np.shape(one) == np.shape(other) and bool(np.allclose(one, other, rtol=self.tolerance, atol=1e-9))


def check_reward(
    reward: Reward | RewardFunction,
    completions: Sequence[Any],
    *,
    prompts: Sequence[Any] | None = None,
    columns: Mapping[str, Sequence[Any]] | None = None,
    compares: bool = False,
    hostile: Mapping[str, str] = SHORT,
    seconds: float = 30.0,
    tolerance: float = 1e-4,
) -> None:
    """Tries a reward against every law that training relies on.

    One finite number (or map, or None) a member; the same members get the same numbers again, in another order, and
    without their neighbours; what is read is declared; nothing that is given is changed; whatever a policy writes is
    judged in time, costs its own member alone, and is not run.

    Args:
        reward: configured, or a function `reward(prompts, completions, **columns)`.
        completions: two or more members of the author's, of different value: texts, chats, or images.
        prompts: one a member; unset gives each an empty one.
        columns: data columns, one entry a member.
        compares: whether the reward compares the members of a batch with each other, so that neighbours count.
        hostile: texts by name that take a member's place; they are tried where completions are texts or chats.
        seconds: that one batch may take.
        tolerance: relative difference that two computations of one value may have.

    Raises:
        BrokenLaws: the laws that do not hold, all at once.
        ValueError: fewer than two completions, or a column of another length.

    Example:
        >>> from groupwise.reward import ExactAnswer
        >>> check_reward(ExactAnswer(), ["4", "5"], columns={"answer": ["4", "4"]})
        >>> check_reward(lambda completions: [len(completions)], ["4", "5"])
        Traceback (most recent call last):
        groupwise.testing.broken.BrokenLaws: 1 of the laws of a reward are broken (docs/guide/rewards.md):
        - values: reward 'reward' returned 1 values for 2 members; write one entry a member, None where there is none
    """
    batch = _Batch(list(prompts or [""] * len(completions)), list(completions), dict(columns or {}))
    lengths = {"prompts": len(batch.prompts), **{name: len(values) for name, values in batch.columns.items()}}
    if len(batch) < 2 or any(length != len(batch) for length in lengths.values()):
        raise ValueError(
            f"check_reward: {len(batch)} completions beside {lengths}; give two or more, and one entry of all others a"
            " completion"
        )
    trial = functools.partial(_laws, reward, batch, compares, hostile, seconds, tolerance)
    broken = _in_time(functools.partial(trial, False), seconds)
    if any(sentence.startswith(_TOGETHER) for sentence in broken):
        broken = _in_time(functools.partial(trial, True), seconds)
    if broken:
        raise BrokenLaws(broken, "a reward", GUIDE)


def _laws(
    reward: Reward | RewardFunction,
    batch: _Batch,
    compares: bool,
    hostile: Mapping[str, str],
    seconds: float,
    tolerance: float,
    singly: bool,
    say: Callable[[str], None],
) -> list[str]:
    say("values: the author's own members")
    try:
        with Rewards({_NAME: _limited(reward, seconds)}) as rewards:
            needs = rewards.needs[_NAME]
            if missing := [name for name in needs if name not in batch.columns]:
                return [f"columns: it needs {missing[0]!r}, which is not among the columns that it is tried with"]
            before = copy.deepcopy(batch)
            try:
                values = _scored(rewards, batch)
            except (RewardError, _Late) as error:
                return [f"values: {error}"]
            broken = list(_unchanged(batch, before))
            if all(value is None for value in values):
                broken.append("values: it gave no member a number; try it with members that it can judge")
            trial = _Trial(rewards, before, values, needs, compares, tolerance)
            for law in (_repeat, _order, _neighbours, _columns):
                say(f"{law.__name__.strip('_')}: the author's own members")
                try:
                    broken += law(trial)
                except (RewardError, _Late) as error:
                    broken.append(f"{law.__name__.strip('_')}: {error}")
            return [*broken, *_hostile(trial, hostile, singly, say)]
    except RewardError as error:
        return [f"open: {error}"]


class _Late(Exception):
    """A batch was not scored: it ran past its time, or raised."""


def _limited(reward: Any, seconds: float) -> Any:
    """The same reward, which may take no longer, and whose errors are seen."""
    if isinstance(reward, Reward):
        limit = min(seconds, reward.timeout_seconds or seconds)
        return reward.model_copy(update={"timeout_seconds": limit, "on_error": "raise"})

    @functools.wraps(reward)
    def limited(*arguments: Any, **named: Any) -> Any:
        return reward(*arguments, **named)

    vars(limited).update(timeout_seconds=seconds, on_error="raise")
    return limited


def _scored(rewards: Rewards, batch: _Batch) -> list[Any]:
    table = rewards.score(batch.prompts, batch.completions, batch.columns)
    for event in table.events:
        if event.name in ("timeout", "error"):
            raise _Late(f"{event.name} {event.detail}".strip() + f" for {event.count} members")
    return list(table.maps[_NAME]) if _NAME in table.maps else list(table.values[_NAME])


def _unchanged(batch: _Batch, before: _Batch) -> Iterator[str]:
    pairs = {
        "prompts": (batch.prompts, before.prompts),
        "completions": (batch.completions, before.completions),
        **{name: (batch.columns[name], values) for name, values in before.columns.items()},
    }
    for name, (now, then) in pairs.items():
        if repr(now) != repr(then):
            yield f"inputs: it changed {name}, which other rewards are given too; change a copy"


def _repeat(trial: _Trial) -> Iterator[str]:
    again = _scored(trial.rewards, trial.batch)
    if (place := trial.differ(again, trial.values)) is not None:
        yield (
            f"repeat: the same batch gave member {place} {again[place]} after {trial.values[place]}; a resumed run"
            " would take another course: draw nothing, or from a seed of what is judged"
        )


def _order(trial: _Trial) -> Iterator[str]:
    places = list(range(len(trial.batch)))[::-1]
    turned = _scored(trial.rewards, trial.batch.rows(places))
    if (place := trial.differ(turned[::-1], trial.values)) is not None:
        yield (
            f"order: in a batch turned round member {place} got {turned[::-1][place]} and not {trial.values[place]}; a"
            " value belongs to the member, not to its place"
        )


def _neighbours(trial: _Trial) -> Iterator[str]:
    if trial.compares:
        return
    for place in range(len(trial.batch)):
        (single,) = _scored(trial.rewards, trial.batch.rows([place]))
        if trial.differ([single], [trial.values[place]]) is not None:
            yield (
                f"neighbours: without its neighbours member {place} got {single} and not {trial.values[place]}; judge"
                " each by itself, or write compares=True where comparing is meant"
            )
            return


def _columns(trial: _Trial) -> Iterator[str]:
    """What is needed is declared: without the other columns it still answers."""
    try:
        _scored(trial.rewards, trial.batch.reading(trial.needs))
    except (RewardError, _Late) as error:
        stated = ", ".join(trial.needs) or "none"
        yield (
            f"columns: with those alone that it says it needs ({stated}) it fails: {error}; name every column that it"
            " cannot do without as a parameter, or in needs"
        )


def _hostile(trial: _Trial, hostile: Mapping[str, str], singly: bool, say: Callable[[str], None]) -> Iterator[str]:
    """Whatever a policy writes is judged, beside ordinary members that keep their values."""
    shapes = {type(completion) for completion in trial.batch.completions}
    if not shapes <= {str, list}:
        return
    executed = Path(MARK)
    before = executed.exists()

    def attempt(texts: Mapping[str, str]) -> str:
        chat = shapes == {list}
        given = [[{"role": "assistant", "content": text}] if chat else text for text in texts.values()]
        last = len(trial.batch) - 1
        batch = trial.batch.rows([0, *[0] * len(given), last])
        try:
            values = _scored(
                trial.rewards,
                _Batch(batch.prompts, [batch.completions[0], *given, batch.completions[-1]], batch.columns),
            )
        except (RewardError, _Late) as error:
            return str(error)
        kept = trial.differ([values[0], values[-1]], [trial.values[0], trial.values[last]]) is None
        return "" if kept or trial.compares else "an ordinary member beside it gets another value"

    say(_TOGETHER)
    if singly or attempt(hostile):
        for name, text in hostile.items():
            say(f"hostile: the text {name!r}")
            if problem := attempt({name: text}):
                yield f"hostile: on the text {name!r}: {problem}; give it the value of a wrong answer"
                break
        else:
            yield "hostile: many texts at once take too long or fail, and none by itself does"
    if executed.exists() and not before:
        executed.unlink()
        yield "hostile: it ran code that stood in a completion; never give a policy's words to eval, exec or sympify"


def _in_time(work: Callable[[Callable[[str], None]], list[str]], seconds: float) -> list[str]:
    """Does the work in a process of its own, which is ended where nothing comes of it: no thread could be, inside a
    regular expression. Where processes cannot be forked, it is done here.
    """
    torch = sys.modules.get("torch")
    if "fork" not in multiprocessing.get_all_start_methods() or (torch is not None and torch.cuda.is_initialized()):
        return work(lambda law: None)
    context: Any = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)

    def run() -> None:
        try:
            there.send(work(lambda law: there.send(law)))
        except BaseException as error:
            there.send([f"reward: {type(error).__name__}: {error}"])

    process = context.Process(target=run)
    process.start()
    there.close()
    law = "open"
    try:
        # A batch that is only slow is told by its own limit.
        while here.poll(seconds + PATIENCE):
            message = here.recv()
            if isinstance(message, list):
                return message
            law = message
        return [f"{law}: it takes more than {seconds + PATIENCE:g} s and cannot be interrupted; bound what it computes"]
    except EOFError:
        return [f"{law}: its process ended; a reward must not end or kill the process that it runs in"]
    finally:
        process.kill()
        process.join()
