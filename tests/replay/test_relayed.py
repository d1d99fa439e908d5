"""Replaying sessions of another server: what is compared with what, when nothing can be, and the tracks of shadows."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from replay import against_served, exit_code, from_json, to_json
from replay.derive import derive
from replay.report import make_report
from replay.result import SessionResult
from replay.run import Replayer
from replay.upstream_diff import Told
from stages.events import End, PromptInput, TokensInput, Usage
from stages.opening import UpstreamFacts
from stages.stage import fold_causes
from stages.upstream.decode import DECODERS
from store import codec
from store.api import Record, Trace
from tests.support.captures import captures
from tests.support.replay import SAID, opening, record, text_steps, tokens, whole
from tests.support.upstream_traces import frames_of, relayed, with_opening, with_records

LOST = "vllm_dsv31-tool_multitoken"
"""The arguments of the first call lose their end."""
PLAIN = "vllm_plain-plain"
SPACED = "vllm_qwen3_hermes-tool_multitoken"
"""Only white space is not as the parser has it."""


def replayed(trace: Trace, parser: Any = None, **options: Any) -> SessionResult:
    return Replayer(parser, **options).replay(trace)


def with_shadow(trace: Trace, name: str) -> Trace:
    """As the server stores what a parser makes of a session beside the one that serves."""
    made = derive(with_opening(trace, protocol="chat").opening, trace.events("input", "engine"), name).semantic
    rows = [
        Record(seq, cause, 0, event) for seq, (event, cause) in enumerate(zip(made.events, made.steps, strict=True))
    ]
    return with_records(trace, f"shadow:{name}", "semantic", rows)


# --- what is compared -----------------------------------------------------------------------------------------------


def test_the_parser_of_the_record_against_what_the_client_got() -> None:
    result = replayed(relayed(captures()[LOST]))
    assert (result.verdict, result.track) == ("changed", "")
    assert result.parser == "parse.deepseek_v3+deepseek_v31@2"
    assert [item.kind for item in result.differences] == ["call_arguments"]
    assert result.tokens == 34


def test_another_parser_against_what_the_client_got() -> None:
    """To a parser of nothing all that was written is content."""
    result = replayed(relayed(captures()[LOST]), "plain")
    assert [item.kind for item in result.differences] == ["call_added", "call_added", "text"]
    assert result.differences[2].replayed is not None
    assert result.differences[2].replayed.startswith("<｜tool▁calls▁begin｜>")


def test_white_space_does_not_fail_a_run() -> None:
    result = replayed(relayed(captures()[SPACED]))
    assert result.verdict == "restyled"
    assert {item.kind for item in result.differences} == {"white_space"}
    report = make_report([result], [], parser=None, sources=(), splits=("recorded",), layer="frame")
    assert exit_code(report) == 0
    assert exit_code(report, "restyled") == 1
    assert report.summary.restyled == 1


@pytest.mark.parametrize("name", ["vllm_plain-messages_plain", "vllm_plain-completions", "vllm_gptoss-responses_final"])
def test_protocols_without_an_encoder_of_ours(name: str) -> None:
    result = replayed(relayed(captures()[name]))
    assert (result.verdict, result.unreplayed) == ("same", "")


def test_splits_are_compared_with_what_the_client_got() -> None:
    result = replayed(relayed(captures()[LOST]), splits=("recorded", "one", "token"))
    assert result.splits == {"recorded": "changed", "one": "changed", "token": "changed"}
    assert "does not depend on the split: the same under `recorded`, `one`, `token`" in result.notes


def test_a_split_alone_names_the_place() -> None:
    result = replayed(relayed(captures()[LOST]), splits=("one",))
    assert result.first is not None
    assert (result.first.split, result.first.frame, result.first.seq) == ("one", 6, -1)
    assert result.first.detail.startswith("upstream's frame 6: ")


def test_a_parser_that_raises() -> None:
    class Broken:
        id = "broken@1"

        def start(self, opening: object) -> Any:
            raise RuntimeError("no")

        resume = start

    result = replayed(relayed(captures()[PLAIN]), Broken())
    assert result.verdict == "failed"
    assert result.error is not None
    assert result.error.message == "no"


def test_a_parser_that_is_not_there() -> None:
    result = replayed(with_opening(relayed(captures()[PLAIN]), parser="gone.py:Parser"))
    assert result.verdict == "uncompared"
    assert "give --parser" in result.unreplayed


def test_how_many_tokens_are_known() -> None:
    """A stop string takes the ids behind it away: 7 of the 9 of its step are told."""
    trace = relayed(captures()["vllm_plain-stop_string_multitoken"])
    semantic = trace.records["upstream", "semantic"]
    told = sum(len(event.ids) for event in trace.events("input", "engine") if isinstance(event, TokensInput))
    rows = [*semantic[:-1], Record(len(semantic) - 1, 1, 0, Usage(5, told + 2)), Record(len(semantic), 1, 0, End())]
    assert (
        f"the upstream tells {told} of its {told + 2} tokens"
        in replayed(with_records(trace, "upstream", "semantic", rows), layer="message").notes
    )


# --- what cannot be compared ----------------------------------------------------------------------------------------


def test_verbatim() -> None:
    trace = relayed(captures()[LOST], depth="verbatim", why="it takes no return_token_ids")
    result = replayed(trace)
    why = "recorded verbatim: what the model wrote is not known (it takes no return_token_ids)"
    # Nothing is wrong with it: what could be made again is what was recorded.
    assert (result.verdict, result.uncompared) == ("same", why)
    assert result.layers == {"upstream": "same", "relay": "same"}
    for options in ({"parser": "hermes"}, {"track": "upstream"}):
        result = replayed(trace, **options)
        assert (result.verdict, result.uncompared) == ("uncompared", why)
        assert result.layers == {"upstream": "same", "relay": "same"}


def test_ids_without_bytes() -> None:
    result = replayed(relayed(captures()[LOST], pieces=False))
    assert result.verdict == "uncompared"
    assert result.uncompared == "the bytes of its tokens are not known: playhead import --tokenizer joins them"
    assert result.layers == {"upstream": "same", "relay": "same"}
    assert result.tokens == 34


def test_a_response_that_tells_nothing() -> None:
    trace = relayed(captures()[PLAIN])
    trace = with_records(trace, "input", "engine", trace.records["input", "engine"][:1])
    assert replayed(trace).uncompared == "the response does not tell what the model wrote"


def test_a_refusal_is_the_same_to_anybody() -> None:
    result = replayed(relayed(captures()["vllm_plain-tools_auto_rejected"]))
    assert result.verdict == "same"
    assert result.layers["message"] == "same"


@pytest.mark.parametrize("track", ["upstream", "shadow:hermes", "expected"])
def test_a_track_that_was_not_recorded(track: str) -> None:
    result = replayed(record(opening(), whole(tokens(SAID))), "hermes", track=track)
    assert (result.verdict, result.track) == ("uncompared", track)
    assert result.uncompared == f"no track {track} was recorded"


def test_served_is_no_track_of_a_relayed_session() -> None:
    result = replayed(relayed(captures()[PLAIN]), track="served")
    assert result.verdict == "uncompared"
    assert "compared with is the track upstream" in result.uncompared


# --- shadows --------------------------------------------------------------------------------------------------------


def test_a_shadow_is_compared_with_its_own_parser() -> None:
    trace = with_shadow(relayed(captures()[LOST]), "hermes")
    result = replayed(trace, track="shadow:hermes")
    assert (result.verdict, result.track, result.parser) == ("same", "shadow:hermes", "parse.hermes@3")
    assert result.layers == {"message": "same", "upstream": "same", "relay": "same"}


def test_a_shadow_is_compared_with_another_parser() -> None:
    trace = with_shadow(record(opening(), whole(tokens(SAID))), "plain")
    result = replayed(trace, "hermes", track="shadow:plain")
    assert result.verdict == "changed"
    assert result.differences[0].kind == "call_added"
    assert result.first is not None
    assert result.first.track == "shadow:plain"
    assert replayed(trace).verdict == "same"  # with what the client got


def test_a_shadow_of_a_lean_session() -> None:
    trace = with_shadow(record(opening(), whole(tokens(SAID)), mode="lean"), "plain")
    events = trace.events("shadow:plain", "semantic")
    digests = {**trace.info.digests, "shadow:plain/semantic": codec.digest(events)}
    info = msgspec.structs.replace(trace.info, digests=digests)
    records = {key: rows for key, rows in trace.records.items() if key[0] == "input"}
    kept = Trace(opening=trace.opening, info=info, records=records)
    assert replayed(kept, track="shadow:plain", splits=("recorded", "one")).verdict == "same"
    other = replayed(kept, "hermes", track="shadow:plain")
    assert (other.verdict, other.first and other.first.kind) == ("changed", "unknown")


def test_what_a_shadow_says_against_what_the_client_got() -> None:
    trace = with_shadow(relayed(captures()[LOST]), "deepseek_v31")
    told = against_served(trace, "shadow:deepseek_v31")
    assert isinstance(told, Told)
    assert [(item.kind, item.frame) for item in told.differences] == [("call_arguments", 6)]
    assert told.differences[0].place.endswith("""parser deepseek_v31: '"}'""")
    own = with_shadow(record(opening(), whole(tokens(SAID))), "plain")
    told = against_served(own, "shadow:plain")
    assert isinstance(told, Told)
    assert told.differences[0].kind == "call_lost"
    assert against_served(own, "shadow:hermes") == "no track shadow:hermes was recorded"


# --- sessions that our stages served --------------------------------------------------------------------------------


def parsed() -> Trace:
    """A session whose output our stages parsed; the upstream was asked through chat, and its own parse was kept."""
    capture = captures()[PLAIN]
    upstream = UpstreamFacts(
        name="peer", url="http://127.0.0.1:1", path="/v1/chat/completions", depth="text", relayed=False
    )
    opened = msgspec.structs.replace(opening(parser="plain"), upstream=upstream)
    decoder = DECODERS["chat"]
    opened = msgspec.structs.replace(opened, stages={**opened.stages, "decoder": decoder.id})
    trace = record(opened, [PromptInput((), "", 3), *whole(text_steps("Two tides."))[1:]])
    frames = frames_of(capture)
    events, causes = fold_causes(decoder.start(opened), [*frames, End()])
    rows = [
        Record(seq, min(cause, len(frames) - 1), 0, event)
        for seq, (event, cause) in enumerate(zip(events, causes, strict=True))
    ]
    trace = with_records(trace, "upstream", "frame", [Record(seq, -1, 0, frame) for seq, frame in enumerate(frames)])
    return with_records(trace, "upstream", "semantic", rows)


def test_a_parsed_session_is_our_own_and_its_upstreams_parse_is_checked() -> None:
    result = replayed(parsed())
    assert result.verdict == "same"
    assert result.layers == {
        "message": "same", "semantic": "same", "chunk": "same", "frame": "same", "upstream": "same",
    }  # fmt: skip
    assert result.stages == {}
    trace = parsed()
    rows = trace.records["upstream", "semantic"]
    result = replayed(with_records(trace, "upstream", "semantic", rows[:-1]))
    assert result.layers["upstream"] == result.verdict == "changed"
    assert result.layers["frame"] == "same"


def test_a_parsed_session_against_what_the_upstream_made_of_it() -> None:
    result = replayed(parsed(), track="upstream")
    assert result.track == "upstream"
    assert [item.kind for item in result.differences] == ["text"]


# --- the report -----------------------------------------------------------------------------------------------------


def test_the_report_has_the_track_where_one_was_asked_for() -> None:
    result = replayed(with_shadow(relayed(captures()[LOST]), "plain"), track="shadow:plain")
    asked = make_report(
        [result], [], parser=None, sources=(), splits=("recorded",), layer="frame", track="shadow:plain"
    )
    assert from_json(to_json(asked)) == asked
    assert b'"track": "shadow:plain"' in to_json(asked)
    unasked = make_report([], [], parser=None, sources=(), splits=("recorded",), layer="frame")
    assert b'"track"' not in to_json(unasked)
    assert from_json(to_json(unasked)) == unasked


def test_a_result_has_the_place_of_each_difference() -> None:
    result = replayed(relayed(captures()[LOST]))
    again = msgspec.json.decode(msgspec.json.encode(result), type=SessionResult)
    assert again == result
    assert (again.differences[0].frame, again.differences[0].step) == (6, 5)


def test_the_same_session_has_the_same_digest() -> None:
    trace = relayed(captures()[LOST])
    assert replayed(trace).digest == replayed(trace).digest
    assert replayed(trace).digest != replayed(trace, "plain").digest
