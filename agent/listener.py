"""Decides what each notice means for this node, and lets it happen."""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict, deque
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

from agent.bounded import describe
from agent.bundle import BundleStore
from agent.clock import Clock, ProviderClock
from agent.deadline import time_for
from agent.drain.drains import Drains
from agent.drain.ports import Record
from agent.metrics import AgentMetrics
from agent.telling import of_notice, once
from domain.drain import REFUSED, Decision, Kind, Said, Verdict, decide
from wire.lifecycle import MAX_DETAIL, EventType
from wire.notices import Notice, NoticeRefusal, read_notice

# Refusals that are told: no more than this many in a minute, and each letter once.
TOLD_PER_MINUTE = 10
MINUTE_SECONDS = 60.0
REMEMBERED_LETTERS = 256
# Of a notice that begins no drain: it is new, or still stands.
NOTED = frozenset({Verdict.NOTE, Verdict.REPEATED})
log = logging.getLogger("sco.agent")


class Source(StrEnum):
    PUSH = "push"
    POLL = "poll"


class Listener:
    """Decides what each letter means, and lets it happen. Never raises, whatever it is given."""

    def __init__(
        self,
        *,
        instance_id: str,
        bundles: BundleStore,
        drains: Drains,
        record: Record,
        provider: ProviderClock,
        clock: Clock,
        metrics: AgentMetrics,
    ) -> None:
        self._instance_id = instance_id
        self._bundles, self._drains, self._record = bundles, drains, record
        self._provider, self._clock, self._metrics = provider, clock, metrics
        self._refused: OrderedDict[bytes, None] = OrderedDict()
        self._told_at: deque[float] = deque(maxlen=TOLD_PER_MINUTE)

    def hear(self, letters: Sequence[bytes], source: Source) -> None:
        """Letters that came together. Withdrawals go first, so that what they withdraw never begins."""
        ring = self._bundles.notice_ring()
        read = [(raw, read_notice(raw, ring, self._instance_id)) for raw in letters]
        for raw, one in sorted(read, key=lambda pair: _is_notice_in_force(pair[1])):
            try:
                if isinstance(one, NoticeRefusal):
                    self._refuse(raw, source, one.reason, one.detail)
                else:
                    self._decide(raw, source, one)
            except Exception as error:
                log.exception("a notice by %s could not be followed: %s", source, describe(error))

    def _decide(self, raw: bytes, source: Source, notice: Notice) -> None:
        orders = self._bundles.orders
        decision = decide(
            self._drains.memory,
            _said(notice),
            drain_on_advisory=orders.drain_on_advisory,
            not_before=self._time_for(notice),
        )
        self._metrics.notices.labels(source, decision.verdict).inc()
        if decision.verdict in REFUSED:
            # What lies in the metadata is read again and again: only a message is a replay.
            if source is Source.PUSH or decision.verdict is Verdict.STALE:
                self._refuse(raw, source, decision.verdict, f"notice {notice.notice_id}")
        elif decision.verdict is not Verdict.REPEATED:
            self._follow(notice, decision, source)
        if notice.deadline is not None and decision.verdict in NOTED:
            # Repeated: after a restart nothing else says that an advisory notice stands.
            self._drains.note(notice)

    def _time_for(self, notice: Notice) -> datetime | None:
        if notice.deadline is None:
            return None
        return time_for(notice.deadline, notice.issued_at, self._clock, self._provider)

    def _follow(self, notice: Notice, decision: Decision, source: Source) -> None:
        verdict, memory = decision
        if verdict is Verdict.START:
            self._drains.begin(notice, self._bundles.orders, memory, heard_by=source)
        elif verdict is Verdict.WITHDRAW:
            self._drains.withdraw(notice, memory)
        elif memory.draining and verdict in (Verdict.SHORTEN, Verdict.HARDEN, Verdict.JOIN):
            self._drains.hasten(notice, memory, tell=verdict is not Verdict.JOIN, heard_by=source)
        else:
            self._drains.remember(memory)
        if verdict is Verdict.NOTE:
            fields = of_notice(notice) | {"event_id": once(notice, EventType.NOTICE)}
            detail = "the contract lets the work run"
            self._record.tell(EventType.NOTICE, path=source, detail=detail, **fields)

    def _refuse(self, raw: bytes, source: Source, reason: str, detail: str) -> None:
        self._metrics.refused.labels(source, reason).inc()
        digest = hashlib.sha256(raw).digest()
        if digest in self._refused:
            return
        self._refused[digest] = None
        if len(self._refused) > REMEMBERED_LETTERS:
            self._refused.popitem(last=False)
        now = self._clock.boot()
        if len(self._told_at) == TOLD_PER_MINUTE and now - self._told_at[0] < MINUTE_SECONDS:
            return
        self._told_at.append(now)
        log.warning("a notice by %s is refused as %s: %s", source, reason, detail)
        self._record.tell(EventType.REFUSED, detail=f"{reason} by {source}: {detail}"[:MAX_DETAIL])


def _said(notice: Notice) -> Said:
    return Said(notice.notice_id, Kind(notice.kind), notice.issued_at, notice.deadline, notice.withdraws)


def _is_notice_in_force(read: Notice | NoticeRefusal) -> bool:
    return isinstance(read, Notice) and read.withdraws is None
