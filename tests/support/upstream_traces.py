"""Relayed sessions as a store gives them back, made of captures (see ``captures``) by the stages that a proxy runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from stages.events import (
    AbortInput,
    Block,
    Body,
    Comment,
    End,
    ErrorInput,
    FinishInput,
    Frame,
    Head,
    Input,
    Layer,
    PromptInput,
    TokensInput,
    UsageInput,
)
from stages.opening import EngineFacts, Opening, TokenizerFacts, UpstreamFacts
from stages.stage import fold_causes
from stages.upstream.asked import asked
from stages.upstream.decode import DECODERS
from stages.upstream.frames import FrameSplitter
from stages.upstream.inputs import INPUTS
from stages.upstream.relay import RELAY
from store.api import Record, SessionInfo, State, Trace
from tests.support.captures import PATHS, Capture
from tests.support.vocabularies import Kept, vocabulary

Last = End | ErrorInput | AbortInput
END = End()


def frames_of(capture: Capture) -> list[Frame]:
    """The response as it is recorded: its head, then its blocks, or its one body."""
    head = Head(capture.http.status, capture.http.headers)
    if ("content-type", "text/event-stream; charset=utf-8") not in capture.http.headers:
        return [head, Body(capture.data)]
    splitter = FrameSplitter()
    blocks: list[Block | Comment] = [*splitter.feed(capture.data), *splitter.end()]
    return [head, *blocks]


def relayed(
    capture: Capture, *, parser: str | None = None, pieces: bool = True, depth: Any = "tokens", last: Last = END,
    state: State = "closed", **facts: Any,
) -> Trace:  # fmt: skip
    """The session of a capture. Its tokens are those that the stream tells; of a server that tells none, those of the
    script, of which no frame is known. ``parser``: in place of the capture's own; ``pieces``: their bytes are known;
    ``last``: what ended the response; ``facts``: of the upstream."""
    kept = None if capture.script is None else vocabulary(capture.script.vocabulary)
    tokenizer = TokenizerFacts() if kept is None else TokenizerFacts(
        special=kept.special, added=kept.added, eos=kept.eos
    )  # fmt: skip
    body = json.dumps(capture.request).encode()
    opening = Opening(
        session=capture.name.replace("_", "-"), key="k" * 32, response_id="chatcmpl-1", created=1760000000,
        opened=1760000000 * 10**9, model=str(capture.request.get("model", "")), protocol=capture.protocol, request=body,
        ask=asked(capture.protocol, body), parser=parser or capture.parser or "plain", tokenizer=tokenizer,
        engine=EngineFacts(kind="upstream", model=""),
        upstream=UpstreamFacts(
            name="peer", url="http://127.0.0.1:8000", path=PATHS[capture.protocol], depth=depth, **facts
        ),
    )  # fmt: skip
    frames = frames_of(capture)
    inputs = [] if depth == "verbatim" else _inputs(capture, opening, frames, last)
    if pieces and kept is not None:
        inputs = [(_joined(event, kept), cause) for event, cause in inputs]
    if depth == "verbatim" and not isinstance(last, End):
        inputs = [(last, len(frames) - 1)]
    return session(opening, frames, inputs, last, state)


def session(
    opening: Opening, frames: Sequence[Frame], inputs: Iterable[tuple[Input, int]], last: Last | None, state: State
) -> Trace:
    """A relayed session around these. ``last``: None for one that was torn there."""
    given = [*frames, *([] if last is None else [last])]
    decoder = DECODERS[opening.protocol]
    semantic, semantic_causes = fold_causes(decoder.start(opening), given)
    served, served_causes = fold_causes(RELAY.start(opening), given)
    end = len(frames) - 1
    rows: dict[tuple[str, Layer], list[tuple[Any, int]]] = {
        ("upstream", "frame"): [(frame, -1) for frame in frames],
        ("input", "engine"): list(inputs),
        ("upstream", "semantic"): [
            (event, min(cause, end)) for event, cause in zip(semantic, semantic_causes, strict=True)
        ],
        ("served", "frame"): list(zip(served, served_causes, strict=True)),
    }
    stages = {"relay": RELAY.id, "decoder": decoder.id}
    opening = msgspec.structs.replace(opening, stages={**stages, **opening.stages})
    info = SessionInfo(
        session=opening.session, opened=opening.opened, state=state, model=opening.model, parser=opening.parser,
        stages=opening.stages,
    )  # fmt: skip
    records = {
        key: [Record(seq, cause, seq * 10**6, event) for seq, (event, cause) in enumerate(held)]
        for key, held in rows.items()
        if held
    }
    return Trace(opening=opening, info=info, records=records)


def with_records(trace: Trace, track: str, layer: Layer, records: Sequence[Record]) -> Trace:
    """The same session with other records of a layer."""
    return Trace(opening=trace.opening, info=trace.info, records={**trace.records, (track, layer): list(records)})


def with_opening(trace: Trace, **fields: Any) -> Trace:
    """The same session with other fields of its opening."""
    opening = msgspec.structs.replace(trace.opening, **fields)
    return Trace(opening=opening, info=trace.info, records=trace.records)


def _inputs(capture: Capture, opening: Opening, frames: Sequence[Frame], last: Last) -> list[tuple[Input, int]]:
    told, causes = fold_causes(INPUTS["chat"].start(opening), [*frames, last])
    if any(isinstance(event, TokensInput) for event in told) or capture.script is None or capture.engine is None:
        return list(zip(told, (min(cause, len(frames) - 1) for cause in causes), strict=True))
    # The stream does not tell: the script does.
    steps = {choice: iter(capture.steps_of(choice)) for choice in capture.engine.choices}
    found: list[Input] = [PromptInput((), "", capture.engine.prompt or 0)]
    found += [TokensInput(choice, next(steps[choice]), (), "") for choice, _ in capture.script.steps]
    if isinstance(last, End):
        ids = sum(count for _, count in capture.script.steps)
        found += [event for event in told if isinstance(event, FinishInput)]
        found.append(told[-1] if isinstance(told[-1], ErrorInput) else UsageInput(capture.engine.prompt or 0, ids))
    else:
        found.append(last)
    return [(event, -1) for event in found]


def _joined(event: Input, kept: Kept) -> Input:
    if isinstance(event, TokensInput):
        return msgspec.structs.replace(event, pieces=tuple(kept.piece(number) for number in event.ids))
    if isinstance(event, PromptInput) and event.ids:
        known = b"".join(kept.piece(number) for number in event.ids[-3:] if _known(kept, number))
        return msgspec.structs.replace(event, tail=known.decode("utf-8", "replace"))
    return event


def _known(kept: Kept, number: int) -> bool:
    try:
        kept.piece(number)
    except KeyError:
        return False
    return True
