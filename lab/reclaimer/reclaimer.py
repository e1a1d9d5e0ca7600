"""Takes nodes back as the provider does: advisory, hard, withdrawn, by a trace, or without a word."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Literal, Protocol
from uuid import UUID

from lab.reclaimer.targets import Node
from lab.reclaimer.trace import Trace
from lab.relay.decisions import WARNING_SECONDS, Decision
from wire.notices import Notice, NoticeCause, NoticeKind

ADVISORY_SECONDS = 600.0


class Relay(Protocol):
    """What the reclaimer asks of the notice relay."""

    def decide(self, decisions: Sequence[Decision]) -> tuple[Notice, ...]: ...

    def withdraw(self, notice_ids: Sequence[UUID], reason: str = "") -> tuple[Notice, ...]: ...


class Reclaimer:
    """The provider's hand. `end` ends instances at once; `warning_seconds` may be shorter than in earnest."""

    def __init__(
        self,
        relay: Relay,
        end: Callable[[Sequence[str]], None],
        *,
        warning_seconds: float = WARNING_SECONDS,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._relay = relay
        self._end = end
        self._warning_seconds = warning_seconds
        self._sleep = sleep

    def advise(self, nodes: Sequence[Node], cause: NoticeCause = NoticeCause.RECLAIM) -> tuple[Notice, ...]:
        """Say that the nodes may be taken back."""
        return self._decide(nodes, NoticeKind.ADVISORY, ADVISORY_SECONDS, cause)

    def reclaim(self, nodes: Sequence[Node], cause: NoticeCause = NoticeCause.RECLAIM) -> tuple[Notice, ...]:
        """Say that the nodes end after the warning; whoever watches the deadline ends them then."""
        return self._decide(nodes, NoticeKind.HARD, self._warning_seconds, cause)

    def withdraw(self, notices: Sequence[Notice]) -> tuple[Notice, ...]:
        """Say that the nodes of these notices stay after all."""
        return self._relay.withdraw(
            [one.notice_id for one in notices], "the capacity is not needed after all"
        )

    def end_without_notice(self, nodes: Sequence[Node]) -> None:
        """End the nodes as a fault does: no notice, no signal."""
        self._end([one.instance_id for one in nodes])

    def follow(
        self, trace: Trace, nodes: Sequence[Node], *, rng: random.Random, speed: float = 1.0
    ) -> tuple[Notice, ...]:
        """Reclaim whenever the trace has room for fewer nodes than are left; `speed` shortens its pauses.

        Who is taken is drawn with `rng`; a node that was taken never comes back.
        """
        left = sorted(nodes)
        said: list[Notice] = []
        for tick, available in enumerate(trace.data):
            if tick:
                self._sleep(trace.metadata.gap_seconds / speed)
            taken = rng.sample(left, max(0, len(left) - available))
            if taken:
                said += self.reclaim(sorted(taken))
                left = sorted(set(left) - set(taken))
        return tuple(said)

    def _decide(
        self,
        nodes: Sequence[Node],
        kind: Literal[NoticeKind.HARD, NoticeKind.ADVISORY],
        seconds: float,
        cause: NoticeCause,
    ) -> tuple[Notice, ...]:
        return self._relay.decide(
            [
                Decision(instance_id=one.instance_id, hall=one.hall, kind=kind, cause=cause, seconds=seconds)
                for one in nodes
            ]
        )
