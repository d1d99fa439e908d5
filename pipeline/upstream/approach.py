"""How an upstream is asked for what a client asked: its own request, another one, or the same in another protocol."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Literal, NamedTuple

import msgspec

from pipeline.config import Config
from pipeline.engines.prompt import Prompt, check_length
from pipeline.http import plans
from pipeline.http.plans import Plan
from pipeline.http.responses import ALONE, Turn
from pipeline.upstream import asking
from pipeline.upstream.headers import Headers, KeyHeader, turned
from pipeline.upstream.held import Held
from pipeline.upstream.held import held as held_to
from pipeline.upstream.pool import Sent, Upstream
from pipeline.upstream.probe import Known
from pipeline.upstream.translating import before_hub, outward, target_of
from pipeline.vocabulary import Vocabulary
from stages import catalog
from stages.errors import StagesError
from stages.events import PromptInput
from stages.opening import Ask, TokenizerFacts
from stages.parse.format import Format
from stages.parse.parser import Parser
from stages.upstream.asked import asked
from stages.upstream.decode import DECODERS

log = logging.getLogger("playhead.upstream")

TOLD: Final = "told"
"""The parser, and the way of reading, of what an upstream says that its model meant."""
RAW: Final = "plain"
"""The parser of completions: text as the model wrote it."""


class Request(NamedTuple):
    """What a client asked. ``target``: path and query; ``headers``: as they go on; ``turn``: what it goes on from, as
    it is stored here; None: that is the upstream's to know, which therefore has to answer itself."""

    protocol: str
    path: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes
    model: str | None
    turn: Turn | None = ALONE


class Approach(NamedTuple):
    """How an upstream is asked. ``way``: of reading what the model wrote; None: it is not told. ``plan``: only where
    our stages make the response; ``prompt``: where we rendered it; ``protocol``: where it is not the client's;
    ``parser``: that of this way, where it has its own; ``strictly``: the body to ask with, and what it loses, where the
    first one is refused."""

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
    protocol: str = ""
    parser: str = ""
    strictly: tuple[bytes, tuple[str, ...]] | None = None

    def sent(self, request: Request, upstream: Upstream) -> Sent:
        """What is sent to the upstream."""
        asked_in = self.protocol or (self.way if self.plan is not None and request.protocol == "messages" else "")
        if not asked_in:
            return Sent(self.target, self.body, request.headers)
        headers, header = _turned(request.headers, asked_in, upstream)
        return Sent(self.target, self.body, headers, header)

    def plainly(self, request: Request) -> Approach:
        """The same, with nothing added to what the client asked."""
        if self.strictly is not None:
            return self._replace(body=self.strictly[0], lost=self.strictly[1], strictly=None)
        why = "the upstream refused this request with return_token_ids"
        return self._replace(body=request.body, way=None, depth="verbatim", why=why, taken_out="")


class Approaches:
    """Finds out how to ask. ``records``: something is recorded; ``vocabulary``: of an upstream, where it has one."""

    def __init__(self, config: Config, records: bool, vocabulary: Callable[[Upstream], Vocabulary | None]) -> None:
        self._config = config
        self._records = records
        self._vocabulary = vocabulary
        self.strict: set[str] = set()
        """Upstreams that refused fields which only servers that run models know."""
        self._relayed_instead: set[tuple[str, str]] = set()
        """Upstreams, and why our stages do not make their responses, as was logged."""

    async def _plain(self, request: Request, upstream: Upstream) -> Approach:
        """The client's own request."""
        spoken = request.protocol in upstream.settings.protocols
        wanted = (spoken and self._records) or upstream.settings.parser is not None
        headers = request.headers
        if request.protocol == "messages" and upstream.settings.parser is not None:
            headers, _ = _turned(headers, "chat", upstream)
        known = await upstream.known(headers, request.model) if wanted else Known(why="nothing is recorded")
        ask = asked(request.protocol, request.body)
        plain = Approach(known, ask, request.path, request.target, request.body, why=known.why)
        if request.protocol == "completions" and upstream.settings.depth != "verbatim":
            return plain._replace(way="completions", depth="text", why="", parser=RAW)
        if request.protocol != "chat":
            return plain._replace(why=f"no server tells more than its own {request.protocol} events")
        return plain

    async def of(self, request: Request, upstream: Upstream) -> Approach:
        """The way to ask this upstream. Raises RequestError for a request that our stages, or its protocol, cannot
        serve."""
        plain = await self._plain(request, upstream)
        spoken = request.protocol in upstream.settings.protocols
        own = request.turn is None or request.protocol == "completions"
        if upstream.settings.parser is not None and not (spoken and own):
            parsed = self._for_parser(request, upstream, plain)
            if parsed is not None:
                return parsed
            if spoken:
                self._relay_instead(upstream, plain.known.why)
        return _as_told(request, plain) if spoken else self._translated(request, upstream, plain)

    def _relay_instead(self, upstream: Upstream, why: str) -> None:
        """Our stages were to make the response, and cannot."""
        if (upstream.name, why) not in self._relayed_instead:
            self._relayed_instead.add((upstream.name, why))
            log.warning("upstream %r: its own response is relayed in spite of --parser: %s", upstream.name, why)

    def _planned(self, request: Request, known: Known) -> Plan:
        """The request, understood. Raises RequestError."""
        model, turn = request.model or known.engine.model, request.turn or ALONE
        return plans.plan(
            request.protocol, request.body, model, before=turn.before, stored=turn.stored,
            reasoning_field=self._config.reasoning_field,
        )  # fmt: skip

    def _translated(self, request: Request, upstream: Upstream, plain: Approach) -> Approach:
        """The request in another protocol. Raises RequestError where there is none that could carry it."""
        to = target_of(upstream.settings.protocols, request.protocol)
        plan = self._planned(request, plain.known)
        made = outward(request.protocol, request.body, plan, to, request.model, upstream.settings.max_tokens)
        strictly = made.strictly
        if strictly is not None and upstream.name in self.strict:
            made, strictly = made._replace(body=strictly[0], lost=strictly[1]), None
        return plain._replace(
            ask=msgspec.structs.replace(plan.ask, return_token_ids=False), path=made.path, target=made.path,
            body=made.body, way=TOLD, depth="verbatim", plan=plan, lost=made.lost, protocol=to, parser=TOLD,
            strictly=strictly, why=f"the upstream was asked in {to}, and tells what its model meant",
        )  # fmt: skip

    def _for_parser(self, request: Request, upstream: Upstream, plain: Approach) -> Approach | None:
        """Ask for what our stages can read; None: the upstream tells nothing of it."""
        known = plain.known
        vocabulary = self._vocabulary(upstream)
        if vocabulary is None or known.way is None:
            return None
        plan = self._planned(request, known)
        prompt: Prompt | None = None
        if plan.conversation is None:
            if known.way == "chat" or len(plan.prompts) != 1 or plan.ask.echo:
                return None  # neither template nor tokens are told of it
            [raw] = plan.prompts
            prompt = Prompt((), raw) if isinstance(raw, str) else Prompt(raw, "")
        elif known.way != "chat":
            prompt = vocabulary.prompt(plan.conversation)
        if prompt is not None:
            check_length(len(prompt.ids), known.engine.max_tokens)
        written = parser_of(upstream, known, vocabulary, request.model)
        parser = RAW if plan.conversation is None else written
        return _tokens_asked(request, plain._replace(plan=plan, parser=parser), prompt, vocabulary.facts)


def _tokens_asked(request: Request, plain: Approach, prompt: Prompt | None, tokenizer: TokenizerFacts) -> Approach:
    """Asked for what the model writes, as the upstream is known to tell it."""
    known, way, plan = plain.known, plain.known.way, plain.plan
    assert way is not None
    assert plan is not None
    form, tail = _form(plain.parser, tokenizer), "" if prompt is None else prompt.tail
    held = held_to(way, plan.ask, form, tail, known.engine, tokenizer)
    lost = asking.lost(way, plan.sampling, ignored=plan.ignored, strict=known.strict)
    if way == "chat" and plan.chat is not None and request.protocol != way:
        lost = (*before_hub(request.protocol, request.body, plan), *asking.lost_in_chat(plan.chat))

    def asked_with(held: Held) -> tuple[str, bytes, tuple[str, ...]]:
        path, body = asking.ask(
            way, body=request.body, plan=plan, prompt=prompt, model=request.model or known.engine.model,
            protocol=request.protocol, strict=known.strict, context=known.engine.max_tokens,
            ids=way == "completions" and not known.strict, held=held.fields,
        )  # fmt: skip
        return path, body, tuple(dict.fromkeys((*lost, *held.lost)))

    path, body, all_lost = asked_with(held)
    return plain._replace(
        ask=plan.ask, path=path, target=path, body=body, way=way, depth=known.depth, why=known.why,
        prompt=None if prompt is None else PromptInput(prompt.ids, prompt.tail, len(prompt.ids)), lost=all_lost,
        protocol=way if way in DECODERS and way != request.protocol else "",
        strictly=None if held.less is None else asked_with(held.less)[1:],
    )  # fmt: skip


def _turned(headers: Headers, to: str, upstream: Upstream) -> tuple[list[tuple[str, str]], KeyHeader]:
    """A client's headers for a request in another protocol, or way, and the one that carries the key there."""
    header: KeyHeader = upstream.settings.key_header or ("x-api-key" if to == "messages" else "authorization")
    return turned(headers, to, header), header


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


def _form(parser: str, tokenizer: TokenizerFacts) -> Format | None:
    """The format that a parser reads; None: it is none of ours."""
    stage = None if ":" in parser else catalog.parser(parser)
    if not isinstance(stage, Parser):
        return None
    return stage.format if stage.format.variant is None else stage.format.variant(tokenizer)


def parser_of(upstream: Upstream, known: Known, vocabulary: Vocabulary | None, model: str | None) -> str:
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
