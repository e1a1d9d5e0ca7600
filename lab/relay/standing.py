"""The notices that stand: what an instance is shown when it asks, until its deadline is well past."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from wire.notices import MAX_WARNING_SECONDS, Notice, NoticeKind

# A node whose clock or poll is late still finds what concerned it; later it no longer runs.
KEPT_AFTER_DEADLINE = timedelta(seconds=60)
# No notice reaches further ahead, so that none outlives its withdrawal.
WITHDRAWAL_KEPT = timedelta(seconds=MAX_WARNING_SECONDS)
# A provider that changes its mind again and again does not grow an answer without end.
MOST_OF_A_KIND = 8


@dataclass(slots=True)
class Standing:
    """One signed notice, until when it is shown, how often it was pushed, and when last."""

    notice: Notice
    letter: bytes
    ends: datetime
    pushes: int = 0
    pushed_at: datetime | None = None


class StandingNotices:
    """By instance: the last notices of each kind, each of which came for its sooner deadline."""

    def __init__(self) -> None:
        self._by_instance: dict[str, list[Standing]] = {}
        self._by_id: dict[UUID, Standing] = {}
        self._withdrawals: dict[UUID, Standing] = {}

    def find(self, instance_id: str, kind: NoticeKind) -> Standing | None:
        """The newest of its kind."""
        known = [one for one in self.of(instance_id) if one.notice.kind is kind]
        return known[-1] if known else None

    def by_id(self, notice_id: UUID) -> Standing | None:
        return self._by_id.get(notice_id)

    def withdrawal_of(self, notice_id: UUID) -> Standing | None:
        return self._withdrawals.get(notice_id)

    def of(self, instance_id: str) -> tuple[Standing, ...]:
        return tuple(self._by_instance.get(instance_id, ()))

    def all(self) -> Iterator[Standing]:
        yield from self._by_id.values()

    def keep(self, notice: Notice, letter: bytes) -> Standing:
        """Show a notice from now on, instead of the one that it withdraws.

        What a sooner one hastens stands beside it: nodes go by either until both are withdrawn.
        """
        ends = (notice.deadline or notice.issued_at + WITHDRAWAL_KEPT) + KEPT_AFTER_DEADLINE
        kept = Standing(notice, letter, ends)
        for other in self.of(notice.instance_id):
            if other.notice.notice_id == notice.withdraws:
                self.drop(other)
        self._make_room(notice)
        self._by_instance.setdefault(notice.instance_id, []).append(kept)
        self._by_id[notice.notice_id] = kept
        if notice.withdraws is not None:
            self._withdrawals[notice.withdraws] = kept
        return kept

    def drop(self, one: Standing) -> None:
        others = self._by_instance[one.notice.instance_id]
        others.remove(one)
        if not others:
            del self._by_instance[one.notice.instance_id]
        del self._by_id[one.notice.notice_id]
        if one.notice.withdraws is not None:
            self._withdrawals.pop(one.notice.withdraws, None)

    def _make_room(self, notice: Notice) -> None:
        earlier = [one for one in self.of(notice.instance_id) if one.notice.kind is notice.kind]
        for oldest in earlier[: -MOST_OF_A_KIND + 1]:
            self.drop(oldest)

    def drop_ended(self, now: datetime) -> int:
        """Forget what is over; how many that were."""
        ended = [one for one in self._by_id.values() if one.ends <= now]
        for one in ended:
            self.drop(one)
        return len(ended)
