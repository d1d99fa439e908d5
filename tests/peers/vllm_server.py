"""The real vLLM server on a CPU, but for its engine's core: scheduler and model, in whose place a script plays.

Real are ``vllm serve``, the chat template, AsyncLLM, the input and output processors, the detokenizer with its stop
strings, the log probabilities' processor, the parsers and the serializer. Ends of turn and the limit of tokens are
checked by vLLM's own ``check_stop``. The values of log probabilities are made up.

It runs under the peers' own Python (``tests.peers.setup``), with vLLM's command line. The variables PEER_SCRIPT and
PEER_LOG name the files of ``tests.peers.script``.
"""

from __future__ import annotations

import asyncio
import os
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

for _name, _value in {"VLLM_TARGET_DEVICE": "cpu", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}.items():
    os.environ.setdefault(_name, _value)
sys.path.insert(0, str(Path(__file__).parent))
script: Any = import_module("script")
core: Any = import_module("vllm.v1.engine")
client: Any = import_module("vllm.v1.engine.core_client")
requests: Any = import_module("vllm.v1.request")
stopping: Any = import_module("vllm.v1.core.sched.utils")
np: Any = import_module("numpy")


class ScriptedCore:
    """In the place of vLLM's ``AsyncMPClient``, which speaks to the engine's process."""

    def __init__(self, config: Any) -> None:
        self.vllm_config = config
        self.resources = SimpleNamespace(engine_dead=False)
        self.engine_ranks_managed = [0]
        self.longest: int = config.model_config.max_model_len
        self.outputs: asyncio.Queue[Any] = asyncio.Queue()
        self.playing: dict[str, asyncio.Task[None]] = {}
        self.began = 0

    # What AsyncLLM asks of it.

    def shutdown(self, timeout: float | None = None) -> None:
        """Nothing runs."""

    def dp_engines_running(self) -> bool:
        """One engine, always there."""
        return True

    async def get_supported_tasks_async(self) -> tuple[str, ...]:
        """It generates."""
        return ("generate",)

    async def reset_mm_cache_async(self) -> None:
        """There are no pictures."""

    async def get_weight_version_async(self) -> str:
        """There are no weights."""
        return "default"

    async def get_output_async(self) -> Any:
        """What was played."""
        output = await self.outputs.get()
        if isinstance(output, Exception):
            raise output
        return output

    async def abort_requests_async(self, names: list[str]) -> None:
        """Stop playing."""
        for name in names:
            script.log(aborted=name)
            task = self.playing.pop(name, None)
            if task is not None:
                task.cancel()

    async def add_request_async(self, asked: Any) -> None:
        """Play the script of this choice. Of n choices each is a request: ``0_NAME``, ``1_NAME`` ..."""
        which = asked.request_id.partition("_")[0]
        choice, delay = script.read(int(which) if which.isdigit() else 0)
        script.log(prompt=list(asked.prompt_token_ids or ()), max_tokens=asked.sampling_params.max_tokens)
        self.playing[asked.request_id] = asyncio.create_task(self.play(asked, choice, delay))

    # The script.

    async def play(self, asked: Any, choice: dict[str, Any], delay: float) -> None:
        """Step by step, until a token ends the output, or the script does."""
        request = requests.Request.from_engine_core_request(asked, None)
        for step in choice["steps"]:
            await asyncio.sleep(delay)
            new: list[int] = []
            stopped = False
            for token in step:
                request.append_output_token_ids(token)
                new.append(token)
                if stopping.check_stop(request, self.longest):
                    stopped = True
                    break
            script.log(step=new)
            finish = request.get_finished_reason() if stopped else None
            self.give(asked, new, finish_reason=finish, stop_reason=request.stop_reason)
            if stopped:
                self.playing.pop(asked.request_id, None)
                return
        await asyncio.sleep(delay)
        match choice.get("end"):
            case "error":
                self.give(asked, [], finish_reason=core.FinishReason.ERROR)
            case "abort":
                self.give(asked, [], finish_reason=core.FinishReason.ABORT)
            case "raise":
                self.outputs.put_nowait(RuntimeError("an illegal memory access was encountered"))
            case _:
                pass

    def give(self, asked: Any, new: list[int], **how: Any) -> None:
        """One step's tokens."""
        probabilities = self.logprobs(asked.sampling_params.logprobs, new)
        output = core.EngineCoreOutput(
            request_id=asked.request_id, new_token_ids=new, new_logprobs=probabilities, **how
        )
        self.outputs.put_nowait(core.EngineCoreOutputs(outputs=[output]))

    @staticmethod
    def logprobs(wanted: int | None, new: list[int]) -> Any:
        """The first column is the token that was taken, the others are the likeliest, best first."""
        if wanted is None or not new:
            return None
        ids = np.array([[token, *(token + 17 * rank for rank in range(wanted))] for token in new], dtype=np.int64)
        best = np.array([[-0.1, *(-0.1 - 1.5 * rank for rank in range(wanted))] for _ in new], dtype=np.float32)
        lists = import_module("vllm.v1.outputs").LogprobsLists
        return lists(ids, best, np.ones(len(new), dtype=np.int64), None)


def main() -> None:
    """Serve."""

    def made(vllm_config: Any, *_: Any, **__: Any) -> ScriptedCore:
        return ScriptedCore(vllm_config)

    executor: Any = import_module("vllm.v1.executor").Executor
    client.EngineCoreClient.make_async_mp_client = staticmethod(made)
    executor.get_class = staticmethod(lambda *_: executor)  # never instantiated
    import_module("vllm.entrypoints.launchers.api_server.entry").main()


if __name__ == "__main__":
    main()
