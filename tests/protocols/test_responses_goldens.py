"""The golden responses streams, rebuilt from semantic events."""

from __future__ import annotations

from typing import Any

import pytest

from stages.events import Head
from tests.support.responses import CASES, frames_of, values_of
from tests.support.wire import RESPONSE, full, golden


def plain(value: Any, names: dict[str, str]) -> Any:
    """As the goldens have it: the ids of items by their kind and number, of the response no more than they show."""
    kind: type = value.__class__
    if kind is list:
        return [plain(item, names) for item in value]
    if kind is str:
        return names.get(value, value)
    if kind is not dict:
        return value
    shown: Any = RESPONSE if value.get("object") == "response" else value
    return {key: plain(value[key], names) for key in value if key in shown}


def names_of(values: list[Any]) -> dict[str, str]:
    """Our ids of items → those of the goldens: numbered by their kind."""
    made: dict[str, str] = {}
    for value in values:
        if value["type"] == "response.output_item.added":
            made[value["item"]["id"]] = f"{value['item']['id'].split('_')[0]}_1"
    return made


@pytest.mark.parametrize("name", ["G09", "G10"])
def test_golden(name: str) -> None:
    values = values_of(*CASES[name])
    want = [full("responses", element, number) for number, element in enumerate(golden(name).elements)]
    if name == "G09":
        # There the arguments come in one piece.
        want = _cut(want)
    assert plain(values, names_of(values)) == want


def _cut(values: list[Any]) -> list[Any]:
    """The deltas of the arguments, cut as in our case; the numbers follow."""
    made: list[Any] = []
    for value in values:
        whole = value["type"] == "response.function_call_arguments.delta" and value["delta"] == '{"port":"Brest"}'
        pieces = [{**value, "delta": piece} for piece in ('{"port":', '"Brest"}')] if whole else [value]
        made += [{**piece, "sequence_number": len(made) + place} for place, piece in enumerate(pieces)]
    return made


def test_a_golden_failure() -> None:
    """G11 ends while an item is open that nothing was said in; ours never opens one for nothing."""
    values = values_of(*CASES["G11"])
    want = [full("responses", element, number) for number, element in enumerate(golden("G11").elements)]
    got = plain(values, names_of(values))
    assert got[:3] == want[:3]
    assert got[-1] == {**want[-1], "sequence_number": 5}


def test_the_head_of_a_stream() -> None:
    head = frames_of(*CASES["text"])[0]
    assert isinstance(head, Head)
    assert head.status == 200
    assert ("content-type", "text/event-stream; charset=utf-8") in head.headers
    assert ("x-request-id", "resp_a1") in head.headers
