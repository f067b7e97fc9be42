"""Rewards in a process of their own: killed when they hang, started again."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from groupwise.reward import CallableReward, Format, MathVerify, RewardError, Rewards, score
from groupwise.reward.scoring.process import ProcessReward
from groupwise.reward.scoring.table import TrainerState
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
            async def does(completions, completion_ids, trainer_state, log_metric, log_extra):
                log_metric("lucky", 0.25)
                log_extra("object", [{1}])
                text = completions[0]
                if text == "noise":
                    print("noise", flush=True)
                if text == "dies":
                    os.kill(os.getpid(), signal.SIGKILL)
                if text == "raises":
                    raise KeyError("colour")
                if text == "message":
                    return [text["content"]]
                if text == "state":
                    return [trainer_state.global_step + len(completion_ids[0])]
                others = {"nan": float("nan"), "object": object(), "secret": float(os.environ["MY_SECRET_KEY"])}
                return [others.get(text, os.getpid())]
            class Remembers:
                def __call__(self, completions): return [1.0]
                def memory(self): return {}
                def recall(self, memory): pass
                def follow(self, groups): return {}
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
        # The new process stays when the thread of the call that started it has ended.
        assert [rewards.score(["?"], ["a"]).values["r"] for _ in range(3)] == [[1.0]] * 3


@pytest.mark.usefixtures("own_module")
def test_a_process_keeps_its_environment_passes_prints_on_names_failures_and_is_replaced(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MY_SECRET_KEY", "7")
    with Rewards({"r": own("does")}) as rewards:
        rewards.state = TrainerState(global_step=7, max_steps=10)

        def scored(text: str) -> object:
            return rewards.score(["?"], [text], {"completion_ids": [[1, 2]]}).values["r"][0]

        pid = scored("noise")
        assert capfd.readouterr().err == "noise\n"
        assert (scored("secret"), scored("state"), scored("another")) == (7.0, 9.0, pid)
        table = rewards.score(["?"], ["logs"], {"completion_ids": [[]]})
        assert (table.logged, table.extras) == ({"lucky": [0.25]}, {"object": ["{1}"]})
        for text, message in (
            ("raises", r"KeyError: 'colour' \(at .*own_process_rewards.py:\d+ in does"),
            ("message", r'completions were texts \("..."\): .* write completions = "messages"'),
            ("nan", "gave nan for member 0"),
            ("object", "of type str for member 0"),
            ("dies", "ended with signal 9"),
        ):
            with pytest.raises(RewardError, match=f"reward 'r' .*{message}"):
                scored(text)
        assert scored("after") not in (None, pid)


@pytest.mark.usefixtures("own_module")
def test_what_remembers_is_refused() -> None:
    with pytest.raises(RewardError, match=r"a reward that remembers .* drop isolation"):
        Rewards({"r": own("Remembers")})


def test_what_cannot_be_sent_is_said() -> None:
    with pytest.raises(RewardError, match=r'columns cannot be sent to another process: .*write isolation = "thread"'):
        score({"r": Format(isolation="process")}, ["?"], ["a"], {"image": [object()]})


def test_a_reward_of_the_package_gets_its_columns_and_no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SECRET_KEY", "7")
    with contextlib.closing(ProcessReward(MathVerify())) as reward:
        assert reward(["?"], ["1"], answer=["1"], image=[object()]) == [1.0]
        assert reward._process is not None
        for process in (reward._process.pid, *descendants(reward._process.pid)):
            assert "MY_SECRET_KEY" not in Path(f"/proc/{process}/environ").read_text()


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
@pytest.mark.parametrize(("reward", "text"), [(OWN, "for ever"), (GYM, "1e999999999")])
def test_nothing_is_left_when_the_parent_is_killed(reward: str, text: str, tmp_path: Path) -> None:
    """While it holds the interpreter; a process that scores member by member stands behind a wall and has forked."""
    program = textwrap.dedent(f"""
        import sys
        sys.path[:0] = {sys.path!r}
        from groupwise.reward import CallableReward, ReasoningGym
        from groupwise.reward.scoring.process import ProcessReward
        reward = ProcessReward({reward})
        columns = {{"answer": ["1/2"], "metadata": [{{}}]}} if "coin" in {reward!r} else {{}}
        print(reward._process.pid, flush=True)
        reward(["?"], [{text!r}], **columns)
    """)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        if reward == OWN:
            until((tmp_path / "own_process_rewards.held").exists)
        until(lambda: len(descendants(child)) == 2 * (reward == GYM))
        family = [child, *descendants(child)]
        assert alive(child)
        parent.kill()
    until(lambda: not any(map(alive, family)))


def test_an_interruption_is_heard_while_an_endless_answer_is_scored() -> None:
    program = textwrap.dedent("""
        import threading
        from groupwise.reward import Rewards
        def endless(completions):
            print("scoring", flush=True)
            threading.Event().wait()
        endless.timeout_seconds = None
        Rewards({"r": endless}).score(["?"], ["a"])
    """)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen([sys.executable, "-c", program], **pipes) as running:  # type: ignore[call-overload]
        assert running.stdout is not None
        assert running.stdout.readline() == "scoring\n"
        running.send_signal(signal.SIGINT)
        assert running.wait(60) != 0
