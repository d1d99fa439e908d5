"""A parser from scratch: text is content, and what stands between ``<think>`` and ``</think>`` is reasoning.

    playhead replay playhead.db --parser examples/small_parser.py:Parser

Calls stay text. ``docs/write-a-parser.md`` goes through it, and says what a parser of calls has to give.

Commands are in ``.venv/bin``: ``. .venv/bin/activate``, or write ``.venv/bin/playhead``.
"""

from codecs import utf_8_decode

import msgspec

from stages.events import (
    AbortInput,
    Content,
    Dropped,
    End,
    ErrorInput,
    Failure,
    FailureKind,
    Fault,
    FaultCode,
    Finish,
    FinishInput,
    Input,
    Marker,
    PromptInput,
    Reasoning,
    Semantic,
    Start,
    Tick,
    TimingInput,
    Tokens,
    TokensInput,
    Usage,
    UsageInput,
)
from stages.opening import Opening

ABORTS: dict[str, tuple[FailureKind, str]] = {
    "client": ("client_closed", "the client closed the connection"),
    "timeout": ("timeout", "the request took too long"),
    "cancel": ("cancelled", "the request was cancelled"),
    "shutdown": ("cancelled", "the server is shutting down"),
}


class Choice(msgspec.Struct):
    """What is known of one choice between two steps. ``at``: bytes that have an owner; ``partial``: the bytes behind
    them, of a character that has not come to its end; ``thoughts``: tokens of steps that ended inside reasoning."""

    at: int = 0
    partial: bytes = b""
    thinking: bool = False
    ended: bool = False
    finished: bool = False
    thoughts: int = 0


class State(msgspec.Struct, frozen=True):
    """The whole state of a session, as plain data."""

    choices: tuple[Choice, ...] = ()
    over: bool = False


class Parser:
    """The stage: what the sessions have in common. Raise the number in ``id`` when what comes out changes."""

    id = "example.small@1"

    def start(self, opening: Opening) -> "Machine":
        """A machine for a new session."""
        return Machine(opening, State())

    def resume(self, opening: Opening, snapshot: State) -> "Machine":
        """A machine that continues after a snapshot."""
        return Machine(opening, snapshot)


class Machine:
    """One session."""

    def __init__(self, opening: Opening, state: State) -> None:
        ask, known = opening.ask, opening.tokenizer
        self.ask = ask
        self.choices = [msgspec.structs.replace(choice) for choice in state.choices]
        self.over = state.over
        ids = {**known.special, **known.added}
        self.thinks = {ids[text]: text == "<think>" for text in ("<think>", "</think>") if text in ids}
        self.ends = {*ask.stop_ids} if ask.ignore_eos else {*known.eos, *ask.stop_ids}
        self.hidden = self.ends | {*known.eos}
        if ask.include_stop:
            self.hidden -= {*ask.stop_ids} - {*known.eos}
        if not ask.keep_special:
            self.hidden |= {*known.special.values()}

    def snapshot(self) -> State:
        """A copy: later steps do not change it."""
        return State(tuple(msgspec.structs.replace(choice) for choice in self.choices), self.over)

    def step(self, event: Input, out: list[Semantic]) -> None:
        """Append what follows from one input."""
        if self.over:
            return
        match event:
            case PromptInput() if not self.choices:
                for index in range(self.ask.n):
                    self.choices.append(Choice(thinking=event.tail.rstrip().endswith("<think>")))
                    ids = event.ids if index == 0 and self.ask.return_token_ids else ()
                    out.append(Start(index, event.count, event.cached, ids))
            case TokensInput() if event.choice < len(self.choices):
                self.tokens(event, out)
            case FinishInput() if event.choice < len(self.choices) and not self.choices[event.choice].finished:
                self.close(event.choice, out)
                out.append(Finish(event.choice, event.reason, event.stop))
            case UsageInput():
                self.cut(out)
                thoughts = sum(choice.thoughts for choice in self.choices)
                out += Usage(event.prompt, event.completion, event.cached, thoughts), End()
            case ErrorInput():
                self.cut(out)
                out += Failure(event.kind, event.message, event.code, event.param), End()
            case AbortInput():
                self.cut(out)
                out += Failure(*ABORTS[event.by]), End()
            case Tick() | TimingInput():
                out.append(event)
            case _:
                pass  # nothing follows from it

    def tokens(self, event: TokensInput, out: list[Semantic]) -> None:
        """A step of a choice: first its ids, then what its text means."""
        index, choice = event.choice, self.choices[event.choice]
        out.append(Tokens(index, event.ids, event.logprobs))
        run = b""
        # An engine that gives no bytes gives text: its UTF-8 is what the ranges count.
        pairs = (
            zip(event.ids, event.pieces, strict=False) if event.pieces else [(-1, event.text.encode(errors="replace"))]
        )
        for number, piece in pairs:
            if number not in self.thinks and number not in self.hidden:
                run += piece
                continue
            self.write(index, run, out, whole=True)
            run = b""
            src = choice.at, choice.at + len(piece)
            choice.at = src[1]
            if number in self.thinks and not choice.ended:
                out.append(Marker(index, piece.decode(errors="replace"), src))
                choice.thinking = self.thinks[number]
            elif piece:
                out.append(Dropped(index, piece.decode(errors="replace"), src))
                choice.ended |= number in self.ends
        self.write(index, run, out)
        if choice.thinking:
            choice.thoughts += len(event.ids)

    def write(self, index: int, data: bytes, out: list[Semantic], *, whole: bool = False) -> None:
        """Text of the model. ``whole``: it ends here, also inside a character."""
        choice = self.choices[index]
        data = choice.partial + data
        try:
            text, used = utf_8_decode(data, "strict", whole)
        except UnicodeDecodeError as error:
            text, used = utf_8_decode(data, "replace", whole)
            bad = choice.at + error.start, choice.at + error.end
            out.append(Fault(index, FaultCode.INVALID_UTF8, bad))
        src = choice.at, choice.at + used
        choice.at, choice.partial = src[1], data[used:]
        if text:
            kind = Dropped if choice.ended or choice.finished else Reasoning if choice.thinking else Content
            out.append(kind(index, text, src))

    def close(self, index: int, out: list[Semantic]) -> None:
        """Nothing more comes: give what is held."""
        self.write(index, b"", out, whole=True)
        self.choices[index].finished = True

    def cut(self, out: list[Semantic]) -> None:
        """The session ends."""
        for index in range(len(self.choices)):
            self.close(index, out)
        self.over = True
