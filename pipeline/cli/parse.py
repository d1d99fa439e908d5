"""``playhead parse``: what a parser makes of a text, or of the cases of a file."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, get_args

import click
import msgspec

from pipeline.cli import view
from pipeline.cli.sessions import unreadable
from replay import Parser, ReplayError, parse_splits, resolve
from replay.cases import Calls, Case, opened, read_cases, run_case, stage_of, tools_of
from replay.errors import BadCase, BadSplit, NotAvailable, ParserFailed, ParserNotFound
from replay.message_diff import differences, in_words
from replay.parse import Step, message_of, opening_of, session_of, stepped, tokens_of
from replay.plain import is_list, is_map
from replay.split import SPLITS
from stages import catalog
from stages.events import CallStart, FinishReason, TokensInput
from stages.message import Message
from stages.opening import Opening, Tool
from stages.protocols.openai_chat import ChatRequest, ToolSpec, ask_of

LARGEST = 4 << 20
"""Bytes of a text."""
ANY = "any"
_NAMES = re.compile(r'"name"\s*:\s*"([^"\\\n]{1,128})"|([A-Za-z_][\w.-]{0,127})\(')
"""What may be a tool's name in text without markers."""


class _Asked(msgspec.Struct, frozen=True):
    """A text to parse, and how."""

    stage: Parser
    opening: Opening
    tokens: list[TokensInput]
    tail: str
    finish: FinishReason

    def run(self, split: str) -> Iterator[Step]:
        inputs = session_of(self.tokens, split, self.opening, self.tail, self.finish)
        return stepped(self.stage, self.opening, inputs)

    def offering(self, tools: Sequence[Tool]) -> _Asked:
        ask = msgspec.structs.replace(self.opening.ask, tools=tuple(tools), tool_choice="auto")
        return msgspec.structs.replace(self, opening=msgspec.structs.replace(self.opening, ask=ask))

    def offering_any(self) -> _Asked:
        """With every tool that it calls. Formats without markers only know a call by an offered name: whatever the text
        has in the place of one is offered first."""
        text = "".join(token.text or b"".join(token.pieces).decode("utf-8", "replace") for token in self.tokens)
        seen = [a or b for a, b in _NAMES.findall(text)]
        steps = self.offering([Tool(name) for name in ("any", *dict.fromkeys(seen))]).run("recorded")
        names = dict.fromkeys(event.name for step in steps for event in step.events if isinstance(event, CallStart))
        return self.offering([Tool(name) for name in names] or [Tool("any")])


@click.command()
@click.argument("file", required=False, metavar="[FILE|-]")
@click.option("--parser", default=None, metavar="P",
              help="A catalog name, auto, file.py:Attr or package.module:Attr. With --batch: for all cases.",
              )  # fmt: skip
@click.option("--model", default=None, metavar="M", help="Instead of --parser: the model whose format is detected.")
@click.option("--tools", default=None, metavar="F",
              help="The tools that the request offered: a JSON list, or a request with one; any: all that are called. "
              "Without tools, calls are text.")  # fmt: skip
@click.option("--prompt-tail", default=None, metavar="T",
              help="The end of the prompt, which may have opened reasoning; @FILE reads it from a file.")  # fmt: skip
@click.option("--splits", default="recorded", show_default=True, metavar="S",
              help=f"{', '.join(SPLITS)}; joined by commas.")  # fmt: skip
@click.option("--calls", type=click.Choice(["incremental", "whole"]), default=None,
              help="Tool calls as they are written, or only whole and valid ones.  [default: incremental]")  # fmt: skip
@click.option("--finish", type=click.Choice(get_args(FinishReason)), default=None,
              help="Why the engine stopped.  [default: eos]")  # fmt: skip
@click.option("--trace", is_flag=True, help="One line a step: token, parser state, held bytes, events.")
@click.option("--json/--pretty", "as_json", default=None, help="Default: pretty on a terminal, JSON elsewhere.")
@click.option("--batch", default=None, metavar="CASES", help="Parse the cases of this file (-: standard input).")
@click.option("--list", "list_", is_flag=True, help="The parsers of the catalog.")
def parse(**options: Any) -> None:
    """Parse what a model wrote, and print the message.

    FILE holds the text (- is standard input). With several splits: whether they agree, and if not, the first
    difference. --batch prints one JSON line for each case and split. Exit code: 0 done, 1 the splits differ or the
    parser raised, 2 usage, 3 a file or a case cannot be read.
    """
    as_json = options["as_json"]
    if as_json is None:
        as_json = not view.on_terminal()
    _only_one(options)
    try:
        splits = parse_splits(options["splits"])
        if options["list_"]:
            _list(as_json)
        elif options["batch"] is not None:
            sys.exit(_batch(options["batch"], splits, options["calls"], options["parser"]))
        else:
            sys.exit(_one(options, splits, as_json))
    except BadCase as error:
        unreadable(error)
    except ParserFailed as error:
        raise click.ClickException(str(error)) from error
    except ReplayError as error:
        raise click.UsageError(str(error)) from error


def _only_one(options: dict[str, Any]) -> None:
    """Raises UsageError for arguments of which one would be ignored."""
    given = [name for name in ("list_", "batch", "file") if options[name] not in (None, False)]
    names = {"list_": "--list", "batch": "--batch", "file": "FILE"}
    if len(given) != 1:
        wanted = " and ".join(names[name] for name in given) + ": give one of them"
        raise click.UsageError(wanted if given else "give a FILE (- is standard input), --batch CASES or --list")
    if given == ["batch"]:
        for name in ("model", "tools", "prompt_tail", "finish"):
            if options[name] is not None:
                raise click.UsageError(f"--{name.replace('_', '-')} has no effect with --batch: each case says its own")
        if options["trace"] or options["as_json"] is False:
            raise click.UsageError("--batch prints JSON lines: --trace and --pretty have no effect")
    if given == ["file"] and options["parser"] is None and options["model"] is None:
        raise click.UsageError("name the --parser (or the --model); playhead parse --list shows all parsers")


# --- one text ---------------------------------------------------------------------------------------------------------


def _one(options: dict[str, Any], splits: Sequence[str], as_json: bool) -> int:
    if options["trace"] and len(splits) > 1:
        raise click.UsageError("--trace shows the steps of one split: name one")
    asked = _asked(options)
    if options["tools"] == ANY:
        asked = asked.offering_any()
    if options["trace"]:
        _trace(asked, splits[0])
        return 0
    steps: list[Step] = []
    messages: dict[str, Message] = {}
    for split in splits:
        ran = list(asked.run(split))
        messages[split] = message_of(ran, asked.opening)
        steps = steps or ran
    told = _disagreement(messages, steps)
    message = messages[splits[0]]
    if as_json:
        more = {"splits": splits, "agree": told is None, "difference": told} if len(splits) > 1 else {}
        _print(_said(message) | more)
    else:
        _pretty(message, steps, splits, told)
    if options["tools"] is None:
        _hint(asked, message)
    return int(told is not None)


def _trace(asked: _Asked, split: str) -> None:
    """The steps, also those before one at which the parser raises."""
    steps: list[Step] = []
    try:
        steps.extend(asked.run(split))
    finally:
        view.show_trace(view.console(), steps)


def _asked(options: dict[str, Any]) -> _Asked:
    model: str = options["model"] or ""
    stage = resolve(options["parser"] or "auto", opening_of(model=model))
    if options["parser"] in (None, "auto") and stage.id == catalog.parser("plain").id:
        told = f"the name {model!r} tells of no format" if model else "there is no model to tell the format"
        click.echo(f"Note: {told}, so all is content; name a --parser (playhead parse --list)", err=True)
    tools = [] if options["tools"] in (None, ANY) else _tools(options["tools"])
    ask = ask_of(ChatRequest(messages=[], tools=tools))
    opening = opening_of(ask=ask, calls=options["calls"] or "incremental", model=model)
    tail: str = options["prompt_tail"] or ""
    if tail.startswith("@"):
        tail = _text(tail[1:])
    # As bytes where they are no text: what a model wrote may be anything.
    tokens = tokens_of(_read(options["file"]))
    return _Asked(stage, opening, tokens, tail, options["finish"] or "eos")


def _read(path: str) -> bytes:
    name = "<stdin>" if path == "-" else path
    try:
        with opened(path) as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise BadCase(name, f"cannot be read: {error.strerror or error}") from error
    if len(data) > LARGEST:
        raise BadCase(name, f"over {LARGEST >> 20} MiB: this parses one answer of a model at a time")
    return data


def _text(path: str) -> str:
    try:
        return _read(path).decode()
    except UnicodeDecodeError as error:
        raise BadCase(path, f"byte {error.start} is not UTF-8") from None


def _tools(path: str) -> list[ToolSpec]:
    try:
        value: Any = json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise BadCase(path, f"not JSON: {error}") from None
    tools = value.get("tools") if is_map(value) else value
    if not is_list(tools):
        raise BadCase(path, "expected a list of tools, or a request that has one")
    return tools_of(tools, path)


def _disagreement(messages: dict[str, Message], steps: Sequence[Step]) -> str | None:
    """The first difference between the first split and another; None if all agree."""
    (first, message), *others = messages.items()
    for split, other in others:
        found = differences([message], [other], [event for step in steps for event in step.events])
        if found:
            return f"{first} and {split} differ: {in_words(found[0])}"
        if message != other:
            return f"{first} and {split} differ: in the order of the faults"
    return None


def _pretty(message: Message, steps: Sequence[Step], splits: Sequence[str], told: str | None) -> None:
    to = view.console()
    events = [event for step in steps for event in step.events]
    view.show_message(to, message, events, view.wrote_of(step.input for step in steps))
    if told is not None:
        to.print(told, style="bold red", markup=False)
    elif len(splits) > 1:
        to.print(f"{len(splits)} splits agree: {', '.join(splits)}", style="green", markup=False)


def _hint(asked: _Asked, message: Message) -> None:
    """Where tools would have made calls of the text, say so."""
    if message.content is None and message.reasoning is None:
        return
    with contextlib.suppress(ParserFailed):
        steps = asked.offering([Tool("any")]).run("recorded")
        if any(isinstance(event, CallStart) for step in steps for event in step.events):
            click.echo("Note: no --tools, so nothing is a call, as in a request without any; try --tools any", err=True)


# --- lists ------------------------------------------------------------------------------------------------------------


def _list(as_json: bool) -> None:
    entries = catalog.names()
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(entries), indent=2))
    else:
        view.show_parsers(view.console(), entries)


def _batch(path: str, splits: Iterable[str], calls: Calls | None, parser: str | None) -> int:
    worst = 0

    def bad(error: Exception) -> None:
        nonlocal worst
        worst = 3
        click.echo(f"Error: {error}", err=True)

    known = {} if parser in (None, "auto") else {parser: resolve(parser)}
    for case in read_cases(path, bad):
        try:
            stage = stage_of(case, parser, known)
        except (ParserNotFound, NotAvailable) as error:
            bad(BadCase(case.where, str(error)))
            continue
        for split in splits:
            try:
                worst = max(worst, _case(case, split, calls, stage))
            except BadSplit as error:
                click.echo(f"Note: {case.where}: {case.id}: left out: {error}", err=True)
    return worst


def _case(case: Case, split: str, calls: Calls | None, stage: Parser) -> int:
    outcome = run_case(case, split, calls, stage)
    if outcome.message is None:
        _print({"id": case.id, "splits": split, "error": outcome.error})
        return 1
    _print({"id": case.id, "splits": split, **_said(outcome.message)})
    return 0


def _said(message: Message) -> dict[str, Any]:
    return {
        "reasoning": message.reasoning,
        "content": message.content,
        "tool_calls": [
            {"id": call.id, "name": call.name, "arguments": call.arguments} for call in message.tool_calls
        ],
        "finish_reason": message.finish_reason,
        "faults": message.faults,
    }  # fmt: skip


def _print(value: dict[str, Any]) -> None:
    try:
        line = msgspec.json.encode(value)
    except UnicodeEncodeError:  # an unpaired surrogate, of a parser of one's own
        line = json.dumps(value).encode()
    click.echo(line)
