"""Case files: what a model wrote and what it means, one JSON object a line. docs/parse.md has the fields."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, Literal, NoReturn, TypeAlias

import msgspec

from replay.errors import BadCase, ParserFailed
from replay.expected import Expected, Mismatch, mismatches, misspelt, misspelt_expected
from replay.parse import bytes_of, message_of, opening_of, session_of, stepped, tokens_of
from replay.plain import is_map
from replay.resolve import Parser, resolve
from stages.events import FinishReason, Semantic, TokensInput
from stages.message import Message
from stages.opening import Ask, Opening, TokenizerFacts
from stages.protocols.openai_chat import AllowedChoice, ChatRequest, FunctionSpec, NamedChoice, ToolSpec, ask_of

Calls: TypeAlias = Literal["incremental", "whole"]

LONGEST = 64 << 20
"""Bytes of a line."""
_ENDS: dict[str, FinishReason] = {
    "eos": "eos", "stop": "eos", "tool_calls": "eos", "stop_token": "stop_token", "length": "length",
    "context": "context", "filter": "filter", "content_filter": "filter",
}  # fmt: skip
"""Why the engine stopped, also in the chat protocol's words. (A stop string is found by the stop stage.)"""
_OTHER = frozenset(("bad_stream", "good_stream", "client_stream", "wire_hex", "bad_wire_hex", "trace"))
"""Fields of cases about something else than parsing."""
_OUTPUT = ("raw_output", "deltas", "tokens", "token_bytes")


# --- a line, as it is written -----------------------------------------------------------------------------------------


class _Accept(msgspec.Struct, frozen=True):
    accept: tuple[Expected, ...]


class _Function(msgspec.Struct, frozen=True):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class _Tool(msgspec.Struct, frozen=True):
    function: _Function


class _Request(msgspec.Struct, frozen=True):
    """The fields of a request that parsing depends on. A tool: a name, a function, or as the chat protocol has it."""

    tools: list[Any] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedChoice | AllowedChoice | None = None
    parallel_tool_calls: bool | None = None
    include_reasoning: bool | None = None
    skip_special_tokens: bool | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int | str] | None = None
    prompt_suffix: str | None = None


class _Engine(msgspec.Struct, frozen=True):
    finish: str | None = None


class _Line(msgspec.Struct, frozen=True):
    id: str
    parser: str | None = None
    model: str | None = None
    family: str | None = None
    request: dict[str, Any] | None = None
    tools: list[Any] | None = None
    prompt_tail: str | None = None
    raw_output: str | None = None
    deltas: list[str] | None = None
    token_bytes: list[str] | None = None
    tokens: list[tuple[int, str]] | None = None
    special_tokens: dict[str, int] | None = None
    engine: _Engine | None = None
    calls: Calls | None = None
    expected: Expected | None = None
    expected_error: _Accept | None = None


# --- a case -----------------------------------------------------------------------------------------------------------


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One case. ``where``: FILE:LINE; ``parser``: a P, ``auto`` where only the model is named; ``calls``: the only
    policy that the case speaks of; ``given``: the steps as recorded; ``tokens``: what the other splits group;
    ``accept``: any of these will do; ``note``: what is odd about the case, for people."""

    id: str
    where: str
    parser: str
    opening: Opening
    tail: str
    finish: FinishReason
    calls: Calls | None
    given: tuple[TokensInput, ...]
    tokens: tuple[TokensInput, ...]
    accept: tuple[Expected, ...]
    note: str = ""

    @property
    def has_ids(self) -> bool:
        """The tokens are known, and are not cut."""
        return any(token.ids for token in self.tokens)

    @property
    def splits(self) -> tuple[str, ...]:
        """All the splits that apply; of the random ones, two."""
        recorded = ("recorded",) if self.has_ids or self.given != self.tokens else ()
        char = () if self.has_ids else ("char",)
        return (*recorded, "one", "token", "marker", *char, "rand:1:3", "rand:2:9")


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """A case run once. ``error``: the parser raised, and there is no message."""

    split: str
    calls: Calls
    message: Message | None
    events: tuple[Semantic, ...] = ()
    error: str = ""


def stage_of(case: Case, parser: str | None, known: dict[str, Parser]) -> Parser:
    """The stage for a case; ``parser``: instead of its own. ``known``: stages by name, so that a file is loaded once.
    Raises ReplayError for a parser that cannot be had."""
    name = parser or case.parser
    if name == "auto":
        return resolve(name, case.opening)
    if name not in known:
        known[name] = resolve(name)
    return known[name]


def run_case(case: Case, split: str, calls: Calls | None = None, parser: Parser | str | None = None) -> Outcome:
    """Run a case under a split. ``calls``: None is the case's own policy, or ``incremental``; ``parser``: another.

    Raises ReplayError for a parser that cannot be had, and BadSplit for a split that does not apply.
    """
    policy = calls or case.calls or "incremental"
    opening = msgspec.structs.replace(case.opening, calls=policy)
    tokens = case.given if split == "recorded" else case.tokens
    inputs = session_of(tokens, split, opening, case.tail, case.finish)
    try:
        steps = list(stepped(parser or case.parser, opening, inputs))
    except ParserFailed as error:
        return Outcome(split=split, calls=policy, message=None, error=str(error))
    events = tuple(event for step in steps for event in step.events)
    return Outcome(split=split, calls=policy, message=message_of(steps, opening), events=events)


def differences(case: Case, outcome: Outcome, *, trim: bool = False) -> list[Mismatch]:
    """Where an outcome is not what the case expects; of several that it accepts, compared with the nearest.

    ``trim``: white space at the ends of reasoning and content does not matter.
    """
    if outcome.message is None:
        return [Mismatch("parser", "", "a message", outcome.error)]
    found = [mismatches(expected, outcome.message, trim=trim) for expected in case.accept]
    return min(found, key=len)


# --- reading ----------------------------------------------------------------------------------------------------------


def read_cases(path: str, on_error: Callable[[BadCase], None] | None = None) -> Iterator[Case]:
    """The cases of a file (``-``: standard input), a line at a time. Lines about something else than parsing (recorded
    streams, network bytes) are passed over.

    Raises BadCase for what cannot be read; with ``on_error`` that is called instead, and the other lines follow.
    """
    for found in _read(path):
        if isinstance(found, Case):
            yield found
        elif on_error is None:
            raise found
        else:
            on_error(found)


def opened(path: str) -> contextlib.AbstractContextManager[IO[bytes]]:
    """A file to read (``-``: standard input, which stays open). Raises OSError."""
    if path != "-":
        return open(path, "rb")
    if not hasattr(sys.stdin, "buffer"):
        raise OSError("standard input is closed")
    return contextlib.nullcontext(sys.stdin.buffer)


def _read(path: str) -> Iterator[Case | BadCase]:
    name = "<stdin>" if path == "-" else path
    try:
        with opened(path) as file:
            for number, line in enumerate(_lines(file, name), 1):
                try:
                    case = _case(line, f"{name}:{number}")
                except BadCase as error:
                    yield error
                else:
                    if case is not None:
                        yield case
    except OSError as error:
        yield BadCase(name, f"cannot be read: {error.strerror or error}")
    except BadCase as error:
        yield error


def _lines(file: IO[bytes], name: str) -> Iterator[str]:
    number = 0
    while line := file.readline(LONGEST + 1):
        number += 1
        if len(line) > LONGEST:
            raise BadCase(f"{name}:{number}", f"over {LONGEST >> 20} MiB in one line: is this a case file?")
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise BadCase(f"{name}:{number}", f"byte {error.start} is not UTF-8: is this a case file?") from None


def _case(text: str, where: str) -> Case | None:
    """None: an empty line, or one about something else."""
    if not text.strip():
        return None
    value = _object(text, where)
    _spelled(value, where)
    if not _OTHER.isdisjoint(value) and not any(value.get(key) for key in _OUTPUT):
        return None
    try:
        line = msgspec.convert(value, _Line)
        fields = {**(line.request or {})}
        if line.tools is not None:
            fields.setdefault("tools", line.tools)
        return _built(line, msgspec.convert(fields, _Request), fields, where)
    except msgspec.ValidationError as error:
        hint = "; every case has an id of its own" if "field `id`" in str(error) else ""
        _refuse(where, f"{error}{hint}")
    except RecursionError:
        _refuse(where, "the case is nested too deeply")


def _spelled(value: dict[str, Any], where: str) -> None:
    """Refuses a field that nearly has the name of a known one: it would be passed over in silence."""
    wrong = misspelt("", value, _Line) or misspelt("request.", value.get("request"), _Request)
    wrong = wrong or misspelt_expected(value.get("expected"))
    if wrong:
        _refuse(where, wrong)


def _object(text: str, where: str) -> dict[str, Any]:
    try:
        value: Any = json.loads(text)
    except json.JSONDecodeError as error:
        _refuse(where, f"not JSON: {error.msg} (column {error.colno}); a case is one JSON object on one line")
    except (RecursionError, ValueError) as error:
        _refuse(where, f"not JSON that can be read: {error}")
    if not is_map(value):
        _refuse(where, f"expected a JSON object, got {type(value).__name__}; a case is one JSON object on one line")
    return value


def _refuse(where: str, why: str) -> NoReturn:
    raise BadCase(where, why) from None


def _built(line: _Line, request: _Request, fields: dict[str, Any], where: str) -> Case:
    parser = line.parser or ("auto" if line.model else line.family)
    if not parser:
        _refuse(where, 'the case names no parser: give it "parser", or "model" to have the format detected')
    if line.expected is not None:
        accept: tuple[Expected, ...] = (line.expected,)
    elif line.expected_error is not None and line.expected_error.accept:
        accept = line.expected_error.accept
    else:
        _refuse(where, 'the case expects nothing: give it "expected", or "expected_error" with a list "accept"')
    finish = (line.engine or _Engine()).finish or "eos"
    if finish not in _ENDS:
        _refuse(where, f"engine.finish {finish!r}: use one of {', '.join(_ENDS)}")
    tokenizer = _tokenizer(line, request)
    given, tokens = _tokens(line, tokenizer, where)
    opening = opening_of(
        line.id,
        ask=_ask(request, where),
        tokenizer=tokenizer,
        model=line.model or "",
        request=json.dumps(fields).encode(),
    )
    return Case(
        id=line.id, where=where, parser=parser, opening=opening, calls=line.calls, given=given, tokens=tokens,
        tail=request.prompt_suffix or "" if line.prompt_tail is None else line.prompt_tail,
        finish=_ENDS[finish], accept=accept, note=_note(line, given),
    )  # fmt: skip


def _ask(request: _Request, where: str) -> Ask:
    stops = [request.stop] if isinstance(request.stop, str) else request.stop or []
    return ask_of(
        ChatRequest(
            messages=[],
            tools=tools_of(request.tools or [], where),
            tool_choice=request.tool_choice,
            parallel_tool_calls=request.parallel_tool_calls is not False,
            include_reasoning=request.include_reasoning is not False,
            skip_special_tokens=request.skip_special_tokens is not False,
            include_stop_str_in_output=bool(request.include_stop_str_in_output),
            ignore_eos=bool(request.ignore_eos),
            stop=[text for text in stops if text],
        )
    )


def tools_of(tools: Sequence[Any], where: str) -> list[ToolSpec]:
    """Tools as the chat protocol declares them; a bare function, or a name alone, will do too. ``where``: what BadCase
    says that it cannot read."""
    made: list[ToolSpec] = []
    for index, tool in enumerate(tools):
        try:
            if isinstance(tool, str):
                function = _Function(tool)
            elif is_map(tool) and "function" in tool:
                function = msgspec.convert(tool, _Tool).function
            else:
                function = msgspec.convert(tool, _Function)
        except msgspec.ValidationError as error:
            _refuse(where, f"tools[{index}]: {error}; a tool is a function with a name")
        spec = FunctionSpec(function.name, function.description, function.parameters, function.strict)
        made.append(ToolSpec("function", spec))
    return made


def _tokenizer(line: _Line, request: _Request) -> TokenizerFacts:
    special = dict(line.special_tokens or {})
    ends: list[int] = []
    for token in request.stop_token_ids or ():
        # Named by its text where no tokenizer says its id.
        number = token if isinstance(token, int) else special.setdefault(token, max((999_999, *special.values())) + 1)
        ends.append(number)
    return TokenizerFacts(special=special, eos=tuple(ends))


def _tokens(
    line: _Line, tokenizer: TokenizerFacts, where: str
) -> tuple[tuple[TokensInput, ...], tuple[TokensInput, ...]]:
    """The steps as recorded, and the tokens that the other splits group."""
    pieces: list[bytes] | None = None
    if line.token_bytes:
        try:
            pieces = [bytes.fromhex(piece) for piece in line.token_bytes]
        except ValueError as error:
            _refuse(where, f"token_bytes: {error}; write each token's bytes as hexadecimal digits")
    if line.tokens:
        pieces = [text.encode("utf-8", "surrogatepass") for _, text in line.tokens] if pieces is None else pieces
        if len(pieces) != len(line.tokens):
            _refuse(where, f"{len(line.tokens)} tokens, but token_bytes of {len(pieces)}")
        known = [
            TokensInput(0, (number,), (piece,), text) for (number, text), piece in zip(line.tokens, pieces, strict=True)
        ]
        return tuple(known), tuple(known)
    if pieces is not None:
        known = bytes_of(pieces, tokenizer)
        return tuple(known), tuple(known)
    if line.raw_output is None and line.deltas is None:
        _refuse(where, f'the case has no output: give it "raw_output" (or one of {", ".join(_OUTPUT[1:])})')
    text = _whole("".join(line.deltas or ())) if line.raw_output is None else line.raw_output
    tokens = tuple(tokens_of(text, tokenizer))
    return tuple(TokensInput(0, (), (), delta) for delta in line.deltas) if line.deltas else tokens, tokens


def _whole(text: str) -> str:
    """Text with its surrogate pairs joined, which deltas may have cut."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _note(line: _Line, given: Sequence[TokensInput]) -> str:
    if line.raw_output is None:
        return ""
    name = "tokens" if line.tokens else "token_bytes" if line.token_bytes else "deltas"
    if given and given[0].pieces:
        text = b"".join(piece for token in given for piece in token.pieces).decode("utf-8", "replace")
    else:
        text = "".join(token.text for token in given)
    return (
        "" if _whole(text) == _whole(line.raw_output) else f"{name} do not join to raw_output; both are run as they are"
    )
