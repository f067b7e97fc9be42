"""Rewards in a process of their own: killed when they hang, started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from groupwise.reward import CallableReward, Format, MathVerify, ReasoningGym, RewardError, Rewards, score
from groupwise.reward.scoring.process import ProcessReward
from groupwise.reward.wall.usage import descendants


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_process_rewards.py").write_text(
        textwrap.dedent("""
            import ctypes, os, signal, sys
            from pathlib import Path
            def holds(completions):
                # A C function that is called with the interpreter held, which no thread can end.
                if completions == ["for ever"]:
                    Path(__file__).with_suffix(".held").touch()
                    ctypes.PyDLL(None).sleep(3600)
                return [1.0 for _ in completions]
            def secrets(completions):
                return [float(os.environ.get("MY_SECRET_KEY", "0")) for _ in completions]
            def prints(completions):
                print("noise", flush=True)
                return [1.0 for _ in completions]
            def fails(completions):
                for text in completions:
                    if text == "dies":
                        os.kill(os.getpid(), signal.SIGKILL)
                    if text == "raises":
                        raise KeyError("colour")
                return [float("nan") if text == "nan" else object() for text in completions]
            def process(completions):
                return [os.getpid() for _ in completions]
        """)
    )
    monkeypatch.syspath_prepend(str(tmp_path))


def own(name: str, **settings: object) -> CallableReward:
    return CallableReward(path=f"own_process_rewards:{name}", isolation="process", **settings)  # type: ignore[arg-type]


@pytest.mark.usefixtures("own_module")
def test_a_reward_that_holds_the_interpreter_is_killed_and_the_next_batch_works() -> None:
    with Rewards({"r": own("holds", timeout_seconds=6.0)}) as rewards:
        table = rewards.score(["?"], ["for ever"])
        assert table.values == {"r": [None]}
        assert [(event.name, event.detail) for event in table.events] == [
            ("timeout", "longer than 6 s for a batch of 1; raise its timeout_seconds")
        ]
        # Starting another counts as well, and a busy machine may need more than one try.
        assert any(rewards.score(["?"] * 2, ["a", "b"]).values["r"] == [1.0, 1.0] for _ in range(10))


@pytest.mark.usefixtures("own_module")
def test_prints_of_a_reward_are_passed_on_and_are_no_answers(capfd: pytest.CaptureFixture[str]) -> None:
    with Rewards({"r": own("prints")}) as rewards:
        assert rewards.score(["?"], ["a"]).values == {"r": [1.0]}
    assert capfd.readouterr().err == "noise\n"


@pytest.mark.usefixtures("own_module")
def test_a_reward_of_yours_keeps_the_environment_and_one_of_the_package_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MY_SECRET_KEY", "7")
    with Rewards({"r": own("secrets")}) as rewards:
        assert rewards.score(["?"], ["a"]).values["r"] == [7.0]
    reward = ProcessReward(ReasoningGym())
    assert reward._process is not None
    for process in (reward._process.pid, *descendants(reward._process.pid)):
        assert "MY_SECRET_KEY" not in Path(f"/proc/{process}/environ").read_text()
    reward.close()


@pytest.mark.usefixtures("own_module")
def test_failures_name_the_reward_and_the_place() -> None:
    with Rewards({"r": own("fails")}) as rewards:
        for text, message in (
            ("raises", r"KeyError: 'colour' \(at .*own_process_rewards.py:\d+ in fails"),
            ("nan", "gave nan for member 0"),
            ("object", "of type str for member 0"),
            ("dies", "ended with signal 9"),
        ):
            with pytest.raises(RewardError, match=f"reward 'r' .*{message}"):
                rewards.score(["?"], [text])


@pytest.mark.usefixtures("own_module")
def test_a_dead_process_is_replaced() -> None:
    with Rewards({"r": own("process", on_error="missing")}) as rewards:
        first_value = rewards.score(["?"], ["a"]).values["r"][0]
        assert first_value == rewards.score(["?"], ["a"]).values["r"][0]
        assert first_value is not None
        os.kill(int(first_value), signal.SIGKILL)
        assert rewards.score(["?"], ["a"]).events[0].name == "error"
        assert rewards.score(["?"], ["a"]).values["r"][0] not in (None, first_value)


def test_what_cannot_be_sent_is_said() -> None:
    with pytest.raises(RewardError, match=r'columns cannot be sent to another process: .*write isolation = "thread"'):
        score({"r": Format(isolation="process")}, ["?"], ["a"], {"image": [object()]})


def test_columns_that_it_does_not_read_are_not_sent() -> None:
    assert score({"r": MathVerify()}, ["?"], ["1"], {"answer": ["1"], "image": [object()]}).values["r"] == [1.0]


def alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


OWN = "CallableReward(path='own_process_rewards:holds', isolation='process')"
GYM = "ReasoningGym(task='coin_flip', seconds_per_answer=600.0, timeout_seconds=None)"


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 600
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.usefixtures("own_module")
@pytest.mark.parametrize(("reward", "text"), [(OWN, "a"), (OWN, "for ever"), (GYM, "1/2"), (GYM, "1e999999999")])
def test_nothing_is_left_when_the_parent_is_killed(reward: str, text: str, tmp_path: Path) -> None:
    """Idle, and while it holds the interpreter; a process that scores member by member has one of its own."""
    program = textwrap.dedent(f"""
        import sys, threading
        sys.path[:0] = {sys.path!r}
        from groupwise.reward import CallableReward, ReasoningGym
        from groupwise.reward.scoring.process import ProcessReward
        reward = ProcessReward({reward})
        columns = {{"answer": ["1/2"], "metadata": [{{}}]}} if "coin" in {reward!r} else {{}}
        print(reward._process.pid, flush=True)
        reward(["?"], [{text!r}], **columns)
        print("scored", flush=True)
        threading.Event().wait()
    """)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        # One that scores member by member stands behind a wall, which is a process too.
        num_processes = 1 + ("coin" in reward) + (text == "1e999999999")
        if text == "for ever":
            until((tmp_path / "own_process_rewards.held").exists)
        elif text != "1e999999999":
            assert parent.stdout.readline() == "scored\n"
        until(lambda: len(descendants(child)) == num_processes - 1)
        family = [child, *descendants(child)]
        assert alive(child)
        parent.kill()
    until(lambda: not any(map(alive, family)))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_is_heard_while_an_endless_answer_is_scored(number: signal.Signals) -> None:
    program = textwrap.dedent("""
        import threading
        from groupwise.reward import ReasoningGym, Rewards
        rewards = Rewards({"r": ReasoningGym(task="coin_flip", seconds_per_answer=600.0, timeout_seconds=None)})
        threading.Timer(0.5, print, ["scoring"], {"flush": True}).start()
        rewards.score(["?"], ["1e999999999"], {"answer": ["1/2"], "metadata": [{}]})
    """)
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "scoring\n"
        running.send_signal(number)
        assert running.wait(60) != 0
