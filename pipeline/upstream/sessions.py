"""From a request to a session of another server: how much it can tell is found out, it is asked, the session opens."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import anyio
import msgspec
from starlette.types import Receive

from pipeline import ids
from pipeline.config import Config
from pipeline.recorder import Recorder
from pipeline.session import Session, stop_watch
from pipeline.upstream.approach import TOLD, Approach, Approaches, Request, parser_of
from pipeline.upstream.client import Exchange
from pipeline.upstream.errors import UpstreamFault
from pipeline.upstream.headers import recorded
from pipeline.upstream.pool import Pool, Sent, SentTo, Upstream
from pipeline.upstream.probe import Known
from pipeline.upstream.reader import Reader
from pipeline.upstream.relaying import RelaySession
from pipeline.upstream.settings import Base
from pipeline.upstream.stream import Ask as Asked
from pipeline.upstream.stream import Stops, UpstreamStream
from pipeline.vocabulary import Vocabulary
from replay.resolve import resolve
from stages import catalog
from stages.errors import RequestError
from stages.events import AbortInput, ErrorInput
from stages.opening import Opening, TokenizerFacts, UpstreamFacts
from stages.upstream.asked import asked
from stages.upstream.decode import DECODERS
from stages.upstream.inputs import INPUTS
from stages.upstream.relay import RELAY

log = logging.getLogger("playhead.upstream")
__all__ = ["MadeSession", "Opened", "Request", "Sessions", "while_there"]

T = TypeVar("T")
REFUSALS: Final = frozenset((400, 422))
"""With these a server may refuse a field that it does not know."""


class MadeSession(Session):
    """A session whose response our stages make, and the stream that it reads, which runs with it."""

    upstream: UpstreamStream

    async def run(self) -> None:
        """See Session."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.upstream.run)
            await super().run()


class Opened(NamedTuple):
    """A session to serve. ``shadows``: the parsers that look at it by default."""

    session: MadeSession | RelaySession
    shadows: tuple[str, ...]


class Sessions:
    """Opens sessions of upstreams. ``vocabularies``: by what the settings call the tokenizer."""

    def __init__(self, config: Config, pool: Pool, recorder: Recorder, vocabularies: Mapping[str, Vocabulary]) -> None:
        self._config = config
        self._pool = pool
        self._recorder = recorder
        self._vocabularies = vocabularies
        self._approaches = Approaches(config, recorder.mode != "off", self._vocabulary)
        self._foreign: set[str] = set()
        """Tokenizers that lack ids, as was logged."""

    async def open(self, request: Request, upstreams: Sequence[Upstream], receive: Receive) -> Opened:
        """Open a session: one whose response our stages make, before the upstream is asked; else for what is answered,
        whatever that is. Raises RequestError for a request that our stages cannot serve."""
        began = _Began(ids.unix_ns(), ids.stopwatch())
        first = upstreams[0]
        approach = await while_there(receive, lambda: self._approaches.of(request, first))
        alone = len(upstreams) == 1 and approach is not None and approach.strictly is None
        if approach is not None and approach.plan is not None and alone:
            return self._parsed(request, began, first, approach, self._asking(request, first, approach))
        answered = None
        if approach is not None:
            planned = approach
            answered = await while_there(receive, lambda: self._answer(request, upstreams, planned))
        approach, upstream, answer = answered or self._unasked(request, first)
        if approach.plan is not None and not isinstance(answer, AbortInput):
            return self._parsed(request, began, upstream, approach, _answering(answer))
        return self._relayed(request, began, _Answered(approach, upstream, answer))

    def _opening(self, request: Request, began: _Began, upstream: Upstream, approach: Approach) -> Opening:
        vocabulary = self._vocabulary(upstream)
        session, where = ids.new_session_id(), Base(upstream.settings.url)
        return Opening(
            session=session,
            key=ids.new_key(),
            response_id=f"{catalog.PROTOCOLS[request.protocol].prefix}{session}",
            created=began.at // 1_000_000_000,
            opened=began.at,
            model=request.model or approach.known.engine.model,
            protocol=request.protocol,
            request=request.body,
            ask=approach.ask,
            parser=approach.parser or parser_of(upstream, approach.known, vocabulary, request.model),
            calls=self._config.calls,
            engine=approach.known.engine,
            tokenizer=TokenizerFacts() if vocabulary is None else vocabulary.facts,
            headers=dict(recorded(request.headers)),
            conversation="" if request.turn is None else request.turn.conversation,
            upstream=UpstreamFacts(
                name=upstream.name, url=where.origin, path=where.path(approach.path), depth=approach.depth,
                why=approach.why, relayed=approach.plan is None, taken_out=approach.taken_out, lost=approach.lost,
                protocol=approach.protocol,
            ),
        )  # fmt: skip

    def _vocabulary(self, upstream: Upstream) -> Vocabulary | None:
        where = upstream.settings.tokenizer or ""
        found = self._vocabularies.get(where)
        if found is not None and found.unknown and where not in self._foreign:
            self._foreign.add(where)
            log.warning("upstream %r told token ids that %s does not have: is it its model's?", upstream.name, where)
        return found

    def _relayed(self, request: Request, began: _Began, answered: _Answered) -> Opened:
        approach, upstream, answer = answered
        opening = self._opening(request, began, upstream, approach)
        decoder, inputs = DECODERS[opening.protocol], INPUTS.get(approach.way or "")
        stages = {"relay": RELAY.id, "decoder": decoder.id, "parser": resolve(opening.parser, opening).id}
        stages |= {} if inputs is None else {"inputs": inputs.id}
        opening = msgspec.structs.replace(opening, stages=stages)
        recorder = self._recorder.open(opening, began.elapsed)
        vocabulary = self._vocabulary(upstream)
        reader = Reader(opening, recorder, decoder, inputs, vocabulary)
        session = RelaySession(opening, request.path, answer, reader, recorder)
        readable = inputs is not None and (vocabulary is not None or approach.depth == "text")
        return Opened(session, (opening.parser,) if readable else ())

    def _parsed(self, request: Request, began: _Began, upstream: Upstream, approach: Approach, ask: Asked) -> Opened:
        opening = self._opening(request, began, upstream, approach)
        layers = catalog.layers(opening, resolve(opening.parser, opening))
        way = approach.way or ""
        decoder, inputs = DECODERS.get(approach.protocol or way), INPUTS[way]
        stages = {**catalog.stage_ids(layers), "inputs": inputs.id}
        stages |= {} if decoder is None else {"decoder": decoder.id}
        opening = msgspec.structs.replace(opening, stages=stages)
        recorder = self._recorder.open(opening, began.elapsed, None if request.turn is None else request.turn.known)
        reader = Reader(opening, recorder, decoder, inputs, self._vocabulary(upstream))
        stream = UpstreamStream(ask, reader, Stops(stop_watch(opening, layers), approach.ask.n), approach.prompt)
        wanted = None if approach.plan is None else approach.plan.keep_alive
        session = MadeSession(
            opening, layers, stream, recorder, commit_after=self._config.commit_after,
            keep_alive=self._config.keep_alive if wanted is None else wanted,
        )  # fmt: skip
        session.upstream = stream
        return Opened(session, ())

    # --- asking -----------------------------------------------------------------------------------------------------

    def _asking(self, request: Request, upstream: Upstream, approach: Approach) -> Asked:
        async def ask() -> Exchange:
            async def sent(upstream: Upstream) -> Sent:
                return approach.sent(request, upstream)

            return (await self._pool.ask([upstream], "POST", approach.target, request.headers, sent))[1]

        return ask

    async def _answer(self, request: Request, upstreams: Sequence[Upstream], approach: Approach) -> _Answered:
        asked_so = {upstreams[0].name: approach}

        async def sent(upstream: Upstream) -> Sent:
            """Of another upstream something else may be known."""
            if upstream.name not in asked_so:
                asked_so[upstream.name] = await self._approaches.of(request, upstream)
            return asked_so[upstream.name].sent(request, upstream)

        upstream, answer = await self._ask(upstreams, request, sent)
        approach = asked_so[upstream.name]
        more = approach.taken_out or approach.strictly is not None
        if more and isinstance(answer, Exchange) and answer.status in REFUSALS:
            await answer.close()
            less = asked_so[upstream.name] = approach.plainly(request)
            upstream, answer = await self._ask([upstream], request, sent)
            told = approach.strictly is not None and approach.way == TOLD
            if told and isinstance(answer, Exchange) and answer.status < 400:
                self._approaches.strict.add(upstream.name)
            approach = less
        if isinstance(answer, Exchange) and answer.status >= 400 and approach.plan is None:
            why = f"it answered with status {answer.status}"
            approach = approach._replace(way=None, depth="verbatim", why=why, taken_out="")
        return _Answered(approach, upstream, answer)

    async def _ask(
        self, upstreams: Sequence[Upstream], request: Request, body: SentTo
    ) -> tuple[Upstream, Exchange | ErrorInput]:
        try:
            return await self._pool.ask(upstreams, "POST", request.target, request.headers, body)
        except UpstreamFault as fault:
            return upstreams[0], fault.input()

    def _unasked(self, request: Request, upstream: Upstream) -> _Answered:
        approach = Approach(
            Known(), asked(request.protocol, request.body), request.path, request.target, request.body,
            why="the client left before there was an answer",
        )  # fmt: skip
        return _Answered(approach, upstream, AbortInput("client"))


class _Began(NamedTuple):
    """When the request came, unix ns; ``elapsed``: ns since then."""

    at: int
    elapsed: Callable[[], int]


class _Answered(NamedTuple):
    approach: Approach
    upstream: Upstream
    answer: Exchange | ErrorInput | AbortInput


def _answering(answer: Exchange | ErrorInput) -> Asked:
    """For a stream of what has been asked already."""

    async def ask() -> Exchange | ErrorInput:
        return answer

    return ask


async def while_there(receive: Receive, work: Callable[[], Awaitable[T]]) -> T | None:
    """Do this while the client waits; None: it left before it was done. Raises RequestError where ``work`` does."""
    done: list[T] = []
    refused: list[RequestError] = []

    async def watch(scope: anyio.CancelScope) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch, tasks.cancel_scope)
        try:
            done.append(await work())
        except RequestError as error:
            # Raised here it would come out as a group.
            refused.append(error)
        tasks.cancel_scope.cancel()
    if refused:
        raise refused[0]
    return done[0] if done else None
