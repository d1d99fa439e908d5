"""GET /metrics: counters of this server in the Prometheus text format. None is about one session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from pipeline.http.live import Live
from pipeline.recorder import Recorder
from pipeline.shadow import Shadows
from pipeline.validation import Validator

if TYPE_CHECKING:
    from pipeline.upstream.pool import Pool  # an extra

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

    def __init__(self, live: Live, recorder: Recorder, validator: Validator, shadows: Shadows) -> None:
        self._live = live
        self._recorder = recorder
        self._validator = validator
        self._shadows = shadows
        self._pool: Pool | None = None
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def watch(self, pool: Pool) -> None:
        """Count what becomes of requests to upstreams, too."""
        self._pool = pool

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
        yield from self._of_shadows()
        if self._pool is not None:
            yield from _of_upstreams(self._pool)

    def _of_shadows(self) -> Iterator[Metric]:
        shadows = self._shadows
        yield CounterMetricFamily("playhead_shadowed", "Sessions that other parsers looked at.", shadows.shadowed)
        yield CounterMetricFamily(
            "playhead_shadows_skipped", "Sessions that they did not look at, for want of time.", shadows.skipped
        )
        yield CounterMetricFamily(
            "playhead_shadows_failed", "Sessions that could not be read, or whose result not stored.", shadows.failed
        )
        seen = CounterMetricFamily(
            "playhead_shadow_verdicts", "What they made of a session, against what its client got.",
            labels=("parser", "verdict"),
        )  # fmt: skip
        for (parser, verdict), count in sorted(shadows.verdicts.items()):
            seen.add_metric((parser, verdict), count)
        yield seen


def _of_upstreams(pool: Pool) -> Iterator[Metric]:
    up = GaugeMetricFamily("playhead_upstream_up", "0 while it cannot be reached.", labels=("upstream",))
    busy = GaugeMetricFamily("playhead_upstream_requests_live", "Requests that it answers now.", labels=("upstream",))
    for upstream in pool.upstreams:
        up.add_metric((upstream.name,), upstream.state != "down")
        busy.add_metric((upstream.name,), upstream.in_flight)
    yield up
    yield busy
    stats = pool.stats
    requests = CounterMetricFamily(
        "playhead_upstream_requests", "Requests that are over, by how they ended.", labels=("upstream", "outcome")
    )
    for (name, outcome), count in sorted(stats.requests.items()):
        requests.add_metric((name, outcome), count)
    yield requests
    answers = CounterMetricFamily("playhead_upstream_responses", "Answers begun.", labels=("upstream", "status"))
    for (name, status), count in sorted(stats.responses.items()):
        answers.add_metric((name, str(status)), count)
    yield answers
    again = CounterMetricFamily(
        "playhead_upstream_retries", "Requests sent again because it did not answer.", labels=("upstream",)
    )
    for name, count in sorted(stats.retries.items()):
        again.add_metric((name,), count)
    yield again
