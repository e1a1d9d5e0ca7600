"""One region: its flavors, host groups, servers, leases and quota, and what happens over time."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from heapq import heappop, heappush

from domain.pool import PurchaseModel
from lab.cloud.baremetal import Node, NodeYard
from lab.cloud.capacity import HostGroup
from lab.cloud.clock import CloudClock
from lab.cloud.errors import CloudError
from lab.cloud.estate import (
    flavors,
    group_plans,
    halls,
    lease_amount,
    metal_flavor,
    metal_plan,
    price,
    stable_id,
)
from lab.cloud.identity import PROJECT_ID, USER_ID
from lab.cloud.leases import Lease, LeaseBook, LeaseStatus, Reservation
from lab.cloud.quota import Quota
from lab.cloud.records import Action, Server, ServerFault, Status, Step
from lab.cloud.reserved import BY_FLAVOR, reserved_flavor
from lab.cloud.settings import CloudSettings
from lab.cloud.table import ServerTable

SEEDED_LEASE_DAYS = 30
NO_VALID_HOST = "No valid host was found. There are not enough hosts available."
BUILD_FAILED = (
    "Exceeded maximum number of retries. Exhausted all hosts available for retrying build failures"
    " for instance {server}."
)


class Region:
    """The state of one region. Callers `settle` first, so that everything due has happened."""

    def __init__(self, name: str, settings: CloudSettings, clock: CloudClock, rng: random.Random) -> None:
        self.name = name
        self.settings = settings
        self.clock = clock
        self.rng = rng
        self.halls = halls(name)
        self.lost_halls: set[str] = set()
        self.flavors = {flavor.id: flavor for flavor in flavors(name)}
        self.flavor_ids = {flavor.name: flavor.id for flavor in self.flavors.values()}
        self.groups = {
            plan.name: HostGroup.from_plan(plan, self.flavors[self.flavor_ids[plan.flavor]])
            for plan in group_plans(name, settings.seed)
        }
        self.prices: dict[str, Decimal] = {
            group.name: price(name, group.plan, settings.seed) for group in self.groups.values()
        }
        self.quota = Quota(settings.quota.model_dump())
        self.servers = ServerTable()
        self.leases = LeaseBook()
        self.nodes = NodeYard()
        self._timers: list[tuple[datetime, int, str]] = []
        self._timer_count = 0

    def now(self) -> datetime:
        return self.clock.now()

    def new_id(self) -> str:
        return str(uuid.UUID(int=self.rng.getrandbits(128), version=4))

    # Time

    def settle(self) -> None:
        """Let everything happen that is due on the cloud's clock, in order of its time."""
        now = self.now()
        while self._timers and self._timers[0][0] <= now:
            due_at, _, subject = heappop(self._timers)
            server = self.servers.get(subject)
            lease = self.leases.get(subject)
            if server is not None and server.due_at == due_at:
                self._take_step(server, due_at)
            elif lease is not None and lease.next_change_at == due_at:
                self.change_lease(lease, due_at)
        self.nodes.settle(self.groups, self.servers)

    def schedule(self, server: Server, step: Step, seconds: float) -> None:
        due_at = self.now() + timedelta(seconds=seconds)
        server.wait_for(step, due_at)
        self.watch(server.id, due_at)

    def watch(self, subject: str, due_at: datetime) -> None:
        """Look at a server or lease when its time has come; outdated looks do nothing."""
        self._timer_count += 1
        heappush(self._timers, (due_at, self._timer_count, subject))

    def _take_step(self, server: Server, at: datetime) -> None:
        step = server.step
        server.wait_for(None, None)
        match step:
            case Step.ACTIVE:
                self._become_active(server, at)
            case Step.NO_HOST:
                self._fail(server, at, ServerFault(500, NO_VALID_HOST, at))
            case Step.NO_QUOTA:
                self._fail(server, at, ServerFault(413, self.quota.recheck_failure(server.project_id), at))
            case Step.BUILD_ERROR:
                server.availability_zone = None
                self._fail(server, at, ServerFault(500, BUILD_FAILED.format(server=server.id), at))
            case Step.GONE:
                self.gone(server, at)
            case None:
                return

    def _become_active(self, server: Server, at: datetime) -> None:
        if server.availability_zone in self.lost_halls:
            return
        server.status, server.task_state = Status.ACTIVE, None
        server.launched_at = server.updated_at = at
        _finish(server, at, "Success")
        self.servers.changed(server)

    def _fail(self, server: Server, at: datetime, fault: ServerFault) -> None:
        self._release(server)
        server.status, server.task_state, server.updated_at = Status.ERROR, None, at
        server.fault = fault
        _finish(server, at, "Error")
        self.servers.changed(server)

    # Servers

    def server(self, server_id: str, project_id: str) -> Server:
        """A live server of the project; a 404 in Nova's words otherwise."""
        server = self.servers.get(server_id)
        if server is None or server.project_id != project_id:
            raise CloudError(404, f"Instance {server_id} could not be found.")
        return server

    def delete(self, server: Server, request_id: str) -> None:
        """Accept a delete; the server goes a little later. Asking again while it goes is no error.

        One that no host was chosen for yet goes at once.
        """
        if server.step is Step.GONE:
            return
        now = self.now()
        if self.is_scheduling(server):
            server.unscheduled = True
            self.gone(server, now)
            return
        server.task_state, server.updated_at = "deleting", now
        server.actions.append(Action("delete", request_id, server.user_id, now))
        self.schedule(server, Step.GONE, self.settings.delete_seconds)
        self.servers.changed(server)

    def gone(self, server: Server, at: datetime) -> None:
        """The server stops to exist: at its owner's wish, or because the provider took it."""
        self._release(server)
        self.quota.give_back(server.project_id, self.flavors[server.flavor_id])
        server.wait_for(None, None)
        server.status, server.task_state = Status.DELETED, None
        server.terminated_at = server.updated_at = at
        _finish(server, at, "Success")
        self.servers.remove(server)

    def set_power(self, server: Server, status: Status, action: Action) -> None:
        """Stop or start a server, at once."""
        now = self.now()
        server.status, server.updated_at = status, now
        action.finished_at, action.result = now, "Success"
        server.actions.append(action)
        self.servers.changed(server)

    def is_scheduling(self, server: Server) -> bool:
        """Whether no host was chosen for it yet."""
        until = server.created_at + timedelta(seconds=self.settings.schedule_seconds)
        return server.status is Status.BUILD and self.now() < until

    def touch(self, server: Server) -> None:
        """Note that metadata or the name of a server was changed."""
        server.updated_at = self.now()
        self.servers.changed(server)

    def _release(self, server: Server) -> None:
        if server.group is None:
            return
        self.groups[server.group].release()
        found = self.leases.reservation(server.reservation) if server.reservation else None
        if found is not None:
            found[1].used -= 1
        server.group = None

    # Bare metal

    def add_nodes(self, nodes: list[Node]) -> None:
        """Enroll nodes, and offer the pools that they make."""
        self.nodes.add(nodes)
        for hall, sku in sorted({(node.hall, node.sku) for node in nodes}):
            plan, flavor = metal_plan(hall, sku), metal_flavor(self.name, sku)
            if plan.name not in self.groups:
                self.flavors[flavor.id] = flavor
                self.flavor_ids[flavor.name] = flavor.id
                self.groups[plan.name] = HostGroup.from_plan(plan, flavor)
                self.prices[plan.name] = price(self.name, plan, self.settings.seed)
        self.nodes.settle(self.groups, self.servers)

    # Leases

    def seed_leases(self) -> None:
        """One lease for each committed group, active since yesterday. Blazar counts in whole minutes."""
        now = self.now().replace(second=0, microsecond=0)
        for group in self.committed_groups():
            amount = lease_amount(self.settings.seed, group.plan)
            reservation = Reservation(
                stable_id("reservation", group.name),
                group.name,
                BY_FLAVOR,
                amount,
                {"flavor_id": group.flavor.id, "affinity": None},
            )
            self.book(
                Lease(
                    id=stable_id("lease", group.name),
                    name=group.name,
                    project_id=PROJECT_ID,
                    user_id=USER_ID,
                    start_at=now - timedelta(days=1),
                    end_at=now + timedelta(days=SEEDED_LEASE_DAYS),
                    created_at=now - timedelta(days=1),
                    reservations=[reservation],
                )
            )
        self.settle()

    def committed_groups(self) -> Iterator[HostGroup]:
        return (each for each in self.groups.values() if each.plan.purchase_model is PurchaseModel.COMMITTED)

    def book(self, lease: Lease) -> None:
        """Add a lease, with a flavor for each reservation. It is kept for servers that had it."""
        self.leases.add(lease)
        for each in lease.reservations:
            self.flavors[each.id] = reserved_flavor(each, self.groups[each.group].flavor)
        self.watch_lease(lease)

    def watch_lease(self, lease: Lease) -> None:
        if lease.next_change_at is not None:
            self.watch(lease.id, lease.next_change_at)

    def change_lease(self, lease: Lease, at: datetime) -> None:
        """Start a pending lease, or end an active one together with the servers on it."""
        if lease.status is LeaseStatus.PENDING:
            lease.status = LeaseStatus.ACTIVE
        else:
            lease.status = LeaseStatus.TERMINATED
            self._empty(lease, at)
        lease.updated_at = at
        self.watch_lease(lease)
        self.refit(lease)

    def drop_lease(self, lease: Lease) -> None:
        """Delete a lease and, when it is active, the servers on it."""
        if lease.status is LeaseStatus.ACTIVE:
            self._empty(lease, self.now())
        self.leases.remove(lease)
        self.refit(lease)

    def refit(self, lease: Lease) -> None:
        """Let the committed groups of a lease offer what active leases hold now."""
        for reservation in lease.reservations:
            self.groups[reservation.group].resize(self.leases.active_amount(reservation.group))

    def _empty(self, lease: Lease, at: datetime) -> None:
        for reservation in lease.reservations:
            for server in self.servers.with_key(("reservation", reservation.id)):
                self.gone(server, at)


def _finish(server: Server, at: datetime, result: str) -> None:
    for action in server.actions:
        if action.finished_at is None:
            action.finished_at, action.result = at, result
