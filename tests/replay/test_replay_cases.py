"""Public reports of recorders and replayers that lose something (data/replay_cases.jsonl), against the real parts: a
proxy and its recorder, a store in a file, the frame splitter, the relay, and replay."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import pytest

from replay.run import Replayer
from stages.events import AbortInput, Block, Comment, ErrorInput, Frame, Head
from stages.protocols.rules import Http
from stages.sse import SseDecoder
from stages.stage import fold_causes
from stages.upstream.frames import FrameSplitter
from stages.upstream.relay import RELAY
from store import open_store
from store.api import Batch, Trace
from tests.support.captures import Capture
from tests.support.playback import Playback, playback
from tests.support.playback_answers import PLAIN, How
from tests.support.proxies import Got, bytes_of, post, proxied, session_of
from tests.support.replay import SAID, opening, record, tokens, whole
from tests.support.server import Running
from tests.support.tree import ROOT
from tests.support.upstream_traces import END, with_records

Line: TypeAlias = dict[str, Any]
CASES: dict[str, Line] = {
    case["id"]: case
    for line in (ROOT / "tests" / "data" / "replay_cases.jsonl").read_text(encoding="utf-8").splitlines()
    if (case := json.loads(line))
}
ALL = tuple(CASES)
CHUNKS, LOSSLESS, LINES = (
    "replay-keeps-transfer-chunks", "replay-sse-must-be-lossless", "recorder-adds-blank-lines-to-every-line",
)  # fmt: skip
EVENT_STREAM = Http(200, (("content-type", "text/event-stream; charset=utf-8"), ("transfer-encoding", "chunked")))
GOLDEN, JOINS = "golden-corpus-without-stream-cases", "subscriber-joins-during-replay"


def reads(name: str) -> list[tuple[int, bytes]]:
    """What came, and when (ms)."""
    case = CASES[name]
    if "trace" in case:
        return [(part["t_ms"], part["text"].encode()) for part in case["trace"]]
    return [(0, bytes.fromhex(part)) for part in case["wire_hex"]]


def body_of(name: str) -> bytes:
    return b"".join(data for _, data in reads(name))


def capture_of(name: str) -> Capture:
    """A response of a server that writes what came when it came."""
    end = 0
    writes: list[tuple[int, int]] = []
    for at, data in reads(name):
        end += len(data)
        writes.append((at * 1000, end))
    return Capture(
        server="other 1.0", protocol="chat", parser=None, marked=None, http=EVENT_STREAM, writes=tuple(writes),
        engine=None, request={"model": "m", "messages": [{"role": "user", "content": "?"}], "stream": True},
        whole=None, body=body_of(name).decode(), name=name,
    )  # fmt: skip


@pytest.fixture(scope="module")
def upstream() -> Generator[Playback]:
    with playback(capture_of(CHUNKS)) as running:
        yield running


@pytest.fixture(scope="module")
def proxy(upstream: Playback, tmp_path_factory: pytest.TempPathFactory) -> Generator[Running]:
    folder = tmp_path_factory.mktemp("replay-cases")
    with proxied(folder, upstream.address, "--depth", "verbatim", "--retries", "0") as running:
        yield running


def played(upstream: Playback, proxy: Running, name: str, how: How = PLAIN) -> tuple[Got, Trace]:
    """What a client of the proxy gets of this response, and what was recorded of it."""
    upstream.play(capture_of(name), how)
    body = json.dumps(capture_of(name).request).encode()
    got = post(proxy.address, "/v1/chat/completions", body)
    return got, session_of(proxy, got)


def replayed(trace: Trace) -> dict[str, str]:
    result = Replayer().replay(trace)
    assert result.verdict in ("same", "uncompared"), result
    assert result.first is None
    return dict(result.layers)


def again(trace: Trace) -> bytes:
    """The body that the relay makes of the recorded frames."""
    frames: list[Any] = trace.events("upstream", "frame")
    made, _ = fold_causes(RELAY.start(trace.opening), [*frames, END])
    return b"".join(frame.data for frame in made if not isinstance(frame, Head))


def events(data: bytes) -> list[Line]:
    """What a reader of the event stream gets, fields as the cases name them."""
    found: list[Line] = []
    for event in SseDecoder().feed(data):
        read = {"data": event.data, "event": event.name, "id": event.id}
        found.append({key: value for key, value in read.items() if (value and value != "message") or key == "data"})
    return found


# --- the case files


def test_every_case_is_here() -> None:
    assert {CHUNKS, LOSSLESS, LINES, GOLDEN, JOINS} == set(ALL)


# --- nothing is lost: bytes in, bytes recorded, bytes served, bytes replayed


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("size", [None, 1, 7])
def test_bytes_go_through_recorder_store_and_replay(
    upstream: Playback, proxy: Running, name: str, size: int | None
) -> None:
    """``replay_bytes_equal``: as it came, byte by byte, and in odd pieces."""
    got, trace = played(upstream, proxy, name, How(size=size))
    assert (got.status, got.whole) == (200, True)
    assert bytes_of(trace, "upstream") == body_of(name)
    assert again(trace) == bytes_of(trace, "served") == got.body
    assert got.body.startswith(body_of(name))
    assert replayed(trace)["relay"] == "same"


def test_names_ids_comments_and_lines_are_kept(upstream: Playback, proxy: Running) -> None:
    got, trace = played(upstream, proxy, LOSSLESS)
    expected = CASES[LOSSLESS]["expected"]["events"]
    for data in (body_of(LOSSLESS), bytes_of(trace, "upstream"), again(trace), got.body):
        found = SseDecoder().feed(data)
        assert [event.data for event in found][:2] == [event["data"] for event in expected]
        assert [event.id for event in found][:2] == [event["id"] for event in expected]
        assert b"\nid: 1\n" in data
        assert data.startswith(b": ping\n\nevent: message\n")
    frames = trace.events("upstream", "frame")
    assert [type(frame) for frame in frames] == [Head, Comment, Block, Block]


def test_no_blank_line_is_added(upstream: Playback, proxy: Running) -> None:
    _, trace = played(upstream, proxy, LINES)
    bad = b"".join(bytes.fromhex(part) for part in CASES[LINES]["bad_wire_hex"])
    for data in (bytes_of(trace, "upstream"), again(trace)):
        assert events(data)[:1] == CASES[LINES]["expected"]["events"]
        assert not data.startswith(bad)
    # What the recorder of the report made of it has no event of that name any more: the name stands alone.
    assert [event.get("event") for event in events(bad)] == [None]


# --- times, boundaries, and what breaks in the middle


def test_frames_keep_their_times(upstream: Playback, proxy: Running) -> None:
    """``replay_chunk_boundaries_equal``: what is kept is a frame an event, each with its time. A read of the network
    that ends inside an event is no boundary that a client could see, and the relay writes whole frames."""
    fast = capture_of(CHUNKS)
    writes = tuple((at * 50, end) for at, end in fast.writes or ())
    upstream.play(msgspec.structs.replace(fast, writes=writes), How(pace=1))
    got = post(proxy.address, "/v1/chat/completions", json.dumps(fast.request).encode())
    records = [row for row in session_of(proxy, got).records["upstream", "frame"] if not isinstance(row.event, Head)]
    assert [row.event.data for row in records] == [part + b"\n\n" for part in body_of(CHUNKS).split(b"\n\n")[:-1]]
    # Each came with the read that completed it: in ms, 50 times the report's.
    for row, at in zip(records, (150, 250, 450, 450), strict=True):
        assert row.at >= at * 1_000_000
    assert records[1].at < records[2].at
    assert len(got.chunks) >= 3


@pytest.mark.parametrize("cut", [1, 150, 200, 260, 330, 420])
@pytest.mark.parametrize("reset", [False, True])
def test_a_stream_that_breaks_in_the_middle_replays_as_that(
    upstream: Playback, proxy: Running, cut: int, reset: bool
) -> None:
    """``replay_midstream_error_supported``."""
    got, trace = played(upstream, proxy, CHUNKS, How(cut=cut, reset=reset))
    whole_ = body_of(CHUNKS)
    came = bytes_of(trace, "upstream")
    assert whole_.startswith(came)
    assert reset or came == whole_[:cut]
    assert isinstance(trace.events("input", "engine")[-1], ErrorInput)
    kept, end, _ = came.rpartition(b"\n\n")
    assert got.body.startswith(kept + end)
    assert b'"error"' in got.body.removeprefix(kept + end)
    assert bytes_of(trace, "served") == got.body
    assert replayed(trace)["relay"] == "same"


def said(trace: Trace) -> tuple[str, str | None]:
    """The content of a recorded upstream, and how it finished."""
    found: list[str] = []
    reason: str | None = None
    for event in trace.events("upstream", "semantic"):
        found += [event.text] if type(event).__name__ == "Content" else []
        reason = event.reason if type(event).__name__ == "Finish" else reason
    return "".join(found), {"eos": "stop"}.get(reason or "", reason)


@pytest.mark.parametrize("name", [CHUNKS, GOLDEN, JOINS])
def test_what_it_says(upstream: Playback, proxy: Running, name: str) -> None:
    _, trace = played(upstream, proxy, name)
    expected = CASES[name]["expected"]
    assert said(trace) == (expected["content"], expected["finish_reason"])


# --- a replay notices


SPOIL: dict[str, Callable[[bytes], bytes]] = {
    "blank lines added": lambda data: data.replace(b"\n", b"\n\n"),
    "only data kept": lambda data: b"\n".join(line for line in data.split(b"\n") if line[:5] == b"data:") + b"\n\n",
    "spaces lost": lambda data: data.replace(b"data: ", b"data:"),
}
SPOILT = [(name, how) for name in ALL for how in SPOIL if how != "only data kept" or name in (LOSSLESS, LINES)]
"""Of the others, data is all there is."""


@pytest.mark.parametrize(("name", "how"), SPOILT)
def test_a_record_that_was_spoilt_is_not_the_same(upstream: Playback, proxy: Running, name: str, how: str) -> None:
    _, trace = played(upstream, proxy, name)
    records = [
        row if isinstance(row.event, Head)
        else msgspec.structs.replace(row, event=msgspec.structs.replace(row.event, data=SPOIL[how](row.event.data)))
        for row in trace.records["upstream", "frame"]
    ]  # fmt: skip
    result = Replayer().replay(with_records(trace, "upstream", "frame", records))
    assert result.verdict == "changed"
    assert result.layers["relay"] == "changed"


# --- the corpus


def test_a_corpus_has_streams_and_each_runs_under_every_split() -> None:
    """``corpus_has_streaming_cases``, ``corpus_runs_every_split``: one to n tokens a step, all at once, at random."""
    golden = json.loads((ROOT / "tests" / "data" / "goldens.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert golden
    traces = [
        record(opening(f"{n:032x}", stream=stream), whole(tokens(SAID))) for n, stream in enumerate((True, False))
    ]
    assert any(trace.opening.ask.stream for trace in traces)
    count = len([event for event in traces[0].events("input", "engine") if getattr(event, "ids", ())])
    splits = ("recorded", "one", "token", "marker", *(f"rand:{most}:{most}" for most in range(2, count, 9)))
    for trace in traces:
        result = Replayer(splits=splits).replay(trace)
        assert result.splits == dict.fromkeys(splits, "same")
        assert not result.not_compared


def test_the_golden_traces_stream() -> None:
    from store import trace as traces_

    found = [
        item for path in sorted((ROOT / "tests" / "traces").glob("*.jsonl")) for item in traces_.read_many(str(path))
    ]
    assert found
    assert any(item.opening.ask.stream for item in found)
    assert any(isinstance(event, AbortInput) for item in found for event in item.events("input", "engine"))


# --- who reads while it is written


@contextmanager
def written_by_a_thread(path: Path, frames: list[Frame]) -> Generator[threading.Event]:
    """A session that another thread of this process writes, a frame a batch; set once it is all there."""
    done = threading.Event()
    store = open_store(str(path))

    def run() -> None:
        writer = store.writer(opening("a" * 32))
        for seq, frame in enumerate(frames):
            writer.append(Batch("served", "frame", seq, seq, [frame], [-1]))
            if seq % 50 == 0:
                writer.committed().result()
        writer.close("closed")
        store.flush()
        done.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield done
    finally:
        thread.join()
        store.close()


def test_a_reader_that_joins_late_sees_all_once_and_in_order(tmp_path: Path) -> None:
    """``late_subscriber_sees_all_events_once_in_order``, as far as there is somebody to subscribe to: who reads a
    session from the store while it is written gets a beginning of it, each time at least the one before; at the end all
    of it. Nothing is lost or doubled where a part was sealed between two reads."""
    blocks = [frame.data for frame in FrameSplitter().feed(body_of(JOINS))]
    frames: list[Frame] = [Block(b"id: %d\n" % at + blocks[at % len(blocks)]) for at in range(2000)]
    path = tmp_path / "live.db"
    lengths: list[int] = []
    with written_by_a_thread(path, frames) as done:
        while True:
            ended = done.is_set()
            have = read(path)
            assert have == frames[: len(have)]
            lengths.append(len(have))
            if ended:
                break
    assert lengths == sorted(lengths)
    assert lengths[-1] == len(frames)
    assert read(path) == frames


def read(path: Path) -> list[Frame]:
    """What a reader of its own gets of the session; nothing before it is there."""
    store = open_store(str(path))
    try:
        if not any(True for _ in store.sessions()):
            return []
        return list(store.load("a" * 32).events("served", "frame"))
    finally:
        store.close()
