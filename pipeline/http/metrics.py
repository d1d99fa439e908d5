"""GET /metrics: counters of this server in the Prometheus text format. None is about one session."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from pipeline.http.serve import Live
from pipeline.recorder import Recorder
from pipeline.validation import Validator

_STORE = {
    "batches": "Batches stored.",
    "records": "Records stored.",
    "commits": "Transactions.",
    "bytes": "Bytes of encoded records stored.",
    "lost_records": "Records that could not be stored.",
    "failures": "Times that storing failed.",
}


class Metrics(Collector):
    """Reads what the server counts anyway, when it is asked for. One registry a server, so that servers in one process
    do not share any."""

    def __init__(self, live: Live, recorder: Recorder, validator: Validator) -> None:
        self._live = live
        self._recorder = recorder
        self._validator = validator
        self._registry = CollectorRegistry()
        self._registry.register(self)

    async def answer(self, request: Request) -> Response:
        """The endpoint."""
        try:
            encode, kind = choose_encoder(request.headers.get("accept", ""))
        except (TypeError, ValueError):  # a version that is none
            encode, kind = choose_encoder("")
        return Response(encode(self._registry), headers={"content-type": kind})

    def collect(self) -> Iterator[Metric]:
        """See Collector."""
        yield GaugeMetricFamily("playhead_sessions_live", "Sessions that run now.", len(self._live))
        yield CounterMetricFamily("playhead_sessions_opened", "Sessions since the start.", self._live.opened)
        yield CounterMetricFamily(
            "playhead_sessions_recorded", "Sessions whose recording has begun.", self._recorder.opened
        )
        store = self._recorder.store
        for name, count in ({} if store is None else store.stats()).items():
            yield CounterMetricFamily(f"playhead_store_{name}", _STORE.get(name, name), count)
        validator = self._validator
        yield CounterMetricFamily("playhead_validations", "Sessions held to the protocol rules.", validator.validated)
        yield CounterMetricFamily(
            "playhead_validations_skipped", "Sessions of the sample that were not, for want of time.", validator.skipped
        )
        yield CounterMetricFamily(
            "playhead_validations_failed", "Sessions that could not be read or judged.", validator.failed
        )
        broken = CounterMetricFamily(
            "playhead_rule_violations", "Breaches of the protocol rules.", labels=("rule", "severity")
        )
        for (rule, severity), count in sorted(validator.breaches.items()):
            broken.add_metric((rule, severity), count)
        yield broken
