"""The real SGLang server on a CPU, but for its scheduler: a process that plays a script in the scheduler's place.

Real are the HTTP server, the chat and native endpoints, the TokenizerManager, the DetokenizerManager in its process,
what they say to each other, and the parsers. Ends of turn and the limit of tokens are checked here.

It runs under the peers' own Python (``tests.peers.setup``), with SGLang's command line. The variables PEER_SCRIPT and
PEER_LOG name the files of ``tests.peers.script``.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
import time
from array import array
from collections.abc import MutableSequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
script: Any = import_module("script")


class _Nothing:
    """Stands for whatever a module has that is not here; nothing of it is used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Nothing()

    def __call__(self, *_: Any, **__: Any) -> Any:
        return _Nothing()


class _Module(ModuleType):
    __path__: MutableSequence[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(_Nothing(), name)


class _Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """SGLang imports its CUDA kernels and torchvision wherever it runs; here they would be gigabytes, for nothing."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] in ("torchvision", "sgl_kernel"):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


# It remembers that torchvision is not there, before it seems to be.
import_module("transformers.utils.import_utils").is_torchvision_available()
sys.meta_path.insert(0, _Absent())


class _Request:
    """A request that is answered: what is left of its script."""

    def __init__(self, asked: Any, choice: dict[str, Any], delay: float) -> None:
        self.asked = asked
        self.steps: list[list[int]] = list(choice["steps"])
        self.end: str | None = choice.get("end")
        self.delay = delay
        self.due = time.monotonic() + delay
        self.sent = 0

    def step(self) -> tuple[list[int], dict[str, Any] | None]:
        """The next tokens, and how the request finishes with them."""
        asked = self.asked.sampling_params
        new: list[int] = []
        for token in self.steps.pop(0):
            new.append(token)
            if token in script.EOS and not asked.ignore_eos:
                return new, {"type": "stop", "matched": token}
            if asked.max_new_tokens and self.sent + len(new) >= asked.max_new_tokens:
                return new, {"type": "length", "length": self.sent + len(new)}
        return new, None


class _Scheduler:
    def __init__(self, port_args: Any, pipe_writer: Any) -> None:
        self.io: Any = import_module("sglang.srt.managers.io_struct")
        zmq: Any = import_module("zmq")
        self.abort: Any = import_module("sglang.srt.managers.schedule_batch").FINISH_ABORT
        connect = import_module("sglang.srt.utils.network").get_zmq_socket
        context = zmq.Context(2)
        self.requests = connect(context, zmq.PULL, port_args.scheduler_input_ipc_name, False)
        self.tokens = connect(context, zmq.PUSH, port_args.detokenizer_ipc_name, False)
        self.told = connect(context, zmq.PUSH, port_args.tokenizer_ipc_name, False)
        self.live: dict[str, _Request] = {}
        self.began = 0
        told = {"status": "ready", "max_total_num_tokens": 100_000, "max_req_input_len": 8186}
        pipe_writer.send({**told, "startup_time": {}, "hicache_object_layout": None})

    def run(self) -> None:
        """Take requests and play them, for ever."""
        while True:
            while self.requests.poll(1 if self.live else 200):
                self.take(self.io.sock_recv(self.requests))
            now = time.monotonic()
            for name, request in list(self.live.items()):
                if now >= request.due:
                    self.play(name, request)
                    request.due = now + request.delay

    def take(self, message: Any) -> None:
        """What the TokenizerManager sends."""
        if isinstance(message, self.io.TokenizedGenerateReqInput):
            self.begin(message)
        elif isinstance(message, self.io.BatchTokenizedGenerateReqInput):
            for one in message.batch:
                self.begin(one)
        elif isinstance(message, self.io.AbortReq):
            for name in [name for name in self.live if message.abort_all or name.startswith(message.rid)]:
                script.log(aborted=name)
                del self.live[name]
        elif isinstance(message, self.io.GetInternalStateReq):  # GET /server_info waits for it
            self.io.sock_send(self.told, self.io.GetInternalStateReqOutput(internal_state={}))

    def begin(self, asked: Any) -> None:
        """Start a request."""
        if asked.sampling_params.max_new_tokens == 0:  # before n > 1 choices: the prompt alone, for the cache
            self.began = 0
            self.live[asked.rid] = _Request(asked, {"steps": [], "end": "warm"}, 0)
            return
        chosen, delay = script.read(self.began)
        self.began += 1
        params = asked.sampling_params
        script.log(prompt=list(asked.input_ids or ()), max_tokens=params.max_new_tokens, held=params.structural_tag)
        self.live[asked.rid] = _Request(asked, chosen, delay)

    def play(self, name: str, request: _Request) -> None:
        """One step."""
        if request.steps:
            new, finish = request.step()
            self.send(request, new, finish)
            if finish is not None:
                del self.live[name]
            return
        del self.live[name]
        if request.end == "error":
            http: Any = import_module("http").HTTPStatus
            failed = self.abort("out of memory", http.INTERNAL_SERVER_ERROR, "InternalServerError")
            self.send(request, [], failed.to_json())
        elif request.end == "abort":
            self.send(request, [], self.abort().to_json())
        elif request.end == "warm":
            self.send(request, [], {"type": "length", "length": 0})

    def send(self, request: _Request, new: list[int], finish: dict[str, Any] | None) -> None:
        """Tokens to the DetokenizerManager. The first come behind the prompt's last, as it wants them."""
        asked, ask = request.asked, request.asked.sampling_params
        around = list(asked.input_ids or ())[-5:]
        behind = around if request.sent == 0 else []
        request.sent += len(new)
        log = asked.return_logprob
        top = [[-0.1, -2.5][: max(asked.top_logprobs_num, 0)] for _ in new]
        which = [[token, token + 1][: max(asked.top_logprobs_num, 0)] for token in new]
        nothing: Any = [[]] if log else None
        output = self.io.BatchTokenIDOutput(
            rids=[asked.rid], http_worker_ipcs=[asked.http_worker_ipc], finished_reasons=[finish],
            decoded_texts=[""], decode_ids=[array("q", behind + new)], read_offsets=[len(around)],
            output_ids=[array("q", new)], skip_special_tokens=[ask.skip_special_tokens],
            spaces_between_special_tokens=[ask.spaces_between_special_tokens], no_stop_trim=[ask.no_stop_trim],
            prompt_tokens=[len(asked.input_ids or ())], reasoning_tokens=[0], completion_tokens=[request.sent],
            cached_tokens=[0], input_token_logprobs_val=nothing, input_token_logprobs_idx=nothing,
            output_token_logprobs_val=[[-0.1] * len(new)] if log else None,
            output_token_logprobs_idx=[list(new)] if log else None,
            input_top_logprobs_val=nothing, input_top_logprobs_idx=nothing,
            output_top_logprobs_val=[top] if log else None, output_top_logprobs_idx=[which] if log else None,
            input_token_ids_logprobs_val=nothing, input_token_ids_logprobs_idx=nothing,
            output_token_ids_logprobs_val=nothing, output_token_ids_logprobs_idx=nothing,
            output_token_entropy_val=None, output_token_sampling_mask=None, output_hidden_states=None,
            routed_experts=None, indexer_topk=None, placeholder_tokens_idx=None, placeholder_tokens_val=None,
            retraction_counts=[0],
        )  # fmt: skip
        if new:
            script.log(step=new)
        self.io.sock_send(self.tokens, output)


def schedule(server_args: Any, port_args: Any, *places: Any, pipe_writer: Any = None, **_: Any) -> None:
    """In the place of SGLang's own ``run_scheduler_process``. The last of ``places`` is the pipe's writing end."""
    _Scheduler(port_args, pipe_writer if pipe_writer is not None else places[-1]).run()


def main() -> None:
    """Serve."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    arguments: Any = import_module("sglang.srt.server_args").prepare_server_args(sys.argv[1:])
    launch: Any = import_module("sglang.srt.entrypoints.http_server").launch_server
    # The process imports the function by the name of its module.
    played: Any = import_module("sglang_server").schedule
    launch(arguments, run_scheduler_process_func=played, execute_warmup_func=warm)


def warm(*_: Any, **__: Any) -> bool:
    """No request is sent to warm up."""
    return True


if __name__ == "__main__":
    main()
