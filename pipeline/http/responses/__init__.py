"""The state of the Responses API, out of the log: stored responses, conversations, what runs in the background.

There is no other store than the log. A response is found by its id, which has its session's in it; what was said before
is read from the sessions that said it; a conversation is the sessions that name it.
"""

from __future__ import annotations

from starlette.routing import Route

from pipeline.http.responses import counting
from pipeline.http.responses.conversations import Conversations
from pipeline.http.responses.create import ALONE, Turn, alone, begun, turn
from pipeline.http.responses.endpoints import Responses
from pipeline.http.responses.state import Answer, State, unreadable

__all__ = ["ALONE", "State", "Turn", "alone", "begun", "counting", "routes", "turn", "unreadable"]


def routes(state: State) -> list[Route]:
    """The routes of what is stored, for any host whose responses are our own."""
    responses, conversations = Responses(state), Conversations(state)
    one, said = "/v1/responses/{response}", "/v1/conversations/{conversation}"
    return [
        Route(one, Answer(responses.retrieve), methods=["GET"]),
        Route(one, Answer(responses.delete), methods=["DELETE"]),
        Route(f"{one}/cancel", Answer(responses.cancel), methods=["POST"]),
        Route(f"{one}/input_items", Answer(responses.input_items), methods=["GET"]),
        Route("/v1/conversations", Answer(conversations.create), methods=["POST"]),
        Route(said, Answer(conversations.retrieve), methods=["GET"]),
        Route(said, Answer(conversations.update), methods=["POST"]),
        Route(said, Answer(conversations.delete), methods=["DELETE"]),
        Route(f"{said}/items", Answer(conversations.items), methods=["GET"]),
        Route(f"{said}/items", Answer(conversations.add), methods=["POST"]),
        Route(f"{said}/items/{{item}}", Answer(conversations.item), methods=["GET"]),
        Route(f"{said}/items/{{item}}", Answer(conversations.remove), methods=["DELETE"]),
    ]
