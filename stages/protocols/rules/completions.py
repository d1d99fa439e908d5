"""Rules 80 to 89, of the completions protocol."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stages.protocols.rules.asked import prompts as prompts_of
from stages.protocols.rules.case import Case, at, nowhere, shown
from stages.protocols.rules.completions_view import Choice, View
from stages.protocols.rules.evidence import Need
from stages.protocols.rules.reading import Event
from stages.protocols.rules.rule import Finding, Rules
from stages.protocols.rules.values import array, integer, number, obj, string

RULES = Rules("completions")

_REASONS = ("stop", "length", "content_filter")
_ARRAYS = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
_CHAT = frozenset(("delta", "message", "tool_calls", "role"))
_LEAST = -9999
_MOST = 1_000_000
"""More choices than any server makes: what the request says may be of any size."""


@RULES(80, "p_const", "E")
def p_const(case: Case) -> Iterator[Finding]:
    """Every chunk's object is text_completion; id, created and model are there and the same in all chunks."""
    chunks = case.reading.view(View).chunks
    first = chunks[0][1] if chunks else {}
    for event, chunk in chunks:
        if chunk.get("object") != "text_completion":
            yield at(event, f"object {shown(chunk.get('object'))}", "text_completion")
        for key in ("id", "created", "model"):
            if chunk.get(key) != first.get(key):
                yield at(event, f"{key} {shown(chunk.get(key))}", shown(first.get(key)))
    for event, chunk in chunks[:1]:
        if not string(chunk.get("id")):
            yield at(event, f"id {shown(chunk.get('id'))}", "a text")
        if integer(chunk.get("created")) is None:
            yield at(event, f"created {shown(chunk.get('created'))}", "an integer")
        if not string(chunk.get("model")):
            yield at(event, f"model {shown(chunk.get('model'))}", "a text")


def _of_each(request: dict[str, Any]) -> int:
    """How many choices each prompt has."""
    return min(max(integer(request.get("n")) or 1, 1), _MOST)


@RULES(81, "p_index", "E", Need.REQUEST)
def p_index(case: Case) -> Iterator[Finding]:
    """A choice's index is the number of its prompt times n, and its number among that prompt's n."""
    end = len(prompts_of(case.request)) * _of_each(case.request)
    for event, entry in case.reading.view(View).entries:
        index = integer(entry.get("index"))
        if index is None or not 0 <= index < end:
            yield at(event, f"index {shown(entry.get('index'))}", f"0 to {end - 1}")


@RULES(82, "p_text", "E")
def p_text(case: Case) -> Iterator[Finding]:
    """Every choice has a text."""
    view = case.reading.view(View)
    for event, value in view.odd:
        yield at(event, shown(value), "an array of choices")
    for event, entry in view.entries:
        if entry.get("text").__class__ is not str:
            yield at(event, f"text {shown(entry.get('text'))}", "a string")


@RULES(83, "p_fin", "E")
def p_fin(case: Case) -> Iterator[Finding]:
    """finish_reason is null until the last chunk of the choice, then stop, length or content_filter."""
    view = case.reading.view(View)
    for event, entry in view.entries:
        reason = entry.get("finish_reason")
        if reason is None:
            if "finish_reason" not in entry:
                yield at(event, "no finish_reason", "null", "O")
        elif reason not in _REASONS:
            yield at(event, f"finish_reason {shown(reason)}", severity="O" if isinstance(reason, str) else "E")
    for index, choice in view.choices.items():
        if choice.after is not None:
            yield at(choice.after, f"choice {index} goes on after its finish_reason")


@RULES(84, "p_echo", "E", Need.REQUEST)
def p_echo(case: Case) -> Iterator[Finding]:
    """With echo the text of each choice begins with its prompt; without, the server does not repeat the prompt."""
    prompts = prompts_of(case.request)
    each = _of_each(case.request)
    for index, choice in case.reading.view(View).choices.items():
        prompt = prompts[index // each] if 0 <= index < len(prompts) * each else None
        if not prompt:
            continue
        if case.request.get("echo") is True:
            text = "".join(choice.texts)
            if not text.startswith(prompt) and (choice.finish or not prompt.startswith(text)):
                yield at(choice.entries[0][0], f"choice {index} begins {shown(text[: len(prompt)])}", shown(prompt))
        elif choice.texts and choice.texts[0].startswith(prompt):
            yield from _repeated(index, choice, prompt)


def _repeated(index: int, choice: Choice, prompt: str) -> Iterator[Finding]:
    """No model wrote what has no logprob; what came in one piece longer than a token, likely none."""
    event, entry = choice.entries[0]
    sure = array(obj(entry.get("logprobs")).get("token_logprobs"))[:1] == [None]
    if sure or (len(choice.texts) > 1 and len(prompt.split()) > 3):
        yield at(event, f"choice {index} repeats {shown(prompt)}", severity="E" if sure else "W")


@RULES(85, "p_lp", "E")
def p_lp(case: Case) -> Iterator[Finding]:
    """The four logprob arrays are equally long; values are from -9999 to 0, null only for the first token of an echoed
    prompt."""
    known = case.evidence.request is not None
    for choice in case.reading.view(View).choices.values():
        first = not known or case.request.get("echo") is True
        for event, entry in choice.entries:
            logprobs = entry.get("logprobs")
            if logprobs is None:
                continue
            if not isinstance(logprobs, dict):
                yield at(event, f"logprobs {shown(logprobs)}", "an object or null")
                continue
            found = obj(logprobs)
            yield from _arrays(event, found)
            yield from _values(event, array(found.get("token_logprobs")), first)
            first = first and not array(found.get("tokens"))


def _arrays(event: Event, logprobs: dict[str, Any]) -> Iterator[Finding]:
    sizes = {name: len(logprobs[name]) if isinstance(logprobs.get(name), list) else None for name in _ARRAYS}
    count = sizes["tokens"]
    for name, size in sizes.items():
        if size is None or size != count:
            # Some servers have no alternatives to show where only the chosen token was asked for.
            bare = name == "top_logprobs" and not logprobs.get(name)
            yield at(event, f"{name} has {size} entries, tokens has {count}", severity="O" if bare else None)
    for token in array(logprobs.get("tokens")):
        if token.__class__ is not str:
            yield at(event, f"token {shown(token)}", "a string")
    for tops in array(logprobs.get("top_logprobs")):
        if tops is not None and not isinstance(tops, dict):
            yield at(event, f"top_logprobs {shown(tops)}", "an object or null")
        for value in obj(tops).values():
            if not _is_logprob(value):
                yield at(event, f"top logprob {shown(value)}")


def _values(event: Event, values: list[Any], first: bool) -> Iterator[Finding]:
    for place, value in enumerate(values):
        if value is None and first and place == 0:
            continue
        if not _is_logprob(value):
            yield at(event, f"token_logprobs[{place}] {shown(value)}")


def _is_logprob(value: Any) -> bool:
    real = number(value)
    return real is not None and _LEAST <= real <= 0


@RULES(86, "p_off", "W")
def p_off(case: Case) -> Iterator[Finding]:
    """text_offset never falls over the whole choice, or is -1 everywhere."""
    for choice in case.reading.view(View).choices.values():
        last = -1
        for event, entry in choice.entries:
            if entry.get("logprobs") is None:
                continue
            for offset in array(obj(entry.get("logprobs")).get("text_offset")):
                if offset.__class__ is not int or offset < last:
                    yield at(event, f"text_offset {shown(offset)} after {last}")
                else:
                    last = offset


@RULES(87, "p_usage", "E", Need.REQUEST)
def p_usage(case: Case) -> Iterator[Finding]:
    """Asked for, and without error, usage comes once, in the last chunk, which has no choices; other chunks have null.
    Not asked for, there is none."""
    view = case.reading.view(View)
    options = obj(case.request.get("stream_options"))
    if options.get("include_usage") is True:
        yield from _usage_chunk(case, view)
        if options.get("continuous_usage_stats") is not True:
            yield from _usage_null(view)
    else:
        for event, _, _ in view.usages:
            yield at(event, "usage that nobody asked for", severity="O")


def _usage_chunk(case: Case, view: View) -> Iterator[Finding]:
    finals = [event for event, _, final in view.usages if final]
    if not finals and not case.failed:
        yield nowhere("no usage chunk")
    for event in finals[1:]:
        yield at(event, "usage again")
    for event in finals[:1]:
        if not case.failed and event is not view.chunks[-1][0]:
            yield at(event, "the usage chunk is not the last one")
        late = [index for index, one in view.choices.items() if one.finish and one.finish.number > event.number]
        if late:
            yield at(event, f"usage before choices {shown(late)} are finished")


def _usage_null(view: View) -> Iterator[Finding]:
    for event, chunk in view.chunks:
        usage = chunk.get("usage")
        if "usage" not in chunk or (usage is not None and chunk.get("choices") != []):
            yield at(event, f"usage {shown(usage)}" if "usage" in chunk else "no usage", "null", "O")


@RULES(88, "p_done", "E")
def p_done(case: Case) -> Iterator[Finding]:
    """The last event is [DONE], the only one."""
    dones = case.reading.view(View).dones
    if not dones:
        if case.ended:
            yield nowhere("no [DONE]")
    elif case.reading.events[-1] is not dones[-1]:
        yield at(case.reading.events[-1], "an event after [DONE]")
    for event in dones[1:]:
        yield at(event, "[DONE] again")


@RULES(89, "p_notools", "E")
def p_notools(case: Case) -> Iterator[Finding]:
    """No delta, message, tool_calls or role: completions have raw text only."""
    view = case.reading.view(View)
    for holders in (view.chunks, view.entries):
        for event, holder in holders:
            if not _CHAT.isdisjoint(holder):
                yield at(event, ", ".join(sorted(_CHAT.intersection(holder))))
