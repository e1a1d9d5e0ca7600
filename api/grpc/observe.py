"""What calls look like from outside: two metrics for each, and a log line for each that failed."""

from __future__ import annotations

import time

import structlog
from grpc import StatusCode
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from api.grpc.calls import Call, Refused
from api.observe import BUCKETS_SECONDS, frames_of

log = structlog.get_logger("grpc")
# A caller that gave up, or asks for what it may not have, is no reason to wake anybody.
OURS = frozenset({StatusCode.INTERNAL, StatusCode.UNAVAILABLE})


class GrpcMetrics:
    """Counts by method and status. Methods are those that exist, so callers cannot make labels."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "sco_grpc_requests_total", "Answered calls", ["method", "code"], registry=registry
        )
        self.seconds = Histogram(
            "sco_grpc_request_duration_seconds",
            "Time from a call's arrival to its answer, of calls that are no streams",
            ["method"],
            buckets=BUCKETS_SECONDS,
            registry=registry,
        )
        self.streams = Gauge("sco_grpc_report_streams", "Open streams of reports", registry=registry)
        self.refused_reports = Counter(
            "sco_grpc_reports_refused_total",
            "Reports of streams that were refused",
            ["reason"],
            registry=registry,
        )

    def answered(self, call: Call, code: StatusCode, *, stream: bool) -> None:
        self.requests.labels(call.method, code.name).inc()
        if not stream:
            self.seconds.labels(call.method).observe(time.monotonic() - call.began_at)


def log_failed(call: Call, refused: Refused, error: Exception) -> None:
    """One line. An error's own text stays out: it may repeat what a message holds."""
    unforeseen = refused.code is StatusCode.INTERNAL
    tell = log.error if refused.code in OURS else log.info
    tell(
        "call_failed",
        request_id=call.request_id,
        method=call.method,
        code=refused.code.name,
        text=refused.text,
        tenant=call.principal.tenant_id if call.principal else None,
        duration_ms=round((time.monotonic() - call.began_at) * 1000, 1),
        error=type(error).__name__,
        where=frames_of(error) if unforeseen else None,
    )
