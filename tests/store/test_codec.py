"""Events to bytes and back: the codec, blocks, openings, versions."""

from __future__ import annotations

import hashlib
import itertools
from typing import Any, cast, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages import catalog
from stages.events import LAYERS, CommonChunk, Content, Layer, PromptInput, Start
from stages.opening import Opening
from store import block, codec, opening
from store.api import CorruptRecord, Record, UnknownSchema
from store.codec import Upcast, Upcasts, Where
from tests.support.events import EVERY, LATER, UNIONS, events, struct
from tests.support.store import opening as made_opening


def where(layer: Layer, seq: int = 0) -> Where:
    return Where("abc", "served", layer, seq)


def no_blobs(name: bytes) -> bytes:
    raise CorruptRecord("none")


def back(layer: Layer, made: list[Any], protocol: str = "chat") -> list[Any]:
    """Encoded as a store does it, and decoded."""
    blobs: dict[bytes, bytes] = {}
    stored = codec.stow(made, blobs)
    data = codec.array(len(stored), codec.encode(stored))
    return codec.decode(where(layer), data, protocol, blobs.__getitem__)


# --- events ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layer", LAYERS)
def test_every_class_comes_back(layer: Layer) -> None:
    assert {event.__class__ for event in EVERY[layer]} == set(UNIONS[layer])
    assert back(layer, EVERY[layer]) == EVERY[layer]


@pytest.mark.parametrize("layer", LAYERS)
def test_any_events_come_back(layer: Layer) -> None:
    @given(events(layer))
    def check(made: list[Any]) -> None:
        assert back(layer, made) == made

    check()


@pytest.mark.parametrize("protocol", ["chat", "completions"])
def test_any_chunks_of_a_protocol_come_back(protocol: str) -> None:
    kinds = (*get_args(CommonChunk), *get_args(catalog.PROTOCOLS[protocol].chunk))

    @given(st.lists(st.one_of([struct(cls) for cls in kinds]), max_size=4))
    def check(made: list[Any]) -> None:
        assert back("chunk", made, protocol) == made

    check()


@pytest.mark.parametrize("n", [0, 1, 15, 16, 65_535, 65_536])
def test_canonical_bytes_are_the_encodings_in_a_row(n: int) -> None:
    one = Content(0, "x", (0, 1))
    data = codec.encode([one] * n)
    assert data == msgspec.msgpack.encode(one) * n
    assert codec.array(n, data) == msgspec.msgpack.encode([one] * n)


def test_an_event_is_an_array_with_its_tag() -> None:
    # MessagePack: 94 an array of 4; a7 a string of 7; 00 zero; a2 a string of 2; 92 an array of 2.
    assert codec.encode([Content(0, "hi", (3, 5))]) == b"\x94\xa7content\x00\xa2hi\x92\x03\x05"


def test_digest_is_sha256_of_the_canonical_bytes() -> None:
    made = EVERY["semantic"]
    expected = hashlib.sha256(b"".join(msgspec.msgpack.encode(event) for event in made)).hexdigest()
    assert codec.digest(made).sha256 == expected
    assert codec.digest(made).n == len(made)
    assert codec.digest([]).sha256 == hashlib.sha256(b"").hexdigest()


@given(st.lists(st.integers(1, 5)))
def test_a_digest_does_not_depend_on_the_batches(sizes: list[int]) -> None:
    made = EVERY["semantic"]
    rolling = codec.RollingDigest()
    at = 0
    for size in [*sizes, len(made)]:
        rolling.update(made[at : at + size])
        at += size
    assert rolling.value() == codec.digest(made)


def test_prompt_ids_are_stored_apart() -> None:
    blobs: dict[bytes, bytes] = {}
    ids = tuple(range(1000))
    (stored,) = codec.stow([PromptInput(ids, "tail", 1000, 5)], blobs)
    ((name, data),) = blobs.items()
    assert name == hashlib.sha256(data).digest()
    assert msgspec.msgpack.decode(data) == list(ids)
    assert len(codec.encode([stored])) < 60


# --- what does not decode -------------------------------------------------------------------------------------------


def test_broken_bytes_are_named() -> None:
    with pytest.raises(CorruptRecord, match="session abc, track served, layer frame, seq 7"):
        codec.decode(where("frame", 7), b"\x92\xff", "chat", no_blobs)


@pytest.mark.parametrize("layer", LAYERS)
def test_an_unknown_tag_is_named(layer: Layer) -> None:
    data = msgspec.msgpack.encode([*EVERY[layer][1:], ["hologram", 0, 1]])
    at = len(EVERY[layer]) - 1
    with pytest.raises(UnknownSchema, match=f"layer {layer}, seq {at}: unknown event 'hologram'"):
        codec.decode(where(layer), data, "chat", no_blobs)


@pytest.mark.parametrize("bad", [["content", "zero", "x", [0, 1]], ["content"], 7, {"content": 1}, []])
def test_a_misfit_is_named(bad: Any) -> None:
    data = msgspec.msgpack.encode([Start(0, 1), Start(1, 1), bad])
    with pytest.raises(CorruptRecord, match="layer semantic, seq 2"):
        codec.decode(where("semantic"), data, "chat", no_blobs)


def test_an_unknown_protocol() -> None:
    data = msgspec.msgpack.encode(EVERY["chunk"])
    with pytest.raises(UnknownSchema, match="protocol 'smoke_signals'"):
        codec.decode(where("chunk"), data, "smoke_signals", no_blobs)


def test_appended_fields_are_passed_over() -> None:
    # A field that a newer Playhead appended without a new schema: arrays may be longer.
    data = msgspec.msgpack.encode([["content", 0, "x", [0, 1], "new"]])
    assert codec.decode(where("semantic"), data, "chat", no_blobs) == [Content(0, "x", (0, 1))]


# --- blocks ---------------------------------------------------------------------------------------------------------


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    first = draw(st.integers(0, 1000))
    made: list[Any] = draw(st.lists(struct(Content), min_size=1, max_size=30))
    causes = draw(st.lists(st.integers(0, 2**40), min_size=len(made), max_size=len(made)) | st.just([-1] * len(made)))
    ats = draw(st.lists(st.integers(0, 5) | st.integers(0, 2**62), min_size=len(made), max_size=len(made)))
    return [Record(first + n, *rest) for n, rest in enumerate(zip(causes, ats, made, strict=True))]


@given(record_lists())
def test_any_records_come_back_from_a_block(made: list[Record]) -> None:
    runs = [block.run(made, {})]
    assert all(a != b for (_, a), (_, b) in itertools.pairwise(runs[0].times))
    body = block.pack(runs)
    assert block.unpack(where("semantic", made[0].seq), len(made), body, "chat", no_blobs) == made


def test_a_block_is_three_columns_and_the_events() -> None:
    events = [Content(0, text, (at, at + 1)) for at, text in enumerate("abcd")]
    runs = [
        block.Run(5, 2, [(2, 100)], [3, 4], codec.encode(events[:2])),
        block.Run(7, 1, [(1, 100)], [4], codec.encode(events[2:3])),
        block.Run(8, 1, [(1, 130)], [9], codec.encode(events[3:])),
    ]
    body = msgspec.msgpack.decode(block.pack(runs))
    assert body[:3] == [[3, 1], [100, 30], [3, 1, 0, 5]]
    assert body[3] == [msgspec.msgpack.decode(msgspec.msgpack.encode(event)) for event in events]
    inputs = [block.Run(0, 2, [(2, 1)], (), codec.encode(events[:2]))]
    assert msgspec.msgpack.decode(block.pack(inputs))[2] == []


@pytest.mark.parametrize(
    "body",
    [
        b"", b"\x94", msgspec.msgpack.encode([[1], [1], [], []]), msgspec.msgpack.encode([[2], [1], [], [["end"]]]),
        msgspec.msgpack.encode([[1], [1], [1, 2], [["end"]]]), msgspec.msgpack.encode([[1], ["x"], [], [["end"]]]),
    ],
)  # fmt: skip
def test_a_block_that_does_not_fit(body: bytes) -> None:
    with pytest.raises(CorruptRecord, match="session abc, track served, layer semantic, seq 3"):
        block.unpack(where("semantic", 3), 1, body, "chat", no_blobs)


def test_bodies_are_checked_before_they_are_read() -> None:
    kind, stored = block.Packer().squeeze(b"x" * 1000)
    assert kind == block.ZSTD
    assert block.check("", kind, block.crc(stored), stored) == b"x" * 1000
    assert block.Packer().squeeze(b"short") == (block.PLAIN, b"short")
    with pytest.raises(CorruptRecord, match="checksum"):
        block.check("", kind, block.crc(stored) ^ 1, stored)
    with pytest.raises(CorruptRecord, match="decompress"):
        block.check("", block.ZSTD, block.crc(b"short"), b"short")
    with pytest.raises(UnknownSchema, match="codec 7"):
        block.check("", 7, block.crc(stored), stored)


# --- openings -------------------------------------------------------------------------------------------------------


@given(struct(Opening))
def test_any_opening_comes_back(made: Opening) -> None:
    blobs: dict[bytes, bytes] = {}
    assert opening.unpack("abc", opening.pack(made, blobs), blobs.__getitem__) == made


def test_the_big_parts_of_an_opening_are_blobs() -> None:
    blobs: dict[bytes, bytes] = {}
    opening.pack(made_opening(), blobs)
    more = dict(blobs)
    opening.pack(made_opening("other"), more)
    assert len(blobs) == len(more) == 3


def test_an_opening_that_does_not_decode() -> None:
    with pytest.raises(CorruptRecord, match="session abc, opening"):
        opening.unpack("abc", b"\x93", no_blobs)


# --- versions -------------------------------------------------------------------------------------------------------


def _renamed_tag(layer: Layer, value: Any) -> Any:
    items = cast("list[Any]", value)
    return ["content", *items[1:]] if isinstance(value, list) and items[0] == "answer" else items


def _with_source(layer: Layer, value: Any) -> Any:
    items = cast("list[Any]", value)
    return [*items, [0, 1]] if isinstance(value, list) and items[0] == "content" else items


def _model(value: Any) -> Any:
    return {**value, "model": "old"}


STEPS = Upcasts(3, {1: Upcast(packed=_renamed_tag), 2: Upcast(packed=_with_source, opening=_model)})


def test_older_schemas_are_raised_while_reading() -> None:
    data = msgspec.msgpack.encode([["answer", 0, "x"], ["end"]])
    assert codec.decode(where("semantic"), data, "chat", no_blobs, 1, STEPS)[0] == Content(0, "x", (0, 1))
    data = msgspec.msgpack.encode([["content", 0, "x"], ["end"]])
    assert codec.decode(where("semantic"), data, "chat", no_blobs, 2, STEPS)[0] == Content(0, "x", (0, 1))
    data = msgspec.msgpack.encode([["content", 0, "x", [4, 5]], ["end"]])
    assert codec.decode(where("semantic"), data, "chat", no_blobs, 3, STEPS)[0] == Content(0, "x", (4, 5))


def test_older_openings_are_raised_while_reading() -> None:
    blobs: dict[bytes, bytes] = {}
    data = opening.pack(made_opening(), blobs)
    assert opening.unpack("abc", data, blobs.__getitem__, 1, STEPS).model == "old"
    assert opening.unpack("abc", data, blobs.__getitem__, 3, STEPS) == made_opening()


def test_what_is_newer_or_too_old_is_refused() -> None:
    data = msgspec.msgpack.encode([["end"]])
    with pytest.raises(UnknownSchema, match="schema 2; this Playhead reads up to 1"):
        codec.decode(where("semantic"), data, "chat", no_blobs, 2)
    with pytest.raises(UnknownSchema, match="no way from schema 1 to 2"):
        codec.decode(where("semantic"), data, "chat", no_blobs, 1, Upcasts(2, {}))


def test_the_canonical_bytes_of_schema_1() -> None:
    """These stand in stored digests. Who changes an event's encoding raises the schema."""
    written = {layer: [event for event in EVERY[layer] if event not in LATER] for layer in LAYERS}
    assert {layer: codec.digest(written[layer]).sha256[:16] for layer in LAYERS} == {
        "engine": "41a94471d0ad971e",
        "semantic": "aa3a24588da33be0",
        "chunk": "743a0e59bfe91e4e",
        "frame": "17d9bc2847ab0d1f",
    }
