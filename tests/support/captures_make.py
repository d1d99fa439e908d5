"""Make data/captures and data/vocabularies of a folder of captures, for contributors:

    python -m tests.support.captures_make CAPTURES MODELS [NAME…] [--to FOLDER] [--all]

CAPTURES has for each NAME what was sent and received (``NAME.request.json``, ``.sse``, ``.meta.json``,
``.nonstream.json``); MODELS a folder with the tokenizer of each group, called as in ``VOCABULARIES``. Without a NAME
it makes again what is there; ``--all`` makes everything, which is much, so give it a folder of its own. The tests read
that too, where CAPTURES in the environment names it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from pipeline.vocabulary import Vocabulary
from stages.events import PromptInput
from tests.support.captures import FOLDER, PATHS, Script, Wrote
from tests.support.captures_wrote import wrote
from tests.support.vocabularies import VOCABULARIES as KEPT

VOCABULARIES = {
    "dsv31": "dsv31", "dsv4": "dsv4", "glm45": "glm45", "gptoss": "gptoss", "kimik2": "kimik2", "kimik2_norp": "kimik2",
    "llama3": "llama31", "llama3_json": "llama31", "pythonic": "llama31", "mistral": "mistral",
}  # fmt: skip
"""Group → tokenizer; the others have Qwen3's."""
SERVERS = {"vllm": "vLLM", "sglang": "SGLang", "transformers serve": "transformers serve"}
_PLACEHOLDERS = ("place▁holder", "place_holder", "reserved_special", "<SPECIAL_")
_PROTOCOLS = {path: protocol for protocol, path in PATHS.items()}


class _Step(msgspec.Struct):
    choice: int
    token_ids: list[int]
    finish: str | dict[str, Any] | None = None
    stop_reason: Any = None


class _Output(msgspec.Struct):
    index: int
    finish_reason: str | None = None
    stop_reason: Any = None


class _Outputs(msgspec.Struct):
    outputs: list[_Output]


class _Http(msgspec.Struct):
    status: int
    headers: list[tuple[str, str]]
    complete: bool
    client_aborted: bool
    chunk_lengths: list[int] | None = None
    recvs: list[tuple[float, int]] | None = None


class _Meta(msgspec.Struct):
    """Of ``NAME.meta.json`` what is read."""

    engine: str
    version: str
    api: str
    http: _Http
    group: str | None = None
    reasoning_parser: str | None = None
    tool_parser: str | None = None
    raw_token_ids: list[list[int]] | None = None
    script_end: list[Any] | None = None
    engine_steps: list[_Step] | None = None
    request_outputs: list[_Outputs] | None = None
    prompt_token_ids: list[int] | None = None
    sampling: dict[str, Any] | None = None
    raw_matches_requested_grammar: bool | None = None
    nonstream: dict[str, Any] | None = None


class _Choice(msgspec.Struct):
    """As ``EngineChoice``."""

    ids: list[int]
    reason: str | None
    cap: int | None


class _Engine(msgspec.Struct):
    """As ``EngineFacts``."""

    choices: dict[int, _Choice]
    prompt: int | None = None
    prompt_ids: list[int] = []
    constrained: bool = False


class _Source:
    """One capture of the folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self.meta = msgspec.json.decode((folder / f"{name}.meta.json").read_bytes(), type=_Meta)
        self.request: dict[str, Any] = json.loads((folder / f"{name}.request.json").read_bytes())
        self.body = (folder / f"{name}.sse").read_bytes()
        self.whole: bytes | None = None
        if (self.meta.nonstream or {}).get("status") == 200:
            whole = (folder / f"{name}.nonstream.json").read_bytes()
            self.whole = None if whole.startswith(b"data:") else whole
        self.vocabulary = VOCABULARIES.get(self.meta.group or "", "qwen3")

    def parser(self) -> str | None:
        """Our name of the format."""
        reasoning, tools = self.meta.reasoning_parser, self.meta.tool_parser
        if (reasoning or "").startswith("serve fallback"):
            return "qwen3"
        if tools in ("openai", "gpt-oss"):
            return "harmony"
        if tools == "deepseek_v4" or (tools in ("glm45", "kimi_k2") and reasoning):
            return str(tools)
        return f"{reasoning}+{tools}" if reasoning and tools else reasoning or tools

    def writes(self) -> list[list[int]] | None:
        """When, in µs, how many bytes of the body were there."""
        http = self.meta.http
        lengths, reads = http.chunk_lengths, http.recvs
        if not lengths or not reads:
            return None
        framed = [len(b"%x\r\n" % size) + size + 2 for size in lengths]
        head = sum(size for _, size in reads) - sum(framed) - (5 if http.complete else 0)
        if head < 0 or not http.complete:
            head = reads[0][1]
        found: list[list[int]] = []
        at = got = end = 0
        needed = head
        for size, frame in zip(lengths, framed, strict=True):
            needed += frame
            end += size
            while at < len(reads) - 1 and got + reads[at][1] < needed:
                got += reads[at][1]
                at += 1
            found.append([round(reads[at][0] * 1e6), end])
        return found

    def engine(self) -> _Engine | None:
        """What the engine was asked and said."""
        meta, sampling = self.meta, self.meta.sampling or {}
        if meta.engine_steps is None:
            if not meta.raw_token_ids:
                return None
            ends = meta.script_end or [None] * len(meta.raw_token_ids)
            cap = self.request.get("max_tokens")
            said = {k: _Choice([] if ends[k] else ids, None, cap) for k, ids in enumerate(meta.raw_token_ids)}
            return _Engine(said)
        told = {**self._finishes(meta.engine_steps, sampling), **self._stopped()}
        generated: dict[int, list[int]] = {}
        for step in meta.engine_steps:
            if step.choice >= 0:
                generated.setdefault(step.choice, []).extend(step.token_ids)
        cap = _int(sampling.get("max_tokens") or sampling.get("max_new_tokens"))
        prompt = meta.prompt_token_ids or []
        return _Engine(
            {k: _Choice(ids, told.get(k), cap) for k, ids in sorted(generated.items())},
            len(prompt) or None,
            prompt if b'"prompt_token_ids":[' in self.body else [],
            bool(sampling.get("structured_outputs")) and meta.raw_matches_requested_grammar is True,
        )

    def _finishes(self, steps: list[_Step], sampling: dict[str, Any]) -> dict[int, str | None]:
        told: dict[int, str | None] = {}
        for step in steps:
            finish = step.finish
            if isinstance(finish, dict):
                matched = finish.get("matched")
                stop = "stop" if isinstance(matched, str) else "stop_token"
                if stop == "stop_token" and str(matched) not in str(sampling.get("stop_token_ids")):
                    stop = "eos"
                told[step.choice] = {"length": "length", "abort": None}.get(finish["type"], stop)
            elif finish == "length":
                told[step.choice] = "length"
            elif finish == "stop":
                told[step.choice] = "eos" if step.stop_reason is None else "stop_token"
        return told

    def _stopped(self) -> dict[int, str]:
        outputs = [one for each in self.meta.request_outputs or [] for one in each.outputs]
        return {
            one.index: "stop"
            for one in outputs
            if one.finish_reason == "stop" and isinstance(one.stop_reason, str)
        }  # fmt: skip

    def script(self, engine: _Engine | None, vocabulary: Vocabulary) -> Script | None:
        """What the engine said, step by step; None where nobody knows it."""
        if engine is None or not any(choice.ids for choice in engine.choices.values()):
            return None
        steps = self.meta.engine_steps
        counts = (
            [(0, 1)] * len(engine.choices[0].ids)
            if steps is None
            else [(step.choice, len(step.token_ids)) for step in steps if step.choice >= 0]
        )
        said = [self._wrote(choice, vocabulary) for _, choice in sorted(engine.choices.items())]
        return Script(self.vocabulary, tuple(counts), tuple(said))

    def _wrote(self, choice: _Choice, vocabulary: Vocabulary) -> Wrote | None:
        if choice.reason is None and self.meta.engine_steps is not None:
            return None
        hidden: set[int] = set()
        if self.parser() is None and self.request.get("skip_special_tokens") is not False:
            hidden |= set(vocabulary.facts.special.values())
        pieces = [vocabulary.pieces[token] for token in choice.ids if token not in hidden]
        text = b"".join(pieces).decode("utf-8", "replace")
        stops: str | list[str] = self.request.get("stop") or []
        for stop in [stops] if isinstance(stops, str) else stops:
            text = text.partition(stop)[0]
        prompt = self.meta.prompt_token_ids or []
        (event,) = vocabulary.joined([PromptInput(tuple(prompt), "", len(prompt))])
        assert isinstance(event, PromptInput)
        return wrote(self.parser(), text, event.tail, self._schemas())

    def _schemas(self) -> dict[str, Any]:
        if self.request.get("tool_choice") == "none":
            return {}
        tools: list[dict[str, Any]] = self.request.get("tools") or []
        found: dict[str, Any] = {}
        for tool in tools:
            function: dict[str, Any] = tool.get("function", tool)
            schema: dict[str, Any] = function.get("parameters") or function.get("input_schema") or {}
            found[function["name"]] = schema.get("properties", {})
        return found


def _int(value: Any) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError):
        return None


def made(source: _Source, vocabulary: Vocabulary) -> dict[str, Any]:
    """The capture as it is kept. A model's place on the machine that captured it becomes its name."""
    body, whole = source.body, source.whole
    writes, request = source.writes(), source.request
    place = str(request.get("model", ""))
    if place.startswith("/"):
        old, new = place.encode(), place.rsplit("/", 1)[1].encode()
        if writes is not None:
            writes = [[at, len(body[:end].replace(old, new))] for at, end in writes]
        body = body.replace(old, new)
        whole = whole and whole.replace(old, new)
        request = {**request, "model": new.decode()}
    meta, engine = source.meta, source.engine()
    return {
        "server": f"{SERVERS[meta.engine]} {meta.version}",
        "protocol": _PROTOCOLS[meta.api],
        "parser": source.parser(),
        "marked": "client_closed" if meta.http.client_aborted else None,
        "http": {"status": meta.http.status, "headers": [(name.lower(), value) for name, value in meta.http.headers]},
        "writes": writes,
        "engine": msgspec.to_builtins(engine),
        "script": msgspec.to_builtins(source.script(engine, vocabulary)),
        "request": request,
        "whole": None if whole is None else whole.decode(),
        "body": body.decode(),
    }


def kept(vocabulary: Vocabulary, ids: Iterable[int]) -> dict[str, Any]:
    """Of a vocabulary the pieces of these ids, of all single bytes and of what is special."""
    facts = vocabulary.facts

    def named(tokens: dict[str, int]) -> dict[str, int]:
        return {text: token for text, token in tokens.items() if not any(each in text for each in _PLACEHOLDERS)}

    special, added = named(facts.special), named(facts.added)
    single = (token for token, piece in enumerate(vocabulary.pieces) if len(piece) == 1)
    pieces: dict[str, str] = {}
    raw: dict[str, str] = {}
    for token in sorted({*ids, *single} - {*special.values(), *added.values()}):
        piece = vocabulary.pieces[token]
        try:
            pieces[str(token)] = piece.decode()
        except UnicodeDecodeError:
            raw[str(token)] = piece.hex()
    return {"size": len(vocabulary.pieces), "eos": facts.eos, "special": special, "added": added, "pieces": pieces,
            "parts": raw}  # fmt: skip


def _write(path: Path, value: dict[str, Any]) -> None:
    def dump(part: Any) -> str:
        return json.dumps(part, ensure_ascii=False, separators=(",", ":"))

    lines = ",\n".join(f"{dump(key)}: {dump(part)}" for key, part in value.items())
    path.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def main() -> None:
    """See the module."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("captures", type=Path)
    arguments.add_argument("models", type=Path)
    arguments.add_argument("name", nargs="*")
    arguments.add_argument("--to", type=Path, default=FOLDER)
    arguments.add_argument("--all", action="store_true")
    asked = arguments.parse_args()
    there = {file.name[: -len(".sse")] for file in asked.captures.glob("*.sse")}
    named = {_kept_as(name): name for name in sorted(there)}
    again = {path.stem for path in asked.to.glob("*.json")} & named.keys()
    wanted = named if asked.all else [*again, *map(_kept_as, asked.name)]
    asked.to.mkdir(parents=True, exist_ok=True)
    loaded: dict[str, Vocabulary] = {}
    used: dict[str, set[int]] = {}
    for name in sorted(wanted):
        source = _Source(asked.captures, named[name])
        if source.vocabulary not in loaded:
            loaded[source.vocabulary] = Vocabulary.load(str(asked.models / source.vocabulary))
        _write(asked.to / f"{name}.json", made(source, loaded[source.vocabulary]))
        ids = used.setdefault(source.vocabulary, set())
        engine = source.engine()
        if engine is not None:
            ids.update(engine.prompt_ids, *(choice.ids for choice in engine.choices.values()))
    folder = KEPT if asked.to == FOLDER else asked.to / "vocabularies"
    folder.mkdir(exist_ok=True)
    for name, vocabulary in loaded.items():
        _write(folder / f"{name}.json", kept(vocabulary, used[name]))


def _kept_as(name: str) -> str:
    return ("transformers" + name[2:] if name.startswith("hf_") else name).replace("__", "-")


if __name__ == "__main__":
    main()
