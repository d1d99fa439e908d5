"""Output of the key/value grammars: ``stages/parse/formats/`` glm, spark, iquest, longcat, hy and k2_horizon have them.

Strings are written raw, all else as JSON. GLM 4.5 writes newlines behind the name and each tag, the others none; here
each output draws one. Models write JSON in the place of the tags now and then, where the family takes it.

Losses: Spark's string ``null`` is null (in any case). Behind a section of Hunyuan nothing is output.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from stages.opening import TokenizerFacts
from stages.parse.format import Format
from stages.parse.formats.glm import GLM, GLM47, LAGUNA, LING3
from stages.parse.formats.hy import HY_V3, HY_V4
from stages.parse.formats.iquest import IQUEST
from stages.parse.formats.k2_horizon import K2_HORIZON
from stages.parse.formats.longcat import LONGCAT
from stages.parse.formats.spark import SPARK
from tests.support.generate.family import Family, json_text, plain
from tests.support.generate.message import Invocation, Limits, Meant, kind_of

GLM_TAGS = (
    "<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<arg_key>",
    "</arg_key>", "<arg_value>", "</arg_value>",
)  # fmt: skip
GLM45 = TokenizerFacts(
    special={"<|endoftext|>": 151329, "<|user|>": 151336, "<|assistant|>": 151337, "<|observation|>": 151338},
    added={tag: 151350 + i for i, tag in enumerate(GLM_TAGS)},
    eos=(151329, 151336, 151338),
)
GLM5 = TokenizerFacts(
    special={"<|endoftext|>": 154820, "<|user|>": 154827, "<|assistant|>": 154828, "<|observation|>": 154829},
    added={tag: 154841 + i for i, tag in enumerate(GLM_TAGS)},
    eos=(154820, 154827, 154829),
)
SPECIAL = TokenizerFacts(special={**GLM45.special, **GLM45.added}, eos=GLM45.eos)
"""A fine-tune whose vocabulary has the tags as special tokens."""
SPELLED = TokenizerFacts(special={"<|endoftext|>": 5}, eos=(5,))
"""A vocabulary without the tags: they are spelled."""


@dataclass(frozen=True)
class Style:
    """How a family writes a call."""

    prefix: str = ""
    suffix: str = ""
    call: str = "tool_call"
    section: bool = False
    name_end: str = ""
    typed: bool = False
    json: bool = False
    object_key: bool = False
    think: str = "think"
    line: bool = True
    """Newlines around reasoning are the template's."""

    def tag(self, name: str) -> tuple[str, str]:
        """A tag and its end."""
        return f"<{self.prefix}{name}{self.suffix}>", f"</{self.prefix}{name}{self.suffix}>"

    def markers(self) -> tuple[str, ...]:
        """All literals."""
        names = [self.call, "arg_key", "arg_value", self.think, *(["tool_calls"] if self.section else [])]
        found = [tag for name in [*names, *(["arg_type"] if self.typed else [])] for tag in self.tag(name)]
        if self.typed:
            found += [tag for effort in ("_fast", "_faster") for tag in self.tag(self.think + effort)]
        return (*found, *([self.tag(self.name_end)[0]] if self.name_end else []))

    def call_text(self, call: Invocation, dice: random.Random, space: str) -> str:
        """One call."""
        opener, closer = self.tag(self.call)
        if self.json and dice.random() < 0.15:
            return f"{opener}{self._json(call, dice)}{closer}"
        pieces = [opener, call.name]
        key, key_end = self.tag("arg_key")
        if self.object_key and dice.random() < 0.2:
            text = json_text(call.arguments, dice)
            if not any(marker in plain(text) for marker in self.markers()):
                return f"{opener}{call.name}{space}{key}{text}{key_end}{space}{closer}"
        if self.name_end:
            pieces.append(self.tag(self.name_end)[0])
        pieces.append(space)
        value, value_end = self.tag("arg_value")
        typed = self.typed and dice.random() < 0.5
        for name, argument in call.arguments.items():
            kind = f"<{self.prefix}arg_type>{kind_of(argument)}</{self.prefix}arg_type>{space}" if typed else ""
            text = argument if isinstance(argument, str) else json_text(argument, dice)
            pieces += f"{key}{name}{key_end}{space}{kind}", f"{value}{text}{value_end}{space}"
        return "".join((*pieces, closer))

    def _json(self, call: Invocation, dice: random.Random) -> str:
        if dice.random() < 0.5:
            return f"{call.name}{json_text(call.arguments, dice)}"
        return f'{{"name": {json_text(call.name, dice)}, "arguments": {json_text(call.arguments, dice)}}}'

    def run(self, calls: list[Invocation], dice: random.Random) -> str:
        """Calls that follow each other."""
        space = dice.choice(("", "", "\n"))
        text = dice.choice(("", "\n")).join(self.call_text(call, dice, space) for call in calls)
        if self.section:
            opener, closer = self.tag("tool_calls")
            return f"{opener}{space}{text}{space}{closer}"
        return text

    def write(self, meant: Meant, dice: random.Random, kind: str) -> str:
        """See Family."""
        opener, closer = self.tag(self.think)
        line = dice.choice(("", "\n")) if self.line else ""
        pieces: list[str] = []
        if kind == "thinking":
            pieces.append(f"{meant.reasoning or ''}{line}{closer}{line}")
        elif meant.reasoning is not None:
            pieces.append(f"{line}{opener}{line}{meant.reasoning}{line}{closer}{line}")
        elif kind == "plain" and dice.random() < 0.1:
            pieces.append(f"{line}{opener}{closer}{line}")
        run: list[Invocation] = []
        for i, part in enumerate(meant.parts):
            if isinstance(part, Invocation):
                run.append(part)
                continue
            if run:
                pieces += self.run(run, dice), dice.choice(("", "\n"))
                run = []
            pieces.append(part)
            if i + 1 < len(meant.parts):
                pieces.append(dice.choice(("", "\n")))
        if run:
            pieces += self.run(run, dice), dice.choice(("", "", "\n"))
        return "".join(pieces)


def _limits(style: Style) -> Limits:
    """A value ends at its end tag; what makes structure of the tags in it may not stand there either."""
    never = [style.tag("arg_value")[1], style.tag("arg_key")[1], style.tag(style.call)[0]]
    if style.section:
        never.append(style.tag("tool_calls")[1])
    return Limits(
        prose_never=style.markers(),
        prose_also=("<tool", "</tool", "<arg", "arg_key>", "<thinking>"),
        strings_never=tuple(never),
    )


def _tails(turn: str, style: Style) -> dict[str, str]:
    opener, closer = style.tag(style.think)
    return {"plain": turn, "thinking": turn + opener, "off": turn + closer, "pair": f"{turn}\n{opener}{closer}"}


def _family(form: Format, tokenizer: TokenizerFacts, style: Style, turn: str, variant: str = "") -> Family:
    tails = _tails(turn, style)
    tails["off"] = tails.pop("pair") if form is GLM else tails["off"]
    tails.pop("pair", None)
    return Family(
        form, tokenizer, style.write, tails, style.markers(), limits=_limits(style), variant=variant,
        streams=form is not K2_HORIZON,
    )  # fmt: skip


def _nulls(meant: Meant, kind: str) -> Meant:
    """Spark's losses."""
    del kind
    parts: list[str | Invocation] = []
    for part in meant.parts:
        if isinstance(part, Invocation):
            found = {
                key: None if isinstance(value, str) and value.lower() == "null" else value
                for key, value in part.arguments.items()
            }
            part = Invocation(part.name, found)
        parts.append(part)
    return Meant(meant.reasoning, tuple(parts))


def _added(style: Style, special: dict[str, int] | None = None) -> TokenizerFacts:
    added = {tag: 1000 + i for i, tag in enumerate(style.markers())}
    return TokenizerFacts(special=special or {"<|endoftext|>": 5}, added=added, eos=(5,))


_TURN = "<|user|>hello<|assistant|>"
_PLAIN = Style(json=True)
_IQUEST = Style(call="iquest_tool_call")
_LONGCAT = Style(prefix="longcat_", json=True, object_key=True)
_HY3 = Style(section=True, name_end="tool_sep")
_HY4 = Style(section=True)
_SUFFIX = replace(_HY4, suffix=":ab12")
_K2 = Style(prefix="ifm|", section=True, typed=True, json=True, line=False)


def _last(family: Family) -> Family:
    """The section ends the output."""
    return replace(family, limits=replace(family.limits, between=False, after=False))


FAMILIES = (
    _family(GLM, GLM45, _PLAIN, _TURN),
    _family(GLM, SPECIAL, _PLAIN, _TURN, "special"),
    _family(GLM, SPELLED, _PLAIN, _TURN, "spelled"),
    _family(GLM47, GLM5, _PLAIN, _TURN),
    _family(LING3, _added(_PLAIN), _PLAIN, "<role>ASSISTANT</role>"),
    _family(LAGUNA, _added(_PLAIN), _PLAIN, "<assistant>\n"),
    replace(_family(SPARK, _added(_PLAIN), _PLAIN, "<Bot>"), expect=_nulls),
    _family(IQUEST, _added(_IQUEST), _IQUEST, "<|im_start|>assistant\n"),
    _family(LONGCAT, _added(_LONGCAT, {"</longcat_s>": 5}), _LONGCAT, "<longcat_assistant>"),
    _last(_family(HY_V3, _added(_HY3), _HY3, "<｜hy_Assistant｜>")),
    _last(_family(HY_V4, _added(_HY4), _HY4, "<｜hy_Assistant｜>")),
    _last(_family(HY_V4, _added(_SUFFIX), _SUFFIX, "<｜hy_Assistant｜>", "suffix")),
    _family(K2_HORIZON, _added(_K2), _K2, "<|im_start|>assistant\n"),
)
