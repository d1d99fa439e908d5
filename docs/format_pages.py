"""The pages of docs/formats/: one for each grammar, from the tables and docstrings of the formats and their engines."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final

from docs.prose import MADE, documented_members, drawing, prose
from docs.state_tables import call_table, code, text_table
from stages.parse.format import Calls, Format, Reasoning
from stages.parse.formats import FORMATS
from stages.parse.modes import Mode
from stages.parse.reasonings import REASONINGS

_ENGINES: Final = "stages.parse.engines"
_NONE: Final = "none"
_START: Final = "<!-- formats -->"
_END: Final = "<!-- end of formats -->"
HERE: Final = Path(__file__).parent


@dataclass(frozen=True)
class Grammar:
    """A page. ``words``: what its formats have as ``Format.grammar``. ``folded``, ``classes``: see ``call_table``."""

    file: str
    title: str
    words: tuple[str, ...]
    folded: tuple[str, ...] = ()
    classes: bool = False

    @property
    def formats(self) -> list[Format]:
        """Its formats, in the catalog's order."""
        return [form for form in FORMATS if form.grammar in self.words]


_JSON: Final = ("call: json: ", "call: object: ")
GRAMMARS: Final = (
    Grammar(
        "json-objects.md", "JSON objects",
        ("tagged JSON objects", "bare JSON objects", "marked JSON objects", "marked JSON object"),
    ),
    Grammar("json-arrays.md", "JSON arrays", ("JSON array", "bare JSON array")),
    Grammar(
        "header-and-json.md", "Header and JSON",
        ("header and JSON", "header and JSON, or an array of JSON objects"), folded=_JSON,
    ),
    Grammar("xml-parameters.md", "XML parameters", ("XML parameters",), folded=("call: json: ", "call: trial: ")),
    Grammar("typed-xml.md", "Typed XML and elements", ("typed XML", "typed elements"), folded=_JSON),
    Grammar(
        "key-value-tags.md", "Key/value tags",
        ("key/value tags", "tagged JSON objects or key/value tags", "key/value tags or tagged JSON objects"),
        folded=("call: json: ", "call: trial: "),
    ),
    Grammar("pythonic.md", "Pythonic calls", ("pythonic calls",), folded=_JSON, classes=True),
    Grammar("braces.md", "Brace notation", ("brace notation",)),
    Grammar("nested-xml.md", "Nested XML", ("nested namespaced XML",)),
)  # fmt: skip
CHANNELS: Final = Grammar("channels.md", "Channel messages", ("channel messages",))
REASONING: Final = Grammar("reasoning.md", "Reasoning, and text outside calls", ("text", "reasoning tags"))


def format_pages() -> dict[str, str]:
    """File name to text."""
    pages = {grammar.file: _grammar_page(grammar) for grammar in GRAMMARS}
    pages |= {CHANNELS.file: _channels_page(), REASONING.file: _reasoning_page(), "index.md": _index_page()}
    listed = [form.name for grammar in (*GRAMMARS, CHANNELS, REASONING) for form in grammar.formats]
    assert sorted(listed) == sorted(form.name for form in FORMATS), "a format's grammar has no page"
    return {f"formats/{name}": text for name, text in sorted(pages.items())}


# --- docstrings -----------------------------------------------------------------------------------------------------


def _docstring(module: ModuleType) -> tuple[str, list[str]]:
    """A module's first line, and the rest as Markdown."""
    first, *others = inspect.cleandoc(module.__doc__ or "").split("\n\n")
    lines: list[str] = []
    fenced = False
    for text in others:
        drawn = "::=" in text or text.startswith("    ") or re.search(r"\S {3,}\S", text) is not None
        if drawn and fenced:
            lines[-2:] = ["", *drawing(text)[1:], ""]
        else:
            lines += [*(drawing(text) if drawn else [prose(text)]), ""]
        fenced = drawn
    return prose(first), lines


def _engines(formats: Iterable[Format]) -> list[ModuleType]:
    """The modules of the engines that these formats use, and those that their docstrings name."""
    found: dict[str, ModuleType] = {}

    def add(module: ModuleType) -> None:
        if module.__name__ in found or not re.search("::=|\n\n", module.__doc__ or ""):
            return
        found[module.__name__] = module
        for name in re.findall(r"``(\w+)``", module.__doc__ or ""):
            if f"{_ENGINES}.{name}" in sys.modules:
                add(import_module(f"{_ENGINES}.{name}"))

    for form in formats:
        for value in vars(_module(form)).values():
            if isinstance(value, type) and value.__module__.startswith(_ENGINES) and hasattr(value, "feed"):
                add(sys.modules[value.__module__])
    return [*found.values()]


def _module(form: Format) -> ModuleType:
    """The file of formats/ that has it."""
    for name, module in sys.modules.items():
        if name.startswith("stages.parse.formats.") and any(value is form for value in vars(module).values()):
            return module
    raise LookupError(form.name)


def _source(module: ModuleType, up: str = "../..") -> str:
    path = module.__name__.replace(".", "/") + ".py"
    return f"[`{path}`]({up}/{path})"


# --- tables of formats ----------------------------------------------------------------------------------------------


def _families(formats: list[Format]) -> Iterator[str]:
    """A section for each file of formats: its docstring and its formats."""
    modules = dict.fromkeys(map(_module, formats))
    for module in modules:
        here = [form for form in formats if _module(form) is module]
        first, lines = _docstring(module)
        yield from (f"### {', '.join(form.name for form in here)}", "", f"{first} {_source(module)}", "", *lines)
        yield "| name | models | stage | reasoning | output begins in | behind the calls | ends of turn |"
        yield "|---|---|---|---|---|---|---|"
        for form in here:
            yield f"| {' | '.join(_cells(form))} |"
        yield ""


def _cells(form: Format) -> list[str]:
    names = [f"**{form.name}**", *map(code, form.aliases)]
    enders = " ".join(map(code, form.enders)) or _NONE
    models = ", ".join(form.models).replace("<", "&lt;")
    behind = "messages go on" if form.channels is not None else _behind(form.calls)
    return [", ".join(names), models, code(form.id), _reasons(form), _begins(form), behind, enders]


def _reasons(form: Format) -> str:
    table = form.reasoning
    if form.channels is not None:
        return "messages of their own"
    if table is None:
        return _NONE
    if table.prefix:
        return f"content, behind {code(table.prefix)}"
    if not table.openers:
        return f"all up to {_codes(table.closers)}"
    return f"{_codes(table.openers)} to {_codes(table.closers)}"


def _codes(literals: Iterable[str]) -> str:
    return ", ".join(map(code, literals))


def _begins(form: Format) -> str:
    table = form.reasoning
    if form.channels is not None:
        return "a header"
    if table is None or not (table.openers or table.closers):
        return "content"
    return _inside(table)


def _inside(table: Reasoning) -> str:
    if not table.inside:
        return "what the prompt says; else content"
    return "what the prompt says; else reasoning" if table.openers else "reasoning, unless the prompt closed it"


def _behind(calls: Calls | None) -> str:
    if calls is None:
        return _NONE
    return {False: "content", True: "nothing is output", "text": "text is dropped, other blocks are read"}[calls.drop]


# --- pages ----------------------------------------------------------------------------------------------------------


_DRAWN: Final = (
    "Drawn by running the parser over generated outputs and the worked examples of these formats "
    "([how to read it](index.md#state-tables))."
)


def _grammar_page(grammar: Grammar) -> str:
    names = [form.name for form in grammar.formats]
    states = ["## States", "", _DRAWN, "", *call_table(names, grammar.folded, classes=grammar.classes), ""]
    described = ["## Grammar", "", *_described(grammar)]
    return _page(grammar.title, [*described, *states, "## Formats", "", *_families(grammar.formats)])


def _described(grammar: Grammar) -> Iterator[str]:
    """The grammars of the engines: here, or where they are at home."""
    for module in _engines(grammar.formats):
        home = next(page for page in (*GRAMMARS, CHANNELS) if module in _engines(page.formats))
        first, lines = _docstring(module)
        if home is grammar:
            yield from (f"**{first}** {_source(module)}", "", *lines)
        else:
            yield from (f"{first} See [{home.title}]({home.file}).", "")


def _page(title: str, lines: Iterable[str]) -> str:
    text = "\n".join([MADE, f"# {title}", "", *lines]).rstrip()
    return f"{text}\n"


def _channels_page() -> str:
    module = import_module("stages.parse.channels")
    first, lines = _docstring(module)
    formats = CHANNELS.formats
    return _page(
        CHANNELS.title,
        [
            "## Grammar", "", f"**{first}** {_source(module)}", "", *lines, "## States", "", _DRAWN,
            "`call` is one state here: which engine reads the body of a call is said below.", "",
            *text_table((form.name for form in formats), calls=True), "",
            "## Bodies of calls", "", *_described(CHANNELS), "## Formats", "", *_families(formats),
        ],
    )  # fmt: skip


def _reasoning_page() -> str:
    module = import_module("stages.parse.reasonings")
    first, lines = _docstring(module)
    scanner, drawn = _docstring(import_module("stages.parse.scanner"))
    names = [form.name for form in FORMATS if form.channels is None]
    states = text_table(names, calls=False)
    return _page(
        REASONING.title,
        [
            f"**{first}** {_source(module)}", "", *lines, *_PAIRS, "", "## Tables", "", *_field_docs(), *_reasonings(),
            "## Grammar outside calls", "", f"**{scanner}** [`stages/parse/scanner.py`](../../stages/parse/scanner.py)",
            "", *drawn, "## States", "", *_modes(), _DRAWN,
            "Literals are told by what they are to their format, and `call` is one state.", "", *states, "",
            "## Formats", "", *_families(REASONING.formats),
        ],
    )  # fmt: skip


_PAIRS: Final = """\
## Pairs

`--parser deepseek_r1+hermes` is the reasoning of the first name with the calls of the second. The first is a name of
the table below, or a format; then its reasoning is meant. The second is a format; nothing of it but its own reasoning
is replaced. The stage id has both names: `parse.deepseek_r1+hermes@2`. The number rises when either changes.
""".splitlines()


def _field_docs() -> list[str]:
    """What the columns mean."""
    text = inspect.cleandoc(Reasoning.__doc__ or "").partition("\n\n")[2]
    return [f"The columns are fields of `Reasoning` (`stages/parse/format.py`). {prose(text)}", ""]


def _reasonings() -> Iterator[str]:
    yield "| names | openers | closers | output begins in | trim | again | calls | stray | others |"
    yield "|---|---|---|---|---|---|---|---|---|"
    tables: dict[Reasoning, list[str]] = {}
    for name, table in REASONINGS.items():
        tables.setdefault(table, []).append(name)
    for table, names in tables.items():
        cells = [
            _codes(names), _codes(table.openers) or _NONE, _codes(table.closers) or _NONE,
            _inside(table) if table.closers else "content", table.trim, "yes" if table.again else _NONE, table.calls,
            table.stray, _others(table),
        ]  # fmt: skip
        yield f"| {' | '.join(cells)} |"
    yield ""


def _others(table: Reasoning) -> str:
    said = ["label"] if table.label else []
    if table.wrapper:
        said.append(f"wrapper {_codes(table.wrapper)}")
    if table.prefix:
        said.append(f"prefix {code(table.prefix)}")
    return ", ".join(said) or _NONE


def _modes() -> Iterator[str]:
    yield from ("| state | what it is |", "|---|---|")
    for name, text in documented_members(Mode).items():
        yield f"| {name.lower()} | {text.replace('|', chr(92) + '|')} |"
    yield ""


_TAG = re.compile("<[^>]+>")


def _quoted(tag: re.Match[str]) -> str:
    return f"`{tag.group()}`"


def _index_page() -> str:
    """The page as it stands, with a new table of formats in it."""
    rows = [
        f"| [{grammar.title}]({grammar.file}) | {', '.join(form.name for form in grammar.formats)} |"
        for grammar in (*GRAMMARS, CHANNELS, REASONING)
    ]
    models = [
        f"| {_TAG.sub(_quoted, ', '.join(form.models))} | {code(form.name)} | {_codes(form.aliases) or _NONE} |"
        for grammar in (*GRAMMARS, CHANNELS, REASONING)
        for form in grammar.formats
    ]
    before, start, rest = (HERE / "formats/index.md").read_text().partition(_START)
    _, end, after = rest.partition(_END)
    assert start and end, "docs/formats/index.md has no place for its table"
    table = ["", "", "| grammar | formats |", "|---|---|", *rows, ""]
    table += ["| models | name | aliases |", "|---|---|---|", *models, "", ""]
    return "".join((before, start, "\n".join(table), end, after))
