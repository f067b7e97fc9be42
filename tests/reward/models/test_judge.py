"""A judge behind a real HTTP server on this machine."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from groupwise.config import ConfigError, validate
from groupwise.reward import Judge, RewardError, Rewards, RewardTable, score

Reply = Callable[[dict[str, Any]], tuple[int, str]]


class Service:
    """An OpenAI-compatible address whose answer to each question the test decides."""

    def __init__(self, reply: Reply = lambda body: said("Score: 5")) -> None:
        self.reply = reply
        self.seen: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.now = self.most = 0
        lock = threading.Lock()
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["Content-Length"]))
                # A client of an earlier test may still call the port, which the system has given out again.
                if self.path != "/v1/chat/completions":
                    self.send_error(404)
                    return
                body = json.loads(content)
                with lock:
                    service.seen.append(body)
                    service.headers.append(dict(self.headers.items()))
                    service.paths.append(self.path)
                    service.now += 1
                    service.most = max(service.most, service.now)
                status, text = service.reply(body)
                with lock:
                    service.now -= 1
                self.send_response(status)
                self.send_header("Content-Length", str(len(text.encode())))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}/v1"

    def questions(self) -> list[str]:
        return [body["messages"][-1]["content"] for body in self.seen]

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def said(text: str) -> tuple[int, str]:
    return 200, json.dumps({"choices": [{"message": {"role": "assistant", "content": text}}]})


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    running = Service()
    yield running
    running.close()


def judged(
    service: Service, completions: list[str], columns: dict[str, list[Any]] | None = None, **settings: Any
) -> RewardTable:
    judge = Judge(address=service.address, model="m", retry_seconds=0.01, **settings)
    return score({"judge": judge}, [f"question {text}" for text in completions], completions, columns)


def test_numbers_are_scaled_and_stay_with_their_members(service: Service) -> None:
    # Each waits for the one after it, so that replies arrive in the opposite order.
    replied = {number: threading.Event() for number in (1, 2, 3, 5)}

    def reply(body: dict[str, Any]) -> tuple[int, str]:
        number = int(body["messages"][-1]["content"])
        if number < 5:
            assert replied[number + 1 if number < 3 else 5].wait(60)
        replied[number].set()
        return said(f"First Score: 9, but on reflection\n**Score: {2 * number}**")

    service.reply = reply
    assert judged(service, ["1", "2", "3", "5"], template="{completion}").values["judge"] == [0.2, 0.4, 0.6, 1.0]


def test_the_request_is_what_the_interface_asks_for(service: Service) -> None:
    judged(
        service,
        ["4"],
        {"gold": ["four"]},
        template='{prompt}|{completion}|{gold}|{"json": 1}',
        system="Be just.",
        max_tokens=7,
    )
    (body,) = service.seen
    assert service.paths == ["/v1/chat/completions"]
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("m", 0.0, 7)
    assert body["messages"] == [
        {"role": "system", "content": "Be just."},
        {"role": "user", "content": 'question 4|4|four|{"json": 1}'},
    ]
    assert "Authorization" not in service.headers[0]


def test_a_completion_cannot_fill_in_fields(service: Service) -> None:
    judged(service, ["{gold} {prompt}"], {"gold": ["secret"]}, template="{completion} / {gold}")
    assert service.questions() == ["{gold} {prompt} / secret"]


def test_the_key_comes_from_the_environment_and_is_not_in_the_configuration(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_JUDGE_KEY", "sesame")
    judged(service, ["4"], api_key_variable="MY_JUDGE_KEY")
    assert service.headers[0]["Authorization"] == "Bearer sesame"
    assert "sesame" not in Judge(address=service.address, model="m", api_key_variable="MY_JUDGE_KEY").model_dump_json()
    monkeypatch.delenv("MY_JUDGE_KEY")
    with pytest.raises(
        RewardError, match=r"reward 'j': .*'MY_JUDGE_KEY' names an environment variable that is not set"
    ):
        Rewards({"j": Judge(address=service.address, model="m", api_key_variable="MY_JUDGE_KEY")})


def test_a_busy_service_is_asked_again(service: Service) -> None:
    replies = iter([(429, "slow down"), (503, "busy"), (200, "not json"), said("Score: 10")])
    service.reply = lambda body: next(replies)
    assert judged(service, ["4"]).values["judge"] == [1.0]
    assert len(service.seen) == 4


def test_a_reply_that_stays_broken_is_a_missing_reward_of_that_member_only(service: Service) -> None:
    service.reply = lambda body: (500, "on fire") if "bad" in body["messages"][-1]["content"] else said("Score: 0")
    table = judged(service, ["good", "bad", "good"], num_retries=1)
    assert table.values["judge"] == [0.0, None, 0.0]
    (event,) = table.events
    assert (event.name, event.member, event.prompt, event.detail) == (
        "judge_failed",
        1,
        "question bad",
        "status 500: on fire",
    )
    assert len(service.seen) == 4


def test_a_service_that_hangs_meets_its_time_limit(service: Service) -> None:
    stop = threading.Event()
    service.reply = lambda body: (stop.wait(120), said("Score: 1"))[1]
    table = judged(service, ["4"], num_retries=1, seconds_per_request=0.2)
    stop.set()
    assert table.values["judge"] == [None]
    assert table.events[0].name == "judge_failed"


VERDICTS: dict[str, float | None] = dict.fromkeys(
    ["I would say good.", "Score: 11", "Score: -1", "", "Score: 1e999", "Score: nan", "Score: 2e1"]
)
VERDICTS |= dict.fromkeys(["Score: " + "9" * 5000, "score" + " " * 1_000_000, "score" * 200_000])
VERDICTS |= dict.fromkeys(["Score: 7/10", "Score: 7.", "**Score:** 7", "Score: 70e-1", "SCORE = **7**"], 0.7)
VERDICTS |= dict.fromkeys(
    ["Score：7", "Score: ７", "Score: `7`", "Score (0-10): 7", "**Score**: 7", "Score: [[7]]"], 0.7
)


def test_a_number_is_read_as_judges_write_it_and_missing_where_there_is_none_in_range(service: Service) -> None:
    verdicts = list(VERDICTS)
    service.reply = lambda body: said(verdicts[int(body["messages"][-1]["content"])])
    numbers = [str(place) for place in range(len(verdicts))]
    table = judged(service, numbers, template="{completion}")
    assert table.values["judge"] == list(VERDICTS.values())
    assert {event.name for event in table.events} == {"judge_unparsable"}
    assert len(service.seen) == len(verdicts)


def test_a_reply_that_is_a_trap_is_a_failed_judgement_of_its_member(service: Service) -> None:
    opens = '{"choices":[{"message":{"content":'
    traps = ["[" * 200_000, opens + "[" * 200_000 + "]" * 200_000 + "}}]}", opens + "9" * 6000 + "}}]}"]
    traps += [said("x" * 5_000_000)[1], "{}"]
    replies = [*((200, trap) for trap in traps), said("Score: 5")]
    service.reply = lambda body: replies[int(body["messages"][-1]["content"])]
    table = judged(service, list(map(str, range(len(replies)))), num_retries=0, template="{completion}")
    assert table.values["judge"] == [None] * len(traps) + [0.5]
    assert {event.name for event in table.events} == {"judge_failed"}


def test_a_completion_that_the_service_refuses_is_missing_alone(service: Service) -> None:
    service.reply = lambda body: (
        (400, "longer than 4096 tokens") if "long" in body["messages"][-1]["content"] else said("Score: 5")
    )
    table = judged(service, ["short", "long"])
    assert table.values["judge"] == [0.5, None]
    assert [(event.name, event.detail) for event in table.events] == [
        ("judge_refused", "status 400: longer than 4096 tokens")
    ]
    with pytest.raises(RewardError, match=r"refused model = 'm' with status 400: longer than 4096 tokens"):
        judged(service, ["long", "longer"])


def test_another_range(service: Service) -> None:
    service.reply = lambda body: said('{"grade": -0.5}')
    assert judged(service, ["4"], pattern=r'"grade":\s*(-?[\d.]+)', lowest=-1.0, highest=1.0).values["judge"] == [0.25]


def test_a_refusal_is_an_error_at_once(service: Service) -> None:
    service.reply = lambda body: (401, "who are you?")
    with pytest.raises(RewardError, match=r"refused model = 'm' with status 401: who are you.*api_key_variable"):
        judged(service, ["4"])
    assert len(service.seen) == 1


def test_num_parallel_bounds_the_requests_under_way(service: Service) -> None:
    three = threading.Barrier(3, timeout=600)
    # The moment gives a fourth the time to come, if there were one.
    service.reply = lambda body: (three.wait(), time.sleep(0.05), said("Score: 5"))[-1]
    judged(service, list("abcdefghi"), num_parallel=3)
    assert service.most == 3


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"address": "localhost:8000"}, "is no address; write it as http"),
        ({"template": "{prompt}"}, "does not contain {completion}"),
        ({"pattern": "score"}, "has no group"),
        ({"lowest": 3.0, "highest": 3.0}, "must be below"),
    ],
)
def test_settings_that_make_no_sense(tree: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        validate(Judge, {"kind": "judge", "address": "http://x/v1", "model": "m", **tree})
