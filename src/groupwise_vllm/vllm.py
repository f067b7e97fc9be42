"""vLLM servers as an engine: one completion request a member, by token ids, with the log-probs of what was sampled."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar, final

import torch
from torch import Tensor

from groupwise.causal_lm.backbone import Backbone
from groupwise.causal_lm.config import SamplingConfig
from groupwise.causal_lm.decode import Stops
from groupwise.causal_lm.sampler import Completions, Engine, Gathers, GroupBatch, end_ids
from groupwise.causal_lm.turns import Request, Turn, converse
from groupwise.config import ConfigError
from groupwise.learner.shards import local_part
from groupwise.processes import num_processes, process_rank
from groupwise.replies import certificates
from groupwise_vllm.checks import too_short
from groupwise_vllm.config import VllmEngine
from groupwise_vllm.fleet import Fleet
from groupwise_vllm.proof import Difference, Proof
from groupwise_vllm.server import WITHOUT_PROXY, EngineError, Interrupted, request_body
from groupwise_vllm.started import StartedServer
from groupwise_vllm.transport import open_transport

_T = TypeVar("_T")

_OTHER_WEIGHTS = (
    "domain.engine: the servers sampled from other weights than they proved to hold; look at their own logs, and"
    " whether another run changes their weights"
)
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@final
class Vllm(Engine):
    """An engine that calls servers; see `groupwise_vllm.config.VllmEngine`. Requests of a group share their
    prompt, which the server's prefix cache forwards once.

    Raises:
        ConfigError: no such executable, a way for the weights that this model cannot go, or servers that sleep while
            other processes ask them.
    """

    has_servers = True

    def __init__(self, backbone: Backbone, tokenizer: Any, config: VllmEngine) -> None:
        self.backbone, self.config = backbone, config
        self.eos = end_ids(backbone.model, tokenizer)
        self.live = config.sync != "none"
        # Several processes may ask the same servers; then the first one sends the weights.
        addresses, self._shares = _addresses(config)
        self.sends_weights = not self._shares or process_rank() == 0
        if config.sleep and self._shares:
            raise ConfigError(
                f"domain.engine.sleep = true: {num_processes()} processes share {len(addresses)} servers, which may not"
                " sleep while one of them asks; write as many addresses as processes, start = true, or sleep = false"
            )
        self._transport = open_transport(config, backbone.model, tokenizer) if self.sends_weights else None
        dtype = backbone.head.weight.dtype
        self._started = StartedServer(config, backbone.model, tokenizer, dtype) if config.start else None
        self._proof = Proof(backbone)
        if self._started is not None:
            addresses = (self._started.address,)
        exit_reason = str if self._started is None else self._started.exit_reason
        self._fleet = Fleet(
            config,
            addresses,
            self._transport,
            self._proof,
            eos=self.eos,
            tokenizer=tokenizer,
            exit_reason=exit_reason,
            proves=self.live,
        )
        self._weights: object = None
        self._has_changed = False
        self._is_waited_for = False
        self._tokenizer, self._stops = tokenizer, dict[tuple[str, ...], Stops]()

    @property
    def needs_rescoring(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """True for a sharded model: all processes together have to compute its log-probs."""
        return self.live and self.backbone.shards is not None

    def sample(self, batch: GroupBatch) -> Completions:
        """Samples the groups; `behaviour_log_prob` is the server's.

        Raises:
            ConfigError: settings under which the server's log-probs would be of another distribution than it sampled
                from.
            EngineError: no server answers for `patience_seconds`, a server refuses a request, or does not hold the
                trained weights.
        """
        settings = batch.settings
        plain = settings.greedy or (settings.temperature == 1 and not settings.truncates)
        if not self.config.processed_logprobs and not plain:
            raise ConfigError(
                f"engine.processed_logprobs = false with temperature = {settings.temperature}, top_p ="
                f" {settings.top_p}, top_k = {settings.top_k}: the server reports log-probs before these; start it with"
                " --logprobs-mode processed_logprobs and write processed_logprobs = true"
            )
        self._follow(batch)
        if self.config.sleep and torch.cuda.is_initialized():
            # Frees cached blocks, so that the servers can use the memory.
            torch.cuda.empty_cache()
        completions = self._answered(batch)
        if self.config.sleep:
            _run(self._with_client(self._fleet.sleep_all))
        numbers, self._fleet.numbers = self._fleet.numbers, {}
        version = self._fleet.version if self.live else None
        return replace(completions, weight_version=version, numbers=numbers)

    def _answered(self, batch: GroupBatch) -> Completions:
        completions = self._converse(batch)
        if self.live and self._is_far(batch, completions):
            # A server that was started anew between two steps holds the weights it began with.
            self._fleet.invalidate()
            if batch.begin_again is not None:
                batch.begin_again()
            completions = self._converse(batch)
            if self._is_far(batch, completions):
                raise EngineError(_OTHER_WEIGHTS)
        return completions

    def announce_length(self, num_tokens: int) -> None:
        """Notes the longest text; every server is checked for it before it is first asked."""
        self._fleet.longest = max(self._fleet.longest, num_tokens)

    def send_weights(self, prompts: Sequence[Sequence[int]], max_new_tokens: int, peers: Gathers) -> None:
        """Notes whether weights in shards have changed anywhere. Where the servers are shared and the weights have
        changed, the first process sends them, and the others wait until every server that answers has proved to hold
        them.

        Raises:
            ConfigError: flash attention, which the proof of a model in shards cannot compute.
            EngineError: see `sample`.
        """
        shards = self.backbone.shards
        if not self.live or (shards is None and not self._shares):
            return
        if shards is not None and str(self.backbone.config._attn_implementation).startswith("flash"):
            raise ConfigError(
                'train.sharding = "full" with domain.engine.kind = "vllm": what the servers hold is proved on the CPU,'
                ' where flash attention does not compute; write domain.model.attention = "sdpa"'
            )
        # Processes compare their checksums, since each sees changes in its own shards only.
        weights = checksum(self.backbone.model if shards is None else shards.model)
        self._has_changed = any(peers.gather(weights != self._weights)) or self._has_changed
        self._weights = weights
        if not self._shares or not self._has_changed:
            return
        if not self._proof.prompts:
            self._proof.choose(prompts, max_new_tokens)
        self._has_changed = False
        self._fleet.advance()
        names = _run(self._with_client(self._fleet.renew_all)) if self.sends_weights else {}
        names, self._proof.first, self._proof.proved = peers.gather((names, self._proof.first, self._proof.proved))[0]
        self._fleet.mark_proved(names)

    def close(self) -> None:
        """Ends the server that was started, and removes the weights that were written."""
        if self._started is not None:
            self._started.close()
        transport, self._transport = self._transport, None
        if transport is not None:
            try:
                if self._started is None and self._fleet.version >= 0:
                    _run(self._with_client(self._fleet.leave))
            finally:
                transport.close()

    def _follow(self, batch: GroupBatch) -> None:
        """Begins a new version where the weights have changed."""
        if self._started is not None and not self._is_waited_for:
            self._started.wait()
            self._is_waited_for = True
        if not self.live or self._shares:
            return
        if not self._proof.prompts:
            self._proof.choose(batch.prompts, batch.settings.max_new_tokens)
        if self.backbone.shards is None:
            weights = checksum(self.backbone.model)
            self._has_changed, self._weights = weights != self._weights, weights
        if self._has_changed:
            self._fleet.advance()
            self._has_changed = False

    def _converse(self, batch: GroupBatch) -> Completions:
        def complete(requests: list[Request]) -> list[Turn]:
            return _run(self._with_client(lambda client: self._complete_all(client, requests, batch.settings)))

        return converse(complete, self.backbone, batch, rescores=not self.needs_rescoring)

    def _is_far(self, batch: GroupBatch, completions: Completions) -> bool:
        """Tests whether the sampled log-probs differ from the rescored ones by more than rounding. With a sharded
        model, the process that has the weights tests a few members. If the two distributions differ, the servers have
        to prove their weights again.
        """
        if batch.settings.greedy or batch.settings.truncates:
            return not _run(self._with_client(self._fleet.prove_again))
        assert completions.behaviour_log_prob is not None
        if self.needs_rescoring:
            if not self._proof.has_weights:
                return False
            difference = self._proof.compare_some(batch, completions, len(self._fleet.servers))
        else:
            mask = completions.mask
            difference = Difference.between(completions.log_prob[mask], completions.behaviour_log_prob[mask])
        return not self._proof.explains(difference)

    def check_scored(self, expected: Tensor, served: Tensor) -> None:
        """Compares the log-probs of a whole batch, where its members were scored in shards.

        Raises:
            EngineError: a server sampled from other weights than it proved to hold.
        """
        if not self._proof.explains(Difference.between(expected, served)):
            raise EngineError(_OTHER_WEIGHTS)

    async def _with_client(self, work: Callable[[Any], Coroutine[Any, Any, _T]]) -> _T:
        """Runs requests to the servers in a separate event loop."""
        import httpx

        self._fleet.begin_batch()
        limits = httpx.Limits(max_connections=None)
        settings = {"timeout": None, "limits": limits, "mounts": WITHOUT_PROXY, "verify": certificates()}
        async with httpx.AsyncClient(**settings) as client:
            return await work(client)

    async def _complete_all(self, client: Any, requests: list[Request], settings: SamplingConfig) -> list[Turn]:
        free = asyncio.Semaphore(self.config.concurrency)

        async def complete(request: Request) -> Turn:
            async with free:
                try:
                    return await self._complete(client, request, settings)
                except EngineError as error:
                    self._fleet.ended_by = error
                    raise

        tasks = [asyncio.ensure_future(complete(request)) for request in requests]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()

    async def _complete(self, client: Any, request: Request, settings: SamplingConfig) -> Turn:
        """Asks until the completion ends. The tokens of a server that broke off are kept, and the rest is asked for."""
        tokens: list[int] = []
        log_prob: list[float] = []
        clock = asyncio.get_running_loop().time
        aborted_since: float | None = None
        while True:
            server = await self._fleet.ready(client, request.place[0])
            body = request_body(
                request.context + tokens,
                request.num_tokens - len(tokens),
                settings,
                request.seed + len(tokens),
                self.eos,
            )
            try:
                piece = await server.complete(client, body)
                self._fleet.succeeded(server)
            except Interrupted as error:
                self._fleet.failed(server, error)
                piece = error.piece
            is_whole = not tokens and piece.finish in ("stop", "length")
            tokens, log_prob = tokens + piece.tokens, log_prob + piece.log_prob
            if (piece.finish in ("stop", "length") and not piece.tokens) or len(tokens) > request.num_tokens:
                raise EngineError(
                    f"{server.address} gave {len(piece.tokens)} tokens, asked for 1 to {request.num_tokens}"
                )
            # The server does not see a stop text that starts before the place where it broke off and ends after it, nor
            # one after which it broke off.
            if not is_whole and settings.stop and (end := self._end_of(tokens, settings)):
                return Turn(tokens[:end], log_prob[:end], True)
            if piece.finish == "stop":
                return Turn(tokens, log_prob, True)
            if len(tokens) == request.num_tokens:
                return Turn(tokens, log_prob, bool(tokens) and tokens[-1] in self.eos)
            if piece.finish == "length":
                context = len(request.context)
                raise too_short(server, context + len(tokens), context + request.num_tokens)
            if piece.finish == "abort":
                aborted_since = clock() if aborted_since is None or piece.tokens else aborted_since
                if clock() - aborted_since > self.config.patience_seconds:
                    raise EngineError(
                        f"{server.address} breaks every completion off (finish_reason = abort) for"
                        f" {self.config.patience_seconds:g} s"
                    )
                await asyncio.sleep(0.1)

    def _end_of(self, tokens: Sequence[int], settings: SamplingConfig) -> int | None:
        """Returns the number of tokens after which an end token or a stop text ends the turn; None where the turn goes
        on.
        """
        if settings.stop not in self._stops:
            vocabulary = self.backbone.head.out_features
            self._stops[settings.stop] = Stops(
                self.eos, settings.stop, self._tokenizer, vocabulary, torch.device("cpu")
            )
        ends = self._stops[settings.stop].ends
        return next((place for place in range(1, len(tokens) + 1) if ends(tokens[:place])), None)


def _addresses(config: VllmEngine) -> tuple[tuple[str, ...], bool]:
    """Returns the servers of this process, and whether other processes ask them too. Where there are as many servers as
    training processes, each process has servers of its own; fewer are shared by all.
    """
    size, addresses = num_processes(), config.addresses
    if config.start or config.sync == "none" or size == 1:
        return addresses, False
    rank = process_rank()
    if len(addresses) >= size:
        return addresses[rank::size], False
    # The first group of each process goes to another server.
    first = rank % len(addresses)
    return addresses[first:] + addresses[:first], True


def checksum(model: torch.nn.Module) -> tuple[int, ...]:
    """Returns sums over the bits of every trained weight (of this process's part of it). They change with any weight,
    however it was written.

    Example:
        >>> layer = torch.nn.Linear(1, 1)
        >>> before = checksum(layer)
        >>> layer.weight.data.add_(1e-3) is not None and checksum(layer) == before
        False
    """
    sums = [
        local_part(parameter.detach()).view(_INTEGERS[parameter.element_size()]).sum(dtype=torch.int64)
        for parameter in model.parameters()
        if parameter.requires_grad
    ]
    return tuple(torch.stack(sums).tolist()) if sums else ()


def _run(work: Coroutine[Any, Any, _T]) -> _T:
    """Waits for a coroutine, in another thread if this one already runs a loop, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()
