"""How much is recorded: all layers, one with digests, a sample, nothing."""

from __future__ import annotations

from pathlib import Path

import msgspec

from pipeline.recorder import Recorder
from replay import Replayer
from store import MemoryStore
from tests.support.live import opening
from tests.support.server import serve

ANSWER = ["<think>", "The moon.", "</think>", "Two ", "a day."]


def test_lean_keeps_the_inputs_and_digests_and_replays_the_same(tmp_path: Path) -> None:
    with serve(tmp_path, "--record", "lean", script=ANSWER) as running:
        assert "recording lean to" in running.said
        with running.stream(n=2) as wire:
            wire.rest()
        trace = running.recorded(wire.id)
    assert trace.info.mode == "lean"
    assert {layer for (_, layer), records in trace.records.items() if records} == {"engine", "frame"}
    assert [track for track, layer in trace.records if layer == "frame"] == ["socket"]
    assert set(trace.info.digests) == {"served/semantic", "served/chunk", "served/frame"}
    assert trace.info.message[0]["content"] == "Two a day."
    assert Replayer().replay(trace).verdict == "same"


def test_off_records_nothing(tmp_path: Path) -> None:
    with serve(tmp_path, "--record", "off", script=ANSWER) as running:
        assert "recording off" in running.said
        assert "replay" not in running.said
        assert running.post().status_code == 200
        assert running.health()["store"] is None
    assert not running.store.exists()


def test_a_sample_is_chosen_by_the_sessions_key() -> None:
    store = MemoryStore()
    recorder = Recorder(store, sample=0.5)
    keys = [f"{first:02x}" * 16 for first in range(256)]
    for key in keys:
        made = msgspec.structs.replace(opening(), session=key, key=key)
        recorder.open(made, lambda: 0).close("closed")
    assert sorted(info.session for info in store.sessions()) == keys[:128]


def test_a_sampled_server_records_some(tmp_path: Path) -> None:
    with serve(tmp_path, "--sample", "0.5", script=ANSWER) as running:
        with running.client() as client:
            answers = [running.create(client) for _ in range(40)]
        assert all(answer.choices[0].message.content == "Two a day." for answer in answers)
    recorded = {info.session for info in running.sessions()}
    assert recorded < {answer.id.removeprefix("chatcmpl-") for answer in answers}
    # Of 40 all or none: once in 500 billion runs.
    assert 0 < len(recorded) < 40


def test_a_sample_of_nothing(tmp_path: Path) -> None:
    with serve(tmp_path, "--sample", "0", script=ANSWER) as running:
        assert running.post().status_code == 200
    assert running.sessions() == []
