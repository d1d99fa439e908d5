"""The upstreams of a proxy: which one serves a model, which one is up, and asking until there is an answer."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, NamedTuple, Self, TypeAlias

import anyio
import tenacity
from anyio.abc import TaskGroup

from pipeline.upstream.client import Client, Exchange, RequestBody
from pipeline.upstream.errors import UpstreamFault
from pipeline.upstream.headers import Headers, Key, KeyHeader, credentials, upward
from pipeline.upstream.loose import table, tables, text, value
from pipeline.upstream.probe import Known, Prober, Spawn
from pipeline.upstream.settings import UpstreamSettings, key_of

log = logging.getLogger("playhead.upstream")

State: TypeAlias = Literal["unknown", "up", "down"]
GENERATING: Final = ("/chat/completions", "/completions", "/responses", "/messages", "/generate", "/completion")
"""What the paths end in whose answers are read on the way, so that they must not be compressed."""
ELSEWHERE: Final = frozenset({502, 503, 504})
"""Statuses with which an upstream, or what stands before it, says that another one may be able to answer."""
LOOK_EVERY: Final = 2.0
"""Seconds between two looks at an upstream that is down."""
_WILD: Final = frozenset("*?[")
_BACKOFF: Final = tenacity.wait_random_exponential(multiplier=0.1, max=1.0)


class Stats:
    """Counters since the start, by the upstream's name."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()
        """(upstream, outcome) → requests that are over: ``ok``, ``aborted``, or a fault's code."""
        self.responses: Counter[tuple[str, int]] = Counter()
        """(upstream, status) → responses begun."""
        self.retries: Counter[str] = Counter()
        """Requests that were sent again, here or elsewhere, because this upstream did not answer them."""


class Upstream:
    """One upstream: its settings, its connections, and what is known of it."""

    def __init__(
        self, settings: UpstreamSettings, stats: Stats, spawn: Spawn, environ: Mapping[str, str], strip: bool
    ) -> None:
        """Raises BadSettings where its key is not in ``environ``. ``strip``: clients' credentials are not for it."""
        self.settings = settings
        self.name = settings.name
        self.state: State = "unknown"
        self.client = Client(settings)
        self._stats = stats
        self._strip = strip
        self._key = key_of(settings, environ)
        self._prober = Prober(self.client, self._key, strip, spawn)

    @property
    def in_flight(self) -> int:
        """Requests that wait for a response, or whose response is not over."""
        return self.client.busy

    async def known(self, headers: Headers, model: str | None) -> Known:
        """What it can tell of what this model writes, see ``pipeline.upstream.probe``. Fails no request."""
        # Where our stages make the responses, one that is back must not answer in their place.
        if self.state == "down" and self.settings.parser is None:
            return Known(why="the upstream is down")
        return await self._prober.known(headers, model)

    async def send(
        self, method: str, target: str, headers: Headers, body: RequestBody, header: KeyHeader | None = None
    ) -> Exchange:
        """Ask it, once. ``headers``: the client's; ``header``: of its own key, where that is not as the settings say.
        Raises UpstreamFault."""
        identity = target.partition("?")[0].endswith(GENERATING)
        key = self._key if self._key is None or header is None else Key(header, self._key.value)
        going = upward(headers, key=key, strip=self._strip, identity=identity, sized=not isinstance(body, bytes))
        try:
            exchange = await self.client.send(method, target, going, body, self._ended)
        except UpstreamFault as fault:
            self._stats.requests[self.name, fault.code] += 1
            if fault.away:
                self.turned("down", fault.code)
            raise
        except BaseException:  # a cancelled request is counted too, and raised on
            self._stats.requests[self.name, "aborted"] += 1
            raise
        self._stats.responses[self.name, exchange.status] += 1
        self.turned("up", f"status {exchange.status}")
        return exchange

    def matches(self, model: str) -> int | None:
        """How well it serves a model: 0 by its name, 1 by a pattern, 2 because it serves all; None: not at all."""
        best: int | None = None
        for pattern in self.settings.models:
            if pattern == model:
                return 0
            if _WILD.intersection(pattern) and fnmatchcase(model, pattern):
                best = min(2 if pattern == "*" else 1, 2 if best is None else best)
        return best

    async def listed(self, headers: Headers) -> list[dict[str, Any]]:
        """The entries of its list of models; none where it has no such list. Raises UpstreamFault."""
        exchange = await self.send("GET", "/v1/models", credentials(headers), b"")
        try:
            data = b"".join([part async for part in exchange.reads()])
        finally:
            await exchange.close()
        return tables(table(value(data)).get("data")) if exchange.status == 200 else []

    async def look(self) -> None:
        """Is it up again? Any answer says so."""
        try:
            exchange = await self.client.send("GET", "/health", [] if self._key is None else [self._key.item()])
        except UpstreamFault:
            return
        await exchange.close()
        self.turned("up", f"status {exchange.status}")

    def _ended(self, outcome: str) -> None:
        self._stats.requests[self.name, outcome] += 1

    def turned(self, state: State, why: str) -> None:
        """It is up, or down, as was just seen. What was known of one that is down counts no more."""
        if self.state != state:
            if "down" in (self.state, state):
                level = logging.WARNING if state == "down" else logging.INFO
                log.log(level, "upstream %r is %s: %s", self.name, state, why)
            if state == "down":
                self._prober.forget()
            self.state = state


class Sent(NamedTuple):
    """A request to an upstream. ``headers``: the client's, or what is made of them; ``header``: see Upstream.send."""

    target: str
    body: bytes
    headers: Headers
    header: KeyHeader | None = None


SentTo: TypeAlias = Callable[[Upstream], Awaitable[Sent]]
"""What is sent to an upstream; it may differ, where upstreams tell different things."""


class Pool:
    """All upstreams; an async context manager. ``strip``: requests carry keys of ours, which are for no upstream."""

    def __init__(
        self, settings: Sequence[UpstreamSettings], *, strip: bool = False, environ: Mapping[str, str] = os.environ
    ) -> None:
        """Raises BadSettings where a key is not in the environment."""
        self.stats = Stats()
        self._tasks: TaskGroup
        self.upstreams = [Upstream(one, self.stats, self._spawn, environ, strip) for one in settings]
        """In the order of the settings."""

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            for upstream in self.upstreams:
                await stack.enter_async_context(upstream.client)
            self._tasks = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(self._tasks.cancel_scope.cancel)
            for upstream in self.upstreams:
                self._tasks.start_soon(self._look, upstream)
            self._open = stack.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._open.aclose()

    def _spawn(self, work: Any) -> None:
        self._tasks.start_soon(work)

    def choose(self, model: str | None) -> list[Upstream]:
        """The upstreams that serve a model: those that name it, or else those with a pattern for it, or else those that
        serve all; in the order of the settings, those that are down last. None: of no model in particular: all."""
        ranked = [(0 if model is None else one.matches(model), one) for one in self.upstreams]
        best = min((rank for rank, _ in ranked if rank is not None), default=None)
        found = [one for rank, one in ranked if rank is not None and rank == best]
        return sorted(found, key=lambda one: one.state == "down")

    async def ask(
        self,
        upstreams: Sequence[Upstream],
        method: str,
        target: str,
        headers: Headers,
        body: RequestBody | SentTo = b"",
    ) -> tuple[Upstream, Exchange]:
        """Ask the first; where it seems to be away, the next, and again from the first after a short wait, as often as
        the first one's ``retries`` say. Never after a byte of a response, or of a body that comes bit by bit.

        Any response is an answer, but for 502, 503 and 504 while there is another upstream that may be up. ``headers``:
        the client's; ``body``: what is sent, or what gives it, with its target and headers, for each upstream that is
        asked. Raises UpstreamFault: that of the last one asked.
        """
        once = None if isinstance(body, bytes) or callable(body) else _Once(body)
        tries = max(len(upstreams), 1 + upstreams[0].settings.retries)
        attempts = tenacity.AsyncRetrying(
            stop=tenacity.stop_after_attempt(tries),
            wait=lambda state: _BACKOFF(state) if state.attempt_number >= len(upstreams) else 0.0,
            retry=tenacity.retry_if_exception(lambda error: _again(error, once)),
            reraise=True,
        )
        async for attempt in attempts:
            with attempt:
                number = attempt.retry_state.attempt_number
                if number > 1:
                    self.stats.retries[upstreams[(number - 2) % len(upstreams)].name] += 1
                upstream = upstreams[(number - 1) % len(upstreams)]
                if callable(body):
                    sent = await body(upstream)
                    exchange = await upstream.send(method, sent.target, sent.headers, sent.body, sent.header)
                else:
                    exchange = await upstream.send(method, target, headers, body if once is None else once.parts())
                others = upstreams[number:]
                if exchange.status in ELSEWHERE and any(one.state != "down" for one in others) and _fresh(once):
                    await exchange.close()
                    raise _Elsewhere
                return upstream, exchange
        raise AssertionError("tenacity raises or returns")

    async def models(self, headers: Headers) -> dict[str, Any]:
        """The models of all upstreams that answer, as GET /v1/models has them, each once, those that would be asked for
        it; the entries as they are. Raises UpstreamFault where none answers."""
        found: dict[str, list[dict[str, Any]]] = {}
        faults: list[UpstreamFault] = []

        async def ask(upstream: Upstream) -> None:
            with anyio.move_on_after(upstream.settings.connect_timeout + LOOK_EVERY):
                try:
                    found[upstream.name] = await upstream.listed(headers)
                except UpstreamFault as fault:
                    faults.append(fault)

        async with anyio.create_task_group() as tasks:
            for upstream in self.upstreams:
                tasks.start_soon(ask, upstream)
        if not found and faults:
            raise faults[0]
        merged: dict[str, dict[str, Any]] = {}
        for upstream in self.upstreams:
            for entry in found.get(upstream.name, []):
                name = text(entry.get("id"))
                if name is not None and upstream in self.choose(name):
                    merged.setdefault(name, entry)
        return {"object": "list", "data": [*merged.values()]}

    async def _look(self, upstream: Upstream) -> None:
        while True:
            await anyio.sleep(LOOK_EVERY)
            if upstream.state == "down":
                with anyio.move_on_after(upstream.settings.connect_timeout + LOOK_EVERY):
                    await upstream.look()


class _Elsewhere(Exception):
    """It answered that somebody else should be asked."""


class _Once:
    """A body that comes bit by bit: it can be sent again only as long as nothing of it was read."""

    def __init__(self, body: AsyncIterator[bytes]) -> None:
        self._body = body
        self.begun = False

    async def parts(self) -> AsyncIterator[bytes]:
        self.begun = True
        async for part in self._body:
            yield part


def _fresh(once: _Once | None) -> bool:
    return once is None or not once.begun


def _again(error: BaseException, once: _Once | None) -> bool:
    return _fresh(once) and (isinstance(error, _Elsewhere) or (isinstance(error, UpstreamFault) and error.away))
