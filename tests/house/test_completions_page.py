"""The example of docs/completions.md is what the server sends."""

from __future__ import annotations

import re

import pytest

from pipeline.engines.scripted import ScriptedEngine
from tests.support.asgi import Exchange, serving
from tests.support.tree import ROOT

pytestmark = pytest.mark.anyio


async def test_the_example_is_what_the_server_sends() -> None:
    page = (ROOT / "docs/completions.md").read_text()
    [body] = re.findall(r"^```json\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    [stream] = re.findall(r"^```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    async with serving(engine=ScriptedEngine()) as server:
        made = (await Exchange(body.encode(), path="/v1/completions").run(server)).body.decode()
    assert re.sub(r'"created":\d+', '"created":0', re.sub(r"cmpl-[0-9a-f]+", "cmpl-ID", made)) == stream
