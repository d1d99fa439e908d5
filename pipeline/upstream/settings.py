"""Settings of upstreams: from one URL, or from a TOML file with one ``[[upstream]]`` table for each.

[defaults]                       # any field but name, url and models, for all entries that do not say otherwise
key_env = "QWEN_KEY"

[[upstream]]
name = "a"
url = "http://10.0.0.5:8000"     # with or without /v1
models = ["qwen3-*"]
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias, cast
from urllib.parse import SplitResult, quote, urlsplit

import msgspec
from msgspec import Meta

from pipeline.upstream.headers import Key, KeyHeader

Depth: TypeAlias = Literal["auto", "tokens", "text", "verbatim"]
Spoken: TypeAlias = Literal["chat", "completions", "responses", "messages"]
ALL: Final[tuple[Spoken, ...]] = ("chat", "completions", "responses", "messages")
"""The protocols that there are."""
_Seconds: TypeAlias = Annotated[float, Meta(gt=0)]
_Text: TypeAlias = Annotated[str, Meta(min_length=1)]


class UpstreamSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One upstream. Times in seconds; ``inf`` is no limit."""

    name: Annotated[str, Meta(min_length=1, max_length=64)]
    """What metrics, errors and sessions call it."""
    url: str
    """Where it is: a base URL, with or without ``/v1``; no user, password or query."""
    models: Annotated[tuple[_Text, ...], Meta(min_length=1)] = ("*",)
    """Names and patterns (``*``, ``?``, ``[a-z]``) of the models that it serves."""
    protocols: Annotated[tuple[Spoken, ...], Meta(min_length=1)] = ALL
    """Those that it speaks; a request in another one is translated into the first that can carry it."""
    max_tokens: Annotated[int, Meta(ge=1)] = 8192
    """The cap of a translated request that has none, where its protocol wants one (messages)."""
    depth: Depth = "auto"
    """The most that is recorded of what the model wrote; ``auto``: what a probe finds."""
    parser: _Text | None = None
    """Makes the response from what the model wrote; None: the upstream's own response is relayed."""
    tokenizer: _Text | None = None
    """A folder, a file or a name: what ids mean."""
    key_env: _Text | None = None
    """The environment variable with the key that goes up in place of the client's."""
    key_header: KeyHeader | None = None
    """The header of that key, and of the clients' own in a translated request; ``authorization``: as a bearer token.
    None: ``x-api-key`` for what is translated into messages, else ``authorization``."""
    connect_timeout: _Seconds = 5.0
    """For a connection: TLS, and the wait for a free one, included."""
    first_token_timeout: _Seconds = 300.0
    """From the request sent to the first byte of the response's body."""
    token_timeout: _Seconds = 120.0
    """Between two reads of the body."""
    retries: Annotated[int, Meta(ge=0, le=10)] = 2
    """How often it is asked again where it seems to be away; never after a byte of the response."""
    connections: Annotated[int, Meta(ge=0)] = 1000
    """Connections at a time; 0: no limit."""


class BadSettings(Exception):
    """Settings that cannot be used. The message names the file, the entry, the field, and what to do."""


_FIELDS: Final = tuple(field.name for field in msgspec.structs.fields(UpstreamSettings))
_OWN: Final = ("name", "url", "models")
"""Fields that have no default for all."""
_NAMES: Final = {
    "int": "a whole number", "float": "a number", "str": "text", "array": "a list", "object": "a table",
    "bool": "true or false", "null": "nothing", "datetime": "a date", "date": "a date", "time": "a time",
}  # fmt: skip
_ENTRY: Final = re.compile(r" - at `\$(.*)`$")


def from_url(url: str, environ: Mapping[str, str], **fields: Any) -> UpstreamSettings:
    """The settings of ``--upstream URL``; its host and port are its name. Raises BadSettings."""
    parts = _split(url, "--upstream")
    return _checked("--upstream", {"name": parts.netloc, "url": url, **fields}, environ)


def from_file(path: Path, environ: Mapping[str, str]) -> tuple[UpstreamSettings, ...]:
    """The settings of a TOML file, in its order. Raises BadSettings."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadSettings(f"{path} cannot be read: {error}") from error
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadSettings(f"{path} is not TOML: {error}") from error
    return _from_document(document, str(path), environ)


def key_of(settings: UpstreamSettings, environ: Mapping[str, str]) -> Key | None:
    """The upstream's own key, from the environment. Raises BadSettings, which never quotes it."""
    if settings.key_env is None:
        return None
    value = environ.get(settings.key_env, "").strip()
    where = f"upstream {settings.name!r}, key_env: the environment variable {settings.key_env}"
    if not value:
        raise BadSettings(f"{where} is not set; set it, or leave out key_env to pass on the clients' own keys")
    if not (value.isascii() and value.isprintable()) or " " in value:
        raise BadSettings(f"{where} holds something that no header can carry; a key is printable ASCII without blanks")
    return Key(settings.key_header or "authorization", value)


def _from_document(document: dict[str, Any], where: str, environ: Mapping[str, str]) -> tuple[UpstreamSettings, ...]:
    _known(document, ("upstream", "defaults"), where, "table")
    usual, entries = _table(document.get("defaults", {})), _tables(document.get("upstream", []))
    if usual is None:
        raise BadSettings(f"{where}: defaults is a table: write [defaults]")
    if entries is None:
        raise BadSettings(f"{where}: upstream is a list of tables: write [[upstream]] before each entry")
    if not entries:
        raise BadSettings(f"{where} names no upstream: write [[upstream]], and below it name and url")
    for name in usual:
        if name in _OWN:
            raise BadSettings(f"{where}, defaults, {name}: belongs to one upstream: write it below its [[upstream]]")
    _known(usual, _FIELDS, f"{where}, defaults", "field")
    made: list[UpstreamSettings] = []
    for number, entry in enumerate(entries, 1):
        called = entry.get("name")
        place = f"{where}, upstream {number}" + (f" ({called!r:.70})" if isinstance(called, str) else "")
        _known(entry, _FIELDS, place, "field")
        made.append(_checked(place, {**usual, **entry}, environ))
    _told_apart(made, where)
    return tuple(made)


def _table(value: Any) -> dict[str, Any] | None:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _tables(value: Any) -> list[dict[str, Any]] | None:
    items: list[Any] = value if value.__class__ is list else [None]
    tables = [table for table in map(_table, items) if table is not None]
    return tables if len(tables) == len(items) else None


def _told_apart(made: list[UpstreamSettings], where: str) -> None:
    seen: dict[str, int] = {}
    for number, settings in enumerate(made, 1):
        before = seen.setdefault(settings.name, number)
        if before != number:
            raise BadSettings(
                f"{where}, upstream {number}, name: {settings.name!r} is the name of upstream {before} already; "
                "metrics and sessions tell them apart by it"
            )


def _known(table: Mapping[str, Any], names: Iterable[str], where: str, what: str) -> None:
    known = tuple(names)
    for name in table:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1, 0.5)
            hint = f"; is it {near[0]}?" if near else f"; there are {', '.join(known)}"
            raise BadSettings(f"{where}: there is no {what} {name!r:.70}{hint}")


def _checked(where: str, fields: dict[str, Any], environ: Mapping[str, str]) -> UpstreamSettings:
    for name in ("name", "url"):
        if name not in fields:
            raise BadSettings(f"{where}: {name} is missing")
    for name, value in fields.items():
        # TOML has nan; of it nothing is less and nothing more.
        if isinstance(value, float) and value != value:
            raise BadSettings(f"{where}, {name}: nan is not a number; inf is no limit")
    try:
        settings = msgspec.convert(fields, UpstreamSettings)
    except msgspec.ValidationError as error:
        raise BadSettings(f"{where}{_readable(str(error))}") from error
    if not settings.name.isprintable():
        raise BadSettings(f"{where}, name: {settings.name!r} holds characters that cannot be shown")
    _split(settings.url, f"{where}, url")
    try:
        key_of(settings, environ)
    except BadSettings as error:
        raise BadSettings(f"{where}, {str(error).partition(', ')[2]}") from error
    return settings


def _readable(message: str) -> str:
    """msgspec's "Expected `int`, got `str` - at `$.retries`" as ", retries: must be a whole number, not text"."""
    found = _ENTRY.search(message)
    place = found[1].lstrip(".") if found else ""
    said = message[: found.start()] if found else message
    said = re.sub(r"`([a-z]+)( \| null)?`", lambda match: _NAMES.get(match[1], match[0]), said)
    said = re.sub(r"`([^`]*)`", r"\1", said).replace("Expected ", "must be ").replace(", got ", ", not ")
    said = said.replace("Invalid enum value ", "cannot be ")
    kinds: dict[str, Callable[[], str]] = {
        "depth": lambda: "; there are auto, tokens, text, verbatim",
        "protocols[...]": lambda: f"; there are {', '.join(ALL)}",
        "key_header": lambda: "; there are authorization, x-api-key",
    }
    return f", {place}: {said}{kinds[place]() if place in kinds else ''}"


# --- URLs -----------------------------------------------------------------------------------------------------------

_VERSION: Final = re.compile(r"/v\d+[a-z0-9]*(?=/|$)")
_CLIENTS: Final = "/v1/"
_SAFE: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '#"<>\\^`{|}')


def _split(url: str, where: str) -> SplitResult:
    """The parts of a base URL. Raises BadSettings, which quotes no password."""
    if not url.isascii() or not url.isprintable() or " " in url:
        raise BadSettings(f"{where}: a URL is printable ASCII without blanks")
    if "://" not in url:
        raise BadSettings(
            f"{where}: {url.rpartition('@')[2]!r:.200} has no scheme: write http:// or https:// before it"
        )
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise BadSettings(
            f"{where}: has a user or a password, which would be shown and recorded: take it out, and name an "
            "environment variable with the key as key_env"
        )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise BadSettings(f"{where}: is no URL: {error}") from error
    if parts.scheme not in ("http", "https"):
        raise BadSettings(f"{where}: must begin with http:// or https://, not {parts.scheme}://")
    if not parts.hostname or port == 0:
        raise BadSettings(f"{where}: {url!r:.200} names no {'port that can be asked' if parts.hostname else 'host'}")
    if parts.query or parts.fragment or url.endswith(("?", "#")):
        raise BadSettings(
            f"{where}: a base URL has no query and no fragment: end it before the {'?' if '?' in url else '#'}"
        )
    return parts


class Base:
    """A base URL that requests' targets are joined to.

    A base with a version (``…/v1``, ``…/api/v4``, ``…/v1beta/openai``) is what SDKs are given: a client's ``/v1/x``
    becomes ``BASE/x``, and what is not below ``/v1/`` goes before the version. Any other base is kept as a prefix.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        path = parts.path.rstrip("/")
        self.origin = f"{parts.scheme}://{parts.netloc}"
        found = _VERSION.search(path)
        self._root = path[: found.start()] if found else path
        self._versioned = path if found else f"{path}/v1"

    def join(self, target: str) -> str:
        """The URL of a request target (path and query, as the client sent it; characters that no target may have are
        percent-encoded)."""
        return self.origin + self.path(target)

    def path(self, target: str) -> str:
        """Its path and query there."""
        target = quote(target if target.startswith("/") else f"/{target}", safe=_SAFE)
        return f"{self._versioned}/{target[len(_CLIENTS) :]}" if target.startswith(_CLIENTS) else self._root + target
