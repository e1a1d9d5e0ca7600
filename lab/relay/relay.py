"""The notice relay: the provider's reclaim decisions, signed, on their way to each instance at once.

A decision is pushed on the node bus, under the instance's own subject, and shown to whoever asks for the
instance's metadata. Neither way needs the other, and neither needs the orchestrator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import islice
from typing import NamedTuple, TypeVar
from uuid import UUID

from lab.relay.decisions import Decision
from lab.relay.journal import Journal
from lab.relay.standing import Standing, StandingNotices
from wire.node import notice_subject
from wire.notices import Notice, NoticeKind, write_notice
from wire.signing import SigningKey

# Signed and sent together: the first instances hear while the letters of the last are being signed.
BATCH = 500
# Said again so much later: an instance that was reconnecting hears before its next poll.
PUSHES = 3
AGAIN_AFTER = timedelta(seconds=2)
TICK_SECONDS = 0.5
# A bus that takes longer for one batch is as good as away; the metadata shows the notices all the same.
PUSH_SECONDS = 2.0
T = TypeVar("T")
Publish = Callable[[str, bytes], Awaitable[None]]


class Withdrawn(NamedTuple):
    """The withdrawals that were signed, and the ids that no standing notice has."""

    notices: tuple[Notice, ...]
    unknown: tuple[UUID, ...]


class NoticeRelay:
    """Signs, says and shows. One event loop owns it; `publish` may fail, what is shown stays."""

    def __init__(
        self,
        key: SigningKey,
        publish: Publish,
        *,
        clock: Callable[[], datetime],
        new_id: Callable[[], UUID],
        journal: Journal | None = None,
    ) -> None:
        self._key = key
        self._publish = publish
        self._clock = clock
        self._new_id = new_id
        self._journal = journal
        self._standing = StandingNotices()
        self.failed_pushes = 0
        self.failed_writes = 0
        for notice, letter in journal.read() if journal is not None else ():
            self._standing.keep(notice, letter)
        self._standing.drop_ended(clock())

    async def decide(self, decisions: Sequence[Decision]) -> tuple[Notice, ...]:
        """Sign and send one notice each, all issued at the moment of this call.

        A decision about an instance that must end sooner or at the same time anyway answers the notice that
        stands: a deadline is never moved back, and asking twice is asking once. One that an instance has
        outlived stands no longer.
        """
        now = self._clock()
        # Of two decisions in one call the sooner one counts.
        by_seconds = sorted(decisions, key=lambda one: one.seconds, reverse=True)
        unique = {(one.instance_id, one.kind): one for one in by_seconds}
        return await self._say(self._notice(decision, now) for decision in unique.values())

    async def withdraw(self, notice_ids: Sequence[UUID], reason: str = "") -> Withdrawn:
        """Sign and send a withdrawal of each notice that stands; asking twice is asking once.

        One that came for a sooner deadline goes with those that it hastened, and they with it.
        """
        now = self._clock()
        found: dict[UUID, Notice] = {}
        unknown: list[UUID] = []
        for notice_id in dict.fromkeys(notice_ids):
            if (said := self._standing.withdrawal_of(notice_id)) is not None:
                found[notice_id] = said.notice
            elif together := self._hastened_with(notice_id):
                new = (one for one in together if one.notice_id not in found)
                found |= {one.notice_id: self._withdrawal(one, now, reason) for one in new}
            else:
                unknown.append(notice_id)
        return Withdrawn(await self._say(found.values()), tuple(unknown))

    def letters(self, instance_id: str) -> tuple[str, ...]:
        """What the metadata of an instance shows: its letters that stand, the oldest first."""
        return tuple(one.letter.decode() for one in self._standing.of(instance_id))

    def standing(self) -> tuple[Notice, ...]:
        return tuple(one.notice for one in self._standing.all())

    async def run(self) -> None:
        """Say again and forget what is over, until cancelled."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            await self.tick()

    async def tick(self) -> None:
        """Push again what was pushed fewer than `PUSHES` times; forget what is well past."""
        now = self._clock()
        if self._standing.drop_ended(now) and self._journal is not None:
            with self._writing():
                self._journal.replace(one.letter for one in self._standing.all())
        for batch in _batches([one for one in self._standing.all() if _is_due(one, now)]):
            await self._push(batch)

    async def push_again(self) -> None:
        """After the bus was away: say everything that stands once more."""
        for batch in _batches(tuple(self._standing.all())):
            await self._push(batch)

    def _notice(self, decision: Decision, now: datetime) -> Notice:
        deadline = now + timedelta(seconds=decision.seconds)
        known = self._standing.find(decision.instance_id, decision.kind)
        until = known.notice.deadline if known is not None else None
        if known is not None and until is not None and now <= until <= deadline:
            return known.notice
        return Notice(
            notice_id=self._new_id(),
            instance_id=decision.instance_id,
            hall=decision.hall,
            kind=decision.kind,
            cause=decision.cause,
            issued_at=now,
            deadline=deadline,
            reason=decision.reason,
        )

    def _hastened_with(self, notice_id: UUID) -> list[Notice]:
        """The notices of one kind for one instance, of which one has this id; none where that is unknown."""
        one = self._standing.by_id(notice_id)
        if one is None or one.notice.kind is NoticeKind.WITHDRAWAL:
            return []
        others = self._standing.of(one.notice.instance_id)
        return [other.notice for other in others if other.notice.kind is one.notice.kind]

    def _withdrawal(self, of: Notice, now: datetime, reason: str) -> Notice:
        return Notice(
            notice_id=self._new_id(),
            instance_id=of.instance_id,
            hall=of.hall,
            kind=NoticeKind.WITHDRAWAL,
            cause=of.cause,
            issued_at=now,
            withdraws=of.notice_id,
            reason=reason,
        )

    async def _say(self, notices: Iterable[Notice]) -> tuple[Notice, ...]:
        said: list[Notice] = []
        for batch in _batches(notices):
            fresh = [notice for notice in batch if self._standing.by_id(notice.notice_id) is None]
            kept = [self._standing.keep(notice, write_notice(notice, self._key)) for notice in fresh]
            if self._journal is not None:
                with self._writing():
                    self._journal.append([one.letter for one in kept])
            await self._push(kept)
            said += batch
        if self._journal is not None:
            with self._writing():
                await self._journal.settle()
        return tuple(said)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A full or broken disk costs what a restart would remember, never a notice."""
        try:
            yield
        except OSError:
            self.failed_writes += 1

    async def _push(self, batch: Sequence[Standing]) -> None:
        """A bus that is away costs nothing but these pushes: the metadata shows the notices all the same."""
        try:
            async with asyncio.timeout(PUSH_SECONDS):
                for one in batch:
                    one.pushes, one.pushed_at = one.pushes + 1, self._clock()
                    await self._push_one(one)
        except TimeoutError:
            self.failed_pushes += 1
        # The connection writes between two batches.
        await asyncio.sleep(0)

    async def _push_one(self, one: Standing) -> None:
        try:
            await self._publish(notice_subject(one.notice.hall, one.notice.instance_id), one.letter)
        except Exception:
            # Whatever the bus says, the next instances must hear.
            self.failed_pushes += 1


def _is_due(one: Standing, now: datetime) -> bool:
    return one.pushes < PUSHES and (one.pushed_at is None or one.pushed_at + AGAIN_AFTER <= now)


def _batches(items: Iterable[T]) -> Iterator[list[T]]:
    left = iter(items)
    while batch := list(islice(left, BATCH)):
        yield batch
