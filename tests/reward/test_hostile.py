"""Every kind of reward on every hostile text: the member is judged, its neighbour keeps its reward, and nothing runs,
prints or is written.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reasoning_gym
from reasoning_gym.factory import DATASETS, get_score_answer_fn
from tests.reward.models.test_judge import Service, said

from groupwise.domain.language.source.base import plain
from groupwise.reward import Extract, Format, ReasoningGym, Reward, Rewards, RewardTable
from groupwise.reward.completions import MAX_CHARACTERS
from groupwise.reward.config import REWARDS
from groupwise.testing import check_reward
from groupwise.testing.reward import SHORT, TEXTS

KINDS: dict[str, type[Reward]] = {kind: REWARDS.config(kind) for kind in REWARDS.names()}
NO_TEXT = {"jpeg_size", "classifier", "clip_score", "pick_score", "aesthetic", "psnr", "squared_error", "ssim", "lpips"}
NO_TEXT |= {"vqa", "shot_cost"}
"""Kinds that read images, or numbers that were measured, and no word of a policy."""
BOMB = r"(?:a|aa)+(4)b|(?:a|b|ab)*cc|(?:\w|\d|a1)+;;"

COUNTDOWN = {"source_dataset": "countdown", "numbers": [19, 9, 3], "target": 13}
COLUMNS: dict[str, Any] = {
    "answer": "4",
    "metadata": COUNTDOWN,
    "question": "?",
    "num_tokens": 4,
    "tests": ["assert add(1, 1) == 2"],
}
KNIGHT = "<think>.</think><answer>Al is a knight</answer>"
READERS: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "exact_answer": ({}, "4", {}),
    "numeric_answer": ({}, "so 4", {}),
    "math_verify": ({"seconds_per_answer": 20.0}, "$4$", {}),
    "format": ({}, "<think>a</think><answer>b</answer>", {}),
    "length": ({"target": 2}, "one two", {}),
    "coherence": ({}, "因为", {}),
    "repetition": ({}, "a b c", {}),
    "soft_overlong": ({"column": None, "max_length": 9}, "a b", {}),
    "knights_and_knaves": ({}, KNIGHT, {"answer": "Al is a knight."}),
    "reasoning_gym": ({"seconds_per_answer": 60.0}, "19-9+3", {"answer": "?"}),
    "unit_tests": ({"cpu_seconds": 2.0}, "def add(a, b): return a + b", {}),
    "win_rate": ({"function": "groupwise.reward.models.judge:longer"}, "a", {}),
    "callable": ({"path": "groupwise.reward.callable:example"}, "because", {}),
    "reward_model": ({}, "a b", {}),
    "judge": ({"model": "m", "template": "{prompt} {completion} {answer}"}, "4", {}),
}
"""Kind -> settings, a completion that is judged as ever, and columns other than those above."""


@pytest.fixture(scope="module")
def judge_address() -> Iterator[str]:
    """A judge that repeats what it was shown, as judges do."""

    def reply(body: dict[str, Any]) -> tuple[int, str]:
        asked = body["messages"][-1]["content"]
        return said(f"{asked} Score: 5" if asked == "? 4 4" else asked)

    service = Service(reply)
    yield service.address
    service.close()


@pytest.fixture(scope="module")
def configured(judge_address: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Reward]:
    """Rewards by kind."""

    @functools.cache
    def get(kind: str) -> Reward:
        settings = {"timeout_seconds": 600.0, **READERS[kind][0]}
        if kind == "judge":
            settings |= {"address": judge_address, "num_retries": 0}
        if kind == "reward_model":
            from tests.reward.models.test_reward_model import build

            settings["path"] = build(tmp_path_factory.mktemp("model"))
        return KINDS[kind](**settings)

    return get


@pytest.fixture(scope="module")
def opened(configured: Callable[[str], Reward]) -> Iterator[Callable[[str], Rewards]]:
    """Rewards by kind, each opened once."""
    ready: dict[str, Rewards] = {}

    def get(kind: str) -> Rewards:
        if kind not in ready:
            ready[kind] = Rewards({"r": configured(kind)})
        return ready[kind]

    yield get
    for rewards in ready.values():
        rewards.close()


@pytest.fixture
def untouched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Nothing is written to the working directory, and no more than a line or two is printed."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.chdir(tmp_path)
    yield
    assert list(tmp_path.iterdir()) == []
    printed = capfd.readouterr()
    assert len(printed.out) + len(printed.err) < 1000


def scored(rewards: Rewards, completions: list[str], columns: dict[str, Any]) -> RewardTable:
    return rewards.score(
        ["?"] * len(completions), completions, {name: [value] * len(completions) for name, value in columns.items()}
    )


def test_every_kind_reads_hostile_texts_below_or_reads_none() -> None:
    assert set(READERS) | NO_TEXT == set(KINDS)
    assert not set(READERS) & NO_TEXT


def hurt_by(kind: str, names: Iterable[str], rewards: Rewards) -> list[str]:
    """The texts that change the reward of an ordinary neighbour, or that end in an event of the batch."""
    _, ordinary, columns = READERS[kind]
    expected = scored(rewards, [ordinary] * 2, COLUMNS | columns).values["r"][0]
    names, hurt = list(names), []
    # Where members are compared with each other, a text has a batch of its own.
    for batch in [[name] for name in names] if kind == "win_rate" else [names]:
        completions = [ordinary, *(text for name in batch for text in (TEXTS[name], ordinary))]
        table = scored(rewards, completions, COLUMNS | columns)
        ended = {event.member for event in table.events if event.name in ("timeout", "error")}
        for place, name in enumerate(batch):
            around = [table.values["r"][2 * place], table.values["r"][2 * place + 2]]
            # A longer neighbour pads the batch of a model, which rounds in another order.
            kept = None not in around if kind == "win_rate" else around == pytest.approx([expected] * 2, rel=1e-4)
            if not kept or ended & {None, 2 * place + 1}:
                hurt.append(name)
    return hurt


ENDLESS = {
    "math_verify": [
        *("tower", "power", "tower in LaTeX", "factorials", "deep fractions", "deep roots", "sum", "integral"),
        *("binomial", "10 MB of digits", "10 MB of lines", "10 MB of opening tags"),
    ]
}
"""Texts that the library works on for longer than anybody waits."""
LARGE = [name for name in TEXTS if name not in SHORT]
MANY_WORDS = ["10 MB of words", "10 MB of lines"]
"""Dear for every kind, because the phrases of every completion are counted."""


def texts_for(kind: str) -> list[str]:
    """The texts of `make test`: all that a kind is done with in a moment."""
    if kind in ("math_verify", "reward_model", "judge", "numeric_answer"):
        left_out = {*ENDLESS.get(kind, ()), *LARGE} - {"10 MB of letters and digits"}
    else:
        left_out = set() if kind == "repetition" else set(MANY_WORDS)
    return [name for name in TEXTS if name not in left_out]


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=pytest.mark.slow) if kind in ("reasoning_gym", "reward_model", "repetition") else kind
        for kind in READERS
        if kind != "unit_tests"
    ],
)
def test_a_hostile_text_costs_its_member_alone(kind: str, opened: Callable[[str], Rewards]) -> None:
    assert hurt_by(kind, texts_for(kind), opened(kind)) == []


@pytest.mark.slow
@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("kind", READERS)
def test_a_hostile_text_that_takes_long_costs_its_member_alone(kind: str, opened: Callable[[str], Rewards]) -> None:
    names = TEXTS if kind == "unit_tests" else [name for name in TEXTS if name not in texts_for(kind)]
    assert hurt_by(kind, [name for name in names if name not in ENDLESS.get(kind, ())], opened(kind)) == []


@pytest.mark.slow
@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("name", ENDLESS["math_verify"])
def test_an_endless_text_costs_its_member_alone(name: str) -> None:
    hurt = [name]
    # The time of a member is that of a clock: where a busy machine gave the neighbours none, they get more.
    for seconds in (2.0, 60.0):
        with Rewards({"r": KINDS["math_verify"](seconds_per_answer=seconds, timeout_seconds=600.0)}) as rewards:
            hurt = hurt_by("math_verify", [name], rewards)
        if not hurt:
            break
    assert hurt == []


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=pytest.mark.nightly if kind == "math_verify" else pytest.mark.slow) for kind in READERS],
)
def test_what_authors_are_tried_with_holds_for_ours(kind: str, configured: Callable[[str], Reward]) -> None:
    _, ordinary, columns = READERS[kind]
    completions = [ordinary, f"{ordinary} {ordinary}", "neither"]
    check_reward(
        configured(kind),
        completions,
        prompts=["?"] * len(completions),
        columns={name: [value] * len(completions) for name, value in (COLUMNS | columns).items()},
        compares=kind == "win_rate",
        seconds=600.0,
    )


@pytest.mark.slow
@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(
    "reward",
    [
        Format(pattern=BOMB),
        KINDS["exact_answer"](extract=Extract(pattern=BOMB)),
        KINDS["numeric_answer"](extract=Extract(pattern=BOMB)),
    ],
)
def test_a_pattern_of_the_users_costs_its_member_alone(reward: Reward, monkeypatch: pytest.MonkeyPatch) -> None:
    def hurts(name: str) -> bool:
        return scored(rewards, [TEXTS[name], "aa4b"], COLUMNS | {"answer": "4"}).values["r"] != [0.0, 1.0]

    hurt = [*SHORT, "10 MB of one letter", "10 MB of letters and digits"]
    # A busy machine may take longer over the neighbour.
    for seconds in (0.2, 60.0):
        monkeypatch.setattr("groupwise.reward.texts.answers.PATTERN_SECONDS", seconds)
        with Rewards({"r": reward}) as rewards:
            hurt = [name for name in hurt if hurts(name)]
    assert hurt == []


TASKS = sorted(set(DATASETS) - {"composite"})
"""Those of `composite` are the others."""


@pytest.fixture(scope="module")
def gym() -> Iterator[Rewards]:
    with Rewards({"r": ReasoningGym(seconds_per_answer=1.0, timeout_seconds=600.0)}) as rewards:
        yield rewards


def entries(task: str, num: int = 2) -> list[dict[str, Any]]:
    dataset = reasoning_gym.create_dataset(task, seed=5, size=num)
    rows = [
        {
            "question": str(dataset[i]["question"]),
            "answer": plain(dataset[i]["answer"]),
            "metadata": plain(dataset[i]["metadata"]),
        }
        for i in range(num)
    ]
    return json.loads(json.dumps(rows))


def of_entries(rewards: Rewards, rows: list[dict[str, Any]], texts: list[str]) -> RewardTable:
    return rewards.score(
        ["?"] * len(rows), texts, {name: [row[name] for row in rows] for name in ("question", "answer", "metadata")}
    )


# Making a scorer makes its data set.
_scorer = functools.cache(get_score_answer_fn)


def _tried(gym: Rewards, task: str, texts: dict[str, str]) -> None:
    (row,) = entries(task, 1)
    expected = str(row["answer"])
    table = of_entries(gym, [row] * (len(texts) + 1), [*texts.values(), expected])
    assert table.values["r"][-1] == _scorer(task)(expected, row)
    assert all(value is not None for value in table.values["r"])
    assert not {"timeout", "answer_refused"} & {event.name for event in table.events}


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(
    "task",
    [
        *("prime_factorization", "spiral_matrix"),
        *(pytest.param(task, marks=pytest.mark.slow) for task in ("countdown", "simple_integration")),
    ],
)
def test_hostile_answers_to_tasks_that_evaluate_or_recurse(task: str, gym: Rewards) -> None:
    _tried(gym, task, SHORT)


@pytest.mark.nightly
@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("task", TASKS)
def test_hostile_answers_to_every_task(task: str, gym: Rewards) -> None:
    # No more is read of a completion, and sending the rest to every task takes long.
    _tried(gym, task, {name: text[: MAX_CHARACTERS + 1] for name, text in TEXTS.items()})


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_right_answers_and_near_misses_score_as_by_the_library(task: str, gym: Rewards) -> None:
    rows, texts, expected = [], [], []
    for row in entries(task, 4):
        for text in _near(str(row["answer"])):
            rows.append(row)
            texts.append(text)
            expected.append(_by_library(task, text, row))
    assert of_entries(gym, rows, texts).values["r"] == expected


def _near(answer: str) -> list[str]:
    matrix = [row.split() for row in answer.split("\n")]
    shorter = [answer, answer[:-1], answer[1:], answer.replace(" ", ""), "0", "no"]
    longer = [f"{answer}1", f"({answer})", f"answer: {answer}", str(matrix), str(list(answer)), str(matrix[0])]
    replaced = [answer.replace(old, new, 1) for old, new in (("1", "2"), ("+", "-"), ("C", "c"))]
    return [*shorter, *longer, *replaced, answer.lower(), answer.upper()]


def _by_library(task: str, text: str, row: dict[str, Any]) -> float:
    try:
        return float(_scorer(task)(text.strip(), json.loads(json.dumps(row))))
    # What the library fails on is a wrong answer here.
    except Exception:
        return 0.0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["psnr", "squared_error", "ssim", "jpeg_size"])
def test_what_authors_are_tried_with_holds_for_ours_of_images(kind: str) -> None:
    generator = np.random.default_rng(0)
    clean = [generator.integers(0, 256, (16, 16, 3), dtype=np.uint8) for _ in range(3)]
    noise = generator.integers(-20, 20, (16, 16, 3))
    images = [np.clip(image + place * noise, 0, 255).astype(np.uint8) for place, image in enumerate(clean)]
    check_reward(KINDS[kind](), images, columns={"clean": clean})
