"""One vLLM server: its calls, each with a deadline, and its completions, token by token."""

import asyncio
import contextlib
import json
import math
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, final

from groupwise.causal_lm.config import SamplingConfig
from groupwise.replies import ReplyError, post
from groupwise_vllm.config import VllmEngine

_MAX_BYTES = 128 << 20
"""The size of a reply with a million tokens."""

_BUSY = frozenset({408, 425, 429, 503})
"""The statuses of a server that is paused or has too much to do."""

_SERVER_NUM_TOKENS = re.compile(r"^vllm:(?:prompt|generation)_tokens_total{[^}]*} (\S+)$", re.MULTILINE)
"""vLLM's counters of all tokens that it has read and written."""

LONGEST_REST = 5.0
"""The longest rest of a server after failures, in seconds, while no other server takes its groups."""


WITHOUT_PROXY = {f"all://{host}": None for host in ("localhost", "127.0.0.1", "[::1]")}
"""The `mounts` of a client that asks servers on this machine itself, also where the environment names a proxy."""


class EngineError(RuntimeError):
    """The server cannot be reached, refuses a request, answers it wrongly, or does not hold the trained weights."""


@final
@dataclass(frozen=True)
class Piece:
    """The tokens of one answer, as far as they came.

    Args:
        tokens: the sampled ids.
        log_prob: the nats of each under the distribution that the server sampled from.
        finish: `stop` after an end token or a stop text, `length` at the limit, `abort` where the server broke off.
    """

    tokens: list[int] = field(default_factory=list)
    log_prob: list[float] = field(default_factory=list)
    finish: Literal["stop", "length", "abort", ""] = ""


@final
class Interrupted(Exception):
    """A failed request that may succeed when it is repeated.

    Args:
        reason: the cause, in a few words.
        piece: the tokens that came before.
        is_busy: whether the server lives and asks to come later, so that its weights are still those it had.
        status: the HTTP status that the server answered; 0 where it answered none.
    """

    def __init__(self, reason: str, piece: Piece | None = None, *, is_busy: bool = False, status: int = 0) -> None:
        super().__init__(reason)
        self.piece, self.is_busy, self.status = piece or Piece(), is_busy, status


@final
class Server:
    """A server at one address.

    Args:
        address: without the path.
        config: model name and deadlines.

    Attributes:
        model: the name under which it serves the trained weights.
        version: the version of the weights that it has proved to hold; `None` where that is open.
        is_reported_down: whether it was reported to have failed, and has not answered since.
        failing_since: since when it has not answered in this batch, on the clock of the event loop; `None` where it
            has.
        unwell_since: the same, of all batches.
        reasons: the first failure in a row, and the newest.
        sleeps: whether it may be asleep; a run that was killed may have left it so.
        is_checked: whether its context, vocabulary and shape were found to fit the run.
        last_byte_at: when it last sent a byte of any completion, or was found to serve others, on the event loop's
            clock.
    """

    def __init__(self, address: str, config: VllmEngine) -> None:
        self.address, self.config, self.model = address, config, config.model
        self.version: int | None = None
        self.sleeps = config.sleep
        self.lock = asyncio.Lock()
        self.failing_since: float | None = None
        self.unwell_since: float | None = None
        self.num_failures = 0
        self.rests_until = 0.0
        self.is_checked = False
        self.is_reported_down = False
        self.last_byte_at = -math.inf
        self.reasons: list[str] = []

    async def call(self, client: Any, path: str, body: Mapping[str, Any], *, is_quick: bool = False) -> Any:
        """Posts a request and returns its JSON, or its text where it is not JSON.

        Args:
            client: an `httpx.AsyncClient`.
            path: the path of the route.
            body: the body of the request.
            is_quick: whether the server answers at once, or when the completions under way have ended.

        Raises:
            Interrupted: there is no connection, no reply in time, no sign of life meanwhile, or a status of 500 and
                above.
            EngineError: the server refuses the request.
        """
        url, seconds = self.address + path, self.config.timeout_seconds
        request = asyncio.ensure_future(post(client, url, body, seconds=seconds, max_bytes=_MAX_BYTES))
        try:
            await self._wait_while_alive(client, request, path if is_quick else "")
            reply = await request
            if reply.status == 200:
                return reply.json() if reply.body[:1] in (b"{", b"[") else reply.text
        except ReplyError as error:
            raise Interrupted(str(error)) from None
        finally:
            request.cancel()
        raise self._refusal(reply.status, reply.text)

    async def _wait_while_alive(self, client: Any, request: asyncio.Future[Any], quick_path: str) -> None:
        """Waits for a reply and asks for the server's health meanwhile: the machine accepts connections even for a
        process that has stopped.

        Raises:
            Interrupted: the server does not answer for `silence_seconds`, or leaves a quick request for
                `first_token_seconds` while it sends nothing else either.
        """
        import httpx

        clock, seconds = asyncio.get_running_loop().time, self.config.silence_seconds
        began = clock()
        wait = min(1.0, seconds)
        while not (await asyncio.wait({request}, timeout=wait))[0]:
            wait = seconds
            late = self.config.first_token_seconds
            if quick_path and clock() - max(began, self.last_byte_at) > late:
                raise Interrupted(f"no reply to {quick_path} for {late:g} s")
            try:
                async with asyncio.timeout(seconds):
                    await client.get(f"{self.address}/health")
            except (TimeoutError, httpx.HTTPError):
                if not request.done() and clock() - self.last_byte_at > seconds:
                    raise Interrupted(f"no sign of life for {seconds:g} s") from None

    async def set_sleep(self, client: Any, sleeps: bool) -> None:
        """Puts the server to sleep, its weights in the machine's memory, or wakes it.

        Raises:
            Interrupted, EngineError: see `call`.
        """
        try:
            await self.call(client, "/sleep?level=1" if sleeps else "/wake_up", {})
        except EngineError as error:
            raise EngineError(
                f"domain.engine.sleep = true: {error}; start it with --enable-sleep-mode and VLLM_SERVER_DEV_MODE=1, or"
                " write domain.engine.sleep = false"
            ) from None
        self.sleeps = sleeps

    async def complete(self, client: Any, body: Mapping[str, Any]) -> Piece:
        """Streams one completion.

        Args:
            client: an `httpx.AsyncClient`.
            body: the request, without the model's name.

        Raises:
            Interrupted: the stream does not begin, falls silent or breaks off; the error has the tokens that came.
            EngineError: the server refuses the request, or answers without token ids or log-probs.
        """
        import httpx

        piece, config, clock = Piece(), self.config, asyncio.get_running_loop().time
        last_byte_at, seconds = clock(), config.first_token_seconds
        end = last_byte_at + config.timeout_seconds
        url, request = f"{self.address}/v1/completions", {**body, "model": self.model, "stream": True}

        async def watch() -> None:
            """Ends the request if the server has been silent for too long, towards other requests as well."""
            while (left := min(max(last_byte_at, self.last_byte_at) + seconds, end) - clock()) > 0 or (
                clock() < end and await self._works_for_others(client)
            ):
                await asyncio.sleep(max(0.0, min(left, 0.5)))
            deadline.reschedule(clock())

        watcher: asyncio.Future[None] | None = None
        try:
            async with asyncio.timeout(None) as deadline:
                watcher = asyncio.ensure_future(watch())
                async with client.stream("POST", url, json=request) as reply:
                    if reply.status_code != 200:
                        raise self._refusal(reply.status_code, (await _start(reply)).decode(errors="replace"))
                    async for event in _events(reply):
                        if event is None:
                            break
                        piece = self._joined(piece, event)
                        last_byte_at = self.last_byte_at = clock()
                        seconds = config.silence_seconds
        except TimeoutError:
            late = f"no end within {config.timeout_seconds:g} s" if clock() >= end else f"no token for {seconds:g} s"
            raise Interrupted(late, piece) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Interrupted(f"{type(error).__name__}: {error}".rstrip(": "), piece) from None
        finally:
            if watcher is not None:
                watcher.cancel()
        if not piece.finish:
            raise Interrupted("the stream ended before the completion did", piece)
        return piece

    async def _works_for_others(self, client: Any) -> bool:
        """Tests whether the server is busy with tokens for any process; if it is, a request only waits its turn."""
        before = math.nan
        # A server may fail here in any way. It then counts as one that does not work.
        with contextlib.suppress(Exception):
            async with asyncio.timeout(self.config.silence_seconds / 2):
                while counts := _SERVER_NUM_TOKENS.findall((await client.get(f"{self.address}/metrics")).text):
                    count = sum(map(float, counts))
                    if count > before:
                        self.last_byte_at = asyncio.get_running_loop().time()
                        return True
                    before = count
                    await asyncio.sleep(0.5)
        return False

    def failed(self, error: Interrupted, now: float, *, least_rest: float = 0.0) -> None:
        """Notes a failure: the server rests for a while, doubled each time up to `LONGEST_REST`, and must prove its
        weights again unless it was only busy.

        Args:
            now: the clock of the event loop, seconds.
            least_rest: seconds.
        """
        self.failing_since = now if self.failing_since is None else self.failing_since
        self.unwell_since = now if self.unwell_since is None else self.unwell_since
        self.rests_until = now + max(least_rest, min(0.1 * 2.0 ** min(self.num_failures, 10), LONGEST_REST))
        self.num_failures += 1
        if not error.is_busy:
            self.version = None

    def succeeded(self) -> None:
        """Forgets earlier failures."""
        self.failing_since, self.unwell_since, self.num_failures, self.rests_until = None, None, 0, 0.0
        self.reasons = []

    def _refusal(self, status: int, text: str) -> Exception:
        reason = f"status {status}: {' '.join(_message(text)[:300].split())}".rstrip(": ")
        if status == 404 and self.model != self.config.model:
            return Interrupted(f"it does not know the adapter that it was sent: it was started anew ({reason})")
        if status in _BUSY or status >= 500:
            return Interrupted(reason, is_busy=status in _BUSY, status=status)
        if status == 400:
            return EngineError(f"engine.address = {self.address!r}: it refuses a request, {reason}")
        return EngineError(
            f"engine.address = {self.address!r}: {reason}; is the vLLM server running there, and serving model"
            f" {self.model!r}?"
        )

    def _joined(self, piece: Piece, event: Any) -> Piece:
        """Returns the piece with the tokens of an event appended."""
        if isinstance(event, dict) and "error" in event:
            raise Interrupted(" ".join(str(event["error"])[:300].split()), piece)
        try:
            choice = event["choices"][0]
            values = choice["logprobs"] or {"tokens": [], "token_logprobs": []}
            tokens = [int(name.removeprefix("token_id:")) for name in values["tokens"]]
            # Half precision may round a sure token's log-prob to just above zero.
            log_prob = [min(float(value), 0.0) for value in values["token_logprobs"]]
            finish = choice["finish_reason"] or ""
            if len(tokens) != len(log_prob) or (choice["text"] and not tokens):
                raise ValueError(f"{len(tokens)} tokens with {len(log_prob)} log-probs")
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise EngineError(
                f"{self.address} answered without token ids or log-probs ({error!r}); it must be a vLLM server that"
                " honours logprobs and return_tokens_as_token_ids"
            ) from error
        if not all(map(math.isfinite, log_prob)):
            raise EngineError(
                f"{self.address} gave a log-prob that is not finite for a token that it sampled; look at the server's"
                " own log"
            )
        # Any other finish reason means that the policy did not give this answer.
        known: Any = finish if finish in ("", "stop", "length") else "abort"
        return Piece(piece.tokens + tokens, piece.log_prob + log_prob, known)


def request_body(
    prompt: Sequence[int], num_tokens: int, settings: SamplingConfig, seed: int, eos: Sequence[int]
) -> dict[str, Any]:
    """Returns the request of one completion, without the model's name.

    Args:
        prompt: token ids.
        num_tokens: the longest completion.
        settings: temperature, truncation and stop texts.
        seed: the seed of the draws.
        eos: ids that end the completion.
    """
    return {
        "prompt": list(prompt),
        "max_tokens": num_tokens,
        "temperature": 0.0 if settings.greedy else settings.temperature,
        "top_p": settings.top_p,
        "top_k": settings.top_k or -1,
        # A server reads settings that a request lacks from the model folder's generation_config.json.
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "seed": seed % 2**31,
        "logprobs": 0,
        "stop": list(settings.stop),
        "stop_token_ids": list(eos),
        "include_stop_str_in_output": True,
        "skip_special_tokens": False,
        # Tokenising the text again may give other tokens than those that were sampled.
        "return_tokens_as_token_ids": True,
    }


def _message(text: str) -> str:
    """Returns vLLM's message of a refusal; the whole text where the text has another form."""
    try:
        return str(json.loads(text)["error"]["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return text


async def _start(reply: Any) -> bytes:
    """Returns the first bytes of a reply, enough for an error message."""
    content = b""
    async for chunk in reply.aiter_bytes():
        content += chunk
        if len(content) > 1000:
            break
    return content


async def _events(reply: Any) -> AsyncIterator[Any]:
    """Yields the JSON of each server-sent event, and `None` at the end of the stream."""
    waiting, size = b"", 0
    async for chunk in reply.aiter_bytes():
        size += len(chunk)
        if size > _MAX_BYTES:
            raise EngineError(f"the reply is larger than {_MAX_BYTES:,} bytes")
        *lines, waiting = (waiting + chunk).split(b"\n")
        for line in lines:
            content = line.strip().removeprefix(b"data:").strip()
            if content == b"[DONE]":
                yield None
            elif content and line.startswith(b"data:"):
                try:
                    yield json.loads(content)
                except (ValueError, RecursionError) as error:
                    raise EngineError(f"the server's stream is no JSON that can be read: {error}") from None
