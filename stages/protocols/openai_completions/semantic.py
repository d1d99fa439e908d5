"""The decoder: completion chunks → semantic events. The encoder's way back.

    first sight of a choice   Start
    text                      Content; with logprobs whose first one is null, Echo
    logprobs, token ids       Tokens; -1 for an id that is not told (only entries, or only a running usage that grew)
    finish_reason             Finish
    usage                     TimingInput of each of its metrics, Usage
    an error                  Failure
    Done                      End; before it Failure if a choice has no finish, or a usage that had no chunk of its own
    Tick                      Tick
    End                       the body has ended without Done: Failure (code ``truncated``) and End

A prompt that is told back without logprobs cannot be told from what the model wrote: it is Content. Each choice counts
as a prompt's only one, because what several have in common is told for each of them. ``src`` counts the bytes of the
text.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from stages.events import CommonChunk, Content, Echo, End, Semantic, Start
from stages.opening import Opening
from stages.protocols.openai_chat import CompletionUsage, SharedChoice, SharedDecoder, SharedState
from stages.protocols.openai_completions.chunks import CompletionChunk, TextChoice, TextCompletion
from stages.protocols.openai_completions.logprobs import entries, piece
from stages.stage import Machine

Wire: TypeAlias = CompletionChunk | TextCompletion | CommonChunk | End


class DecoderState(SharedState[SharedChoice]):
    """All that the decoder knows; plain data."""


class _Decoder(SharedDecoder[SharedChoice]):
    """The machine."""

    kind = CompletionChunk

    def _introduce(self, choice: TextChoice, chunk: CompletionChunk, out: list[Semantic]) -> SharedChoice:
        state = self._state.choices[choice.index] = SharedChoice()
        ids = choice.prompt_token_ids or ()
        out.append(Start(choice.index, chunk.usage.prompt_tokens if chunk.usage else len(ids), 0, ids))
        return state

    def _choice(
        self, choice: TextChoice, state: SharedChoice, running: CompletionUsage | None, out: list[Semantic]
    ) -> None:
        told = choice.logprobs
        if told is not None and told.token_logprobs[:1] == (None,):
            others = entries(told)[1:]
            out.append(Echo(choice.index, choice.text, piece(told.tokens[0]), others))
            return
        said = () if told is None else entries(told, choice.token_ids or ())
        self._tokens(choice, said, state, running, out)
        if choice.text:
            start, state.size = state.size, state.size + len(piece(choice.text))
            out.append(Content(choice.index, choice.text, (start, state.size)))
        if choice.finish_reason is not None:
            self._finish(choice, state, out)


class CompletionsDecoder:
    """The stage ``completions.decode@1``, for streams of our own."""

    id = "completions.decode@1"

    def start(self, opening: Opening) -> Machine[Wire, Semantic]:
        """See Stage."""
        return _Decoder(True, DecoderState())

    def resume(self, opening: Opening, snapshot: DecoderState) -> Machine[Wire, Semantic]:
        """See Stage."""
        return _Decoder(True, snapshot)


DECODER: Final = CompletionsDecoder()
