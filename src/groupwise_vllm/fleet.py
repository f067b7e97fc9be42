"""The servers of a run: which one serves a group, how each follows the weights, what happens where one fails."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

from groupwise.causal_lm.config import SamplingConfig
from groupwise_vllm.checks import check_length, check_vocabulary
from groupwise_vllm.config import VllmEngine
from groupwise_vllm.proof import Difference, Proof
from groupwise_vllm.server import LONGEST_REST, EngineError, Interrupted, Piece, Server, request_body
from groupwise_vllm.transport import Transport, named

log = logging.getLogger("groupwise")

_SECONDS_TO_LEAVE = 3.0


@final
class Fleet:
    """The servers of a run.

    Args:
        config: the deadlines.
        addresses: the addresses of the servers.
        transport: the weights' way to them; `None` where others refresh them, or another process sends the weights.
        proof: the check of a server that was sent weights.
        eos: the ids that end a completion.
        tokenizer: the trained model's; where omitted, the servers' vocabulary is not checked.
        exit_reason: returns why a server that the run started has ended; empty while it lives.
        proves: whether a server must have proved the weights before it is asked.

    Attributes:
        version: the version of the trained weights, counted from 0.
        numbers: what the syncs since the last batch took and showed.
        longest: the tokens of the longest text that the run will ask for, as far as it is known.
        ended_by: the error of a request that ends the batch. Requests that wait their turn then ask no server.
    """

    def __init__(
        self,
        config: VllmEngine,
        addresses: Sequence[str],
        transport: Transport | None,
        proof: Proof,
        *,
        eos: Sequence[int],
        tokenizer: Any = None,
        exit_reason: Callable[[], str] = str,
        proves: bool = True,
    ) -> None:
        self._config, self._transport, self._proof, self._eos = config, transport, proof, tuple(eos)
        self._exit_reason, self._proves, self._tokenizer = exit_reason, proves, tokenizer
        self.servers = [Server(address, config) for address in addresses]
        self.version = -1
        self.numbers: dict[str, float] = {}
        self.longest = 0
        self.ended_by: EngineError | None = None

    def advance(self) -> None:
        """Begins a new version of the weights, and writes them where this process sends them."""
        self.version += 1
        self._proof.begin_version()
        if self._transport is None:
            return
        began = time.perf_counter()
        with named(self._transport, "write"):
            self._transport.write(self.version)
        self._count("sync_seconds", time.perf_counter() - began)

    async def renew_all(self, client: Any) -> dict[str, str]:
        """Sends the weights to every server that answers; returns the names under which these serve them, by address.

        Raises:
            EngineError: see `ready`.
        """
        await asyncio.gather(*(self.ready(client, number) for number in range(len(self.servers))))
        return {server.address: server.model for server in self.servers if server.version == self.version}

    def mark_proved(self, names: Mapping[str, str]) -> None:
        """Notes the servers that hold the current weights, as another process has proved. A server that was away gets
        them later, under the name that the others have.

        Args:
            names: under which they serve them, by address.
        """
        for server in self.servers:
            if server.address in names:
                server.model, server.version = names[server.address], self.version
            elif self._transport is None and names:
                server.model = next(iter(names.values()))

    def invalidate(self) -> None:
        """Makes every server take the weights and prove them again."""
        for server in self.servers:
            server.version = None

    async def ready(self, client: Any, number: int) -> Server:
        """Returns the server for a group: the one with the group's number, or the next one that answers. It holds the
        current weights.

        Args:
            number: the number of the group; groups are shared by their numbers, so that a group's members meet the
                same cache.

        Raises:
            EngineError: no server has answered for `patience_seconds`, or one does not hold the weights that it was
                sent.
        """
        clock = asyncio.get_running_loop().time
        while True:
            first = number % len(self.servers)
            for server in [*self.servers[first:], *self.servers[:first]]:
                if server.rests_until > clock():
                    continue
                began = clock()
                try:
                    async with server.lock:
                        if self.ended_by is not None:
                            raise self.ended_by
                        if server.rests_until > clock():
                            # The previous holder of the lock found that this server does not answer.
                            continue
                        began = clock()
                        await self._set_sleep(client, server, False)
                        await self._check_compatible(client, server)
                        await self._renew(client, server)
                    return server
                except Interrupted as error:
                    self.failed(server, error, waited=clock() - began)
            if reason := self._exit_reason():
                raise EngineError(reason)
            if all(self._has_tried_long(server, clock()) for server in self.servers):
                raise EngineError(self._no_answer())
            self._end_long_rests(clock())
            next_try = min(server.rests_until for server in self.servers)
            await asyncio.sleep(max(0.02, min(next_try - clock(), 1.0)))

    def begin_batch(self) -> None:
        """Renews the patience with every server. A server that failed continues its rest."""
        self.ended_by = None
        for server in self.servers:
            # A lock belongs to one event loop, and every batch runs in its own.
            server.lock = asyncio.Lock()
            server.failing_since = None

    def failed(self, server: Server, error: Interrupted, *, waited: float = 0.0) -> None:
        """Notes a server's failure, and reports it once: at the first one in a row that is more than being busy, or
        when it has been busy for `silence_seconds`.

        Args:
            server: the server that failed.
            error: how.
            waited: the seconds that all requests to it waited for this attempt. While others take its groups, it rests
                five times as long, so that a server that takes connections and answers nothing slows the run little.
        """
        now = asyncio.get_running_loop().time()
        server.is_checked = server.is_checked and error.is_busy
        others = sum(other.num_failures == 0 for other in self.servers if other is not server)
        server.failed(error, now, least_rest=5.0 * waited if others else 0.0)
        # The first reason explains more than later ones, which only report that the server is gone.
        server.reasons = list(dict.fromkeys([*server.reasons[:1], str(error)]))
        assert server.unwell_since is not None
        is_news = not error.is_busy or now - server.unwell_since >= self._config.silence_seconds
        if is_news and not server.is_reported_down:
            server.is_reported_down = True
            log.warning(
                "domain.engine: %s: %s; %s",
                server.address,
                error,
                f"the other {others} take its groups"
                if others
                else f"it is asked again for {self._config.patience_seconds:g} s",
            )

    def succeeded(self, server: Server) -> None:
        """Forgets a server's failures, and reports that it is back if the failure was reported. An answer that was
        under way when it failed does not prove that it works.
        """
        if server.is_reported_down and (server.version == self.version or not self._proves):
            server.is_reported_down = False
            log.warning("domain.engine: %s: it answers again", server.address)
        server.succeeded()

    async def sleep_all(self, client: Any) -> None:
        """Puts every server that is awake to sleep. One that does not answer is left as it is: the
        next batch finds out.
        """
        for server in self.servers:
            try:
                await self._set_sleep(client, server, True)
            except Interrupted as error:
                self.failed(server, error)

    async def leave(self, client: Any) -> None:
        """Lets the transport clean up on every server that answers at once."""

        async def leave(server: Server) -> None:
            assert self._transport is not None
            try:
                with named(self._transport, "leave"):
                    async with asyncio.timeout(_SECONDS_TO_LEAVE):
                        await self._transport.leave(client, server)
            except (Interrupted, EngineError) as error:
                log.warning("%s", error)

        await asyncio.gather(*(leave(server) for server in self.servers if not server.is_reported_down))

    async def _set_sleep(self, client: Any, server: Server, sleeps: bool) -> None:
        if server.sleeps != sleeps:
            began = time.perf_counter()
            await server.set_sleep(client, sleeps)
            self._count("sleep_seconds", time.perf_counter() - began)

    async def _check_compatible(self, client: Any, server: Server) -> None:
        """Refuses a server that is not of the kind that the run needs. A server is checked at its first request, and
        again after a failure.
        """
        if server.is_checked:
            return
        if self.longest:
            await check_length(client, server, self.longest)
        if self._transport is not None and self._tokenizer is not None:
            await check_vocabulary(client, server, self._tokenizer, self._proof.prompts)
            with named(self._transport, "check"):
                async with asyncio.timeout(self._config.timeout_seconds):
                    await self._transport.check(client, server)
        server.is_checked = True

    async def _renew(self, client: Any, server: Server) -> None:
        """Sends the weights to a server if this process is the sender, and checks that the server has them."""
        if not self._proves or server.version == self.version:
            return
        began = time.perf_counter()
        if self._transport is not None:
            with named(self._transport, "send"):
                async with asyncio.timeout(self._config.timeout_seconds):
                    await self._transport.send(client, server, self.version)
        self._count("sync_seconds", time.perf_counter() - began)
        pieces, difference = await self._prove(client, server)
        self.numbers["proof_difference"] = max(self.numbers.get("proof_difference", 0.0), difference.nats)
        if fault := self._proof.fault(server.address, pieces, difference):
            if self._transport is None:
                # The process that sends the weights will find the same fault, and send them.
                raise Interrupted(f"it does not hold the trained weights: {fault}")
            raise EngineError(f"domain.engine: {server.address} does not hold the trained weights: {fault}")
        server.version = self.version
        self.succeeded(server)

    async def prove_again(self, client: Any) -> bool:
        """Proves all up-to-date servers once more; returns whether all still have the weights."""

        async def holds(server: Server) -> bool:
            try:
                _, difference = await self._prove(client, server)
            except Interrupted as error:
                self.failed(server, error)
                # A server that is gone may have been restarted with other weights before it answered.
                return error.is_busy
            return self._proof.explains(difference)

        return all(await asyncio.gather(*(holds(server) for server in self.servers if server.version == self.version)))

    async def _prove(self, client: Any, server: Server) -> tuple[list[Piece], Difference]:
        """Returns a server's answers to the prompts of the proof, and how far they are from the trainer's log-probs."""
        began = time.perf_counter()
        bodies = [
            request_body(prompt, self._proof.num_tokens, SamplingConfig(), place, self._eos)
            for place, prompt in enumerate(self._proof.prompts)
        ]
        pieces = await asyncio.gather(*(server.complete(client, body) for body in bodies))
        difference = self._proof.compare(pieces)
        self._count("proof_seconds", time.perf_counter() - began)
        return pieces, difference

    def _end_long_rests(self, now: float) -> None:
        """Ends long rests where every other server has failed for a while, because nobody else would take the groups of
        the resting ones.
        """
        resting = [server for server in self.servers if server.rests_until - now > LONGEST_REST]
        since = [server.failing_since for server in self.servers if server not in resting]
        if all(begin is not None and now - begin > LONGEST_REST for begin in since):
            for server in resting:
                server.rests_until = now

    def _has_tried_long(self, server: Server, now: float) -> bool:
        begin = server.failing_since
        return begin is not None and now - max(begin, server.last_byte_at) > self._config.patience_seconds

    def _count(self, name: str, seconds: float) -> None:
        self.numbers[name] = self.numbers.get(name, 0.0) + seconds

    def _no_answer(self) -> str:
        reasons = "; ".join(f"{server.address}: {', then '.join(server.reasons)}" for server in self.servers)
        return (
            f"engine.address: no vLLM server has answered for {self._config.patience_seconds:g} s ({reasons}); is the"
            f" vLLM server running there, and serving model {self._config.model!r}?"
        )
