"""What stands in for a server's tokenizer and detokenizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from replay.foreign.peer.tokenizer import Detokenizer, Shim, real
from replay.foreign.peer.worker import Unsupported

KNOWN = {10: b"Hello", 11: "€".encode()[:2], 12: "€".encode()[2:], 13: b"\n"}


def shim() -> Any:
    return Shim({"<|im_end|>": 2}, {"<tool_call>": 3}, [2], KNOWN)


def test_what_is_known() -> None:
    tokenizer = shim()
    assert tokenizer.get_vocab()["<tool_call>"] == tokenizer.vocab["<tool_call>"] == 3
    assert tokenizer.get_vocab().get("</think>") is None
    assert tokenizer.get_added_vocab() == {"<|im_end|>": 2, "<tool_call>": 3}
    assert tokenizer.convert_tokens_to_ids("<tool_call>") == 3
    assert tokenizer.convert_tokens_to_ids(["<|im_end|>", "Hello", "nothing"]) == [2, 10, None]
    assert tokenizer.convert_ids_to_tokens([3, 10, 2], skip_special_tokens=True) == ["<tool_call>", "Hello"]
    assert (tokenizer.all_special_tokens, tokenizer.all_special_ids) == (["<|im_end|>"], [2])
    assert (tokenizer.eos_token_id, tokenizer.eos_token) == (2, "<|im_end|>")
    assert tokenizer.wanted == ""
    assert tokenizer


def test_decoding() -> None:
    tokenizer = shim()
    assert tokenizer.decode([10, 11, 12, 13, 2]) == "Hello€\n<|im_end|>"
    assert tokenizer.decode([10, 2], skip_special_tokens=True) == "Hello"
    assert tokenizer.decode(11) == "\ufffd"


def test_encoding_one_marker() -> None:
    tokenizer = shim()
    assert tokenizer.encode("<tool_call>", add_special_tokens=False) == [3]
    assert tokenizer.encode("") == []


ASKED: list[tuple[Callable[[Any], Any], str]] = [
    (lambda it: it.encode("<tool_call>\n"), "encodes text"),
    (lambda it: it("text"), "encodes text"),
    (lambda it: isinstance(it, dict), "asks for the tokenizer's class"),
    (lambda it: it.decode([999]), "reads id 999, whose text"),
    (lambda it: it.chat_template, "asks for the tokenizer's chat_template"),
]


@pytest.mark.parametrize(("ask", "what"), ASKED)
def test_what_is_not_recorded(ask: Callable[[Any], Any], what: str) -> None:
    tokenizer = shim()
    with pytest.raises(Unsupported, match=what):
        ask(tokenizer)
    assert tokenizer.wanted.startswith(f"the parser {what}")
    assert "--tokenizer PATH" in tokenizer.wanted


def test_what_no_tokenizer_has_is_not_there() -> None:
    tokenizer = shim()
    assert getattr(tokenizer, "supports_grammar", False) is False
    assert tokenizer.wanted == ""


def test_a_real_one_that_does_not_load() -> None:
    with pytest.raises(Unsupported, match=r"--tokenizer /nowhere/tekken\.json does not load: "):
        real("/nowhere/tekken.json")


# --- the detokenizer --------------------------------------------------------------------------------------------------


def texts(
    steps: list[list[bytes]], *, skip_special: bool = True, stop: tuple[str, ...] = (), include_stop: bool = False,
    stopped: str = "",
) -> list[str]:  # fmt: skip
    """What is released by steps of these tokens; the last one ends the choice. Id 2 is special, spelled <end>."""
    made = Detokenizer([2], skip_special=skip_special, stop=stop, include_stop=include_stop)
    found: list[str] = []
    for at, step in enumerate(steps):
        ids = [2 if piece == b"<end>" else 50 for piece in step]
        ended = at == len(steps) - 1
        found.append(made.step(ids, step, "", finished=ended, stopped=stopped if ended else ""))
    return found


def test_special_tokens() -> None:
    assert texts([[b"a"], [b"b", b"<end>"]]) == ["a", "b"]
    assert texts([[b"a"], [b"b", b"<end>"]], skip_special=False) == ["a", "b<end>"]


def test_half_characters_wait() -> None:
    euro = "€".encode()
    assert texts([[euro[:1]], [euro[1:2]], [euro[2:], b"!"], []]) == ["", "", "€!", ""]
    assert texts([[b"a"], [euro[:2]]]) == ["a", ""]


def test_bytes_that_are_no_text_come_with_the_next_that_are() -> None:
    assert texts([[b"\xff"], [b"a"]]) == ["", "\ufffda"]


def test_stop_strings() -> None:
    assert texts([[b"ab"], [b"cS"], [b"TO", b"P"]], stop=("STOP",), stopped="STOP") == ["", "a", "bc"]
    assert texts([[b"ab"], [b"STOP", b"x"]], stop=("STOP",), stopped="STOP", include_stop=True) == ["ab", "STOP"]
    assert texts([[b"abcd"], [b"e"]], stop=("STOP",)) == ["a", "bcde"]


def test_text_without_bytes() -> None:
    made = Detokenizer([], skip_special=True, stop=(), include_stop=False)
    assert [made.step([], [], "ab"), made.step([], [], "c", finished=True)] == ["ab", "c"]
