"""What an upstream can tell of what a model writes: found out once per model, at first need, by asking for two tokens.

    chat, with return_token_ids, and without     ids in the first: ``chat``; in the second the keys are there and null
                                                 (vLLM), or absent; without the ids the two must be alike
    only where our stages make the response:
    POST /generate                               SGLang: ids in its events: ``generate``
    POST /completion                             llama.cpp: ids in its events: ``completion``
    POST /v1/completions                         any other: raw text: ``completions``

Nothing here fails a request: what cannot be found out now is found out later, and until then responses are recorded as
they are.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Coroutine, Mapping
from math import inf
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import anyio

from pipeline.upstream.client import Client
from pipeline.upstream.errors import UpstreamFault
from pipeline.upstream.headers import Headers, Key, credentials, upward
from pipeline.upstream.identity import PATHS, UNKNOWN, Identity, identity
from pipeline.upstream.loose import value
from pipeline.upstream.trial import Trial, ids_in, same_without_ids, trial_of
from stages.opening import EngineFacts

log = logging.getLogger("playhead.upstream")

Way: TypeAlias = Literal["chat", "generate", "completion", "completions"]
Spawn: TypeAlias = Callable[[Callable[[], Coroutine[Any, Any, None]]], object]
"""Runs a function in the background; what it is given is the pool's task group."""
PATIENCE: Final = 5.0
"""Seconds that a request waits for a probe before it goes on without."""
LONGEST: Final = 60.0
"""Seconds that one trial may take: the upstream may be busy."""
QUICK: Final = 2.0
"""Seconds for what a server tells of itself."""
AGAIN: Final = (5.0, 600.0)
"""Seconds until what could not be found out is asked again, at first and at most; doubled each time."""
MOST: Final = 256
"""Models of one upstream that are kept: clients can name any."""
MAX_TOLD: Final = 1 << 20
"""Bytes of an answer that are read."""


class Known(NamedTuple):
    """What is known of an upstream for one model.

    ``way``: how to ask for what the model writes, see ``stages.upstream.inputs``; None: it does not tell. ``depth``:
    what that gives; ``why``: why not more. ``taken_out``: see UpstreamFacts. ``strict``: it refuses fields that it does
    not know. ``template``: the chat template, where it is told.
    """

    way: Way | None = None
    depth: Literal["tokens", "text", "verbatim"] = "verbatim"
    why: str = ""
    taken_out: Literal["", "null", "absent"] = ""
    strict: bool = False
    engine: EngineFacts = UNKNOWN
    template: str | None = None


class _Inconclusive(Exception):
    """The upstream could not be asked now; the text says why."""


class _Entry:
    """What is known for one model. ``due``: when it is asked again; ``wait``: seconds then until the next time."""

    def __init__(self) -> None:
        self.known: Known | None = None
        self.running: anyio.Event | None = None
        self.due = 0.0
        self.wait = AGAIN[0]


class Prober:
    """The probes of one upstream. ``key``, ``strip``: see ``headers.upward``."""

    def __init__(self, client: Client, key: Key | None, strip: bool, spawn: Spawn) -> None:
        self._client = client
        self._settings = client.settings
        self._key = key
        self._strip = strip
        self._spawn = spawn
        self._entries: dict[str, _Entry] = {}

    def forget(self) -> None:
        """The upstream was down: it may be another one now."""
        self._entries = {}

    async def known(self, headers: Headers, model: str | None) -> Known:
        """What is known for this model, asked for with the credentials of ``headers``. One probe at a time; who would
        wait for it longer than a while goes on without."""
        if self._settings.depth == "verbatim":
            return Known(why="the settings say so")
        entry = self._entries.get(model or "")
        if entry is None:
            entry = self._entries[model or ""] = _Entry()
            while len(self._entries) > MOST:
                del self._entries[next(iter(self._entries))]
        if entry.known is not None and anyio.current_time() < entry.due:
            return entry.known
        if entry.running is None:
            entry.running = anyio.Event()
            self._spawn(lambda: self._probe(entry, headers, model))
        with anyio.move_on_after(PATIENCE):
            await entry.running.wait()
        return entry.known or Known(why="what it tells was not found out in time")

    async def _probe(self, entry: _Entry, headers: Headers, model: str | None) -> None:
        mine = upward(credentials(headers), key=self._key, strip=self._strip)
        found = Identity(UNKNOWN)
        try:
            found = await self._identity(mine, model)
            entry.known = (await self._way(mine, model, found))._replace(engine=found.engine, template=found.template)
            entry.due = inf
        except Exception as error:  # nothing that a probe meets may end the server
            why = str(error) if isinstance(error, _Inconclusive) else f"the probe failed ({type(error).__name__})"
            log.info("upstream %r: what it tells is not known yet: %s", self._settings.name, why)
            entry.known = Known(why=why, engine=found.engine, template=found.template)
            entry.due = anyio.current_time() + entry.wait
            entry.wait = min(entry.wait * 2, AGAIN[1])
        finally:
            if entry.running is not None:
                entry.running.set()
            entry.running = None

    # --- who is it --------------------------------------------------------------------------------------------------

    async def _identity(self, headers: Headers, model: str | None) -> Identity:
        told: dict[str, Any] = {}

        async def ask(path: str) -> None:
            with anyio.move_on_after(QUICK):
                try:
                    status, body = await self._whole("GET", path, headers, b"")
                except UpstreamFault:
                    return
                if status == 200:
                    told[path] = value(body)

        async with anyio.create_task_group() as tasks:
            for path in PATHS:
                tasks.start_soon(ask, path)
        return identity(told, model)

    async def _whole(self, method: str, path: str, headers: Headers, body: bytes) -> tuple[int, bytes]:
        """A response, its body up to MAX_TOLD bytes. Raises UpstreamFault."""
        exchange = await self._client.send(method, path, headers, body)
        try:
            parts: list[bytes] = []
            size = 0
            async for data in exchange.reads():
                parts.append(data)
                size += len(data)
                if size > MAX_TOLD:
                    break
            return exchange.status, b"".join(parts)
        finally:
            await exchange.close()

    # --- what does it tell ------------------------------------------------------------------------------------------

    async def _way(self, headers: Headers, model: str | None, found: Identity) -> Known:
        """Raises _Inconclusive."""
        name = model or found.engine.model
        strict = False
        why = "the settings say so"
        if self._settings.depth != "text":
            known = await self._chat(headers, name)
            if known.way is not None:
                return known
            strict, why = known.strict, known.why
            if self._settings.parser is not None:
                native = await self._native(headers, found.engine.kind)
                if native is not None:
                    return native
        if self._settings.parser is not None and self._settings.depth != "tokens":
            return await self._completions(headers, name, why, strict)
        return Known(why=why, strict=strict)

    async def _chat(self, headers: Headers, model: str) -> Known:
        asked: dict[str, Any] = {
            "model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2, "temperature": 0,
            "stream": True,
        }  # fmt: skip
        why = ""
        # Twice: at temperature 0, too, some servers answer now this, now that.
        for _ in range(2):
            plain = await self._try("/v1/chat/completions", headers, asked)
            if plain.status != 200:
                raise _Inconclusive(f"a trial was answered with status {plain.status}")
            if not plain.choices:
                raise _Inconclusive("a trial was answered with no chat completion")
            more = await self._try("/v1/chat/completions", headers, {**asked, "return_token_ids": True})
            if more.status in (400, 422):
                refused = f"it refuses return_token_ids with status {more.status}"
                return Known(why=refused, strict=more.status == 422)
            if more.status != 200:
                raise _Inconclusive(f"a trial was answered with status {more.status}")
            if not ids_in(more):
                return Known(why="it takes return_token_ids, but tells no ids")
            taken_out: Literal["null", "absent"] = "null" if plain.has("token_ids") else "absent"
            if same_without_ids(plain, more, taken_out):
                return Known("chat", "tokens", "", taken_out)
            why = "with the token ids taken out, its response to a trial was not the one without them"
        return Known(why=why)

    async def _native(self, headers: Headers, kind: str) -> Known | None:
        if kind == "sglang":
            body: dict[str, Any] = {
                "text": "Hi", "sampling_params": {"max_new_tokens": 2, "temperature": 0}, "stream": True,
            }  # fmt: skip
            return await self._tells(headers, "generate", "/generate", body, "output_ids")
        if kind == "llama.cpp":
            body = {"prompt": "Hi", "n_predict": 2, "temperature": 0, "stream": True, "return_tokens": True}
            return await self._tells(headers, "completion", "/completion", body, "tokens")
        return None

    async def _tells(self, headers: Headers, way: Way, path: str, body: Mapping[str, Any], ids: str) -> Known | None:
        trial = await self._try(path, headers, body)
        if trial.passing:
            raise _Inconclusive(f"a trial was answered with status {trial.status}")
        return Known(way, "tokens") if trial.status == 200 and any(event.get(ids) for event in trial.events) else None

    async def _completions(self, headers: Headers, model: str, why: str, strict: bool) -> Known:
        """Whether it completes a prompt, and whether it takes the field with which special tokens stay visible."""
        asked: dict[str, Any] = {"model": model, "prompt": "Hi", "max_tokens": 2, "temperature": 0, "stream": True}
        more: dict[str, Any]
        for more in ({},) if strict else ({"skip_special_tokens": False}, {}):
            trial = await self._try("/v1/completions", headers, {**asked, **more})
            if trial.passing:
                raise _Inconclusive(f"a trial was answered with status {trial.status}")
            if trial.status == 200 and any(isinstance(choice.get("text"), str) for choice in trial.choices):
                return Known("completions", "text", why, strict=not more)
        return Known(why=why, strict=strict)

    async def _try(self, path: str, headers: Headers, asked: Mapping[str, Any]) -> Trial:
        """Raises _Inconclusive."""
        kind = [("content-type", "application/json"), ("accept", "text/event-stream")]
        try:
            with anyio.fail_after(LONGEST):
                status, body = await self._whole("POST", path, [*kind, *headers], json.dumps(asked).encode())
        except UpstreamFault as fault:
            raise _Inconclusive(f"a trial failed ({fault.code})") from fault
        except TimeoutError as error:
            raise _Inconclusive(f"a trial took longer than {LONGEST:g} seconds") from error
        return trial_of(status, body)
