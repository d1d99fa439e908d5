"""pytest_options: what was given to pytest, on its command line or in its ini file, as a plan."""

from __future__ import annotations

import os
from math import inf
from pathlib import Path
from typing import Any

import pytest

from pytest_playhead import OPTIONS, folder
from replay.mass.plan import Plan
from replay.run import RECORDED
from replay.split import parse_splits
from replay.verdict import VERDICTS, Verdict

_FILES = (".py", ".json")
"""How a part of a name ends that is a file."""


def plan(config: pytest.Config) -> tuple[Plan, Verdict]:
    """What to do with each session, and the nearest verdict to ``same`` that fails. Raises UsageError, BadSplit."""
    fields = given(config)
    fail_on = _verdict(fields.pop("fail_on", "changed"))
    if "splits" in fields:
        fields["splits"] = parse_splits(fields["splits"])
    if "compare" in fields or "ignore" in fields:
        fields["layer"] = "message"
    baseline = fields.pop("baseline", RECORDED)
    if baseline != RECORDED:
        fields["against" if baseline.endswith(".json") else "baseline"] = baseline
    return Plan(**fields, cut=config.getoption("playhead_cut") or config.getini("playhead_cut")), fail_on


def given(config: pytest.Config) -> dict[str, Any]:
    """The options that have a value, by the names of a plan; the command line goes before the ini file. Raises
    UsageError."""
    found: dict[str, Any] = {}
    for option in OPTIONS:
        value = config.getoption(option.key)
        if not value:
            value = config.getini(option.key)
            value = [_of_ini(config, option.name, each) for each in ([value] if isinstance(value, str) else value)]
            value = value if option.many else value[0]
        if value:
            found[option.name.replace("-", "_")] = tuple(value) if option.many else value
    if "time_limit" in found:
        found["time_limit"] = _seconds(found["time_limit"])
    return found


def beside(where: Path, name: Any) -> Any:
    """A name of which the files are in this folder: ``file.py:Attr``, ``vllm:FILE.py:NAMES``, ``FILE.json``. What is no
    text is its own."""
    if not isinstance(name, str):
        return name
    return ":".join(str(where / part) if part.endswith(_FILES) else part for part in name.split(":"))


def _of_ini(config: pytest.Config, option: str, value: str) -> str:
    if option not in ("peer-python", "tokenizer") or not value:
        return str(beside(folder(config), value))
    label, equals, path = value.rpartition("=")
    return f"{label}{equals}{folder(config) / os.path.expanduser(path)}"


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < inf:
        raise pytest.UsageError(f"playhead: a time limit of {text!r}: give seconds, above 0")
    return seconds


def _verdict(name: str) -> Verdict:
    for verdict in VERDICTS[1:]:
        if verdict == name:
            return verdict
    raise pytest.UsageError(f"playhead: there is no verdict {name!r} to fail on: use {', '.join(VERDICTS[1:])}")
