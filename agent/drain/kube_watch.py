"""Which pods are on a node, from a list and the changes since, so that asking often costs the API little."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from agent.drain.kube_answers import Blocked, Changed, Missing
from agent.drain.kube_api import KubeApi
from agent.drain.kube_pods import MIRROR, Pod, belongs_to_node, ours
from agent.drain.ports import SchedulerUnreachable

# A change that never came is found by listing again; so is a pod that the API forgot to list.
RELIST_SECONDS = 5.0
# While no watch can be had; a drain asks more often than the API should be asked to list.
UNWATCHED_SECONDS = 1.0
LIST_TRIES = 2
CONFIRM_AT_ONCE = 8
MOST_ENDED = 256


class PodWatch:
    """The pods of a node that a drain is about. `close` ends the watching."""

    def __init__(self, api: KubeApi, node: str, clock: Callable[[], float]) -> None:
        self._api = api
        self._node = node
        self._clock = clock
        self._known: dict[str, Pod] = {}
        # By full name, since another pod may take it: what is known of the end is then the other's.
        self._ended: dict[str, Pod] = {}
        self._following: asyncio.Task[None] | None = None
        self._listed_at: float | None = None

    async def pods(self) -> tuple[Pod, ...]:
        """The pods that are ours. That none is left is said of a fresh list only."""
        fresh_seconds = RELIST_SECONDS if self._is_watching else UNWATCHED_SECONDS
        fresh = self._listed_at is not None and self._clock() - self._listed_at < fresh_seconds
        if not (fresh and ours(self._known.values(), self._node)):
            await self.refresh()
        return ours(self._known.values(), self._node)

    async def ended(self) -> tuple[Pod, ...]:
        """Pods that ended here and whose exit code was seen, the oldest first. Lists only to begin with."""
        if not self._is_watching:
            await self.refresh()
        return tuple(self._ended.values())

    def of_the_node(self) -> frozenset[str]:
        """What the kernel calls the pods that are the node's own and were last known to be here."""
        own = [pod for pod in self._known.values() if belongs_to_node(pod)]
        # Of a static pod the API knows a picture only; its name for the kernel stands on it.
        return frozenset(pod.annotations.get(MIRROR, pod.uid) for pod in own)

    async def refresh(self) -> tuple[Pod, ...]:
        """List again. What was known and is not listed has gone only if the API says so of that very pod."""
        version, listed = await self._list()
        found = {pod.uid: pod for pod in listed}
        for pod in listed:
            self._see(pod)
        doubtful = [pod for uid, pod in self._known.items() if uid not in found]
        found |= {pod.uid: pod for pod in await self._still_there(doubtful)}
        self._known = found
        self._listed_at = self._clock()
        self._follow(version)
        return ours(found.values(), self._node)

    async def close(self) -> None:
        task, self._following = self._following, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    @property
    def _is_watching(self) -> bool:
        return self._following is not None and not self._following.done()

    def _see(self, pod: Pod) -> None:
        before = self._ended.get(pod.full_name)
        if pod.exit_code is None:
            if before is not None and before.uid != pod.uid:
                del self._ended[pod.full_name]
            return
        if pod.node == self._node and not belongs_to_node(pod):
            self._ended[pod.full_name] = pod
            for name in list(self._ended)[:-MOST_ENDED]:
                del self._ended[name]

    async def _list(self) -> tuple[str, tuple[Pod, ...]]:
        for _ in range(LIST_TRIES):
            try:
                return await self._api.pods(self._node)
            except Changed:
                continue
            except (Missing, Blocked) as error:
                raise SchedulerUnreachable(f"pods cannot be listed: {error}") from error
        raise SchedulerUnreachable("the list of pods expired while it was read")

    async def _still_there(self, doubtful: list[Pod]) -> list[Pod]:
        limit = asyncio.Semaphore(CONFIRM_AT_ONCE)

        async def confirm(pod: Pod) -> Pod | None:
            async with limit:
                try:
                    found = await self._api.pod(pod.namespace, pod.name)
                except Missing:
                    return None
                except (Blocked, Changed):
                    return pod
                return found if found.uid == pod.uid else None

        answers = await asyncio.gather(*(confirm(pod) for pod in doubtful))
        return [pod for pod in answers if pod is not None]

    def _follow(self, version: str) -> None:
        if not self._is_watching:
            self._following = asyncio.create_task(self._take_changes(version))

    async def _take_changes(self, version: str) -> None:
        """Until the watch ends, for whatever reason; the next question then lists and watches again."""
        with suppress(SchedulerUnreachable, Missing, Changed, Blocked):
            async for kind, pod in self._api.changes(self._node, version):
                self._see(pod)
                if kind == "DELETED":
                    self._known.pop(pod.uid, None)
                elif kind in ("ADDED", "MODIFIED"):
                    self._known[pod.uid] = pod
