"""The report intake: utilization reports that pools' agents send over NATS, written many at a time.

Only the newest letter of each pool is kept until it is written, unread: whoever sends too much overwrites
himself, whoever sends nonsense harms nobody, and after an outage there is nothing to catch up with.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime

import nats
import structlog
from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg
from prometheus_client import Counter
from pydantic import ValidationError

from activities.reporting import BATCH, Accepted, report_for_tenants
from domain.serving.utilization import ReportedModel, UtilizationReport, UtilizationTerms
from store.engine import Engine
from wire.reports import (
    REPORT_SUBJECTS,
    ReportLetter,
    ReportRefusal,
    ReportRefusedAs,
    Sender,
    read_report,
    sender_of,
)

# Every worker process may run one: a letter goes to one of them.
GROUP = "sco-reports"
# A pool is stale after two minutes: a second of waiting makes a hundred reports one transaction.
WRITE_EVERY_SECONDS = 1.0
TROUBLE_SECONDS = 2.0
SAY_EVERY_SECONDS = 60.0
# Far more pools than one control plane has. Beyond, senders make up their names.
MOST_POOLS = 20_000
PENDING_LETTERS = 10_000
PENDING_BYTES = 16 * 1024 * 1024

LETTERS = Counter("sco_report_letters_total", "Letters with utilization reports that came over NATS")
REFUSED = Counter("sco_report_letters_refused_total", "Letters that were thrown away", ["reason"])
FAILED = Counter("sco_report_intake_failures_total", "Rounds of the report intake that failed")
log = structlog.get_logger("reports")


class ReportIntake:
    """Takes the reports of all tenants until it is stopped."""

    def __init__(
        self,
        engine: Engine,
        nats_url: str,
        *,
        now: Callable[[], datetime],
        terms: UtilizationTerms = UtilizationTerms(),  # noqa: B008 - frozen
    ) -> None:
        self._engine = engine
        self._nats_url = nats_url
        self._now = now
        self._terms = terms
        self._waiting: dict[str, bytes] = {}
        self._problem = ""
        self._say_next: dict[str, float] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Take what comes until `stop` is set. Without NATS or Postgres it waits, and hurts nothing else."""
        while not stop.is_set():
            try:
                await self._session(stop)
            except Exception as error:
                self._failed(error)
                await _pause(stop, TROUBLE_SECONDS)

    def _failed(self, error: Exception) -> None:
        """Every failure is counted, but only a new one is logged: an outage is one line."""
        FAILED.inc()
        problem = f"{type(error).__name__}: {error}"[:200]
        if problem != self._problem:
            log.warning("report_intake_failed", problem=problem, retry_seconds=TROUBLE_SECONDS)
        self._problem = problem

    async def _session(self, stop: asyncio.Event) -> None:
        ended: list[str] = []

        async def on_closed() -> None:
            ended.append("the connection was closed")

        async def on_error(error: Exception) -> None:
            """Trouble with the connection ends the session by itself; a refusal would just be silence."""
            if "permissions violation" in str(error).lower():
                ended.append(str(error))

        client = await nats.connect(
            self._nats_url,
            name="sco-reports",
            connect_timeout=3,
            max_reconnect_attempts=1,
            closed_cb=on_closed,
            error_cb=on_error,
        )
        try:
            await client.subscribe(
                REPORT_SUBJECTS,
                queue=GROUP,
                cb=self._keep,
                pending_msgs_limit=PENDING_LETTERS,
                pending_bytes_limit=PENDING_BYTES,
            )
            while not stop.is_set():
                await _pause(stop, WRITE_EVERY_SECONDS)
                await self.write()
                if ended:
                    raise ConnectionError(f"NATS: {ended[0]}")
                self._recovered(client)
        finally:
            await client.close()

    def _recovered(self, client: NatsClient) -> None:
        if self._problem and client.is_connected:
            log.info("report_intake_recovered", after=self._problem)
            self._problem = ""

    async def _keep(self, message: Msg) -> None:
        LETTERS.inc()
        if message.subject not in self._waiting and len(self._waiting) >= MOST_POOLS:
            REFUSED.labels("too_many").inc()
            return
        self._waiting[message.subject] = message.data

    async def write(self) -> None:
        """Write what waits, in batches. What could not be written waits on, unless a newer letter came."""
        while self._waiting:
            letters = {subject: self._waiting.pop(subject) for subject in [*self._waiting][:BATCH]}
            reports = self._open(letters)
            try:
                done = await report_for_tenants(
                    self._engine, [*reports.values()], self._now(), terms=self._terms
                )
            except Exception:
                self._waiting = {subject: letters[subject] for subject in reports} | self._waiting
                raise
            self._tell(done)

    def _open(self, letters: Mapping[str, bytes]) -> dict[str, tuple[str, UtilizationReport]]:
        """The reports in letters, by subject; what is none is thrown away."""
        reports = {}
        for subject, body in letters.items():
            read = _read(subject, body)
            if not isinstance(read, ReportRefusal):
                reports[subject] = read
                continue
            REFUSED.labels(read.reason.value).inc()
            if self._is_due(f"letter {read.reason}"):
                example = f"{subject[:100]}: {read.detail}"
                log.warning("report_letters_refused", reason=read.reason.value, example=example)
        return reports

    def _tell(self, done: Accepted) -> None:
        for one in done.refused:
            if self._is_due(f"report {one.reason}"):
                log.warning("reports_refused", reason=one.reason.value, example=one.text)
        for tenant_id, pool_id, model in done.unfit:
            if self._is_due("unfit"):
                log.warning("reported_model_unfit", tenant=tenant_id, pool=pool_id, model=model)

    def _is_due(self, what: str) -> bool:
        """Whether to say it again: a broken agent sends every ten seconds, and metrics count all of it."""
        now = time.monotonic()
        due = now >= self._say_next.get(what, now)
        if due:
            self._say_next[what] = now + SAY_EVERY_SECONDS
        return due


def _read(subject: str, body: bytes) -> tuple[str, UtilizationReport] | ReportRefusal:
    """A report with its tenant, from what came on a subject."""
    sender = sender_of(subject)
    if sender is None:
        return ReportRefusal(ReportRefusedAs.SUBJECT, "the subject names no tenant and pool")
    letter = read_report(body)
    if isinstance(letter, ReportRefusal):
        return letter
    try:
        return sender.tenant_id, _report(sender, letter)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        return ReportRefusal(ReportRefusedAs.BODY, f"{where}: {first['msg']}"[:200])


def _report(sender: Sender, letter: ReportLetter) -> UtilizationReport:
    return UtilizationReport(
        pool_id=sender.pool_id,
        utilization=letter.utilization,
        queue_depth=letter.queue_depth,
        models=tuple(
            ReportedModel(model=one.model, vram_gb=one.vram_gb, last_used_at=one.last_used_at)
            for one in letter.models
        ),
        reported_at=letter.reported_at,
    )


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)
