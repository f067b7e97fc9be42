"""A vLLM server as an engine: one completion request a member, by token ids, with the log-probs of what was sampled."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, final

from groupwise.causal_lm.backbone import Backbone
from groupwise.causal_lm.config import SamplingConfig, VllmEngine
from groupwise.causal_lm.engine.base import Engine, GroupBatch
from groupwise.causal_lm.engine.turns import Request, Turn, converse
from groupwise.causal_lm.sampler import Completions, end_ids
from groupwise.config import ConfigError
from groupwise.replies import ReplyError, post

# The size of a reply with a million tokens.
_MAX_BYTES = 128 << 20
_T = TypeVar("_T")


class EngineError(RuntimeError):
    """The server cannot be reached, refuses a request, or answers it wrongly."""


@final
class Vllm(Engine):
    """An engine that calls a server; see `groupwise.causal_lm.config.VllmEngine`. Requests of a group share their
    prompt, which the server's prefix cache forwards once.
    """

    live = False

    def __init__(self, backbone: Backbone, tokenizer: Any, config: VllmEngine) -> None:
        self.backbone, self.config = backbone, config
        self.eos = end_ids(backbone.model, tokenizer)

    def answer(self, batch: GroupBatch) -> Completions:
        """Samples the groups; `behaviour_log_prob` is the server's.

        Raises:
            ConfigError: settings under which the server's log-probs would be of another distribution than it sampled
                from.
            EngineError: the server fails after all retries.
        """
        settings = batch.settings
        plain = settings.greedy or (settings.temperature == 1 and not settings.truncates)
        if not self.config.processed_logprobs and not plain:
            raise ConfigError(
                f"engine.processed_logprobs = false with temperature = {settings.temperature}, top_p ="
                f" {settings.top_p}, top_k = {settings.top_k}: the server reports log-probs before these; start it with"
                " --logprobs-mode processed_logprobs and write processed_logprobs = true"
            )

        def complete(requests: list[Request]) -> list[Turn]:
            return _run(self._complete_all(requests, settings))

        return converse(complete, self.backbone, batch)

    async def _complete_all(self, requests: list[Request], settings: SamplingConfig) -> list[Turn]:
        import httpx

        free = asyncio.Semaphore(self.config.concurrency)

        async def complete(request: Request) -> Turn:
            async with free:
                return await self._complete(client, request, settings)

        limits = httpx.Limits(max_connections=self.config.concurrency)
        async with httpx.AsyncClient(timeout=self.config.timeout_seconds, limits=limits) as client:
            return list(await asyncio.gather(*map(complete, requests)))

    async def _complete(self, client: Any, request: Request, settings: SamplingConfig) -> Turn:
        body = {
            "model": self.config.model,
            "prompt": request.context,
            "max_tokens": request.num_tokens,
            "temperature": 0.0 if settings.greedy else settings.temperature,
            "top_p": settings.top_p,
            "top_k": settings.top_k or -1,
            # A server reads settings that a request lacks from the model folder's generation_config.json.
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "seed": request.seed % 2**31,
            "logprobs": 0,
            "stop": list(settings.stop),
            "stop_token_ids": list(self.eos),
            "include_stop_str_in_output": True,
            "skip_special_tokens": False,
            # Tokenising the text again need not give the tokens that were sampled.
            "return_tokens_as_token_ids": True,
        }
        answer = await self._post(client, "/v1/completions", body)
        try:
            choice = answer["choices"][0]
            names, log_prob = choice["logprobs"]["tokens"], choice["logprobs"]["token_logprobs"]
            tokens = [int(name.removeprefix("token_id:")) for name in names]
            # Half precision may round a sure token's log-prob to just above zero.
            turn = Turn(tokens, [min(float(value), 0.0) for value in log_prob], choice["finish_reason"] == "stop")
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise EngineError(
                f"{self.config.address} answered without token ids or log-probs ({error!r}); it must be a vLLM server"
                " that honours logprobs and return_tokens_as_token_ids"
            ) from error
        if not all(map(math.isfinite, turn.log_prob)):
            raise EngineError(
                f"{self.config.address} gave a log-prob that is not finite for a token that it sampled; look at the"
                " server's own log"
            )
        if not turn.tokens or len(turn.tokens) != len(turn.log_prob) or len(turn.tokens) > request.num_tokens:
            raise EngineError(
                f"{self.config.address} gave {len(turn.tokens)} tokens with {len(turn.log_prob)} log-probs, asked for 1"
                f" to {request.num_tokens}"
            )
        return turn

    async def _post(self, client: Any, path: str, body: dict[str, Any]) -> Any:
        url = self.config.address.rstrip("/") + path
        failure = ""
        for _ in range(self.config.num_retries + 1):
            try:
                reply = await post(client, url, body, seconds=self.config.timeout_seconds, max_bytes=_MAX_BYTES)
                if reply.status == 200:
                    return reply.json()
                failure = f"status {reply.status}: {' '.join(reply.text[:300].split())}"
                if reply.status < 500:
                    break  # the request itself is wrong, and sending it again does not help
            except ReplyError as error:
                failure = str(error)
        raise EngineError(
            f"engine.address = {self.config.address!r}: {failure}; is the vLLM server running there, and serving model"
            f" {self.config.model!r}?"
        )


def _run(work: Coroutine[Any, Any, _T]) -> _T:
    """Waits for a coroutine; in another thread where this one already runs a loop, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()
