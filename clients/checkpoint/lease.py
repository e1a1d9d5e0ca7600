"""The lease: one writer at a time, and a token that orders what different writers wrote.

Correctness does not rest on it. A writer that was taken over may still write; readers go by the token, so
what it writes then is older than anything its successor writes. The lease only keeps two from working at
once. It is made of plain writes and listings: each writer puts a claim under its own key and then looks for
others; of two who claim at once, at least one sees the other, and who sees another steps back.
"""

from __future__ import annotations

import random
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from clients.checkpoint.clock import Clock
from clients.checkpoint.errors import (
    DamagedError,
    LeaseHeldError,
    LeaseLostError,
    MissingError,
    StoreDownError,
    StoreRefusedError,
)
from clients.checkpoint.layout import LEASES, MANIFESTS, lease_holder, lease_key, manifest_order
from clients.checkpoint.manifest import seal, unseal
from clients.checkpoint.rooms import Room

# Clocks of two nodes may differ by this much before a lease counts as lapsed too early.
SKEW_SECONDS = 5
STEP_BACK_SECONDS = (0.05, 0.5)
LOOK_AGAIN_SECONDS = 1.0
# How often a claim that is listed is asked for before it counts as removed.
LOOKS, LOOK_SECONDS = 3, 0.1


class Claim(NamedTuple):
    """What one writer says about itself. A claim that was let go keeps its token from being used again."""

    token: int
    writer: str
    expires_at: datetime
    released: bool

    def is_active(self, now: datetime) -> bool:
        return not self.released and now < self.expires_at + timedelta(seconds=SKEW_SECONDS)


class Lease:
    """The right to write for one workload, until `released` or taken over."""

    def __init__(self, room: Room, writer: str, token: int, seconds: float, clock: Clock) -> None:
        self._room, self.writer, self.token = room, writer, token
        self._seconds, self._clock = seconds, clock
        self._lapses_at = clock.steady() + seconds
        self._said = b""

    def claim(self) -> None:
        """Say that we hold it, from now for one period."""
        self._lapses_at = self._clock.steady() + self._seconds
        self._put(released=False)

    def renew(self) -> None:
        """Hold it for another period. LeaseLostError when another has taken over."""
        self.claim()
        try:
            self.check()
        except LeaseLostError:
            # Nobody shall wait for a claim that means nothing.
            self.release()
            raise

    def check(self) -> None:
        """LeaseLostError when somebody has claimed after us."""
        for token, writer in _holders(self._room):
            if token > self.token and writer != self.writer:
                raise LeaseLostError(
                    f"writer {writer} took over {self._room.workload} with token {token}, this one has "
                    f"{self.token}: stop this one"
                )

    def is_guarded(self) -> bool:
        """Whether the store refuses to replace an object when it is asked to. Tried on our own claim."""
        return not self._room.put_new(lease_key(self.token, self.writer), self._said)

    def has_lapsed(self) -> bool:
        return self._clock.steady() >= self._lapses_at

    def release(self) -> None:
        """Let others have it at once; when the store does not answer, they have to wait until it lapses."""
        with suppress(StoreDownError, StoreRefusedError):
            self._put(released=True)

    def _put(self, *, released: bool) -> None:
        expires_at = self._clock.now() + timedelta(seconds=self._seconds)
        self._said = _write(Claim(self.token, self.writer, expires_at, released))
        self._room.put(lease_key(self.token, self.writer), self._said)


class _Doubts:
    """Claims that are listed and cannot be read count as held, until they were seen so for one period.

    Where an object is replaced in place, who reads it meanwhile may find half of it.
    """

    def __init__(self, seconds: float, clock: Clock) -> None:
        self._seconds, self._clock = seconds, clock
        self._until: dict[tuple[int, str], datetime] = {}

    def claim(self, token: int, writer: str) -> Claim:
        until = self._clock.now() + timedelta(seconds=self._seconds)
        return Claim(token, writer, self._until.setdefault((token, writer), until), released=False)


def acquire(
    room: Room, writer: str, *, seconds: float, wait_seconds: float, clock: Clock, dice: random.Random
) -> Lease:
    """Take the lease, waiting for one that is held. LeaseHeldError names the holder that did not let go."""
    give_up_at = clock.steady() + wait_seconds
    doubts = _Doubts(seconds, clock)
    while True:
        rivals = [claim for claim in _claims(room, doubts, clock) if claim.writer != writer]
        held = [claim for claim in rivals if claim.is_active(clock.now())]
        if not held:
            lease = _claim(room, writer, seconds, clock, doubts)
            if lease is not None:
                _forget_claims_before(room, lease)
                return lease
            pause = dice.uniform(*STEP_BACK_SECONDS)
        else:
            pause = LOOK_AGAIN_SECONDS
        if clock.steady() + pause > give_up_at:
            raise LeaseHeldError(_held_by(room, held))
        clock.sleep(pause)


def _claim(room: Room, writer: str, seconds: float, clock: Clock, doubts: _Doubts) -> Lease | None:
    """A lease, or None when another wants it at the same moment."""
    lease = Lease(room, writer, 1 + _highest_token(room), seconds, clock)
    lease.claim()
    others = [claim for claim in _claims(room, doubts, clock) if claim.writer != writer]
    if any(claim.is_active(clock.now()) or claim.token > lease.token for claim in others):
        lease.release()
        return None
    return lease


def _forget_claims_before(room: Room, lease: Lease) -> None:
    """Ours has the highest token: the ones below it are needed no longer."""
    with suppress(StoreDownError, StoreRefusedError):
        for token, writer in _holders(room):
            if token < lease.token:
                room.delete(lease_key(token, writer))


def _highest_token(room: Room) -> int:
    claimed = [token for token, _ in _holders(room)]
    written = [order.token for order in map(manifest_order, room.list(MANIFESTS)) if order is not None]
    return max([0, *claimed, *written])


def _holders(room: Room) -> list[tuple[int, str]]:
    return [holder for holder in map(lease_holder, room.list(LEASES)) if holder is not None]


def _claims(room: Room, doubts: _Doubts, clock: Clock) -> list[Claim]:
    claims = []
    for token, writer in _holders(room):
        try:
            claims.append(_read(_listed(room, lease_key(token, writer), clock), token, writer))
        except DamagedError:
            claims.append(doubts.claim(token, writer))
        except MissingError:
            continue
    return claims


def _listed(room: Room, key: str, clock: Clock) -> bytes:
    """An object that a listing named. While one is replaced, some stores answer that there is none."""
    for _ in range(LOOKS - 1):
        with suppress(MissingError):
            return room.get(key)
        clock.sleep(LOOK_SECONDS)
    return room.get(key)


def _write(claim: Claim) -> bytes:
    fields: dict[str, Any] = {
        "token": claim.token,
        "writer": claim.writer,
        "expiresAt": claim.expires_at.isoformat(),
        "released": claim.released,
    }
    return seal(fields)


def _read(content: bytes, token: int, writer: str) -> Claim:
    fields = unseal(content, f"the claim of {writer}")
    try:
        expires_at = datetime.fromisoformat(fields["expiresAt"])
        if expires_at.tzinfo is None:
            raise ValueError("expiresAt has no offset from UTC")
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedError(f"the claim of {writer} cannot be read: {error!r}") from None
    return Claim(token, writer, expires_at, fields.get("released") is True)


def _held_by(room: Room, held: list[Claim]) -> str:
    if not held:
        return f"others want the lease of {room.workload} at the same time: try again"
    last = max(held, key=lambda claim: claim.expires_at)
    return (
        f"writer {last.writer} holds the lease of {room.workload} until {last.expires_at.isoformat()}: "
        f"wait for it, or end that writer"
    )
