"""What must not be kept: credentials anywhere, texts in the log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from store import open_store, trace
from tests.support.server import serve

KEY = "sk-live-0123456789"
PROMPT = "my diagnosis is confidential"
USER = "patient-4711"
ANSWER = "the answer is private too"


def test_no_credentials_in_the_store_and_no_texts_in_the_log(tmp_path: Path) -> None:
    headers = {"authorization": f"Bearer {KEY}", "x-api-key": KEY, "cookie": f"session={KEY}"}
    body: dict[str, Any] = {"messages": [{"role": "user", "content": PROMPT}], "user": USER}
    script = ["It says: ", ANSWER, {"fail": "out of memory"}]
    with serve(tmp_path, script=script, traceback=True) as running:

        def post(**fields: Any) -> str:
            content = fields.pop("content", None) or json.dumps({**body, **fields})
            sent = headers | {"content-type": "application/json"}
            return running.http.post("/v1/chat/completions", content=content, headers=sent).text

        assert ANSWER in post(max_tokens=2)
        assert ANSWER in post(stream=True)  # the engine fails in its middle
        assert "error" in post(temperature=PROMPT)
        assert "error" in post(model=PROMPT)
        assert "error" in post(content=f'{{"messages": "{PROMPT}')
    log = running.log.read_text() + running.said
    assert "the engine failed" in log
    for text in (KEY, PROMPT, ANSWER, USER):
        assert text not in log
    store = open_store(str(running.store), create=False)
    found = [store.load(info.session) for info in store.sessions()]
    store.close()
    assert len(found) == 2
    for one in found:
        assert one.opening.headers == {}
        text = trace.dumps(one).decode()
        assert KEY not in text
        # What a replay needs is there.
        assert PROMPT in text
