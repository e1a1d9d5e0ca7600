"""All servers of one region, indexed so that no request reads more than it answers."""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from heapq import merge

from lab.cloud.records import Key, Server, Status, index_keys

MAX_DELETED = 100_000


@dataclass(frozen=True, slots=True)
class ServerQuery:
    """Which servers a list wants.

    `every` must all be present, of each set in `any_of` at least one, of `none_of` none, and
    not all of `not_every`. `name` is a regular expression. With `changed_since`, deleted servers
    are part of the answer.
    """

    every: frozenset[Key] = frozenset()
    any_of: tuple[frozenset[Key], ...] = ()
    none_of: frozenset[Key] = frozenset()
    not_every: frozenset[Key] = frozenset()
    name: re.Pattern[str] | None = None
    changed_since: datetime | None = None
    changed_before: datetime | None = None
    oldest_first: bool = False

    def matches(self, server: Server) -> bool:
        keys = server.keys
        return (
            self.every <= keys
            and all(wanted & keys for wanted in self.any_of)
            and not (self.none_of & keys)
            and not (self.not_every and self.not_every <= keys)
            and (self.name is None or self.name.search(server.name) is not None)
            and (self.changed_since is None or server.updated_at >= self.changed_since)
            and (self.changed_before is None or server.updated_at <= self.changed_before)
        )


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list, and how many servers were looked at to fill it."""

    servers: list[Server]
    visited: int


class ServerTable:
    """Servers by id, by key and by creation order. Every change goes through `changed`."""

    def __init__(self) -> None:
        self._by_id: dict[str, Server] = {}
        self._by_sequence: dict[int, Server] = {}
        self._sequences: dict[Key, list[int]] = {}
        self._shared: dict[Key, Key] = {}
        self._last_changed: dict[str, Server] = {}
        self._deleted: dict[str, Server] = {}
        self.next_sequence = 1
        # Told of every server that changed or went.
        self.watcher: Callable[[Server], None] = lambda server: None

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, server_id: str) -> Server | None:
        return self._by_id.get(server_id)

    def deleted(self, server_id: str) -> Server | None:
        """A deleted server that its provider still knows of."""
        server = self._deleted.get(server_id)
        return None if server is None or server.unscheduled else server

    def live(self) -> Iterator[Server]:
        return iter(self._by_id.values())

    def all(self) -> Iterator[Server]:
        """Live and deleted servers: what really happened."""
        yield from self._by_id.values()
        yield from self._deleted.values()

    def with_key(self, key: Key) -> list[Server]:
        """The live servers that have one key, oldest first."""
        return [self._by_sequence[number] for number in self._sequences.get(key, [])]

    def add(self, server: Server) -> None:
        self.next_sequence = max(self.next_sequence, server.sequence + 1)
        if server.status is Status.DELETED:
            self._bury(server)
            return
        self._by_id[server.id] = server
        self._by_sequence[server.sequence] = server
        self.changed(server)

    def changed(self, server: Server) -> None:
        """Bring index, change order and rendered answers up to the server's present state."""
        self.relabelled(server)
        self._last_changed.pop(server.id, None)
        self._last_changed[server.id] = server
        self.watcher(server)

    def relabelled(self, server: Server) -> None:
        """The same for a change that does not count as one, as Nova sees tags."""
        keys = frozenset(self._share(key) for key in index_keys(server))
        for key in server.keys - keys:
            self._forget(key, server.sequence)
        for key in keys - server.keys:
            insort(self._sequences.setdefault(key, []), server.sequence)
        server.keys = keys
        server.rendered.clear()

    def remove(self, server: Server) -> None:
        """Take a deleted server out of the live lists.

        It stays visible to `changed_since`, unless it was deleted before a host was chosen for it: then
        Nova forgets that it ever was.
        """
        for key in server.keys:
            self._forget(key, server.sequence)
        del self._by_id[server.id], self._by_sequence[server.sequence]
        self._bury(server)
        self.watcher(server)

    def page(self, query: ServerQuery, limit: int, marker: Server | None = None) -> Page:
        """Up to `limit` servers after `marker`, newest first unless the query says otherwise."""
        found: list[Server] = []
        visited = 0
        for server in self._candidates(query, marker):
            if len(found) >= limit:
                break
            visited += 1
            if query.matches(server):
                found.append(server)
        return Page(found, visited)

    def _candidates(self, query: ServerQuery, marker: Server | None) -> Iterator[Server]:
        after = marker.sequence if marker is not None else None
        if query.changed_since is not None:
            return self._recent(query, after)
        lists = self._shortest(query)
        if query.oldest_first:
            runs = [_forward(run, after) for run in lists]
        else:
            runs = [_backward(run, after) for run in lists]
        return (self._by_sequence[number] for number in _distinct(runs, newest=not query.oldest_first))

    def _shortest(self, query: ServerQuery) -> list[list[int]]:
        """The index lists, of all that bound the answer, with the fewest entries."""
        choices = [[self._sequences.get(key, [])] for key in query.every]
        choices += [[self._sequences.get(key, []) for key in sorted(wanted)] for wanted in query.any_of]
        if not choices:
            return [list(self._by_sequence)]
        return min(choices, key=lambda lists: sum(map(len, lists)))

    def _recent(self, query: ServerQuery, after: int | None) -> Iterator[Server]:
        assert query.changed_since is not None
        found = []
        for server in reversed(self._last_changed.values()):
            if server.updated_at < query.changed_since:
                break
            if after is None or (server.sequence > after if query.oldest_first else server.sequence < after):
                found.append(server)
        return iter(sorted(found, key=lambda server: server.sequence, reverse=not query.oldest_first))

    def _bury(self, server: Server) -> None:
        server.keys = frozenset(index_keys(server))
        server.rendered.clear()
        self._deleted[server.id] = server
        self._last_changed.pop(server.id, None)
        if not server.unscheduled:
            self._last_changed[server.id] = server
        if len(self._deleted) > MAX_DELETED:
            oldest = next(iter(self._deleted))
            del self._deleted[oldest]
            self._last_changed.pop(oldest, None)

    def _share(self, key: Key) -> Key:
        return self._shared.setdefault(key, key)

    def _forget(self, key: Key, sequence: int) -> None:
        numbers = self._sequences[key]
        del numbers[bisect_left(numbers, sequence)]
        if not numbers:
            del self._sequences[key]
            self._shared.pop(key, None)


def _backward(numbers: list[int], after: int | None) -> Iterator[int]:
    position = len(numbers) if after is None else bisect_left(numbers, after)
    while position > 0:
        position -= 1
        yield numbers[position]


def _forward(numbers: list[int], after: int | None) -> Iterator[int]:
    position = 0 if after is None else bisect_left(numbers, after + 1)
    while position < len(numbers):
        yield numbers[position]
        position += 1


def _distinct(runs: list[Iterator[int]], *, newest: bool) -> Iterator[int]:
    previous: int | None = None
    for number in runs[0] if len(runs) == 1 else merge(*runs, reverse=newest):
        if number != previous:
            yield number
        previous = number
