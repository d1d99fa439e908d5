"""harmony: OpenAI's harmony library reads the recorded token ids of gpt-oss.

The library gives messages with a channel and a recipient; they are put together as follows. ``analysis`` without a
recipient is reasoning; a message to ``functions.NAME``, or to a tool of the request, is a call; all else is content.
Messages of one kind are joined with a line break. Content and arguments are the library's own.
"""

from __future__ import annotations

import importlib
import os
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from typing import Any

from .choices import at_once, ended, streamed
from .worker import Absent, Missing, Unsupported

_BASE = "TIKTOKEN_ENCODINGS_BASE"
_FILE = "o200k_base.tiktoken"


def version() -> str:
    """The library's version."""
    try:
        importlib.import_module("openai_harmony")
    except ModuleNotFoundError:
        raise Missing("openai_harmony is not installed in this Python: pip install openai-harmony") from None
    for name in ("openai-harmony", "oss-harmony"):  # one module, two distributions
        try:
            return version_of(name)
        except PackageNotFoundError:
            pass
    return "?"


def make(name: str, facts: dict[str, Any]) -> Adapter:
    """The parser; it has no names."""
    if name:
        raise Absent(f"OpenAI's harmony library has one parser, harmony; {name!r} is no name of one")
    if facts.get("plugin"):
        raise Unsupported("OpenAI's harmony library takes no plugin")
    folders = (facts.get("tokenizer"), os.environ.get(_BASE))
    folder = next((path for path in folders if path and os.path.isfile(os.path.join(path, _FILE))), None)
    if folder is None:
        raise Unsupported(
            f"the library needs its vocabulary, {_FILE}, and would fetch it from the network: give the folder that has "
            f"it, as --tokenizer PATH or in {_BASE}"
        )
    library: Any = importlib.import_module("openai_harmony")
    before = os.environ.get(_BASE)
    os.environ[_BASE] = folder
    try:
        return Adapter(library, library.load_harmony_encoding("HarmonyGptOss"))
    except library.HarmonyError as error:
        raise Unsupported(f"{folder}/{_FILE}: {error}") from error
    finally:
        del os.environ[_BASE]
        if before is not None:
            os.environ[_BASE] = before


class Adapter:
    """The library, with its vocabulary."""

    def __init__(self, library: Any, encoding: Any) -> None:
        self.library = library
        self.encoding = encoding
        self.message = self._id("<|message|>")
        self.closing = {self._id(text) for text in ("<|end|>", "<|call|>", "<|return|>")}
        self._pieces: dict[int, str] = {}

    def _id(self, text: str) -> int:
        (number,) = self.encoding.encode(text, allowed_special="all")
        return int(number)

    def session(self, session: dict[str, Any]) -> dict[str, Any]:
        """See ``worker``."""
        self._check(session)
        ids: dict[int, list[int]] = {}
        for step, end in ended(session):
            ids.setdefault(step["choice"], []).extend(self.ids(step, end))
        raises = self.library.HarmonyError
        made = streamed(session, lambda: _Choice(self, session), raises)
        return made | at_once(session, lambda number: self._message(session, number, ids[number]), raises)

    def _check(self, session: dict[str, Any]) -> None:
        """The ids must be those of the library's vocabulary: it reads nothing else."""
        for step in session["steps"]:
            if step["text"] and not step["ids"]:
                raise Unsupported("the session has no token ids, and the library reads nothing else")
            for token, piece in zip(step["ids"], step["pieces"], strict=False):
                if self._piece(token) != piece:
                    raise Unsupported(
                        f"token {token} is {piece!r} here, and {self._piece(token)!r} in gpt-oss's vocabulary"
                    )

    def _piece(self, token: int) -> str:
        known = self._pieces.get(token)
        if known is None:
            try:
                data: bytes = bytes(self.encoding._inner.decode_bytes([token]))
            except self.library.HarmonyError:
                data = b""
            known = self._pieces[token] = data.decode("latin-1")
        return known

    def ids(self, step: dict[str, Any], end: dict[str, Any] | None) -> list[int]:
        """A step's ids, without an end of text, which is the engine's and which the library takes for text."""
        ids: list[int] = step["ids"]
        ends = end is not None and end["reason"] in ("eos", "stop_token")
        return ids[:-1] if ends and ids and ids[-1] not in self.closing else ids

    def _message(self, session: dict[str, Any], number: int, ids: list[int]) -> dict[str, Any]:
        role = self.library.Role.ASSISTANT
        texts: dict[str, list[str]] = {"reasoning": [], "content": []}
        calls: list[dict[str, str]] = []
        for message in self.encoding.parse_messages_from_completion_tokens(ids, role):
            text = "".join(part.text for part in message.content)
            kind, name = kind_of(message.channel, message.recipient, _tools(session))
            if kind == "call":
                calls.append({"name": name, "arguments": text})
            elif text:
                texts[kind].append(text)
        return {
            "choice": number, "reasoning": "\n".join(texts["reasoning"]) or None,
            "content": "\n".join(texts["content"]) or None, "tool_calls": calls,
        }  # fmt: skip


def kind_of(channel: str | None, recipient: str | None, tools: frozenset[str]) -> tuple[str, str]:
    """Where a message goes: ``reasoning``, ``content``, or ``call`` and the function's name."""
    if recipient:
        name = recipient.removeprefix("functions.")
        if name != recipient or name in tools:
            return "call", name
        return "content", ""
    return ("reasoning" if channel == "analysis" else "content"), ""


def _tools(session: dict[str, Any]) -> frozenset[str]:
    """The names of the request's functions."""
    tools: list[Any] = session["tools"]
    functions: list[Any] = [tool.get("function") if hasattr(tool, "get") else None for tool in tools]
    return frozenset(str(one.get("name")) for one in functions if hasattr(one, "get"))


class _Choice:
    def __init__(self, adapter: Adapter, session: dict[str, Any]) -> None:
        self._adapter = adapter
        self._parser = adapter.library.StreamableParser(adapter.encoding, adapter.library.Role.ASSISTANT)
        self._opens = adapter.message
        self._closing = adapter.closing
        self._tools = _tools(session)
        self._kind = ""
        self._calls = 0
        self._written: set[str] = set()
        self._fresh = False

    def step(self, step: dict[str, Any], end: dict[str, Any] | None) -> list[Any]:
        """What the library makes of a step."""
        out: list[Any] = []
        parser = self._parser
        for token in self._adapter.ids(step, end):
            parser.process(token)
            if token in self._closing:
                self._kind = ""
            elif token == self._opens:
                self._open(out)
            elif self._kind:
                self._text(parser.last_content_delta, out)
        return out

    def end(self) -> list[Any]:
        """What comes at the end."""
        out: list[Any] = []
        self._parser.process_eos()
        if self._kind:
            self._text(self._parser.last_content_delta, out)
        return out

    def _open(self, out: list[Any]) -> None:
        """A header has ended."""
        self._kind, name = kind_of(self._parser.current_channel, self._parser.current_recipient, self._tools)
        self._fresh = True
        if self._kind == "call":
            out.append(["call", self._calls, None, name])
            self._calls += 1

    def _text(self, text: str | None, out: list[Any]) -> None:
        if not text:
            return
        if self._kind == "call":
            out.append(["arguments", self._calls - 1, text])
            return
        if self._fresh and self._kind in self._written:
            text = f"\n{text}"
        self._fresh = False
        self._written.add(self._kind)
        out.append([self._kind, text])
