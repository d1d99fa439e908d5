"""The trace file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import pytest
import zstandard
from hypothesis import given

from stages.events import LAYERS, Content, Layer, Tick
from stages.opening import Opening
from store import codec, named, trace
from store.api import CorruptRecord, Record, SessionInfo, StoreUnavailable, Trace, UnknownSchema
from store.codec import Upcast, Upcasts
from store.rules import Key
from tests.support.events import EVERY, LATER, events, struct
from tests.support.store import batches, opening, records, words

TRACES = Path(__file__).parents[1] / "traces"
GOLDEN = Path(__file__).parent / "golden" / "schema-1.jsonl"

Edit: TypeAlias = Callable[[list[str]], Any]

TRACKS: dict[Layer, str] = {"engine": "input", "semantic": "served", "chunk": "served", "frame": "served"}


def session(made: dict[Layer, list[Any]], opened: Opening | None = None) -> Trace:
    """A trace of events, each caused by the one before it in the layer before."""
    held: dict[Key, list[Record]] = {
        (TRACKS[layer], layer): [
            Record(seq, -1 if layer == "engine" else seq, 1000 * seq, event) for seq, event in enumerate(made[layer])
        ]
        for layer in LAYERS
        if made.get(layer)
    }
    opened = opened or opening()
    info = SessionInfo(
        session=opened.session,
        opened=opened.opened,
        closed=opened.opened + 12_000,
        state="closed",
        model=opened.model,
        parser=opened.parser,
        stages=opened.stages,
        prompt_tokens=3,
        finish_reasons=("stop",),
        faults={"stray_marker": 1},
        message=({"reasoning": "hm 潮", "content": "Où", "tool_calls": []},),
        events={f"{track}/{layer}": len(rows) for (track, layer), rows in held.items()},
    )
    return Trace(opening=opened, info=info, records=held)


# --- some layers ----------------------------------------------------------------------------------------------------


def test_only_some_layers(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    kept = records(batches(words(20)))
    made = Trace(opening=opening(), info=SessionInfo(session=opening().session, opened=opening().opened), records=kept)
    trace.write(made, path)
    wanted: list[Key] = [("input", "engine"), ("served", "frame")]
    for place in (path, tmp_path):
        [found] = trace.read_many(place, wanted)
        assert found.records == {key: kept[key] for key in wanted}
        assert (found.opening, found.info) == (made.opening, made.info)
    # Events of other layers are not read, but lines are counted.
    text = path.read_bytes().replace(b'"event":{"type":"content"', b'"event":{"type":"unheard"')
    [found] = trace.loads(text, layers=wanted)
    assert found.records == {key: kept[key] for key in wanted}
    with pytest.raises(UnknownSchema):
        list(trace.loads(text))
    lines = path.read_bytes().splitlines(keepends=True)
    del lines[next(at for at, line in enumerate(lines) if b'"semantic"' in line and at > 1)]
    with pytest.raises(CorruptRecord, match="served/semantic seq 0 expected, 1 found"):
        list(trace.loads(b"".join(lines), layers=wanted))


# --- form -----------------------------------------------------------------------------------------------------------


def test_a_record_is_a_line_to_read() -> None:
    found = session({"semantic": [Tick(), Content(0, "Hi", (0, 2))]})
    header, tick, content, _ = trace.dumps(found).decode().split("\n")
    assert tick == '{"track":"served","layer":"semantic","seq":0,"cause":0,"at":0,"event":{"type":"tick"}}'
    assert content == (
        '{"track":"served","layer":"semantic","seq":1,"cause":1,"at":1000,'
        '"event":{"type":"content","choice":0,"text":"Hi","src":[0,2]}}'
    )
    assert json.loads(header)["playhead"] == 1
    assert json.loads(header)["opening"]["request"].startswith('{"model":"demo-1"')


def test_bytes_are_text_where_they_can_be() -> None:
    lines = [json.loads(line) for line in trace.dumps(session(EVERY)).splitlines()[1:]]
    shown = {(line["layer"], line["seq"]): line["event"] for line in lines}
    assert shown["engine", 3]["pieces"] == [{"hex": "e6bd"}, {"hex": "ae"}]
    assert shown["engine", 3]["logprobs"][0]["top"][1] == {"id": 7, "piece": "a", "logprob": -9999.0}
    assert shown["frame", 2] == {"type": "block", "data": 'data: {"text": "Où"}\n\n'}
    assert shown["frame", 3] == {"type": "body", "data": {"hex": b"\xff\x00 not UTF-8".hex()}}


def test_prompt_ids_are_in_the_header() -> None:
    lines = [json.loads(line) for line in trace.dumps(session(EVERY)).splitlines()]
    name = lines[1]["event"]["ids"]
    assert lines[0]["blobs"][name] == [1, 2, 70_000]


def test_a_protocols_chunk_is_the_protocols() -> None:
    lines = [json.loads(line) for line in trace.dumps(session(EVERY)).splitlines()]
    (first, *_) = [line["event"] for line in lines[1:] if line["layer"] == "chunk"]
    assert first["object"] == "chat.completion.chunk"
    assert first["choices"][0]["delta"]["content"] == "Où"


def test_records_come_by_layer_then_track() -> None:
    held = records(batches(words(3)))
    backwards = dict(reversed(held.items()))
    found = Trace(opening=opening(), info=SessionInfo(session="x", opened=0), records=backwards)
    lines = [json.loads(line) for line in trace.dumps(found).splitlines()[1:]]
    order = list(dict.fromkeys((line["layer"], line["track"]) for line in lines))
    assert order == [
        ("engine", "input"), ("semantic", "served"), ("chunk", "served"), ("frame", "served"), ("frame", "socket"),
    ]  # fmt: skip


# --- there and back -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.zst"])
def test_every_class_comes_back(tmp_path: Path, name: str) -> None:
    found = session(EVERY)
    trace.write(found, tmp_path / name)
    assert trace.read(tmp_path / name) == found
    assert trace.dumps(trace.read(tmp_path / name)) == trace.dumps(found)


@pytest.mark.parametrize("layer", LAYERS)
def test_any_events_come_back(layer: Layer) -> None:
    @given(events(layer))
    def check(made: list[Any]) -> None:
        found = session({layer: made})
        (again,) = trace.loads(trace.dumps(found))
        assert again == found
        assert trace.dumps(again) == trace.dumps(found)

    check()


@given(struct(Opening))
def test_any_opening_comes_back(made: Opening) -> None:
    # The id also stands in the info, the model and stages only here.
    (again,) = trace.loads(trace.dumps(session({}, msgspec.structs.replace(made, protocol="chat"))))
    assert again.opening == msgspec.structs.replace(made, protocol="chat")


def test_what_equals_its_default_is_left_out_however_it_was_made() -> None:
    # Equal openings give equal bytes: one that came from a store holds other objects than one from a constructor.
    made = opening()
    copy = msgspec.msgpack.decode(msgspec.msgpack.encode(made), type=Opening)
    assert trace.dumps(session({}, copy)) == trace.dumps(session({}, made))
    assert "tool_choice" not in json.loads(trace.dumps(session({}, copy)).splitlines()[0])["opening"]["ask"]


def test_files_and_folders(tmp_path: Path) -> None:
    names = ["b/2.jsonl", "a.jsonl.zst", "b/1.jsonl"]
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "notes.txt").write_text("not a trace")
    for name in names:
        trace.write(session(EVERY, opening(name)), tmp_path / name)
    assert [found.info.session for found in trace.read_many(tmp_path)] == sorted(names)
    assert [found.info.session for found in trace.read_many(tmp_path / "b/2.jsonl")] == ["b/2.jsonl"]
    both = tmp_path / "both.jsonl"
    both.write_bytes((tmp_path / "b/1.jsonl").read_bytes() + b"\n" + (tmp_path / "b/2.jsonl").read_bytes())
    assert [found.info.session for found in trace.read_many(both)] == ["b/1.jsonl", "b/2.jsonl"]
    with pytest.raises(CorruptRecord, match=r"both\.jsonl: one session expected, 2 found"):
        trace.read(both)


# --- malformed ------------------------------------------------------------------------------------------------------


def edit(change: Edit) -> bytes:
    lines = trace.dumps(session(EVERY)).decode().rstrip("\n").split("\n")
    change(lines)
    return "\n".join(lines).encode()


def swap(at: int, old: str, new: str) -> Edit:
    def change(lines: list[str]) -> None:
        assert old in lines[at]
        lines[at] = lines[at].replace(old, new)

    return change


FIRST_SEMANTIC = 1 + len(EVERY["engine"])
FIRST_CHUNK = FIRST_SEMANTIC + len(EVERY["semantic"])


MALFORMED: list[tuple[Edit, int, str]] = [
    (lambda lines: lines.clear(), 1, "header"),
    (lambda lines: lines.pop(0), 1, "header"),
    (swap(0, '"opening":{', '"opening":[{'), 1, "header"),
    (swap(0, '"created":', '"made":'), 1, "created"),
    (swap(0, '"blobs":{"', '"blobs":{"0'), 2, "no blob"),
    (lambda lines: lines.insert(3, "{"), 4, "not a record"),
    (lambda lines: lines.insert(3, '{"track":"input"}'), 4, "layer"),
    (lambda lines: lines.pop(3), 4, "input/engine seq 2 expected, 3 found"),
    (lambda lines: lines.pop(), 1 + sum(map(len, EVERY.values())) - 1, "served/frame has 4 of 5 records"),
    (swap(4, '"choice":0', '"choice":"0"'), 5, "not an event of layer engine"),
    (swap(4, '"hex":"e6bd"', '"hex":"zz"'), 5, "hexadecimal"),
    (swap(FIRST_SEMANTIC, '"layer":"semantic"', '"layer":"dream"'), FIRST_SEMANTIC + 1, "not a record"),
    (swap(FIRST_CHUNK, '"choices":[{', '"choices":[7,{'), FIRST_CHUNK + 1, "not an event of layer chunk"),
]


@pytest.mark.parametrize(("change", "line", "said"), MALFORMED)
def test_what_is_malformed_is_named(change: Edit, line: int, said: str) -> None:
    with pytest.raises(CorruptRecord, match=f"^some.jsonl, line {line}: .*{said}"):
        list(trace.loads(edit(change), "some.jsonl"))


@pytest.mark.parametrize(
    ("change", "line", "said"),
    [
        (swap(0, '"playhead":1', '"playhead":2'), 1, "schema 2"),
        (swap(FIRST_SEMANTIC, '"type":"start"', '"type":"hologram"'), FIRST_SEMANTIC + 1, "unknown event 'hologram'"),
        (swap(0, '"opening":{', '"opening":{"protocol":"smoke_signals",'), FIRST_CHUNK + 1, "'smoke_signals'"),
    ],
)
def test_what_is_newer_is_named(change: Edit, line: int, said: str) -> None:
    with pytest.raises(UnknownSchema, match=f"^some.jsonl, line {line}: .*{said}"):
        list(trace.loads(edit(change), "some.jsonl"))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be read"):
        trace.read(tmp_path / "none.jsonl")
    with pytest.raises(StoreUnavailable, match="cannot be written"):
        trace.write(session(EVERY), tmp_path / "none" / "a.jsonl")
    bad = tmp_path / "bad.jsonl.zst"
    bad.write_bytes(b"not zstd")
    with pytest.raises(CorruptRecord, match=r"bad\.jsonl\.zst: it does not decompress"):
        trace.read(bad)
    bad.write_bytes(zstandard.compress(trace.dumps(session(EVERY)))[:-10])
    with pytest.raises(CorruptRecord, match=r"bad\.jsonl\.zst: it is cut short"):
        trace.read(bad)


# --- versions -------------------------------------------------------------------------------------------------------


def test_older_schemas_are_raised_while_reading() -> None:
    def renamed(layer: Layer, value: Any) -> Any:
        return {**value, "type": "content"} if value["type"] == "answer" else value

    def model(value: Any) -> Any:
        return {**value, "model": "old"}

    steps = Upcasts(2, {1: Upcast(named=renamed, opening=model)})
    found = session({"semantic": [Tick(), Content(0, "Hi", (0, 2))]})
    data = trace.dumps(found).replace(b'"type":"content"', b'"type":"answer"')
    (again,) = trace.loads(data, "some.jsonl", steps)
    assert again.records == found.records
    assert again.opening.model == "old"


def test_the_golden_trace_of_schema_1() -> None:
    """Written once, and never again: it decodes for ever, and comes out as it was."""
    data = GOLDEN.read_bytes()
    (found,) = trace.loads(data, GOLDEN.name)
    written: dict[Layer, list[Any]] = {
        layer: [event for event in EVERY[layer] if event not in LATER] for layer in LAYERS
    }
    assert {layer: found.events(TRACKS[layer], layer) for layer in LAYERS} == written
    assert found == session(written)
    assert trace.dumps(found) == data


@pytest.mark.parametrize("name", sorted(file.name for file in TRACES.iterdir()))
def test_golden_traces_come_out_as_they_were(name: str) -> None:
    found = list(trace.read_many(TRACES / name))
    data = (TRACES / name).read_bytes()
    text = zstandard.ZstdDecompressor().decompressobj().decompress(data) if name.endswith(".zst") else data
    assert b"".join(map(trace.dumps, found)) == text
    for one in found:
        assert one.info.events == {f"{track}/{layer}": len(held) for (track, layer), held in one.records.items()}


def test_names_and_stores_agree_on_what_an_event_is() -> None:
    for layer in LAYERS:
        for event in EVERY[layer]:
            blobs: named.PromptBlobs = {}
            data = msgspec.json.encode(named.show(layer, event, blobs))
            assert codec.encode([named.read(layer, data, "chat", blobs)]) == codec.encode([event])
