"""sglang_text: a choice's text as SGLang's detokenizer releases it."""

from __future__ import annotations

import importlib
from typing import Any

_CALL = 200012
"""gpt-oss's <|call|>, an end token that stays in the text where its tool parser is used."""


class Text:
    """Whole characters, without what ended the choice. Special tokens are left out unless ``keep_special``.

    While the text ends within a character, SGLang releases it up to the last space or CJK character only.
    """

    def __init__(self, session: dict[str, Any], *, keep_special: bool, keep_call: bool, keep_stop: bool) -> None:
        asked: Any = session["request"].get("stop") or ()
        self._stops = [asked] if isinstance(asked, str) else [text for text in asked if isinstance(text, str) and text]
        special: dict[str, int] = session["special"]
        self._special = {} if keep_special else special
        self._skipped = frozenset(self._special.values())
        self._names = {number: text for table in (session["added"], special) for text, number in table.items()}
        self._eos = frozenset[int](session["eos"])
        self._keep_call = keep_call
        self._keep_stop = keep_stop
        self._decoded: list[str] = []
        self._window: list[bytes] = []
        self._length = 0
        self._sent = 0

    def step(self, step: dict[str, Any], end: dict[str, Any] | None) -> str:
        """The text that is released with a step. ``end``: how the choice finished with it."""
        pieces = self._pieces(step)
        if end is not None and self._ends(step["ids"], end):
            self._cut(pieces, step["ids"][-1], known=bool(step["pieces"]))
        self._window += pieces
        new = b"".join(self._window).decode("utf-8", "replace")
        if end is not None:
            return self._whole(new, end["stop"])[self._sent :]
        pending = self._sent - self._length
        if new and not new.endswith("\ufffd"):
            self._decoded.append(new)
            self._length += len(new)
            self._window, self._sent = [], self._length
        else:
            new = importlib.import_module("sglang.utils").find_printable_text(new)
            self._sent = self._length + len(new)
        return new[pending:]

    def _whole(self, new: str, stop: Any) -> str:
        text = "".join(self._decoded) + new
        # A server may not say what it stopped at; one of the request's strings in the text is it.
        for one in [stop] if isinstance(stop, str) and stop else self._stops:
            if one in text:
                return text[: text.find(one) + (len(one) if self._keep_stop else 0)]
        return text

    def _pieces(self, step: dict[str, Any]) -> list[bytes]:
        if step["pieces"] or not step["text"]:
            pairs = zip(step["ids"], step["pieces"], strict=False)
            return [b"" if token in self._skipped else piece.encode("latin-1") for token, piece in pairs]
        text: str = step["text"]
        for special in self._special:
            text = text.replace(special, "")
        return [text.encode("utf-8", "replace")]

    def _ends(self, ids: list[int], end: dict[str, Any]) -> bool:
        """The last id is what ended the choice, and is no part of its text."""
        if self._keep_stop or not ids or end["reason"] not in ("eos", "stop_token"):
            return False
        if ids[-1] == _CALL and self._keep_call:
            return False
        return bool(ids[-1] == end["stop"]) if isinstance(end["stop"], int) else ids[-1] in self._eos

    def _cut(self, pieces: list[bytes], token: int, *, known: bool) -> None:
        if known:
            pieces[-1] = b""
        elif token in self._names:
            pieces[-1:] = [piece.removesuffix(self._names[token].encode()) for piece in pieces[-1:]]
