"""Golden streams with JSON nodes dropped, doubled or made into anything: whatever well-formed blocks may hold."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import strategies as st

from stages.protocols.rules import Protocol
from stages.protocols.rules.values import array, obj, string
from tests.support.wire import full, golden

ANY_JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(("type", "index", "id", "x")), inner),
    max_leaves=4,
)


def values(name: str) -> tuple[Protocol, list[Any]]:
    """The JSON values that a golden stream sends, whole; ``[DONE]`` is a string."""
    stream = golden(name)
    return stream.protocol, [
        one if isinstance(one, str) else full(stream.protocol, one, place) for place, one in enumerate(stream.elements)
    ]


def nodes(value: Any) -> list[tuple[Any, Any]]:
    """Every place inside a value: its container and its key."""
    keys: list[Any] = [*obj(value), *range(len(array(value)))]
    return [place for key in keys for place in ((value, key), *nodes(value[key]))]


@st.composite
def reshaped(draw: st.DrawFn, value: Any) -> Any:
    """A copy of a JSON value with up to four of its nodes dropped, doubled or made into anything."""
    made = copy.deepcopy(value)
    for _ in range(draw(st.integers(1, 4))):
        places = nodes(made)
        if not places:
            break
        inside, key = places[draw(st.integers(0, len(places) - 1))]
        how = draw(st.sampled_from(("drop", "double", "retype", "retype")))
        if how == "drop":
            del inside[key]
        elif how == "double" and inside.__class__ is list:
            inside.insert(key, copy.deepcopy(inside[key]))
        else:
            inside[key] = draw(ANY_JSON)
    return made


def body(protocol: Protocol, sent: list[Any]) -> bytes:
    """The stream that sends these values, each block named as its type where the protocol names blocks."""
    blocks: list[str] = []
    for value in sent:
        kind = string(obj(value).get("type"))
        if protocol in ("responses", "messages") and kind is not None and not {"\n", "\r"} & set(kind):
            blocks.append(f"event: {kind}\n")
        text = "[DONE]" if value == "[DONE]" else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        blocks.append(f"data: {text}\n\n")
    return "".join(blocks).encode()
