"""One vLLM server: its calls, each with a deadline, and its completions, token by token."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, final

import torch
from transformers import DynamicCache, GenerationConfig, LogitsProcessor, LogitsProcessorList
from transformers.cache_utils import DynamicLayer

from groupwise.causal_lm import sampler
from groupwise.causal_lm.backbone import Backbone
from groupwise.causal_lm.config import BuiltinEngine, EngineConfig, SamplingConfig, TransformersEngine, VllmEngine
from groupwise.causal_lm.decode import DistributionError, Stops
from groupwise.causal_lm.engine.turns import Request, Turn, converse
from groupwise.causal_lm.sampler import Builtin, Completions, Engine, GroupBatch, end_ids
from groupwise.causal_lm.scoring import score
from groupwise.config import ConfigError
from groupwise.processes import is_out_of_memory
from groupwise.replies import ReplyError, post

_MAX_BYTES = 128 << 20
"""The size of a reply with a million tokens."""

_BUSY = frozenset({408, 425, 429, 503})
"""The statuses of a server that is paused or has too much to do."""

_SERVER_NUM_TOKENS = re.compile(r"^vllm:(?:prompt|generation)_tokens_total{[^}]*} (\S+)$", re.MULTILINE)
"""How vLLM counts the tokens that it has read and written, for whomever."""

LONGEST_REST = 5.0
"""The seconds that a server rests at most after failures, while no other takes its groups."""


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
    """The error of a request that another try may serve.

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
        is_away: whether it was said to have failed, and has not answered since.
        failing_since: since when it has not answered in this batch, on the clock of the event loop; `None` where it
            has.
        unwell_since: the same, of all batches.
        reasons: the first failure in a row, and the newest.
        sleeps: whether it may be asleep; a run that was killed may have left it so.
        is_known: whether it was found to serve texts as long as the run's, and a model of the trained one's vocabulary
            and shape.
        heard_at: when it last sent a byte of any completion, or was found to serve others, on the clock of the event
            loop.
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
        self.is_known = False
        self.is_away = False
        self.heard_at = -math.inf
        self.reasons: list[str] = []
        self._listening: asyncio.Future[None] | None = None

    async def call(self, client: Any, path: str, body: Mapping[str, Any], *, is_quick: bool = False) -> Any:
        """Posts a request and returns its JSON, or its text where it is none.

        Args:
            client: an `httpx.AsyncClient`.
            path: of the route.
            body: of the request.
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
        """Waits for a request, and asks for a sign of life again and again: a machine takes connections for a process
        that has stopped.

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
            if quick_path and clock() - max(began, self.heard_at) > late:
                raise Interrupted(f"no reply to {quick_path} for {late:g} s")
            try:
                async with asyncio.timeout(seconds):
                    await client.get(f"{self.address}/health")
            except (TimeoutError, httpx.HTTPError):
                if not request.done() and clock() - self.heard_at > seconds:
                    raise Interrupted(f"no sign of life for {seconds:g} s") from None

    async def set_sleep(self, client: Any, sleeps: bool) -> None:
        """Has the server give its device's memory back, its weights in the machine's memory meanwhile, or wakes it.

        Raises:
            Interrupted, EngineError: as of `call`.
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

        piece, config = Piece(), self.config
        loop = asyncio.get_running_loop()
        heard_at, seconds = loop.time(), config.first_token_seconds
        end = heard_at + config.timeout_seconds
        watcher: asyncio.Future[None] | None = None
        url, request = f"{self.address}/v1/completions", {**body, "model": self.model, "stream": True}

        def seconds_left() -> float:
            return min(max(heard_at, self.heard_at) + seconds, end) - loop.time()

        async def watch() -> None:
            """Ends the request where the server has sent nothing in time, to other requests neither, of whatever
            process: until then this one waits its turn.
            """
            listening = min(seconds, config.silence_seconds) / 2
            while (left := seconds_left()) > 0:
                heard = max(heard_at, self.heard_at)
                await asyncio.sleep(max(0.0, left - listening))
                if heard == max(heard_at, self.heard_at):
                    with contextlib.suppress(Exception):
                        await asyncio.shield(self._listen(client, listening))
                if heard == max(heard_at, self.heard_at):
                    await asyncio.sleep(max(0.0, seconds_left()))
                if heard == max(heard_at, self.heard_at):
                    break
            deadline.reschedule(loop.time())

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
                        heard_at = self.heard_at = loop.time()
                        if seconds != config.silence_seconds:
                            seconds = config.silence_seconds
                            watcher.cancel()
                            watcher = asyncio.ensure_future(watch())
        except TimeoutError:
            late = (
                f"no end within {config.timeout_seconds:g} s" if loop.time() >= end else f"no token for {seconds:g} s"
            )
            raise Interrupted(late, piece) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Interrupted(f"{type(error).__name__}: {error}".rstrip(": "), piece) from None
        finally:
            if watcher is not None:
                watcher.cancel()
        if not piece.finish:
            raise Interrupted("the stream ended before the completion did", piece)
        return piece

    def _listen(self, client: Any, seconds: float) -> asyncio.Future[None]:
        """Notes whether the server works for others; requests that ask meanwhile share this."""
        if self._listening is None or self._listening.done():
            self._listening = asyncio.ensure_future(self._hear_others(client, seconds))
        return self._listening

    async def _hear_others(self, client: Any, seconds: float) -> None:
        import httpx

        loop, before = asyncio.get_running_loop(), math.nan
        try:
            async with asyncio.timeout(seconds):
                while not client.is_closed:
                    reply = await client.get(f"{self.address}/metrics")
                    counts = [float(number) for number in _SERVER_NUM_TOKENS.findall(reply.text)]
                    if not counts:
                        return
                    if sum(counts) > before:
                        self.heard_at = loop.time()
                        return
                    before = sum(counts)
                    await asyncio.sleep(min(0.5, seconds / 4))
        except (TimeoutError, httpx.HTTPError):
            return

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
        """Returns the piece with the tokens of an event."""
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
        # A reason that is neither an end nor the limit is no answer of the policy's.
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
        seed: of the draws.
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
        # Tokenising the text again need not give the tokens that were sampled.
        "return_tokens_as_token_ids": True,
    }


def _message(text: str) -> str:
    """Returns what vLLM says in a refusal; the whole text where it says it otherwise."""
    try:
        return str(json.loads(text)["error"]["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return text


async def _start(reply: Any) -> bytes:
    """Returns the first bytes of a reply, enough for a message."""
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


# Questions to a server that may lack the route.


async def ask(client: Any, server: Server, path: str, body: Mapping[str, Any], *, is_quick: bool = False) -> Any:
    """Returns what a server replies; None where it refuses the request or fails at this route alone, as one that does
    not know it. One that fails at every route is found by the next request.

    Args:
        client, path, body, is_quick: as of `Server.call`.
        server: the one that is asked.

    Raises:
        Interrupted: it does not answer, or is busy.
    """
    try:
        return await server.call(client, path, body, is_quick=is_quick)
    except EngineError:
        return None
    except Interrupted as error:
        if error.status and not error.is_busy:
            return None
        raise


# A trial of the built-in sampler on a model: the log-probs that it records must be those that the scorer computes for
# the same tokens.

_PROMPTS = ((0, 1, 2, 3, 4), (5, 6))
"""Prompts of two lengths, so that one is padded."""
_AGREEMENT_NUM_TOKENS = 3


def why_not_sampled(backbone: Backbone) -> str | None:
    """Tries the built-in sampler on a few tokens. It fails, or records other log-probs, where a model family carries
    more from token to token than keys and values, or in another form.

    Returns:
        what went wrong; `None` where the sampler serves the model.

    Example:
        >>> from groupwise.causal_lm.config import SmallModelConfig
        >>> from groupwise.causal_lm.small import character_tokenizer, small_model
        >>> why_not_sampled(
        ...     Backbone(small_model(SmallModelConfig(hidden_size=8, num_heads=2), character_tokenizer("ab"), seed=0))
        ... )
    """
    if (backbone.max_positions or 64) < len(_PROMPTS[0]) + _AGREEMENT_NUM_TOKENS:
        return None
    prompts = [[token % backbone.config.vocab_size for token in prompt] for prompt in _PROMPTS]
    try:
        drawn = sampler.sample(
            backbone, prompts, 2, SamplingConfig(max_new_tokens=_AGREEMENT_NUM_TOKENS), range(4), eos=()
        )
        with backbone.evaluating():
            rescored = score(
                backbone, [prompt for prompt in prompts for _ in range(2)], drawn.tokens, drawn.mask, pack=False
            )["log_prob"]
    except DistributionError:
        # Weights that give no distribution are named where a member is drawn.
        return None
    except Exception as error:  # a family's code raises errors of any kind on another cache than its own
        if is_out_of_memory(error):
            raise
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
    differences = (rescored - drawn.log_prob)[drawn.mask].abs()
    # Half precision rounds a log-prob by tenths where a model is large.
    half = next(backbone.model.parameters()).dtype.itemsize < 4
    agrees = bool(differences.mean() <= 0.5) if half else bool(differences.max() <= 0.05)
    if agrees:
        return None
    largest = float(differences.max())
    return f"its log-probs are up to {largest:.2g} nats from those that scoring computes for the same tokens"


@final
class Generate(Engine):
    """An engine that calls ``model.generate``: prompts padded on the left, one call a turn; the global generators are
    left as they were.
    """

    def __init__(self, backbone: Backbone, tokenizer: Any, config: TransformersEngine) -> None:
        self.backbone, self.tokenizer, self.config = backbone, tokenizer, config
        self.eos = end_ids(backbone.model, tokenizer)

    def answer(self, batch: GroupBatch) -> Completions:
        """Samples the groups, `max_members` at once."""
        settings = batch.settings
        stops = Stops(self.eos, settings.stop, self.tokenizer, self.backbone.head.out_features, torch.device("cpu"))

        def complete(requests: list[Request]) -> list[Turn]:
            size = self.config.max_members or len(requests)
            return [
                turn
                for start in range(0, len(requests), size)
                for turn in self._generate(requests[start : start + size], settings, stops)
            ]

        return converse(complete, self.backbone, batch)

    def _generate(self, requests: list[Request], settings: SamplingConfig, stops: Stops) -> list[Turn]:
        longest, device = max(len(request.context) for request in requests), self.backbone.device
        ids = torch.tensor([[0] * (longest - len(r.context)) + r.context for r in requests], device=device)
        mask = torch.tensor([[0] * (longest - len(r.context)) + [1] * len(r.context) for r in requests], device=device)
        options: dict[str, Any] = (
            {"do_sample": False} if settings.greedy else {"do_sample": True, "temperature": settings.temperature}
        )
        if not settings.greedy:
            options |= {"top_p": settings.top_p, "top_k": settings.top_k}
        if settings.stop:
            options |= {"stop_strings": list(settings.stop), "tokenizer": self.tokenizer}
        wrapped: Any = self.backbone.model
        model = wrapped.get_base_model() if hasattr(wrapped, "peft_config") else wrapped
        cuda = [device] if device.type == "cuda" else []
        with self.backbone.evaluating(), _plain_generation(model), torch.random.fork_rng(devices=cuda):
            torch.manual_seed(hash(tuple(request.seed for request in requests)) % 2**63)
            out = model.generate(
                input_ids=ids,
                attention_mask=mask,
                max_new_tokens=max(request.num_tokens for request in requests),
                eos_token_id=list(self.eos),
                pad_token_id=self.eos[0],
                return_dict_in_generate=True,
                output_scores=True,
                logits_processor=LogitsProcessorList([_Finite(requests, longest)]),
                **options,
            )
        sampled = out.sequences[:, longest:]
        # Scores are logits after temperature and truncation: those of the behaviour policy.
        log_prob = torch.stack(
            [
                torch.log_softmax(s.float(), -1).gather(1, t[:, None])[:, 0]
                for s, t in zip(out.scores, sampled.t(), strict=True)
            ],
            1,
        )
        rows = zip(requests, sampled.tolist(), log_prob.tolist(), strict=True)
        return [self._cut(request, tokens, values, stops) for request, tokens, values in rows]

    @staticmethod
    def _cut(request: Request, tokens: list[int], log_prob: list[float], stops: Stops) -> Turn:
        """Cuts a row at its own end; generate pads it to the longest of the batch."""
        for n in range(1, min(len(tokens), request.num_tokens) + 1):
            if stops.ends(tokens[:n]):
                return Turn(tokens[:n], log_prob[:n], True)
        return Turn(tokens[: request.num_tokens], log_prob[: request.num_tokens], False)


class _Finite(LogitsProcessor):
    """A guard that names the member whose distribution is broken, before `generate` draws from it."""

    def __init__(self, requests: list[Request], longest: int) -> None:
        self.requests, self.longest = requests, longest

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        broken = (~scores.amax(1).isfinite()).nonzero().squeeze(1).tolist()
        if broken:
            request = self.requests[broken[0]]
            raise DistributionError(
                len(broken), len(self.requests), request.place, request.num_before + input_ids.shape[1] - self.longest
            )
        return scores


@contextmanager
def _plain_generation(model: Any) -> Iterator[None]:
    """Removes a model folder's own generation settings within the block: folders bring penalties and truncations for
    people who chat.
    """
    previous = model.generation_config
    model.generation_config = GenerationConfig()
    try:
        yield
    finally:
        model.generation_config = previous


# The choice of the engine that a configuration names.


def open_engine(config: EngineConfig, backbone: Backbone, tokenizer: Any) -> Engine:
    """Opens the engine that a configuration names, over this model.

    Args:
        config: which one.
        backbone: the model.
        tokenizer: its tokenizer.

    Raises:
        ConfigError: the engine cannot sample from this family of models.

    Example:
        >>> from groupwise.causal_lm.config import SmallModelConfig
        >>> from groupwise.causal_lm.small import character_tokenizer, small_model
        >>> from groupwise.causal_lm.config import SamplingConfig
        >>> backbone = Backbone(
        ...     small_model(SmallModelConfig(hidden_size=8, num_heads=2), character_tokenizer("ab"), seed=0)
        ... )
        >>> engine = open_engine(BuiltinEngine(max_members=2), backbone, None)
        >>> len(engine.sample([[3, 4]], 4, SamplingConfig(max_new_tokens=2), seeds=range(4)).tokens)
        4
    """
    if not isinstance(config, VllmEngine) and not continues_from_keys(backbone):
        if not _leaves_padding_out(backbone):
            raise ConfigError(
                f"{_name(backbone)} reads padding as text: prompts of different lengths cannot be sampled together, so"
                " this family is not supported; train another model"
            )
        if isinstance(config, BuiltinEngine):
            raise ConfigError(
                f"{_name(backbone)} keeps a recurrent state from token to token, and the built-in sampler goes on from"
                ' keys and values alone; write domain.engine.kind = "transformers"'
            )
    if isinstance(config, BuiltinEngine):
        if (reason := why_not_sampled(backbone)) is not None:
            raise ConfigError(
                f"the built-in sampler does not serve {_name(backbone)} ({reason}); write domain.engine.kind ="
                ' "transformers"'
            )
        return Builtin(backbone, tokenizer, config)
    if isinstance(config, TransformersEngine):
        return Generate(backbone, tokenizer, config)
    from groupwise.causal_lm.engine.vllm import Vllm

    return Vllm(backbone, tokenizer, config)


def _name(backbone: Backbone) -> str:
    model: Any = backbone.model
    return type(model.get_base_model() if hasattr(model, "peft_config") else model).__name__


def continues_from_keys(backbone: Backbone) -> bool:
    """Tests that the model goes on from the keys and values of its cache. Two tokens are forwarded, and their cache is
    looked at.

    Example:
        >>> from groupwise.causal_lm.config import SmallModelConfig
        >>> from groupwise.causal_lm.small import character_tokenizer, small_model
        >>> continues_from_keys(
        ...     Backbone(small_model(SmallModelConfig(hidden_size=8, num_heads=2), character_tokenizer("ab"), seed=0))
        ... )
        True
    """
    cache = DynamicCache(config=backbone.config)
    with backbone.evaluating():
        try:
            backbone.forward(torch.tensor([[0, 1]], device=backbone.device), past_key_values=cache, use_cache=True)
        except Exception as error:  # a family with another cache raises errors of any kind
            if is_out_of_memory(error):
                raise
            return False
    # A state-space layer holds a state, in some models beside keys and values.
    return bool(cache.layers) and all(
        isinstance(layer, DynamicLayer) and layer.keys is not None and not hasattr(layer, "recurrent_states")
        for layer in cache.layers
    )


def _leaves_padding_out(backbone: Backbone) -> bool:
    """Tests that the states of a text are the same with padding before it."""
    ids = torch.arange(3, device=backbone.device).unsqueeze(0)
    padded, mask = torch.cat([ids[:, :2], ids], 1), torch.tensor([[0, 0, 1, 1, 1]], device=backbone.device)
    with backbone.evaluating():
        states, padded_states = (
            backbone.hidden(ids, use_cache=False)[0],
            backbone.hidden(padded, attention_mask=mask, use_cache=False)[0, 2:],
        )
    tolerance = 5e-2 if states.dtype.itemsize < 4 else 1e-3
    return bool((states - padded_states).abs().max() <= tolerance * states.abs().max())
