"""One stream of reports: read until somebody ends it, counted, and answered with what became of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from typing import Any

from api.grpc.batches import Batches, Verdict
from api.grpc.calls import Call, Refused
from api.grpc.messages import NO_MESSAGE, Unreadable
from api.grpc.observe import GrpcMetrics
from api.grpc.reading import report_of
from domain.serving.utilization import UtilizationReport
from wire.proto import control_pb2 as pb

# As long as a pool may be silent without becoming stale.
IDLE_SECONDS = 120.0

Put = Callable[[UtilizationReport], Awaitable[asyncio.Future[Verdict]]]


class Tally:
    """What became of the reports of one stream."""

    def __init__(self, metrics: GrpcMetrics) -> None:
        self._metrics = metrics
        self._accepted = 0
        self._refused: dict[str, pb.RefusedReports] = {}

    def count(self, verdict: Verdict) -> None:
        if verdict is None:
            self._accepted += 1
            return
        self._metrics.refused_reports.labels(verdict.reason).inc()
        first = pb.RefusedReports(reason=verdict.reason, text=verdict.text)
        self._refused.setdefault(verdict.reason, first).count += 1

    def answer(self, ended_by: pb.StreamEnd.ValueType) -> pb.ReportUtilizationResponse:
        return pb.ReportUtilizationResponse(
            accepted=self._accepted,
            refused=sum(one.count for one in self._refused.values()),
            reasons=[self._refused[reason] for reason in sorted(self._refused)],
            ended_by=ended_by,
        )


class Streams:
    """Follows streams. `stopping` is set when the server stops: every stream is then answered."""

    def __init__(
        self,
        batches: Batches[UtilizationReport],
        metrics: GrpcMetrics,
        now: Callable[[], datetime],
        stopping: asyncio.Event,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._batches = batches
        self._metrics = metrics
        self._now = now
        self._stopping = stopping
        self._idle_seconds = idle_seconds

    async def follow(self, messages: AsyncIterator[Any], call: Call) -> pb.ReportUtilizationResponse:
        """Take the reports of one stream to its end. One that is refused ends nothing."""
        tally = Tally(self._metrics)
        stopped = asyncio.create_task(self._stopping.wait())
        try:
            async with self._batches.joined(call.who.tenant_id) as put:
                waiting: set[asyncio.Future[Verdict]] = set()
                ended_by = None
                while ended_by is None:
                    message = await self._next(messages, call, stopped)
                    if isinstance(message, EndOfStream):
                        ended_by = message.ended_by
                    else:
                        await self._take(message, put, tally, waiting)
                await asyncio.gather(*waiting)
        finally:
            stopped.cancel()
        return tally.answer(ended_by)

    async def _take(
        self, message: Any, put: Put, tally: Tally, waiting: set[asyncio.Future[Verdict]]
    ) -> None:
        try:
            if isinstance(message, Unreadable):
                raise NO_MESSAGE
            report = report_of(message, self._now())
        except Refused as refused:
            tally.count(refused)
            return
        verdict = await put(report)
        waiting.add(verdict)
        verdict.add_done_callback(waiting.discard)
        verdict.add_done_callback(lambda said: None if said.cancelled() else tally.count(said.result()))

    async def _next(self, messages: AsyncIterator[Any], call: Call, stopped: asyncio.Task[Any]) -> Any:
        """The next message, or why there is none."""
        of_token = (call.who.expires_at - self._now()).total_seconds()
        reading = asyncio.ensure_future(_read(messages))
        done, _ = await asyncio.wait(
            (reading, stopped),
            timeout=max(0.0, min(self._idle_seconds, of_token)),
            return_when=asyncio.FIRST_COMPLETED,
        )
        if reading in done:
            return reading.result()
        reading.cancel()
        if stopped in done:
            return EndOfStream(pb.STREAM_END_SERVER_STOPS)
        idle = self._idle_seconds < of_token
        return EndOfStream(pb.STREAM_END_IDLE if idle else pb.STREAM_END_TOKEN_EXPIRED)


class EndOfStream:
    """Stands behind the last message: who ended the stream."""

    def __init__(self, ended_by: pb.StreamEnd.ValueType) -> None:
        self.ended_by = ended_by


async def _read(messages: AsyncIterator[Any]) -> Any:
    return await anext(messages, EndOfStream(pb.STREAM_END_CALLER))
