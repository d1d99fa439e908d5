"""Who looks at a relayed session where nobody was named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from store import open_store
from tests.support.captures import PATHS, captures
from tests.support.playback import playback
from tests.support.proxies import post, proxied
from tests.support.server import IDLE_PATIENCE, eventually

NAME = "vllm_plain-completions_logprobs"


@pytest.mark.parametrize(("options", "looked"), [((), 1), (("--shadow", "none"), 0)], ids=["default", "none"])
def test_the_models_own_format_unless_none(tmp_path: Path, options: tuple[str, ...], looked: int) -> None:
    """What waits is done before a stop, so that what is not there then was not to be. Where it is to be there, it is
    waited for: on a busy machine a stop may leave too little time."""
    with playback(NAME) as upstream, proxied(tmp_path, upstream.address, *options) as running:
        assert post(running.address, PATHS["completions"], json.dumps(captures()[NAME].request).encode()).status == 200
        if looked:
            eventually(lambda: any(info.shadows for info in running.sessions()) or None, IDLE_PATIENCE)
    store = open_store(str(running.store), create=False)
    try:
        [info] = store.sessions()
    finally:
        store.close()
    assert len(info.shadows) == looked
    assert set(info.shadows.values()) <= {"same"}
