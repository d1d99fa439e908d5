"""What clients of completions, responses and messages see of calls that a model wrote wrongly or not to their end, and
of other formats than hermes: the official SDKs against real servers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.support.answers import Way
from tests.support.sdks import WAYS, Asked, Meant, Protocol, ask, asking, expected, fields_of
from tests.support.server import Running, serve

CALL = '<tool_call>\n{"name": "tide", "arguments": {"port": "Brest", "days": [1, 2]}}\n</tool_call>'


class Fault(NamedTuple):
    """``written``: the arguments as far as they went out; ``read``: what a client of messages may read of them;
    ``status`` and ``reason``: of the response, of the message."""

    asked: Asked
    written: str
    read: dict[str, Any]
    status: str
    reason: str


FAULTS = {
    "malformed": Fault(
        Asked('<tool_call>\n{"name": "tide", "arguments": {"port": Brest}}\n</tool_call>', tools=True),
        '{"port": ', {}, "failed", "max_tokens",
    ),
    "ends inside": Fault(
        Asked('<tool_call>\n{"name": "tide", "arguments": {"port": "Brest", "da', tools=True),
        '{"port": "Brest", "da', {"port": "Brest"}, "failed", "max_tokens",
    ),
    "cut by the cap": Fault(Asked(CALL, tools=True, cap=10), '{"por', {}, "incomplete", "max_tokens"),
    "a stop string inside": Fault(
        Asked(CALL, tools=True, stop='"days'), '{"port": "Brest", ', {"port": "Brest"}, "failed", "stop_sequence"
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Reads hermes; its model writes arguments that are no JSON."""
    with serve(tmp_path_factory.mktemp("faulty"), "--allow-forced", "--parser", "hermes", allow={"INV-037"}) as running:
        yield running


def final(server: Running, protocol: Protocol, way: Way, asked: Asked) -> Any:
    """The response or message that a client has in the end."""
    fields = {"model": server.model, **fields_of(protocol, asked)}
    with asking(server, protocol) as by:
        if way == "whole":
            return by.create(**fields)
        if way == "helper":
            with by.stream(**fields) as stream:
                return stream.get_final_message() if protocol == "messages" else list(stream)[-1].response
        events = list(by.create(**fields, stream=True))
        return events[-1].response if protocol == "responses" else events


@pytest.mark.parametrize("way", ["plain", "helper", "whole"])
@pytest.mark.parametrize("name", FAULTS)
def test_a_response_is_not_completed_by_a_call_that_is_not(faulty: Running, name: str, way: Way) -> None:
    fault = FAULTS[name]
    response = final(faulty, "responses", way, fault.asked)
    [call] = response.output
    assert (call.name, call.arguments, call.status) == ("tide", fault.written, "incomplete")
    assert response.status == fault.status
    if fault.status == "failed":
        assert response.error.code == "server_error"
        assert "'tide'" in response.error.message
    else:
        assert response.incomplete_details.reason == "max_output_tokens"


@pytest.mark.parametrize("name", FAULTS)
def test_a_message_does_not_say_that_a_tool_is_to_be_used(faulty: Running, name: str) -> None:
    fault = FAULTS[name]
    events = final(faulty, "messages", "plain", fault.asked)
    deltas = [event.delta for event in events if event.type == "content_block_delta"]
    assert "".join(delta.partial_json for delta in deltas) == fault.written
    ways: tuple[Way, ...] = ("helper", "whole")
    for way in ways:
        message = final(faulty, "messages", way, fault.asked)
        assert message.stop_reason == fault.reason
        assert [block.input for block in message.content] == [fault.read]


@pytest.mark.parametrize(("protocol", "way"), [each for each in WAYS if each[0] == "completions"])
@pytest.mark.parametrize("name", ["malformed", "ends inside"])
def test_a_completion_is_what_the_model_wrote(faulty: Running, name: str, protocol: Protocol, way: Way) -> None:
    asked = FAULTS[name].asked
    assert ask(faulty, protocol, way, asked)[:4] == (asked.written, None, (), "stop")


@pytest.mark.parametrize(("protocol", "way"), [each for each in WAYS if each[0] != "completions"])
def test_a_stop_string_behind_a_whole_call(faulty: Running, protocol: Protocol, way: Way) -> None:
    written = '<tool_call>\n{"name": "moon", "arguments": {}}\n</tool_call>\nTwo a day'
    meant = Meant(None, "", "calls", calls=(("moon", {}),))
    said = ask(faulty, protocol, way, Asked(written, tools=True, stop="Two"))
    assert said[:4] == expected(protocol, meant)


# --- other formats ----------------------------------------------------------------------------------------------------

DEEPSEEK = (
    "Looking.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>tide\n```json\n"
    '{"port": "Brest"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>moon\n```json\n{}\n```'
    "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
)
HARMONY = (
    "<|channel|>analysis<|message|>The moon pulls.<|end|><|start|>assistant<|channel|>commentary to=functions.tide "
    '<|constrain|>json<|message|>{"port": "Brest"}<|call|>'
)
TOLD = (
    "<|channel|>analysis<|message|>The moon pulls.<|end|><|start|>assistant<|channel|>final<|message|>Two a day."
    "<|return|>"
)
FORMATS: dict[str, list[tuple[Asked, Meant]]] = {
    "deepseek_v3": [
        (
            Asked(DEEPSEEK, tools=True),
            Meant("Looking.", DEEPSEEK, "calls", calls=(("tide", {"port": "Brest"}), ("moon", {}))),
        )
    ],
    "harmony": [
        (
            Asked(HARMONY, tools=True),
            Meant(None, HARMONY, "calls", "The moon pulls.", (("tide", {"port": "Brest"}),)),
        ),
        (Asked(TOLD), Meant("Two a day.", TOLD, "turn", "The moon pulls.")),
    ],
}


@pytest.fixture(scope="module", params=FORMATS)
def reading(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, str]]:
    """A server that reads a format."""
    name: str = request.param
    with serve(tmp_path_factory.mktemp(name), "--allow-forced", "--parser", name) as running:
        yield running, name


@pytest.mark.parametrize(("protocol", "way"), WAYS)
def test_formats(reading: tuple[Running, str], protocol: Protocol, way: Way) -> None:
    server, name = reading
    for asked, meant in FORMATS[name]:
        assert ask(server, protocol, way, asked)[:4] == expected(protocol, meant)
