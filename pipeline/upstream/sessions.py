"""From a request to a session of another server: how much it can tell is found out, it is asked, the session opens."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar

import anyio
import msgspec
from starlette.types import Receive

from pipeline import ids
from pipeline.config import Config
from pipeline.engines.prompt import check_length
from pipeline.http import chat
from pipeline.http.chat import Plan
from pipeline.recorder import Recorder
from pipeline.session import Session, stop_watch
from pipeline.upstream import asking
from pipeline.upstream.client import Exchange
from pipeline.upstream.errors import UpstreamFault
from pipeline.upstream.headers import recorded
from pipeline.upstream.pool import Pool, SentTo, Upstream
from pipeline.upstream.probe import Known
from pipeline.upstream.reader import Reader
from pipeline.upstream.relaying import RelaySession
from pipeline.upstream.settings import Base
from pipeline.upstream.stream import Ask as Asked
from pipeline.upstream.stream import Stops, UpstreamStream
from pipeline.vocabulary import Vocabulary
from replay.resolve import resolve
from stages import catalog
from stages.errors import RequestError, StagesError
from stages.events import AbortInput, ErrorInput, PromptInput
from stages.opening import Ask, Opening, TokenizerFacts, UpstreamFacts
from stages.upstream.asked import asked
from stages.upstream.decode import DECODERS
from stages.upstream.inputs import INPUTS
from stages.upstream.relay import RELAY

log = logging.getLogger("playhead.upstream")

T = TypeVar("T")
REFUSALS = frozenset((400, 422))
"""With these a server may refuse a field that it does not know."""


class Request(NamedTuple):
    """What a client asked. ``target``: path and query; ``headers``: as they go on."""

    protocol: str
    path: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes
    model: str | None


class Approach(NamedTuple):
    """How an upstream is asked. ``way``: of reading what the model wrote; None: it is not told. ``plan``: only where
    our stages make the response; ``prompt``: where we rendered it."""

    known: Known
    ask: Ask
    path: str
    target: str
    body: bytes
    way: str | None = None
    depth: Literal["tokens", "text", "verbatim"] = "verbatim"
    why: str = ""
    taken_out: Literal["", "null", "absent"] = ""
    lost: tuple[str, ...] = ()
    plan: Plan | None = None
    prompt: PromptInput | None = None

    def plainly(self, request: Request) -> Approach:
        """The same, with nothing added to what the client asked."""
        why = "the upstream refused this request with return_token_ids"
        return self._replace(body=request.body, way=None, depth="verbatim", why=why, taken_out="")


class Opened(NamedTuple):
    """A session to serve. ``stream``: to be run beside it; ``shadows``: the parsers that look at it by default."""

    session: Session | RelaySession
    stream: UpstreamStream | None
    shadows: tuple[str, ...]


class Sessions:
    """Opens sessions of upstreams. ``vocabularies``: by what the settings call the tokenizer."""

    def __init__(self, config: Config, pool: Pool, recorder: Recorder, vocabularies: Mapping[str, Vocabulary]) -> None:
        self._config = config
        self._pool = pool
        self._recorder = recorder
        self._vocabularies = vocabularies
        self._foreign: set[str] = set()
        """Tokenizers that lack ids, as was logged."""
        self._relayed_instead: set[tuple[str, str]] = set()
        """Upstreams, and why our stages do not make their responses, as was logged."""

    async def open(self, request: Request, upstreams: Sequence[Upstream], receive: Receive) -> Opened:
        """Open a session: one whose response our stages make, before the upstream is asked; else for what is answered,
        whatever that is. Raises RequestError for a request that our stages cannot serve."""
        began = _Began(ids.unix_ns(), ids.stopwatch())
        first = upstreams[0]
        approach = await while_there(receive, lambda: self._approach(request, first))
        if approach is not None and approach.plan is not None and len(upstreams) == 1:
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
            response_id=f"chatcmpl-{session}",
            created=began.at // 1_000_000_000,
            opened=began.at,
            model=request.model or approach.known.engine.model,
            protocol=request.protocol,
            request=request.body,
            ask=approach.ask,
            parser=_parser(upstream, approach.known, vocabulary, request.model),
            calls=self._config.calls,
            engine=approach.known.engine,
            tokenizer=TokenizerFacts() if vocabulary is None else vocabulary.facts,
            headers=dict(recorded(request.headers)),
            upstream=UpstreamFacts(
                name=upstream.name, url=where.origin, path=where.path(approach.path), depth=approach.depth,
                why=approach.why, relayed=approach.plan is None, taken_out=approach.taken_out, lost=approach.lost,
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
        return Opened(session, None, (opening.parser,) if readable else ())

    def _parsed(self, request: Request, began: _Began, upstream: Upstream, approach: Approach, ask: Asked) -> Opened:
        opening = self._opening(request, began, upstream, approach)
        layers = catalog.layers(opening, resolve(opening.parser, opening))
        decoder, inputs = _READ_AS[approach.way or ""], INPUTS[approach.way or ""]
        stages = {**catalog.stage_ids(layers), "inputs": inputs.id}
        stages |= {} if decoder is None else {"decoder": decoder.id}
        opening = msgspec.structs.replace(opening, stages=stages)
        recorder = self._recorder.open(opening, began.elapsed)
        reader = Reader(opening, recorder, decoder, inputs, self._vocabulary(upstream))
        stream = UpstreamStream(ask, reader, Stops(stop_watch(opening, layers), approach.ask.n), approach.prompt)
        wanted = None if approach.plan is None else approach.plan.keep_alive
        session = Session(
            opening, layers, stream, recorder, commit_after=self._config.commit_after,
            keep_alive=self._config.keep_alive if wanted is None else wanted,
        )  # fmt: skip
        return Opened(session, stream, ())

    # --- asking -----------------------------------------------------------------------------------------------------

    def _asking(self, request: Request, upstream: Upstream, approach: Approach) -> Asked:
        async def ask() -> Exchange:
            found = await self._pool.ask([upstream], "POST", approach.target, request.headers, approach.body)
            return found[1]

        return ask

    async def _answer(self, request: Request, upstreams: Sequence[Upstream], approach: Approach) -> _Answered:
        asked_so = {upstreams[0].name: approach}

        async def sent(upstream: Upstream) -> tuple[str, bytes]:
            """Of another upstream something else may be known."""
            if upstream.name not in asked_so:
                asked_so[upstream.name] = await self._approach(request, upstream)
            return asked_so[upstream.name].target, asked_so[upstream.name].body

        upstream, answer = await self._ask(upstreams, request, sent)
        approach = asked_so[upstream.name]
        if approach.taken_out and isinstance(answer, Exchange) and answer.status in REFUSALS:
            await answer.close()
            approach = approach.plainly(request)
            upstream, answer = await self._ask([upstream], request, approach.body)
        if isinstance(answer, Exchange) and answer.status >= 400 and approach.plan is None:
            why = f"it answered with status {answer.status}"
            approach = approach._replace(way=None, depth="verbatim", why=why, taken_out="")
        return _Answered(approach, upstream, answer)

    async def _ask(
        self, upstreams: Sequence[Upstream], request: Request, body: bytes | SentTo
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

    async def _plain(self, request: Request, upstream: Upstream) -> Approach:
        """The client's own request."""
        wanted = self._recorder.mode != "off" or upstream.settings.parser is not None
        known = await upstream.known(request.headers, request.model) if wanted else Known(why="nothing is recorded")
        ask = asked(request.protocol, request.body)
        plain = Approach(known, ask, request.path, request.target, request.body, why=known.why)
        if request.protocol == "completions" and upstream.settings.depth != "verbatim":
            return plain._replace(way="completions", depth="text", why="")
        if request.protocol != "chat":
            return plain._replace(why=f"no server tells more than its own {request.protocol} events")
        return plain

    async def _approach(self, request: Request, upstream: Upstream) -> Approach:
        plain = await self._plain(request, upstream)
        if request.protocol == "chat" and upstream.settings.parser is not None:
            if plain.known.way is not None:
                return self._for_parser(request, upstream, plain)
            self._relay_instead(upstream, plain.why)
        return _as_told(request, plain)

    def _relay_instead(self, upstream: Upstream, why: str) -> None:
        """Our stages were to make the response, and cannot."""
        if (upstream.name, why) not in self._relayed_instead:
            self._relayed_instead.add((upstream.name, why))
            log.warning("upstream %r: its own response is relayed in spite of --parser: %s", upstream.name, why)

    def _for_parser(self, request: Request, upstream: Upstream, plain: Approach) -> Approach:
        """Ask for what our stages can read."""
        known = plain.known
        vocabulary = self._vocabulary(upstream)
        if vocabulary is None or known.way is None:
            return plain
        plan = chat.plan(
            request.body, request.model or known.engine.model, reasoning_field=self._config.reasoning_field
        )
        prompt = None if known.way == "chat" else vocabulary.prompt(plan.conversation)
        if prompt is not None:
            check_length(len(prompt.ids), known.engine.max_tokens)
        path, body = asking.ask(
            known.way, body=request.body, plan=plan, prompt=prompt, model=request.model or known.engine.model,
            strict=known.strict, context=known.engine.max_tokens, ids=known.way == "completions" and not known.strict,
        )  # fmt: skip
        told = None if prompt is None else PromptInput(prompt.ids, prompt.tail, len(prompt.ids))
        return plain._replace(
            ask=plan.ask, path=path, target=path, body=body, way=known.way, depth=known.depth, why=known.why, plan=plan,
            prompt=told, lost=asking.lost(known.way, plan.sampling, ignored=plan.ignored, strict=known.strict),
        )  # fmt: skip


class _Began(NamedTuple):
    """When the request came, unix ns; ``elapsed``: ns since then."""

    at: int
    elapsed: Callable[[], int]


class _Answered(NamedTuple):
    approach: Approach
    upstream: Upstream
    answer: Exchange | ErrorInput | AbortInput


_READ_AS = {"chat": DECODERS["chat"], "completions": DECODERS["completions"], "generate": None, "completion": None}
"""Of a parsed session: what its upstream took it for. The native ways take it for nothing."""


def _answering(answer: Exchange | ErrorInput) -> Asked:
    """For a stream of what has been asked already."""

    async def ask() -> Exchange | ErrorInput:
        return answer

    return ask


def _as_told(request: Request, plain: Approach) -> Approach:
    """As the upstream is asked where its own response is relayed."""
    return _injected(request, plain) if request.protocol == "chat" and plain.known.way == "chat" else plain


def _injected(request: Request, plain: Approach) -> Approach:
    """A client's own request, with the token ids asked for."""
    if not plain.ask.include_reasoning:
        return plain._replace(why="where reasoning is hidden no ids are told")
    if plain.ask.return_token_ids:
        return plain._replace(way="chat", depth="tokens", why="")
    body = asking.inject(request.body)
    if body is None:
        return plain._replace(why="the request says itself that it wants no ids, or is no JSON object")
    return plain._replace(body=body, way="chat", depth="tokens", why="", taken_out=plain.known.taken_out)


def _parser(upstream: Upstream, known: Known, vocabulary: Vocabulary | None, model: str | None) -> str:
    """The format of a model: as it was set; as the upstream was started; as its template or name tells."""
    wanted = upstream.settings.parser
    if wanted is not None and wanted != "auto":
        return wanted
    told = [known.engine.arguments.get(name, "") for name in ("reasoning_parser", "tool_call_parser")]
    for name in ("+".join(told), *told):
        if name.strip("+"):
            try:
                # Of the catalog only: to anything else an upstream could have us load its code.
                catalog.parser(name.strip("+"))
            except StagesError:
                continue
            return name.strip("+")
    template, tokenizer = (None, TokenizerFacts()) if vocabulary is None else (vocabulary.template, vocabulary.facts)
    return catalog.detect(known.template or template, tokenizer, model or known.engine.model)


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
