"""Which generations are kept. The newest whole one is never among those that go."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta
from typing import NamedTuple

from clients.checkpoint.errors import DamagedError, MissingError
from clients.checkpoint.generations import orders, read
from clients.checkpoint.layout import PARTS, Order, attempt_order, manifest_key
from clients.checkpoint.manifest import Manifest
from clients.checkpoint.rooms import Room


class Keep(NamedTuple):
    """Keep this many generations, or those of this many days. At least one of the two is set."""

    generations: int | None = 3
    days: float | None = None

    def checked(self) -> Keep:
        """ValueError when it would keep nothing."""
        if self.generations is None and self.days is None:
            raise ValueError("say how many generations or days to keep")
        if self.generations is not None and self.generations < 1:
            raise ValueError(f"generations is {self.generations}: keep at least 1")
        if self.days is not None and self.days <= 0:
            raise ValueError(f"days is {self.days}: keep more than 0")
        return self

    def keeps(self, place: int, age: timedelta) -> bool:
        """Whether the generation at a place (0 is the newest) and of an age stays."""
        by_number = self.generations is not None and place < self.generations
        by_age = self.days is not None and age <= timedelta(days=self.days)
        return by_number or by_age


def prune(room: Room, newest: Manifest, keep: Keep, now: datetime) -> int:
    """Remove what is older than `newest`, which was just written and found whole, and is not to be kept.

    Answers how many generations went. Manifests go before their parts: what is half removed does not exist.
    """
    mine = Order(newest.token, newest.generation, newest.writer)
    removed = 0
    spared = {part.key for part in newest.parts()}
    for place, order in enumerate([mine, *(order for order in orders(room) if order < mine)]):
        if order == mine:
            continue
        manifest = _read(room, order)
        if manifest is not None and keep.keeps(place, now - manifest.created_at):
            spared |= {part.key for part in manifest.parts()}
            continue
        room.delete(manifest_key(order))
        removed += 1
    _remove_strays(room, mine, spared)
    return removed


def _remove_strays(room: Room, mine: Order, spared: set[str]) -> None:
    """Parts of older attempts that came to nothing, and of generations that went."""
    exists: dict[Order, bool] = {}
    for key in room.list(PARTS):
        order = attempt_order(key)
        if order is None or order >= mine or key in spared:
            continue
        if order not in exists:
            # Asked for by its key: a listing that lags behind would leave it out.
            exists[order] = room.size(manifest_key(order)) is not None
        if not exists[order]:
            room.delete(key)


def _read(room: Room, order: Order) -> Manifest | None:
    with suppress(MissingError, DamagedError):
        return read(room, order)
    return None
