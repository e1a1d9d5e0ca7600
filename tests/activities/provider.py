"""A provider of servers in memory that does what a script says, on a clock that its lists move on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import count

from activities.ports import BatchSpec, ProviderError, ProviderErrorKind, Server
from domain.acquisition import ServerStatus
from tests.estates import Clock

LIST_SECONDS = 2.0
BUILD_SECONDS = 2.0
DELETE_SECONDS = 2.0
_computes = count(1)


@dataclass
class Create:
    """What one create call does: how many servers it makes, how they fare, and what it answers."""

    made: int | None = None
    fates: tuple[ServerStatus, ...] = (ServerStatus.ACTIVE,)
    delay_seconds: float = 0
    answer: ProviderError | None = None
    fault: str | None = None


@dataclass
class Made:
    """One server as the provider knows it."""

    server: Server
    fate: ServerStatus
    shows_at: float
    gone_at: float | None = None
    fault: str | None = None


@dataclass
class ScriptedCompute:
    """The port `Compute`. Creates without a script are accepted and build what was asked for."""

    clock: Clock
    script: deque[Create] = field(default_factory=deque)
    list_answers: deque[ProviderError | None] = field(default_factory=deque)
    delete_answers: dict[str, deque[ProviderError]] = field(default_factory=dict)
    made: dict[str, Made] = field(default_factory=dict)
    creates: list[tuple[BatchSpec, int]] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    # Servers that lists leave out, although they are there.
    hidden: set[str] = field(default_factory=set)
    on_call: Callable[[str], None] = lambda _: None
    number: int = field(default_factory=lambda: next(_computes))

    def create_batch(self, spec: BatchSpec, count: int) -> None:
        self.on_call("before create")
        self.creates.append((spec, count))
        step = self.script.popleft() if self.script else Create()
        for number in range(count if step.made is None else step.made):
            self.add(spec.metadata, step, number, spec.tags, f"{spec.name_prefix}-{number + 1}")
        self.on_call("after create")
        if step.answer is not None:
            raise step.answer

    def add(
        self,
        metadata: dict[str, str],
        step: Create,
        number: int = 0,
        tags: tuple[str, ...] = (),
        name: str | None = None,
    ) -> str:
        """Put one server there, as a create with this metadata would."""
        server_id = self.id_of(len(self.made) + 1)
        server = Server(
            server_id=server_id,
            batch_key=metadata.get("sco_batch"),
            pool_id=metadata.get("sco_pool"),
            workload_id=metadata.get("sco_workload"),
            status=ServerStatus.BUILDING,
            created_at=self.clock(),
            metadata=metadata,
            tags=tags,
            name=name,
        )
        fate = step.fates[number % len(step.fates)]
        self.made[server_id] = Made(server, fate, self._now() + step.delay_seconds, fault=step.fault)
        return server_id

    def id_of(self, place: int) -> str:
        """The id of the server that was made at this place, counted from 1; no other provider's."""
        return f"server-{self.number:03d}-{place:03d}"

    def list_workload(self, region: str, workload_id: str) -> Sequence[Server]:
        return [one for one in self.list_managed(region) if one.workload_id == workload_id]

    def list_managed(self, region: str) -> Sequence[Server]:
        self.on_call("before list")
        self.clock.move(LIST_SECONDS)
        answer = self.list_answers.popleft() if self.list_answers else None
        if answer is not None:
            raise answer
        seen = [self._seen(one) for key, one in self.made.items() if key not in self.hidden]
        self.on_call("after list")
        return [one for one in seen if one is not None]

    def deleted_since(self, region: str, since: datetime) -> frozenset[str]:
        self.on_call("before deleted")
        return frozenset(
            server_id
            for server_id, one in self.made.items()
            if one.gone_at is not None and since.timestamp() <= one.gone_at <= self._now()
        )

    def find(self, region: str, server_id: str) -> Server | None:
        self.on_call("before find")
        one = self.made.get(server_id)
        return None if one is None else self._seen(one)

    def set_tags(self, region: str, server_id: str, tags: Sequence[str]) -> None:
        self.on_call("before set tags")
        one = self.made[server_id]
        one.server = replace(one.server, tags=tuple(tags))

    def delete(self, region: str, server_id: str) -> None:
        self.on_call("before delete")
        self.deleted.append(server_id)
        if self.delete_answers.get(server_id):
            raise self.delete_answers[server_id].popleft()
        one = self.made[server_id]
        one.gone_at = one.gone_at or self._now() + DELETE_SECONDS
        self.on_call("after delete")

    def vanish(self, server_id: str) -> None:
        self.made[server_id].gone_at = self._now()

    def left(self) -> set[str]:
        """Servers that nobody has asked to delete, listed or not."""
        return {server_id for server_id, one in self.made.items() if one.gone_at is None}

    def _now(self) -> float:
        return self.clock().timestamp()

    def _seen(self, one: Made) -> Server | None:
        now = self._now()
        if now < one.shows_at or (one.gone_at is not None and now >= one.gone_at):
            return None
        status, fault = one.fate, one.fault if one.fate is ServerStatus.ERROR else None
        if one.gone_at is not None:
            status, fault = ServerStatus.DELETING, None
        elif now < one.shows_at + BUILD_SECONDS:
            status, fault = ServerStatus.BUILDING, None
        return replace(one.server, status=status, fault=fault)


def in_doubt() -> ProviderError:
    return ProviderError(ProviderErrorKind.UNAVAILABLE, "eu-north: HTTP 503", in_doubt=True)


def refused(kind: ProviderErrorKind = ProviderErrorKind.QUOTA, why: str = "Quota exceeded") -> ProviderError:
    return ProviderError(kind, f"eu-north: {why}")


class Crashed(Exception):
    """The process ended here."""


@dataclass
class Fuse:
    """Counts the points at which a run could end, and ends it at one of them, or after some in a row."""

    blows_at: int | None = None
    after: list[str] = field(default_factory=list)
    points: list[str] = field(default_factory=list)

    def __call__(self, point: str) -> None:
        self.points.append(point)
        if self.after and self.after[0] == point:
            self.after.pop(0)
            if not self.after:
                raise Crashed(point)
        if len(self.points) == self.blows_at:
            raise Crashed(point)
