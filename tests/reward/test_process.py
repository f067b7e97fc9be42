"""Rewards in a process of their own: killed when they hang, started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from groupwise.reward import CallableReward, Format, MathVerify, RewardError, Rewards, score
from groupwise.reward.process import ProcessReward

# Nested repetition: matching holds the interpreter for longer than anybody waits, so that no thread can end it.
ENDLESS = Format(pattern="(a+)+b", isolation="process", timeout_seconds=1.5)


def test_what_holds_the_interpreter_is_killed_and_the_next_batch_works() -> None:
    with Rewards({"format": ENDLESS}) as rewards:
        began = time.monotonic()
        table = rewards.score(["?"], ["a" * 60])
        assert time.monotonic() - began < 60
        assert table.values == {"format": [None]}
        assert [(event.name, event.detail) for event in table.events] == [("timeout", "longer than 1.5 s for a batch of 1; raise its timeout_seconds")]
        rewards.score(["?"], ["aab"])
        assert rewards.score(["?"] * 2, ["aab", "ab"]).values == {"format": [1.0, 1.0]}


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_process_rewards.py").write_text(
        textwrap.dedent("""
            import os, signal
            def prints(completions):
                print("noise")
                return [1.0 for _ in completions]
            def dies(completions):
                os.kill(os.getpid(), signal.SIGKILL)
            def raises(completions):
                raise KeyError("colour")
            def odd(completions):
                return [float("nan") if text == "nan" else object() for text in completions]
            def process(completions):
                return [os.getpid() for _ in completions]
        """)
    )
    monkeypatch.syspath_prepend(str(tmp_path))


def own(name: str, **settings: object) -> CallableReward:
    return CallableReward(path=f"own_process_rewards:{name}", isolation="process", **settings)  # type: ignore[arg-type]


@pytest.mark.usefixtures("own_module")
def test_printing_does_not_disturb_the_answers() -> None:
    assert score({"r": own("prints")}, ["?"], ["a"]).values["r"] == [1.0]


@pytest.mark.usefixtures("own_module")
@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("dies", "", "ended with signal 9"),
        ("raises", "", r"KeyError: 'colour' \(at .*own_process_rewards.py:\d+ in raises"),
        ("odd", "nan", "gave nan for member 0"),
        ("odd", "", "of type str for member 0"),
    ],
)
def test_failures_name_the_reward_and_the_place(name: str, text: str, message: str) -> None:
    with pytest.raises(RewardError, match=f"reward 'r' .*{message}"):
        score({"r": own(name)}, ["?"], [text])


@pytest.mark.usefixtures("own_module")
def test_a_dead_process_is_replaced() -> None:
    with Rewards({"r": own("process", on_error="missing")}) as rewards:
        first = rewards.score(["?"], ["a"]).values["r"][0]
        assert first == rewards.score(["?"], ["a"]).values["r"][0]
        assert first is not None
        os.kill(int(first), signal.SIGKILL)
        assert rewards.score(["?"], ["a"]).events[0].name == "error"
        assert rewards.score(["?"], ["a"]).values["r"][0] not in (None, first)


def test_what_cannot_be_sent_is_said() -> None:
    with pytest.raises(RewardError, match=r'columns cannot be sent to another process: .*write isolation = "thread"'):
        score({"r": MathVerify()}, ["?"], ["a"], {"answer": ["1"], "image": [object()]})


def test_a_reward_that_cannot_be_opened_there() -> None:
    with pytest.raises(RewardError, match=r"reward 'r': .*no_such_module"):
        Rewards({"r": CallableReward(path="no_such_module:f", isolation="process")})


def alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


@pytest.mark.parametrize("text", ["ab", "a" * 60])
def test_nothing_is_left_when_the_parent_is_killed(text: str) -> None:
    """Idle, and while it holds the interpreter."""
    program = textwrap.dedent(f"""
        import threading
        from groupwise.reward import Format
        from groupwise.reward.process import ProcessReward
        reward = ProcessReward(Format(pattern="(a+)+b", isolation="process"))
        threading.Thread(target=reward, args=(["?"], [{text!r}]), daemon=True).start()
        print(reward._process.pid, flush=True)
        threading.Event().wait()
    """)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        time.sleep(0.2)
        assert alive(child)
        parent.kill()
    deadline = time.monotonic() + 60
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive(child)


def test_closing_ends_the_process() -> None:
    reward = ProcessReward(Format(isolation="process"))
    process = reward._process
    assert process is not None
    reward.close()
    assert process.poll() is not None
