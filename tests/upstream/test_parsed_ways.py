"""``--parser`` in front of servers that tell what the model writes otherwise than in chat (SGLang's ``/generate``,
llama.cpp's ``/completion``, any other's ``/v1/completions``): clients of responses and messages get what it meant."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest

from pipeline.engines.toy import CHATML, ToyTokenizer
from tests.support import letters
from tests.support.answers import Way as Asking
from tests.support.proxies import proxied
from tests.support.sdks import CASES, Asked, Meant, expected
from tests.support.server import Running, replayed
from tests.support.upstream_engines import (
    CHAT,
    COMPLETION,
    COMPLETIONS,
    CONTENT,
    GENERATE,
    Route,
    listed,
    sglang,
    sse,
)
from tests.support.upstreams import Asked as Request
from tests.support.upstreams import Server, routes, upstream, value
from tests.support.validated import assert_clean
from tests.upstream.test_translate import said

TOY = ToyTokenizer()
SAYS: dict[str, tuple[Asked, Meant]] = {
    **CASES,
    # These models write a byte at a time.
    "length": (Asked("Two a day.", cap=3), Meant("Two", "Two", "length")),
}


class Model:
    """What the next answer writes, and how: each server here tells ids and text in its own way."""

    def __init__(self) -> None:
        self.text = "Hi"

    def ids(self, cap: int | None) -> tuple[list[int], bool]:
        """Bytes and markers, and the end token, up to a cap; whether it was reached."""
        found = [
            one
            for token, piece in TOY.encode(self.text, 0)
            for one in ([token] if token in TOY.markers.values() else piece)
        ]
        found.append(TOY.eos)
        return found[:cap], cap is not None and len(found) > cap

    def generate(self, asked: Request) -> bytes:
        """SGLang: all so far in every event, three ids a step; the text lacks what is no whole character."""
        ids, capped = self.ids(asked.json["sampling_params"]["max_new_tokens"])
        ends = [*range(3, len(ids), 3), len(ids)]
        reason = {"type": "length", "length": len(ids)} if capped else {"type": "stop", "matched": TOY.eos}
        prompt = size_of(asked.json.get("input_ids"))
        return sse(
            *(
                {
                    "text": text_of(ids[:end]), "output_ids": ids[:end],
                    "meta_info": {
                        "prompt_tokens": prompt, "completion_tokens": end,
                        "finish_reason": reason if end == len(ids) else None,
                    },
                }
                for end in ends
            )
        )  # fmt: skip

    def completion(self, asked: Request) -> bytes:
        """llama.cpp: an event a token, but none inside a character, whose first ids are lost."""
        most = asked.json["n_predict"]
        ids, capped = self.ids(None if most < 0 else most)
        prompt = size_of(asked.json["prompt"])
        return sse(*self._events(ids, prompt, "limit" if capped else "eos"), done=False)

    def _events(self, ids: list[int], prompt: int, ended: str) -> Iterator[Any]:
        told = 0
        for count, token in enumerate(ids, 1):
            whole = text_of(ids[:count])
            if token == TOY.eos or whole[told:]:
                yield {
                    "index": 0, "content": whole[told:], "tokens": [token], "stop": False,
                    "tokens_predicted": count, "tokens_evaluated": prompt,
                }  # fmt: skip
                told = len(whole)
        yield {
            "index": 0, "content": "", "tokens": [], "stop": True, "stop_type": ended, "truncated": False,
            "tokens_predicted": len(ids), "tokens_evaluated": prompt,
        }  # fmt: skip

    def completions(self, asked: Request) -> bytes:
        """Text, two characters at a time."""
        ids, capped = self.ids(asked.json["max_tokens"])
        text = text_of(ids)
        chunks: list[Any] = [{"index": 0, "text": text[at : at + 2]} for at in range(0, len(text), 2)]
        chunks.append({"index": 0, "text": "", "finish_reason": "length" if capped else "stop"})
        prompt = size_of(asked.json["prompt"])
        usage = {"prompt_tokens": prompt, "completion_tokens": len(ids), "total_tokens": prompt + len(ids)}
        return sse(*({"choices": [choice]} for choice in chunks), {"choices": [], "usage": usage})


def size_of(prompt: Any) -> int:
    """Of a prompt's ids. A trial has a text, of which nothing is looked at."""
    return len(prompt or ())


def text_of(ids: list[int]) -> str:
    """As far as it is whole characters; the end token is none."""
    return b"".join(TOY.piece(token) for token in ids if token != TOY.eos).decode("utf-8", "ignore")


def of_sglang(model: Model) -> dict[str, Route]:
    return sglang(**{GENERATE: model.generate})


def of_llama_cpp(model: Model) -> dict[str, Route]:
    props = {"default_generation_settings": {"n_ctx": 4096}, "model_path": "/models/x.gguf", "build_info": "b7000-abc"}
    found: dict[str, Route] = {"/props": value(props), "/v1/models": listed("llamacpp")}
    return {**found, CHAT: CONTENT, COMPLETION: model.completion}


def of_another(model: Model) -> dict[str, Route]:
    return {"/v1/models": listed("somebody"), CHAT: CONTENT, COMPLETIONS: model.completions}


SERVERS: dict[str, tuple[Callable[[Model], dict[str, Route]], str]] = {
    "generate": (of_sglang, GENERATE), "completion": (of_llama_cpp, COMPLETION),
    "completions": (of_another, COMPLETIONS),
}  # fmt: skip


class Asks(NamedTuple):
    """A proxy in front of all of them, each by the name of its model. Whatever is asked, ``model`` writes."""

    proxy: Running
    model: Model
    servers: dict[str, Server]


def tokenizer(to: Path) -> Path:
    """That of the model, with a chat template."""
    where = letters.tokenizer(to)
    (where / "chat_template.jinja").write_text(CHATML)
    return where


@pytest.fixture(scope="module")
def asks(tmp_path_factory: pytest.TempPathFactory) -> Generator[Asks]:
    folder, model = tmp_path_factory.mktemp("ways"), Model()
    where = tokenizer(folder / "tokenizer")
    with ExitStack() as stack:
        servers = {name: stack.enter_context(upstream(routes(made(model)))) for name, (made, _) in SERVERS.items()}
        tables = [
            f'[[upstream]]\nname = "{name}"\nurl = "{server.url}"\nmodels = ["{name}"]\n'
            f'tokenizer = "{where}"\nparser = "hermes"\n'
            for name, server in servers.items()
        ]
        (folder / "upstreams.toml").write_text("\n".join(tables))
        running = stack.enter_context(proxied(folder, str(folder / "upstreams.toml")))
        yield Asks(running, model, servers)
    assert_clean(running.store, {"INV-038"})
    assert [result.verdict for result in replayed(running.store) if result.verdict != "same"] == []


@pytest.mark.parametrize(("name", "way"), [*((name, "plain") for name in SAYS), ("parallel calls", "whole")])
@pytest.mark.parametrize("protocol", ["responses", "messages"])
@pytest.mark.parametrize("server", SERVERS)
def test_what_the_model_meant(
    asks: Asks, name: str, protocol: Literal["responses", "messages"], way: Asking, server: str
) -> None:
    asked, meant = SAYS[name]
    asks.model.text, asks.proxy.model = asked.written, server
    got = said(asks.proxy, protocol, way, asked)
    assert got[:4] == expected(protocol, meant)
    assert got.usage[0] > 0
    if meant.end in ("turn", "length"):
        assert got.usage[1] == len(asks.model.ids(asked.cap)[0])
    assert asks.servers[server].asked[-1].target == SERVERS[server][1]
