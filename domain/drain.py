"""Which notice begins, hastens or ends a drain: notices in, decisions out.

A notice reaches a node by two ways and many times over; providers mint several for one reclaim, a few
milliseconds apart. However it comes, one reclaim is one drain, and its deadline never moves away.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

# How many notices a node remembers; the oldest are forgotten, and nothing as old is believed afterwards.
REMEMBERED = 256
# Notices of one kind this close in issue and deadline are one, whatever their ids.
TWIN = timedelta(seconds=1)
# The provider's clock is read to a second, and a notice may be under way for another.
STALE_AFTER = timedelta(seconds=2)


class Kind(StrEnum):
    HARD = "hard"
    ADVISORY = "advisory"
    WITHDRAWAL = "withdrawal"


class Said(NamedTuple):
    """One notice, as far as the rule needs it. A withdrawal has `withdraws` and no `deadline`."""

    notice_id: UUID
    kind: Kind
    issued_at: datetime
    deadline: datetime | None = None
    withdraws: UUID | None = None


class Standing(NamedTuple):
    """A notice in force, by every id under which it was said; `holds` when the drain is due to it."""

    ids: tuple[UUID, ...]
    kind: Kind
    issued_at: datetime
    deadline: datetime
    holds: bool


class Memory(NamedTuple):
    """What a node knows of notices.

    `deadline` is that of the drain under way and None without one. `heard` holds ids with their issue, the
    oldest first; nothing issued up to `forgotten_until` can be told from a replay any more.
    """

    standing: tuple[Standing, ...] = ()
    deadline: datetime | None = None
    heard: tuple[tuple[UUID, datetime], ...] = ()
    withdrawn: tuple[UUID, ...] = ()
    forgotten_until: datetime | None = None

    @property
    def draining(self) -> bool:
        return self.deadline is not None

    @property
    def latest(self) -> datetime | None:
        """When the last of the notices that hold the drain comes true; None without a drain."""
        return max((one.deadline for one in self.standing if one.holds), default=self.deadline)


class Verdict(StrEnum):
    """What one notice means for the node."""

    START = "start"
    SHORTEN = "shorten"
    HARDEN = "harden"
    JOIN = "join"
    NOTE = "note"
    REPEATED = "repeated"
    WITHDRAW = "withdraw"
    CANCELLED = "cancelled"
    STALE = "stale"
    REPLAYED = "replayed"


REFUSED = frozenset({Verdict.STALE, Verdict.REPLAYED})


class Decision(NamedTuple):
    """A verdict, and what the node knows from now on."""

    verdict: Verdict
    memory: Memory


def decide(memory: Memory, said: Said, *, drain_on_advisory: bool, not_before: datetime | None) -> Decision:
    """What a believed notice for this node changes.

    `not_before` is a moment that the provider's clock has certainly passed; None when nothing is known.
    """
    if said.deadline is None:
        return _withdraw(memory, said)
    if any(said.notice_id in one.ids for one in memory.standing):
        return Decision(Verdict.REPEATED, memory)
    if _was_heard(memory, said):
        return Decision(Verdict.REPLAYED, memory)
    if not_before is not None and said.deadline + STALE_AFTER < not_before:
        return Decision(Verdict.STALE, memory)
    heard = _hear(memory, said)
    if said.notice_id in memory.withdrawn:
        return Decision(Verdict.CANCELLED, heard)
    holds = said.kind is Kind.HARD or drain_on_advisory
    return _stand(heard, Standing((said.notice_id,), said.kind, said.issued_at, said.deadline, holds))


def end(memory: Memory) -> Memory:
    """The drain is over and the node lives on: every notice that held it has had its moment."""
    return memory._replace(standing=tuple(one for one in memory.standing if not one.holds), deadline=None)


def _stand(memory: Memory, new: Standing) -> Decision:
    twin = next((one for one in memory.standing if _are_twins(one, new)), None)
    if twin is not None:
        both = twin._replace(ids=twin.ids + new.ids, deadline=min(twin.deadline, new.deadline))
        standing = tuple(both if one is twin else one for one in memory.standing)
        deadline = min(memory.deadline, new.deadline) if memory.deadline and twin.holds else memory.deadline
        return Decision(Verdict.JOIN, memory._replace(standing=standing, deadline=deadline))
    current = (one for one in memory.standing if one.holds or one.deadline >= new.issued_at)
    after = memory._replace(standing=(*current, new))
    if not new.holds:
        return Decision(Verdict.NOTE, after)
    if memory.deadline is None or new.issued_at > memory.deadline:
        # Issued after the moment of the drain under way: the node outlived that one, and this is another.
        standing = tuple(one for one in after.standing if one.deadline >= new.issued_at)
        deadline = min(one.deadline for one in standing if one.holds)
        return Decision(Verdict.START, after._replace(standing=standing, deadline=deadline))
    after = after._replace(deadline=min(memory.deadline, new.deadline))
    return Decision(_joining(memory, new, memory.deadline), after)


def _joining(memory: Memory, new: Standing, deadline: datetime) -> Verdict:
    first_hard = new.kind is Kind.HARD and not any(one.kind is Kind.HARD for one in memory.standing)
    if first_hard:
        return Verdict.HARDEN
    return Verdict.SHORTEN if new.deadline < deadline else Verdict.JOIN


def _withdraw(memory: Memory, said: Said) -> Decision:
    """A withdrawal takes away the notice it names, and the drain with the last that held it."""
    target = said.withdraws
    if target is None or target in memory.withdrawn:
        return Decision(Verdict.REPEATED, memory)
    after = memory._replace(
        withdrawn=(*memory.withdrawn, target)[-REMEMBERED:],
        standing=tuple(one for one in memory.standing if target not in one.ids),
    )
    if memory.draining and not any(one.holds for one in after.standing):
        return Decision(Verdict.WITHDRAW, after._replace(deadline=None))
    return Decision(Verdict.CANCELLED, after)


def _are_twins(one: Standing, other: Standing) -> bool:
    return (
        one.kind is other.kind
        and abs(one.issued_at - other.issued_at) <= TWIN
        and abs(one.deadline - other.deadline) <= TWIN
    )


def _was_heard(memory: Memory, said: Said) -> bool:
    forgotten = memory.forgotten_until is not None and said.issued_at <= memory.forgotten_until
    return forgotten or any(said.notice_id == known for known, _ in memory.heard)


def _hear(memory: Memory, said: Said) -> Memory:
    heard = sorted((*memory.heard, (said.notice_id, said.issued_at)), key=lambda one: (one[1], one[0]))
    dropped = heard[:-REMEMBERED]
    until = dropped[-1][1] if dropped else memory.forgotten_until
    return memory._replace(heard=tuple(heard[-REMEMBERED:]), forgotten_until=until)
