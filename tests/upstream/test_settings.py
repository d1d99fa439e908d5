"""Settings of upstreams, the joining of URLs, and which headers go where."""

from __future__ import annotations

from math import inf
from pathlib import Path

import msgspec
import pytest

from pipeline.upstream import headers as heads
from pipeline.upstream.headers import Key
from pipeline.upstream.settings import BadSettings, Base, UpstreamSettings, from_file, from_url, key_of

ENTRY = '[[upstream]]\nname = "a"\nurl = "http://127.0.0.1:8000"\n'
ENVIRON = {"GOOD_KEY": "sk-abc", "BAD_KEY": "sk-a b", "EMPTY_KEY": " "}


def read(folder: Path, text: str) -> tuple[UpstreamSettings, ...]:
    path = folder / "upstreams.toml"
    path.write_text(text)
    return from_file(path, ENVIRON)


def test_a_url_alone_is_an_upstream_for_all_models() -> None:
    made = from_url("http://127.0.0.1:8000/v1", {})
    assert made == UpstreamSettings(name="127.0.0.1:8000", url="http://127.0.0.1:8000/v1")
    assert (made.models, made.depth, made.parser) == (("*",), "auto", None)
    assert (made.connect_timeout, made.first_token_timeout, made.token_timeout) == (5.0, 300.0, 120.0)


def test_a_file_names_several_in_order_and_defaults_fill_what_they_leave_out(tmp_path: Path) -> None:
    first, second = read(
        tmp_path,
        '[defaults]\nretries = 0\ntoken_timeout = inf\nkey_env = "GOOD_KEY"\n'
        '[[upstream]]\nname = "b"\nurl = "https://h/v1"\nmodels = ["qwen3-*", "x"]\nkey_header = "x-api-key"\n'
        '[[upstream]]\nname = "a"\nurl = "http://h:1"\nretries = 3\ndepth = "verbatim"\n',
    )
    assert first == UpstreamSettings(
        name="b", url="https://h/v1", models=("qwen3-*", "x"), retries=0, token_timeout=inf, key_env="GOOD_KEY",
        key_header="x-api-key",
    )  # fmt: skip
    assert (second.name, second.retries, second.depth, second.token_timeout) == ("a", 3, "verbatim", inf)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "names no upstream: write [[upstream]]"),
        ("[[upstream]\n", "is not TOML: "),
        ('[upstream]\nname = "a"\n', "upstream is a list of tables: write [[upstream]]"),
        ("upstream = [1]\n", "upstream is a list of tables"),
        ("upstreams = 1\n", "there is no table 'upstreams'; is it upstream?"),
        ("defaults = 1\n" + ENTRY, "defaults is a table: write [defaults]"),
        ('[defaults]\nname = "x"\n' + ENTRY, "defaults, name: belongs to one upstream"),
        ("[defaults]\ndepht = 1\n" + ENTRY, "defaults: there is no field 'depht'; is it depth?"),
        ('[[upstream]]\nurl = "http://h"\n', "upstream 1: name is missing"),
        ('[[upstream]]\nname = "a"\n', "upstream 1 ('a'): url is missing"),
        ('[[upstream]]\nname = 3\nurl = "http://h"\n', "upstream 1, name: must be text, not a whole number"),
        ('[[upstream]]\nname = "a\\u0007"\nurl = "http://h"\n', "name: 'a\\x07' holds characters that cannot be shown"),
        (ENTRY + "retires = 1\n", "upstream 1 ('a'): there is no field 'retires'; is it retries?"),
        (ENTRY + "zzz = 1\n", "there is no field 'zzz'; there are name, url, models"),
        (ENTRY + 'retries = "x"\n', "upstream 1 ('a'), retries: must be a whole number, not text"),
        (ENTRY + "retries = 11\n", "retries: must be a whole number <= 10"),
        (ENTRY + 'depth = "deep"\n', "depth: cannot be 'deep'; there are auto, tokens, text, verbatim"),
        (ENTRY + 'key_header = "cookie"\n', "key_header: cannot be 'cookie'; there are authorization, x-api-key"),
        (ENTRY + "models = []\n", "models: must be a list of length >= 1"),
        (ENTRY + "models = [1]\n", "models[0]: must be text, not a whole number"),
        (ENTRY + "connect_timeout = 0\n", "connect_timeout: must be a number > 0.0"),
        (ENTRY + "token_timeout = nan\n", "token_timeout: nan is not a number; inf is no limit"),
        (ENTRY + 'key_env = "NO_KEY"\n', "key_env: the environment variable NO_KEY is not set; set it, or leave out"),
        (ENTRY + 'key_env = "EMPTY_KEY"\n', "key_env: the environment variable EMPTY_KEY is not set"),
        (ENTRY + 'key_env = "BAD_KEY"\n', "BAD_KEY holds something that no header can carry"),
        (ENTRY + ENTRY, "upstream 2, name: 'a' is the name of upstream 1 already"),
    ],
)
def test_an_error_names_the_file_the_entry_the_field_and_what_to_do(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(BadSettings) as raised:
        read(tmp_path, text)
    assert str(raised.value).startswith(str(tmp_path / "upstreams.toml"))
    assert says in str(raised.value)
    assert "sk-a" not in str(raised.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match=r"nothere\.toml cannot be read"):
        from_file(tmp_path / "nothere.toml", {})
    (tmp_path / "latin.toml").write_bytes(b"# \xe9\n")
    with pytest.raises(BadSettings, match=r"latin\.toml cannot be read"):
        from_file(tmp_path / "latin.toml", {})


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("localhost:8000", "'localhost:8000' has no scheme: write http:// or https://"),
        ("http://ann:secret@h/", "has a user or a password"),
        ("http://ann:secret@h:port/", "has a user or a password"),
        ("http://secret@h/?x#y", "has a user or a password"),
        ("ann:secret@h", "'h' has no scheme"),
        ("ftp://h", "must begin with http:// or https://, not ftp://"),
        ("http://", "names no host"),
        ("http://:80/", "names no host"),
        ("http://h:99999", "is no URL: "),
        ("http://h:0", "names no port that can be asked"),
        ("http://h:x", "is no URL: "),
        ("http://[::1", "is no URL: "),
        ("http://h/?key=1", "has no query and no fragment: end it before the ?"),
        ("http://h/#a", "has no query and no fragment: end it before the #"),
        ("http://h/?", "has no query"),
        ("http://é/", "printable ASCII"),
        ("http://h/ v1", "printable ASCII"),
        ("http://h/\n", "printable ASCII"),
    ],
)
def test_a_url_that_cannot_be_asked_is_refused_and_no_password_is_quoted(url: str, says: str) -> None:
    with pytest.raises(BadSettings) as raised:
        from_url(url, {})
    assert str(raised.value).startswith("--upstream: ")
    assert says in str(raised.value)
    assert "secret" not in str(raised.value)


CHAT = "/v1/chat/completions?x=%2F+1"


@pytest.mark.parametrize(
    ("base", "chat", "health"),
    [
        ("http://h:1", "http://h:1/v1/chat/completions?x=%2F+1", "http://h:1/health"),
        ("http://h:1/", "http://h:1/v1/chat/completions?x=%2F+1", "http://h:1/health"),
        ("http://h:1/v1", "http://h:1/v1/chat/completions?x=%2F+1", "http://h:1/health"),
        ("http://h:1/v1/", "http://h:1/v1/chat/completions?x=%2F+1", "http://h:1/health"),
        ("https://h/openai", "https://h/openai/v1/chat/completions?x=%2F+1", "https://h/openai/health"),
        ("https://h/openai/v1", "https://h/openai/v1/chat/completions?x=%2F+1", "https://h/openai/health"),
        ("https://h/api/paas/v4", "https://h/api/paas/v4/chat/completions?x=%2F+1", "https://h/api/paas/health"),
        ("https://h/v1beta/openai/", "https://h/v1beta/openai/chat/completions?x=%2F+1", "https://h/health"),
        ("http://[::1]:80/vllm", "http://[::1]:80/vllm/v1/chat/completions?x=%2F+1", "http://[::1]:80/vllm/health"),
    ],
)
def test_targets_are_joined_to_a_base_with_or_without_a_version(base: str, chat: str, health: str) -> None:
    from_url(base, {})
    assert Base(base).join(CHAT) == chat
    assert Base(base).join("/health") == health


def test_a_target_stays_at_its_upstream_whatever_is_in_it() -> None:
    base = Base("http://h:1/v1")
    assert base.join("//evil/x") == "http://h:1//evil/x"
    assert base.join("@evil/x") == "http://h:1/@evil/x"
    assert base.join("/a b\r\nx: y#z\xe9%41%zz") == "http://h:1/a%20b%0D%0Ax:%20y%23z%C3%A9%41%zz"
    assert base.join("/v1") == "http://h:1/v1"
    assert base.join("/v1/") == "http://h:1/v1/"


# --- keys and headers -------------------------------------------------------------------------------------------------

GIVEN = [
    ("host", "me"), ("user-agent", "sdk"), ("authorization", "Bearer theirs"), ("x-api-key", "theirs"),
    ("cookie", "a=theirs"), ("accept", "text/html"), ("accept", "*/*"), ("accept-encoding", "gzip, br"),
    ("connection", "keep-alive, X-Mine"), ("x-mine", "1"), ("te", "trailers"), ("transfer-encoding", "chunked"),
    ("content-length", "7"), ("expect", "100-continue"), ("content-type", "application/json"), ("x-custom", "\xe9"),
]  # fmt: skip


def test_all_but_what_is_of_the_connection_goes_up_in_order() -> None:
    assert heads.upward(GIVEN) == [
        ("user-agent", "sdk"), ("authorization", "Bearer theirs"), ("x-api-key", "theirs"), ("cookie", "a=theirs"),
        ("accept", "text/html"), ("accept", "*/*"), ("accept-encoding", "gzip, br"),
        ("content-type", "application/json"), ("x-custom", "\xe9"),
    ]  # fmt: skip


def test_an_answer_that_is_read_must_not_be_compressed() -> None:
    assert ("accept-encoding", "identity") in heads.upward(GIVEN, identity=True)
    assert heads.upward([("a", "b")], identity=True) == [("a", "b")]


def test_a_body_that_goes_up_as_it_comes_keeps_its_length() -> None:
    assert ("content-length", "7") in heads.upward(GIVEN, sized=True)


@pytest.mark.parametrize(
    ("key", "header"),
    [
        (Key("authorization", "ours"), ("authorization", "Bearer ours")),
        (Key("x-api-key", "ours"), ("x-api-key", "ours")),
    ],
)
def test_an_upstreams_own_key_replaces_all_that_the_client_sent(key: Key, header: tuple[str, str]) -> None:
    once = heads.upward(GIVEN, key=key)
    assert once[-1] == header
    assert "theirs" not in str(once)
    assert heads.upward(once, key=key) == once


def test_where_our_own_keys_are_in_force_the_clients_never_go_up() -> None:
    assert "theirs" not in str(heads.upward(GIVEN, strip=True))


def test_recorded_are_headers_of_a_list_only() -> None:
    assert heads.recorded(GIVEN) == {
        "user-agent": "sdk", "accept": "text/html, */*", "accept-encoding": "gzip, br",
        "content-type": "application/json",
    }  # fmt: skip


def test_of_a_response_all_is_recorded_but_cookies_and_proofs() -> None:
    given = [("content-type", "a"), ("set-cookie", "s"), ("x-a", "1"), ("x-a", "2"), ("authentication-info", "n")]
    assert heads.recorded_response(given) == (("content-type", "a"), ("x-a", "1"), ("x-a", "2"))


def test_of_a_response_all_goes_down_but_what_is_of_the_connection() -> None:
    given = [
        ("date", "d"),
        ("transfer-encoding", "chunked"),
        ("connection", "x-hop"),
        ("x-hop", "1"),
        ("set-cookie", "s"),
    ]
    assert heads.downward(given) == [("date", "d"), ("set-cookie", "s")]


def test_a_key_comes_from_the_environment_and_nothing_shows_it() -> None:
    settings = UpstreamSettings(name="a", url="http://h", key_env="GOOD_KEY", key_header="x-api-key")
    key = key_of(settings, ENVIRON)
    assert key == Key("x-api-key", "sk-abc")
    assert "sk-abc" not in repr(key) + repr(settings) + msgspec.json.encode(settings).decode()
    assert key_of(msgspec.structs.replace(settings, key_env=None), ENVIRON) is None
