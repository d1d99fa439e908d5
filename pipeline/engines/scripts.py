"""What the scripted engine plays, and reading it from a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from pipeline.engines.base import EngineLoadError, EngineRequest
from pipeline.engines.prompt import Detokenizer
from pipeline.engines.toy import ToyTokenizer
from stages.events import Input, TokensInput

Step: TypeAlias = str | bytes | tuple[Sequence[int], Sequence[bytes]] | Input | Exception
"""One engine step of one choice. A text is one token, or several where markers are in it; bytes are one token; a pair
is ids and their bytes; an Input is played as it is, for the choice that plays it; an exception is what the engine fails
with (a RequestError: what it refuses the request with)."""

Script: TypeAlias = Iterable[Step]
"""The steps of one choice. An end token and its FinishInput follow the last one. A script that begins with PromptInput
or ErrorInput is a whole session instead: played as it is, and left open where it has no terminal input."""

Scripts: TypeAlias = Sequence[Script] | Callable[[EngineRequest], Sequence[Script]]
"""A list gives its scripts in turn, one to every choice of every request, round and round; a function is asked for the
scripts of each request."""

Compiled: TypeAlias = list["Input | Exception"]
"""A script whose steps are inputs: those that write something are made once and shared."""


def canned(request: EngineRequest) -> list[list[str]]:
    """The default script: a short answer that quotes the last message; of raw prompts, each is quoted to its choices,
    token ids as numbers."""
    conversation = request.conversation
    if conversation is not None:
        return [_quoted(str(conversation.messages[-1].get("content") or "") if conversation.messages else "")]
    each = request.n // len(request.prompts)
    quoted = [_quoted(raw if isinstance(raw, str) else ", ".join(map(str, raw))) for raw in request.prompts]
    return [words for words in quoted for _ in range(each)]


def _quoted(said: str) -> list[str]:
    words = f"This is the scripted engine. You said: {said[:200]}".split(" ")
    return [words[0], *(f" {word}" for word in words[1:])]


def compiled(script: Script, toy: ToyTokenizer) -> Compiled:
    """A script with every step that writes something as the TokensInput of choice 0, made once and shared."""
    text = Detokenizer(frozenset(toy.special.values()))
    made: Compiled = []
    for step in script:
        if isinstance(step, str):
            tokens = toy.encode(step, longest=0)
            ids, pieces = tuple(token for token, _ in tokens), tuple(piece for _, piece in tokens)
        elif isinstance(step, bytes):
            ids, pieces = (toy.token(step),), (step,)
        elif isinstance(step, tuple):
            ids, pieces = tuple(step[0]), tuple(step[1])
        else:
            made.append(step)
            continue
        made.append(TokensInput(0, ids, pieces, text.text(ids, pieces)))
    return made


def read_scripts(path: str | Path) -> list[list[Step]]:
    """Scripts from a JSON file ``{"scripts": [{"steps": [STEP...]}]}``.

    A STEP is a text; ``{"hex": ["f09f", "9880"]}``, one token's bytes each, with ``"ids"`` where they matter;
    ``{"fail": "why"}``; or an Input as it is recorded, ``["finish", 0, "length"]``. Raises EngineLoadError that names
    the script and the step.
    """
    try:
        data = Path(path).read_bytes()
        file = msgspec.json.decode(data, type=_File)
    except OSError as error:
        raise EngineLoadError(f"cannot read the script {path}: {error.strerror or error}") from error
    except msgspec.DecodeError as error:
        raise EngineLoadError(f'{path} is no script, {{"scripts": [{{"steps": ["text", ...]}}]}}: {error}') from error
    if not file.scripts:
        raise EngineLoadError(f"{path} has no scripts")
    return [
        [_step(step, f"{path}: script {number}, step {at}") for at, step in enumerate(script.steps, 1)]
        for number, script in enumerate(file.scripts, 1)
    ]


class _Script(msgspec.Struct, forbid_unknown_fields=True):
    steps: list[Any]


class _File(msgspec.Struct, forbid_unknown_fields=True):
    scripts: list[_Script]


class _Tokens(msgspec.Struct, forbid_unknown_fields=True):
    hex: list[str]
    ids: list[int] | None = None


class _Fail(msgspec.Struct, forbid_unknown_fields=True):
    fail: str


_EXPECTED = 'a "text", {"hex": ["f09f"]}, {"fail": "why"} or an input as it is recorded, ["finish", 0, "length"]'


def _step(step: Any, where: str) -> Step:
    try:
        if isinstance(step, str):
            return step
        if isinstance(step, list):
            played: Input = msgspec.convert(step, type=Input)
            return played
        if isinstance(step, dict) and "fail" in step:
            return RuntimeError(msgspec.convert(step, type=_Fail).fail)
        if not isinstance(step, dict) or "hex" not in step:
            raise ValueError(f"expected {_EXPECTED}")
        tokens = msgspec.convert(step, type=_Tokens)
        pieces = [bytes.fromhex(piece) for piece in tokens.hex]
        ids = [ToyTokenizer().token(piece) for piece in pieces] if tokens.ids is None else tokens.ids
        if len(ids) != len(pieces):
            raise ValueError(f"{len(ids)} ids for {len(pieces)} pieces")
        return ids, pieces
    except (msgspec.ValidationError, ValueError) as error:
        raise EngineLoadError(f"{where}: {error}") from error
