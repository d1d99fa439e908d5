"""Stream an answer from a running server with the official SDK: reasoning, content and tool calls as they come.

    python examples/openai_client.py http://127.0.0.1:8000 "When is high tide in Brest?"

It needs the package openai; the server is ``playhead serve``.

Commands are in ``.venv/bin``: ``. .venv/bin/activate``, or write ``.venv/bin/python``.
"""

import sys
from collections.abc import Iterator
from typing import Any

from openai import APIConnectionError, OpenAI
from openai.types.chat import ChatCompletionFunctionToolParam
from openai.types.chat.chat_completion_chunk import ChoiceDelta

TIDE: ChatCompletionFunctionToolParam = {
    "type": "function",
    "function": {
        "name": "tide",
        "description": "The times of high tide at a port.",
        "parameters": {"type": "object", "properties": {"port": {"type": "string"}}},
    },
}


def pieces(delta: ChoiceDelta) -> Iterator[tuple[str, str | None]]:
    """What a delta adds, and to what."""
    # Reasoning is not among the SDK's own fields.
    yield "reasoning", (delta.model_extra or {}).get("reasoning")
    yield "content", delta.content
    for call in delta.tool_calls or ():
        if call.function is not None:
            if call.function.name:
                yield f"call {call.index}", f"{call.function.name} "
            yield f"call {call.index}", call.function.arguments


def main(address: str, question: str, **extra: Any) -> None:
    """``extra``: fields of the request that the SDK does not know."""
    client = OpenAI(base_url=f"{address}/v1", api_key="none")
    stream = client.chat.completions.create(
        model=client.models.list().data[0].id,
        messages=[{"role": "user", "content": question}],
        tools=[TIDE],
        stream=True,
        extra_body=extra,
    )
    section = ""
    for chunk in stream:
        for choice in chunk.choices:
            for kind, text in pieces(choice.delta):
                if text and kind != section:
                    print(f"\n[{kind}] ", end="")
                    section = kind
                print(text or "", end="", flush=True)
            if choice.finish_reason:
                print(f"\n[{choice.finish_reason}]")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python examples/openai_client.py ADDRESS QUESTION")
    try:
        main(*sys.argv[1:])
    except APIConnectionError:
        sys.exit(f"no server answers at {sys.argv[1]}; start one: playhead serve")
