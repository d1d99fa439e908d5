"""The model and its tokenizer, as the loop sees them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Sequence

import torch

from pipeline.engines.base import Conversation, EngineRequest
from pipeline.engines.hf.model import Model
from pipeline.engines.hf.work import Work
from pipeline.engines.prompt import Prepared, prepare, render
from stages.constraint import Constraint
from stages.errors import RequestError


class Backend(Model):
    """A model that requests are admitted to."""

    def prepare(self, request: EngineRequest) -> list[Prepared]:
        """See Backend."""
        if request.constraint is not None and request.sampling.ignore_eos:
            raise RequestError("not together with tools or formats that the output is held to", param="ignore_eos")
        with self.tokenizing:
            return prepare(
                self._tokenizer, request, self.facts, pieces=self.pieces, vocabulary=self._vocabulary,
                context=self.context,
            )  # fmt: skip

    def hold(self, constraint: Constraint, prompts: Sequence[Prepared], wanted: Callable[[], bool]) -> list[Prepared]:
        """See Backend."""
        return [
            # Forced tokens are what a test wants to see; the rest of its output is an end.
            prepared if prepared.forced is not None
            else prepared._replace(held=self.grammars.compiled(constraint.after(prepared.prompt.tail), wanted))
            for prepared in prompts
        ]  # fmt: skip

    def count(self, conversation: Conversation) -> int:
        """Tokens of a conversation's prompt. Raises RequestError."""
        with self.tokenizing:
            return len(render(self._tokenizer, conversation, self.facts).ids)

    @contextlib.contextmanager
    def attached(self) -> Generator[None]:
        """See Backend. Both settings belong to the calling thread."""
        torch.set_num_threads(self.threads)
        with torch.inference_mode():
            yield

    def begin(self, request: EngineRequest, prepared: Prepared) -> Work:
        """See Backend."""
        return Work(self, request, prepared)
