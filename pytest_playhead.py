"""pytest_playhead: recorded sessions as tests. This is the door by which pytest comes in; behind it is
``replay.pytest_plugin``.

pytest imports this module whenever it starts. So it imports nothing of Playhead until a session is to be replayed, and
its name is one that no other project has: where ``replay`` or ``store`` are packages of somebody else's, their tests
run as if Playhead were not installed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from replay.pytest_plugin import Replayed


class Option(NamedTuple):
    """An option of ``playhead replay`` with a value; here ``--playhead-NAME``, and ``playhead_NAME`` in the ini file.
    ``many``: may be repeated."""

    name: str
    metavar: str
    help: str
    many: bool = False

    @property
    def key(self) -> str:
        """Its name among pytest's options, and in the ini file."""
        return f"playhead_{self.name.replace('-', '_')}"


OPTIONS = (
    Option("parser", "P", "A catalog name, auto, file.py:Attr, package.module:Attr, or another engine's: vllm:NAME, "
           "sglang:NAME, template, openai_harmony. Default: the recorded one."),
    Option("baseline", "B", "What to compare with: recorded (the default), another parser, or FILE.json, the report of "
           "an earlier playhead replay."),
    Option("splits", "S", "How the recorded tokens are grouped, joined by commas: recorded (the default), one, token, "
           "rand:SEED:MAX ..."),
    Option("layer", "L", "How deep to compare: message, semantic, chunk, frame (the default)."),
    Option("track", "T", "The track to compare with: served, upstream, shadow:P. Default: what the client got."),
    Option("compare", "F", "file.py:function that finds the differences of messages, in place of the built-in "
           "comparison."),
    Option("ignore", "F", "file.py:function that tells whether a difference is left out; may be repeated.", many=True),
    Option("fail-on", "V", "The nearest verdict to same that fails a test: uncompared, rechunked, moved, restyled, "
           "changed (the default), failed."),
    Option("time-limit", "S", "Seconds that a session may take in another engine's parser. Default: 60."),
    Option("peer-python", "PATH", "The Python that runs other engines' parsers; LABEL=PATH is that of "
           "vllm@LABEL:NAME; may be repeated.", many=True),
    Option("tokenizer", "PATH", "A tokenizer for other engines' parsers that need a real one."),
)  # fmt: skip


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options, and the same in the ini file."""
    group = parser.getgroup("playhead", "recorded sessions, replayed (each also as playhead_… in the ini file)")
    group.addoption(
        "--playhead", action="append", default=[], metavar="SOURCE", dest="playhead_sources",
        help="Replay the sessions of this store, trace file, or folder of them: each is a test. Without other "
        "arguments nothing else is run; may be repeated.",
    )  # fmt: skip
    parser.addini("playhead_sources", "stores, trace files and folders of them: each session is a test", "linelist")
    for option in OPTIONS:
        group.addoption(
            f"--playhead-{option.name}", action="append" if option.many else "store", default=[] if option.many else "",
            metavar=option.metavar, dest=option.key, help=option.help,
        )  # fmt: skip
        if option.many:
            parser.addini(option.key, option.help, "linelist")
        else:
            parser.addini(option.key, option.help, "string")
    cut = "Also end every session early, at each of its tokens."
    group.addoption("--playhead-cut", action="store_true", dest="playhead_cut", help=cut)
    parser.addini("playhead_cut", cut, "bool", False)


def pytest_configure(config: pytest.Config) -> None:
    """Sources are arguments: those of the command line always, those of the ini file where there are no others."""
    config.addinivalue_line("markers", "playhead: a recorded session, replayed")
    _check_spelling(config)
    wanted = _typed(config)
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        if any(each.split("=")[0] == "--playhead" for each in config.invocation_params.args):
            # Not where it is in addopts: a setting must not hide the tests.
            config.args.clear()
            config.args_source = pytest.Config.ArgsSource.ARGS
        else:
            wanted += _of_ini(config)
    for source in wanted:
        if not _meets(config, source):
            config.args.append(source)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Load Playhead, if a session is to be replayed."""
    config = session.config
    sources = dict.fromkeys([*_typed(config), *_of_ini(config)])
    wanted = [source for source in sources if _meets(config, source)]
    if wanted:
        from replay.pytest_plugin import Lab

        config.pluginmanager.register(Lab(config, wanted), "playhead-lab")


@pytest.fixture(scope="session")
def replayed(pytestconfig: pytest.Config) -> Iterator[Replayed]:
    """Replay recorded sessions: replayed("traces", parser="my_parser.py:Parser", ignore=[rule]) gives a list of
    replay.SessionResult. Arguments are those of replay.Replayer."""
    from replay.pytest_plugin import Replayed

    found = Replayed(pytestconfig)
    yield found
    found.close()


def folder(config: pytest.Config) -> Path:
    """What paths in the ini file are relative to."""
    return config.rootpath if config.inipath is None else config.inipath.parent


def _check_spelling(config: pytest.Config) -> None:
    """pytest looks for the project, and its ini file, where any path of the command line is; a value behind ``=`` is
    none. Raises UsageError where another project was found, or none."""
    here = str(config.invocation_params.dir)
    if config.inipath is not None and _within(here, str(config.inipath.parent)):
        return
    for option, value in pairwise(config.invocation_params.args):
        if option.startswith("--playhead") and "=" not in option and option != "--playhead-cut":
            path = os.path.join(here, value)
            if os.path.exists(path) and not _within(path, here):
                raise pytest.UsageError(
                    f"playhead: write {option}={value}: behind a space, pytest takes it for a place of the project, "
                    "and does not find the ini file"
                )


def _within(path: str, folder: str) -> bool:
    path, folder = os.path.realpath(path), os.path.realpath(folder)
    return os.path.commonpath([path, folder]) == folder


def _typed(config: pytest.Config) -> list[str]:
    found: list[str] = config.option.playhead_sources
    return [os.path.join(config.invocation_params.dir, each) for each in found]


def _of_ini(config: pytest.Config) -> list[str]:
    return [os.path.join(folder(config), each) for each in config.getini("playhead_sources")]


def _meets(config: pytest.Config, source: str) -> bool:
    """An argument is the source, in it, or a folder that it is in."""
    named = [os.path.join(config.invocation_params.dir, each.split("::")[0]) for each in config.args]
    return any(_within(source, each) or _within(each, source) for each in named)
