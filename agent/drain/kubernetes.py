"""Takes pods off this node by the Kubernetes API: a taint, evictions with grace, deletion at the edge."""

from __future__ import annotations

import asyncio
import signal as signals
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from agent.drain import kube_marks
from agent.drain.kube_answers import Blocked, Changed, Missing
from agent.drain.kube_api import KubeApi
from agent.drain.kube_local import KubeletShutdown
from agent.drain.kube_pods import LEAST_GRACE_SECONDS, Pod, at_edge, grace_for
from agent.drain.kube_processes import Processes, processes_of_pods
from agent.drain.kube_watch import PodWatch
from agent.drain.ports import Deadline, DrainDriver, Ending, SchedulerUnreachable, Work
from agent.drain.processes import running, send
from wire.bundle import DrainOrders

KIND = "pod"
# Each is a connection: more would cost the node memory and the API handshakes.
AT_ONCE = 8
# How long a pod that a budget blocks is left in peace before it is asked for again.
RETRY_SECONDS = 1.0
# Less than the caller gives, so that it is ours to say whether anything was told.
SIGNAL_SECONDS = 0.9
PRESS_SECONDS = 0.15


def utc_now() -> datetime:
    return datetime.now(UTC)


class KubernetesDriver:
    """Drains one node. Only pods bound to it are touched; daemons, static and finished pods never are.

    A disruption budget may hold a pod back only until the pod's own grace has to begin. `left` therefore
    also asks again for what was held back, and for what the API said it had evicted and did not.
    """

    name = "kubernetes"
    signals_again = True

    def __init__(
        self,
        api: KubeApi,
        node: str,
        *,
        now: Callable[[], datetime] = utc_now,
        clock: Callable[[], float] = time.monotonic,
        processes: Callable[[], Processes] = processes_of_pods,
        shutdown: KubeletShutdown | None = None,
    ) -> None:
        """`node` is the node's name in the cluster, `processes` tells what runs in which pod here."""
        self._api = api
        self._node = node
        self._now = now
        self._clock = clock
        self._processes = processes
        self._watch = PodWatch(api, node, clock)
        self._shutdown = shutdown or KubeletShutdown(processes)
        self._orders: DrainOrders | None = None
        self._deadline: Deadline | None = None
        self._seen: dict[str, Pod] = {}
        self._told: set[str] = set()
        self._asked_at: dict[str, float] = {}
        self._pressing: asyncio.Task[list[SchedulerUnreachable]] | None = None

    def local(self) -> DrainDriver:
        """The kubelet's own shutdown, for when the API does not answer."""
        return self._shutdown

    async def cordon(self, owner: str, until: datetime) -> None:
        await kube_marks.mark(self._api, self._node, owner, until, self._now())

    async def uncordon(self, owner: str) -> None:
        await self._let_go()
        await kube_marks.unmark(self._api, self._node, owner)
        await self._api.close()

    async def signal(self, orders: DrainOrders, deadline: Deadline) -> None:
        """Evict. SchedulerUnreachable only when not a single pod was told, so that no pod has two masters."""
        began = time.monotonic()
        await self._stop_pressing()
        self._orders = None
        self._asked_at.clear()
        pods = await self._look(refresh=True)
        await self.before(pods)
        pressing = self._start_pressing(pods, orders, deadline)
        try:
            done, _ = await asyncio.wait({pressing}, timeout=began + SIGNAL_SECONDS - time.monotonic())
        except asyncio.CancelledError:
            pressing.cancel()
            raise
        if not done and not self._told:
            pressing.cancel()
            raise SchedulerUnreachable("no eviction was answered in time")
        if done and (failures := pressing.result()) and not self._told:
            raise failures[0]
        self._orders, self._deadline = orders, deadline

    async def left(self) -> tuple[Work, ...]:
        try:
            pods = await self._look()
        except SchedulerUnreachable:
            # Without the API the kernel still knows which of the pods run; a pod it never saw, it does not.
            processes = self._processes()
            if not (self._seen.keys() & processes or self._is_empty_but_for_its_own(processes)):
                raise
            return self._works((), processes)
        if self._orders is not None and self._deadline is not None:
            # Asking again goes on by itself, so that a slow API does not keep back what is known.
            await asyncio.wait(
                {self._start_pressing(pods, self._orders, self._deadline)}, timeout=PRESS_SECONDS
            )
        return self._works(pods, self._processes())

    async def force(self, work: Sequence[Work]) -> None:
        """Delete with the least grace. Processes of a pod that the API does not take are killed."""
        names = {one.name for one in work}
        doomed = [pod for pod in self._seen.values() if pod.full_name in names]
        await asyncio.gather(*(self._end(pod) for pod in doomed))

    async def finish(self, orders: DrainOrders) -> None:
        """The pods' owners start them again elsewhere: nothing is left to say."""
        await self._let_go()

    async def endings(self, of: Sequence[Work] = ()) -> tuple[Ending, ...]:
        names = {one.name for one in of}
        ended = [pod for pod in await self._watch.ended() if not names or pod.full_name in names]
        return tuple(
            Ending(KIND, pod.full_name, pod.exit_code, pod.uid, pod.ended_at)
            for pod in ended
            if pod.exit_code is not None
        )

    async def before(self, pods: Sequence[Pod]) -> None:
        """What has to happen to the pods before any of them is evicted: here nothing."""

    def due(self, pods: Sequence[Pod], remaining_seconds: float) -> Sequence[Pod]:
        """The pods that may be evicted now: here all of them."""
        return pods

    async def _let_go(self) -> None:
        self._orders = None
        await self._stop_pressing()
        await self._watch.close()

    async def _look(self, *, refresh: bool = False) -> tuple[Pod, ...]:
        pods = await (self._watch.refresh() if refresh else self._watch.pods())
        self._seen |= {pod.uid: pod for pod in pods}
        return pods

    def _start_pressing(
        self, pods: Sequence[Pod], orders: DrainOrders, deadline: Deadline
    ) -> asyncio.Task[list[SchedulerUnreachable]]:
        if self._pressing is None or self._pressing.done():
            self._pressing = asyncio.create_task(self._press(pods, orders, deadline))
        return self._pressing

    async def _stop_pressing(self) -> None:
        task, self._pressing = self._pressing, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    async def _press(
        self, pods: Sequence[Pod], orders: DrainOrders, deadline: Deadline
    ) -> list[SchedulerUnreachable]:
        """Ask for every pod that is due and not ending in time; returns what went wrong, one per pod."""
        remaining = deadline.remaining_seconds()
        grace = grace_for(remaining, orders.budget_seconds)
        limit = asyncio.Semaphore(AT_ONCE)

        async def tell(pod: Pod) -> SchedulerUnreachable | None:
            async with limit:
                try:
                    await self._tell(pod, grace, edge=at_edge(pod, remaining, orders.budget_seconds))
                except SchedulerUnreachable as error:
                    return error
                return None

        wanted = [pod for pod in self.due(pods, remaining) if self._wants(pod, grace)]
        answers = await asyncio.gather(*(tell(pod) for pod in wanted))
        return [answer for answer in answers if answer is not None]

    def _wants(self, pod: Pod, grace: int) -> bool:
        """Whether it has to be asked for (again): it does not end, or only after its time."""
        if pod.ending_seconds is not None and (pod.uid in self._told or pod.ending_seconds <= grace):
            self._told.add(pod.uid)
            return False
        asked_at = self._asked_at.get(pod.uid)
        return asked_at is None or self._clock() - asked_at >= RETRY_SECONDS

    async def _tell(self, pod: Pod, grace: int, *, edge: bool) -> None:
        self._asked_at[pod.uid] = self._clock()
        try:
            # A pod that ends too late is given less time, which a deletion alone can do.
            await (self._api.delete(pod, grace) if pod.ending else self._evict(pod, grace, edge=edge))
        except (Missing, Changed, Blocked):
            return
        self._told.add(pod.uid)

    async def _evict(self, pod: Pod, grace: int, *, edge: bool) -> None:
        """Evict; at the edge neither a budget nor budgets that contradict each other stop us any more."""
        try:
            await self._api.evict(pod, grace)
        except (Blocked, SchedulerUnreachable):
            if not edge:
                raise
            await self._api.delete(pod, grace)

    async def _end(self, pod: Pod) -> None:
        try:
            await self._api.delete(pod, LEAST_GRACE_SECONDS)
        except (Missing, Changed, Blocked, SchedulerUnreachable):
            for process in running(self._processes().get(pod.uid, ())):
                send(process, signals.SIGKILL)

    def _is_empty_but_for_its_own(self, processes: Processes) -> bool:
        """Whether what runs is known, and no work. That nothing runs at all may be that nothing is seen."""
        return bool(processes) and processes.keys() <= self._watch.of_the_node()

    def _works(self, pods: Sequence[Pod], processes: Processes) -> tuple[Work, ...]:
        """The pods, and besides them those that the API has forgotten while their processes run on."""
        named = {pod.uid for pod in pods}
        forgotten = [pod for uid, pod in self._seen.items() if uid not in named and uid in processes]
        return tuple(Work(KIND, pod.full_name, processes.get(pod.uid, ())) for pod in (*pods, *forgotten))
