"""ChatView: a chat completion stream, digested once for all rules of the protocol."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias

from stages.protocols.rules.chat_choice import ABSENT, ChatChoice, Object, Seen
from stages.protocols.rules.reading import Event, Reading
from stages.protocols.rules.said import Kind, Said, SaidUsage
from stages.protocols.rules.values import array, integer, obj

UsageState: TypeAlias = Literal["absent", "null", "there"]
_Sink: TypeAlias = tuple[ChatChoice, Kind, int, Sequence[list[str]]]
"""Where the text of a usual delta goes: as in ``ChatChoice.say``, and the lists that it is added to."""


class ChatView:
    """A stream up to its end marker.

    ``envelopes``: ``object``, ``id``, ``created``, ``model`` and ``system_fingerprint``, where any of them changes;
    ``last``: the last chunk; ``named``: events with a name; ``errors``: events with a true ``error``; ``shapeless``:
    chunks whose choices are no array; ``bare``: chunks whose array of choices is empty; ``indexless``: choices whose
    index is no int; ``deltaless``: choices without a delta object; ``unsorted``: chunks whose choices are not in
    order; ``usage``: what is under that key, and whether choices are beside it; ``usages``: where it changes between
    absent and null, and each value; ``prompts``: chunks with prompt ids.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        self.said = Said()
        self.choices: dict[int, ChatChoice] = {}
        self.envelopes: list[tuple[Event, tuple[Any, ...]]] = []
        self.last: Event | None = None
        self.named: list[Event] = []
        self.errors: list[tuple[Event, Object]] = []
        self.shapeless: list[Seen] = []
        self.bare: list[tuple[Event, Object]] = []
        self.indexless: list[Seen] = []
        self.deltaless: list[Seen] = []
        self.unsorted: list[Event] = []
        self.usage: list[tuple[Event, Any, bool]] = []
        self.usages: list[tuple[Event, UsageState]] = []
        self.prompts: list[tuple[Event, Any]] = []
        self._envelope: tuple[Any, ...] | None = None
        self._state: UsageState | None = None
        self._sink: _Sink | None = None
        for event in events:
            if event.said and self._sink is not None:
                self._say(event, event.said, self._sink)
                continue
            self._sink = None
            value = event.value
            if event.name is not None:
                self.named.append(event)
            if isinstance(value, dict):
                if not self.said.terminals:
                    self._chunk(event, value)
            elif event.text == "[DONE]":
                self.said.terminals.append(event)
        for choice in self.choices.values():
            choice.close()

    def _chunk(self, event: Event, chunk: Object) -> None:
        get = chunk.get
        if get("error"):
            self.errors.append((event, chunk))
            self.said.errors.append(event)
            if "usage" in chunk:
                self._mark(event, chunk["usage"])
            return
        again = self._around(event, chunk)
        choices = get("choices", ABSENT)
        if choices.__class__ is list and len(choices) == 1:
            self._choice(event, choices[0])
        else:
            self._choices(event, chunk, choices)
        usage = get("usage", ABSENT)
        if usage is ABSENT:
            if self._state != "absent":
                self._mark(event, ABSENT)
        elif usage is not None or self._state != "null":
            self._mark(event, usage)
            if usage is not None:
                self._add_usage(event, usage, choices)
        if not again or usage not in (ABSENT, None):
            self._sink = None  # of each such chunk something is noted

    def _around(self, event: Event, chunk: Object) -> bool:
        """What is around the choices. Whether there is nothing to note of the next chunk where it is the same."""
        get = chunk.get
        created, ids = get("created"), get("prompt_token_ids")
        envelope = (get("object"), get("id"), created, get("model"), get("system_fingerprint"))
        # Python takes 1.0 for 1.
        if envelope != self._envelope or created.__class__ is float:
            self._envelope = envelope
            self.envelopes.append((event, envelope))
        self.last = event
        if ids is not None:
            self.prompts.append((event, ids))
        return ids is None and created.__class__ is not float

    def _mark(self, event: Event, usage: Any) -> None:
        self._state = "absent" if usage is ABSENT else "null" if usage is None else "there"
        self.usages.append((event, self._state))

    def _add_usage(self, event: Event, usage: Any, choices: Any) -> None:
        some = choices != []
        self.usage.append((event, usage, some))
        if usage.__class__ is not dict:
            return
        counted = usage_of(event, usage, final=not some)
        self.said.usages.append(counted)
        if len(array(choices)) == 1:
            choice = self.choices.get(integer(obj(choices[0]).get("index")) or 0)
            if choice is not None:
                choice.running.append(counted)

    def _choices(self, event: Event, chunk: Object, choices: Any) -> None:
        if choices.__class__ is not list:
            self.shapeless.append(Seen(event, "choices", choices))
            return
        if not choices:
            self.bare.append((event, chunk))
        for item in choices:
            self._choice(event, item)
        indexes = [index for item in choices if (index := integer(obj(item).get("index"))) is not None]
        if indexes != sorted(indexes):
            self.unsorted.append(event)

    def _choice(self, event: Event, item: Any) -> None:
        if item.__class__ is not dict:
            self.deltaless.append(Seen(event, "choices", item))
            return
        get = item.get
        index = get("index", ABSENT)
        if index.__class__ is not int:
            self.indexless.append(Seen(event, "index", index))
            return
        choice = self.choices.get(index)
        if choice is None:
            choice = self.choices[index] = ChatChoice(self.said.choice(index), event, event)
        choice.last = event
        delta = get("delta", ABSENT)
        if delta.__class__ is not dict:
            self.deltaless.append(Seen(event, "delta", delta))
            choice.take(event, item, None)
            return
        if (
            len(delta) <= 2 and choice.begun is not None and not choice.ends
            and get("finish_reason", ABSENT) is None and get("logprobs") is None and get("token_ids") is None
        ):  # fmt: skip
            text, sink = _usual(choice, delta)
            if sink is not None:
                self._sink = sink
                self._say(event, text, sink)
                return
        if not choice.take(event, item, delta):
            self.said.empty.append(event)

    def _say(self, event: Event, text: str, sink: _Sink) -> None:
        choice, kind, call, lists = sink
        self.last = choice.last = event
        for texts in lists:
            texts.append(text)
        choice.say(event, kind, text, call)


_NOT: tuple[str, None] = ("", None)


def _usual(choice: ChatChoice, delta: Object) -> tuple[str, _Sink | None]:
    """The text of a delta that is nothing but text, as nearly all are, and where it goes; None where it is more."""
    text = delta.get("content")
    if text.__class__ is str and text and len(delta) == 1:
        return text, (choice, "content", -1, ())
    text = delta.get("reasoning_content")
    other = delta.get("reasoning", text)
    if text.__class__ is str and text and text == other and len(delta) == ("reasoning" in delta) + 1:
        return text, (choice, "reasoning", -1, choice.names if len(delta) == 2 else choice.names[1:])
    entries = delta.get("tool_calls")
    if len(delta) != 1 or len(array(entries)) != 1:
        return _NOT
    entry = obj(array(entries)[0])
    text = obj(entry.get("function")).get("arguments")
    place = choice.going_on(entry)
    pieces = None if place is None else choice.pieces[place]
    if place is None or pieces is None or text.__class__ is not str or not text:
        return _NOT
    return text, (choice, "arguments", place, (pieces,))


def view(reading: Reading) -> ChatView:
    """A stream, digested; ``reading.view(view)`` does it once."""
    return ChatView(reading.events)


def usage_of(event: Event, usage: Object, *, final: bool = True) -> SaidUsage:
    """Token counts as chat and the older completions have them."""
    return SaidUsage(
        event,
        usage,
        integer(usage.get("prompt_tokens")),
        integer(usage.get("completion_tokens")),
        integer(usage.get("total_tokens")),
        integer(obj(usage.get("prompt_tokens_details")).get("cached_tokens")),
        integer(obj(usage.get("completion_tokens_details")).get("reasoning_tokens")),
        final,
    )
