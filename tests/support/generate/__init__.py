"""Generators: valid output of every grammar from a random message. ``family.py`` says how to add one."""

from __future__ import annotations

from importlib import import_module

from tests.support.generate.family import Family

MODULES: tuple[str, ...] = (
    "plain",
    "think",
    "hermes",
    "header_json",
    "harmony",
    "json_arrays",
    "json_bare",
    "json_cohere",
    "pythonic",
    "brace",
    "xml_schema",
    "xml_typed",
    "kv_tags",
    "nested_xml",
    "kimi_k3",
    "messages",
    "cofl",
)
"""The modules of this package that have ``FAMILIES``, in order."""


def families(*modules: str) -> tuple[Family, ...]:
    """The families of these modules; of all, where none is named. A module is only imported when it is asked for."""
    found: list[Family] = []
    for name in modules or MODULES:
        found += import_module(f"{__name__}.{name}").FAMILIES
    return tuple(found)
