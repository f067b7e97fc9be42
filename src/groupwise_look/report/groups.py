"""The groups of a run: size and rewards of each, and the sample of them that a page shows."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np

from groupwise.runs import Run, is_number
from groupwise_look.report.axes import round_significant
from groupwise_look.report.pictures import SUFFIXES, Pictures

STRATA = ("first", "last", "highest spread", "all wrong", "flat", "evenly over the run")
"""The strata of a page's sample; a group that fits several counts for the first of them."""


@final
@dataclass(frozen=True)
class Group:
    """One group as `rollouts/` recorded it.

    Args:
        step: step of the run that sampled the group.
        key: identifies the group within the file of its step.
        size: number of recorded members.
        low, high: lowest and highest reward of a member; `None` where no member has one.

    Example:
        >>> Group(1, 0, 4, 0.0, 0.0).all_wrong, Group(1, 0, 4, 0.0, 1.0).spread
        (True, 1.0)
    """

    step: int
    key: Any
    size: int
    low: float | None
    high: float | None

    @property
    def flat(self) -> bool:
        """True where all rewards are equal, so that there was nothing to compare."""
        return self.low is not None and self.low == self.high

    @property
    def all_wrong(self) -> bool:
        """True where the group is flat at a reward of 0 or below."""
        return self.flat and (self.high or 0.0) <= 0.0

    @property
    def spread(self) -> float:
        """The best reward minus the worst; 0 where no member has one."""
        return 0.0 if self.low is None or self.high is None else self.high - self.low


@final
@dataclass(frozen=True)
class Recorded:
    """The numbers in the recorded rollouts of a run.

    Args:
        groups: all recorded groups, in order of their steps.
        advantages, rewards: step -> values of the recorded members.
        reward_names: names of the rewards, in the order in which they appear.
        remarks: one sentence for every line or file that could not be read.
    """

    groups: list[Group] = field(default_factory=list)
    advantages: dict[int, np.ndarray] = field(default_factory=dict)
    rewards: dict[int, np.ndarray] = field(default_factory=dict)
    reward_names: tuple[str, ...] = ()
    remarks: list[str] = field(default_factory=list)


def scan(run: Run) -> Recorded:
    """Reads all rollouts of a run once, with one file in memory at a time.

    Returns:
        the numbers of every group, without its texts.
    """
    recorded = Recorded()
    reward_names: dict[str, None] = {}
    for step, path in run.rollouts.items():
        rewards: dict[Any, list[Any]] = {}
        advantages: list[float] = []
        for record in run.records(path, recorded.remarks):
            rewards.setdefault(group_key(record), []).append(record.get("reward"))
            if is_number(record.get("advantage")):
                advantages.append(float(record["advantage"]))
            if isinstance(rewards_by_name := record.get("rewards"), dict):
                reward_names.update(dict.fromkeys(map(str, rewards_by_name)))
        for key, values in rewards.items():
            reward_numbers = [float(value) for value in values if is_number(value)]
            recorded.groups.append(
                Group(step, key, len(values), min(reward_numbers, default=None), max(reward_numbers, default=None))
            )
        recorded.advantages[step] = np.array(advantages)
        recorded.rewards[step] = np.array(
            [float(value) for values in rewards.values() for value in values if is_number(value)]
        )
    return Recorded(recorded.groups, recorded.advantages, recorded.rewards, tuple(reward_names), recorded.remarks)


def group_key(record: dict[str, Any]) -> Any:
    """Returns the value that the members of one group share in the file of their step.

    Args:
        record: one member's line of `rollouts/`, as JSON read it.

    Example:
        >>> group_key({"group": 3, "key": "a"}), group_key({"key": "a"}), group_key({"prompt": ["b"]})
        (3, 'a', "['b']")
    """
    for name in ("group", "key", "prompt"):
        if (value := record.get(name)) is not None:
            return value if isinstance(value, str) or is_number(value) else str(value)
    return ""


def choose(groups: Sequence[Group], most_groups: int) -> list[tuple[Group, str]]:
    """Returns a stratified sample of groups.

    The strata are the groups of the first and of the last recorded step, those of the highest spread, all-wrong and
    flat groups over the whole run, and every k-th group. The strata are served in turn, so that any beginning of the
    sample is a sample as well, with every stratum in it.

    Args:
        groups: groups of one run, in order of their steps.
        most_groups: the largest size of the sample.

    Returns:
        groups, each with the stratum that it stands for, the most important first.

    Example:
        >>> groups = [Group(step, 0, 4, 0.0, float(step % 2)) for step in range(1, 9)]
        >>> [(group.step, stratum) for group, stratum in choose(groups, 4)]
        [(1, 'first'), (8, 'last'), (3, 'highest spread'), (6, 'all wrong')]
    """
    if not groups:
        return []

    def positions(belongs: Callable[[Group], bool]) -> list[int]:
        return [position for position, group in enumerate(groups) if belongs(group)]

    few = most_groups // 8 + 1
    queues = {
        "first": positions(lambda group: group.step == groups[0].step)[:few],
        "last": positions(lambda group: group.step == groups[-1].step)[:few],
        "highest spread": sorted(positions(lambda group: group.spread > 0), key=lambda place: -groups[place].spread),
        "all wrong": _spread_out(positions(lambda group: group.all_wrong)),
        "flat": _spread_out(positions(lambda group: group.flat and not group.all_wrong)),
        "evenly over the run": _spread_out(list(range(len(groups)))),
    }
    chosen: dict[int, str] = {}
    waiting = {stratum: iter(queue) for stratum, queue in queues.items()}
    while waiting and len(chosen) < min(most_groups, len(groups)):
        for stratum in list(waiting):
            position = next((position for position in waiting[stratum] if position not in chosen), None)
            if position is None:
                del waiting[stratum]
            elif len(chosen) < most_groups:
                chosen[position] = stratum
    return [(groups[position], stratum) for position, stratum in chosen.items()]


def _spread_out(positions: list[int]) -> list[int]:
    """Returns the same positions in the order of halves, quarters, eighths, ..., so that every beginning of the list
    is spread evenly over the whole.
    """
    num_positions = len(positions)
    if num_positions < 3:
        return positions
    order: dict[int, None] = {}
    num_intervals = 1
    while num_intervals < 2 * num_positions:
        middles = ((2 * interval + 1) * num_positions // (2 * num_intervals) for interval in range(num_intervals))
        order.update(dict.fromkeys(middles))
        num_intervals *= 2
    return [positions[position] for position in dict.fromkeys([*order, *range(num_positions)])]


# A member of a group as data of a page: short keys, no value twice, and long texts cut.

MOST_CHARACTERS = 6000
"""Characters of one text on a page; of a longer text its beginning and its end stay."""
MOST_TOKENS = 1500
"""Tokens of one member on a page; of more tokens the first and the last stay."""

_PLACED_FIELDS = frozenset(
    (
        *("prompt", "prompt_ids", "key", "text", "messages", "tokens", "token_ids", "num_tokens", "truncated"),
        *("token_log_prob", "token_log_ratio", "token_credit", "num_decisions", "log_ratio", "reward", "rewards"),
        *("advantage", "settings", "group", "demonstrations", "picks", "answers", "sample", "mode", "logged"),
    )
)
_NUMBERS = {"lp": "token_log_prob", "lr": "token_log_ratio", "cr": "token_credit"}


def member(record: Mapping[str, Any], reward_names: Sequence[str], root: Path, pictures: Pictures) -> dict[str, Any]:
    """Returns one record of `rollouts/` as data of the page.

    Args:
        record: one member's line of `rollouts/`; its values may be of any type, since user code wrote them.
        reward_names: names of the rewards, in the page's order.
        root: the run folder, to which paths of pictures are relative.
        pictures: collects the pictures of the page.

    Returns:
        `r` reward, `a` advantage, `p` the single rewards, `t` text, `k` tokens with `lp`, `lr`, `cr` (log-prob when
        sampled, log-ratio, credit) and, of a long list, the number `more` of tokens left out after the first `head`,
        `m` turns, `d` demonstrations with `o` the answer that the task model gave after them and `w` the answers that
        count as right, `i` pictures, `e` all remaining fields, `n` decisions, `l` mean log-ratio, `x` true where a
        limit cut the member off; a key is absent where its value is empty.

    Example:
        >>> member(
        ...     {"reward": 1.0, "advantage": 0.5, "text": "four", "rewards": {"right": 1.0}},
        ...     ["right"],
        ...     Path(),
        ...     Pictures(0),
        ... )
        {'r': 1, 'a': 0.5, 'p': [1], 't': 'four'}
    """
    rewards = record.get("rewards")
    member_data: dict[str, Any] = {
        "r": number(record.get("reward")),
        "a": number(record.get("advantage")),
        "p": [number(rewards.get(name)) if isinstance(rewards, Mapping) else None for name in reward_names],
    }
    count = record.get("num_decisions", record.get("num_tokens"))
    if is_number(count):
        member_data["n"] = number(count)
    if record.get("truncated") is True:
        member_data["x"] = True
    if number(record.get("log_ratio")):
        member_data["l"] = number(record.get("log_ratio"))
    if record.get("text") is not None:
        member_data["t"] = shortened(record["text"])
    member_data |= _tokens(record)
    if isinstance(turns := record.get("messages"), list):
        member_data["m"] = conversation(turns)
    if isinstance(examples := record.get("demonstrations"), list):
        member_data["d"] = [demonstration(example, root, pictures) for example in examples]
        member_data |= _answered(record)
    images, remaining_fields = {}, {}
    for name, value in record.items():
        if name in _PLACED_FIELDS:
            continue
        if isinstance(value, str) and value.lower().endswith(SUFFIXES):
            images[name] = pictures.add(root, value)
        elif value not in (None, "", [], {}):
            remaining_fields[name] = shortened(value, 600)
    if isinstance(logged := record.get("logged"), Mapping):
        remaining_fields |= {str(name): shortened(value, 600) for name, value in logged.items() if value is not None}
    if images:
        member_data["i"] = images
    if remaining_fields:
        member_data["e"] = remaining_fields
    return member_data


def number(value: object) -> float | int | None:
    """Rounds a number to four significant digits; returns `None` for any value that is not a number.

    Example:
        >>> [number(value) for value in (0.123456, True, "1", None)]
        [0.1235, None, None, None]
    """
    return round_significant(value, 4) if is_number(value) else None


def shortened(value: object, most_characters: int = MOST_CHARACTERS) -> str:
    """Returns a text; where it is long, its middle is replaced by the number of characters left out. The end stays,
    because rewards judge the end of an answer.

    Args:
        value: a text, or any value, which is converted to one.
        most_characters: the length from which on a text is cut.

    Example:
        >>> shortened("abcdef", 4)
        'ab … 2 characters left out … ef'
    """
    text = value if isinstance(value, str) else str(value)
    if len(text) <= most_characters:
        return text
    tail = most_characters // 2
    head = most_characters - tail
    return f"{text[:head]} … {len(text) - most_characters:,} characters left out … {text[len(text) - tail :]}"


def conversation(turns: Sequence[Any]) -> list[list[str]]:
    """Returns a conversation as pairs of role and content.

    Args:
        turns: tables with `role` and `content`, as chat templates take them.

    Example:
        >>> conversation([{"role": "user", "content": "higher"}, 7])
        [['user', 'higher'], ['', '7']]
        >>> call = {"function": {"name": "add", "arguments": {"a": 2}}}
        >>> conversation([{"role": "assistant", "content": "", "tool_calls": [call]}])
        [['assistant', '{"name": "add", "arguments": {"a": 2}}']]
    """
    tables = [turn if isinstance(turn, Mapping) else {"content": turn} for turn in turns]
    return [[str(turn.get("role", "")), shortened(_turn_text(turn))] for turn in tables]


def _turn_text(turn: Mapping[str, Any]) -> object:
    """Returns a message's content, followed by the calls of tools that it made."""
    content, calls = turn.get("content", ""), turn.get("tool_calls")
    if not isinstance(calls, list):
        return content
    functions = [call.get("function", call) if isinstance(call, Mapping) else call for call in calls]
    return "\n".join([str(content), *(json.dumps(function, ensure_ascii=False) for function in functions)]).strip()


def demonstration(example: Any, root: Path, pictures: Pictures) -> dict[str, Any]:
    """Returns a chosen demonstration, its fields as texts and its pictures as numbers.

    Args:
        example: the demonstration in a member's record: a table of fields, or an identifier.
        root: the run folder, to which paths of pictures are relative.
        pictures: collects the pictures of the page.

    Example:
        >>> demonstration({"question": "2 + 2?", "answer": "4"}, Path(), Pictures(0))
        {'question': '2 + 2?', 'answer': '4'}
    """
    if not isinstance(example, Mapping):
        return {"id": shortened(example, 600)}
    example_data = {}
    for name, value in example.items():
        picture = isinstance(value, str) and value.lower().endswith(SUFFIXES)
        example_data[str(name)] = pictures.add(root, value) if picture else shortened(value, 600)
    return example_data


def _answered(record: Mapping[str, Any]) -> dict[str, str]:
    """Returns the task model's answer after the last demonstration, and the answers that count as right."""
    measurements, right_answers = record.get("measured"), record.get("answers")
    answer_data = {}
    for measurement in measurements if isinstance(measurements, list) else ():
        if isinstance(measurement, Mapping) and "prediction" in measurement:
            answer_data["o"] = shortened(measurement["prediction"], 600)
    if isinstance(right_answers, list) and right_answers:
        answer_data["w"] = shortened(", ".join(dict.fromkeys(map(str, right_answers))), 600)
    return answer_data


def _tokens(record: Mapping[str, Any]) -> dict[str, Any]:
    tokens = record.get("tokens")
    if not isinstance(tokens, list) or not tokens:
        return {}
    cut = len(tokens) - MOST_TOKENS
    head, tail = MOST_TOKENS - MOST_TOKENS // 2, len(tokens) - MOST_TOKENS // 2

    def ends(values: list[Any]) -> list[Any]:
        return values[:head] + values[tail:] if cut > 0 else values

    token_data: dict[str, Any] = {"k": [shortened(token, 200) for token in ends(tokens)]}
    if cut > 0:
        token_data |= {"more": cut, "head": head}
    for page_key, name in _NUMBERS.items():
        if isinstance(values := record.get(name), list) and len(values) == len(tokens):
            token_data[page_key] = [round_significant(value, 3) if is_number(value) else None for value in ends(values)]
    return token_data


# The data of a page's group browser: a sample of each run's groups with their members, within a budget of bytes.

MOST_MEMBERS = 128
"""Members of one group on a page; of a larger group the best and the worst half of this number stay."""


def browse(run: Run, recorded: Recorded, *, most_groups: int, text_bytes: int, picture_bytes: int) -> dict[str, Any]:
    """Returns the groups of one run that a page shows.

    Args:
        recorded: the run's groups, as `scan` returns them.
        most_groups: the largest number of groups.
        text_bytes, picture_bytes: the bytes of the page that texts and pictures may take.

    Returns:
        `parts` (names of the rewards), `groups` in order of their steps, `pictures` (addresses that members name by
        number), and `counts`: how many groups are shown of each stratum, how many there are, and the step from which on
        none was left out where a long run was thinned.
    """
    sample = choose(recorded.groups, most_groups)
    order = {(group.step, group.key): position for position, (group, _) in enumerate(sample)}
    members: dict[int, list[dict[str, Any]]] = {}
    for step in sorted({group.step for group, _ in sample}):
        for record in run.records(run.rollouts[step], []):
            if (position := order.get((step, group_key(record)))) is not None:
                members.setdefault(position, []).append(record)
    pictures = Pictures(picture_bytes)
    # The sample is ordered by importance, so that a small budget still contains every stratum.
    drawn = (
        _group(*sample[place], members.pop(place), recorded.reward_names, run, pictures) for place in sorted(members)
    )
    browsed_groups = fitting(drawn, text_bytes)
    counts = {stratum: sum(group_data["why"] == stratum for group_data in browsed_groups) for stratum in STRATA}
    return {
        "parts": list(recorded.reward_names),
        "groups": sorted(browsed_groups, key=lambda group_data: (group_data["step"], str(group_data["group"]))),
        "pictures": pictures.addresses,
        "pictures_left_out": pictures.num_left_out,
        "counts": {
            "shown": len(browsed_groups),
            "recorded": len(recorded.groups),
            "flat": sum(group.flat for group in recorded.groups),
            "all_wrong": sum(group.all_wrong for group in recorded.groups),
            "steps": len(run.rollouts),
            "of_steps": run.num_steps,
            "whole_from": run.whole_from,
            "strata": {stratum: count for stratum, count in counts.items() if count},
        },
    }


def fitting(groups: Iterable[dict[str, Any]], num_bytes: int) -> list[dict[str, Any]]:
    """Returns those groups that a budget of bytes holds, the first ones first."""
    fit = []
    for group_data in groups:
        size = len(json.dumps(group_data, ensure_ascii=False).encode("utf-8", "replace"))
        if size <= num_bytes:
            num_bytes -= size
            fit.append(group_data)
    return fit


def prompt_of(record: Mapping[str, Any]) -> Any:
    """Returns a record's prompt as data of the page: a text, or the turns of a conversation."""
    prompt = record.get("prompt")
    return conversation(prompt) if isinstance(prompt, list) else shortened("" if prompt is None else prompt)


def _group(
    group: Group,
    stratum: str,
    records: Sequence[Mapping[str, Any]],
    reward_names: Sequence[str],
    run: Run,
    pictures: Pictures,
) -> dict[str, Any]:
    ranked = sorted(
        records, key=lambda record: -float(record["reward"]) if is_number(record.get("reward")) else float("inf")
    )
    if len(ranked) > MOST_MEMBERS:
        ranked = [*ranked[: MOST_MEMBERS // 2], *ranked[-MOST_MEMBERS // 2 :]]
    first_record = ranked[0]
    group_data: dict[str, Any] = {
        "step": group.step,
        "group": group.key,
        "key": shortened(first_record.get("key", ""), 80),
        "why": stratum,
        "prompt": prompt_of(first_record),
        "members": [member(record, reward_names, run.path, pictures) for record in ranked],
    }
    if len(records) > len(ranked):
        group_data["left"] = len(records) - len(ranked)
    if group.flat:
        group_data["flat"] = True
    if group.all_wrong:
        group_data["wrong"] = True
    if isinstance(settings := first_record.get("settings"), Mapping):
        group_data["settings"] = {str(name): value for name, value in settings.items() if is_number(value)}
    return group_data
