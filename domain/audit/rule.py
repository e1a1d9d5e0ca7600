"""Audit: whether what is recorded and what exists at the provider are one world.

It changes nothing and repairs nothing: it says what is wrong, and what to do. What is under way is
counted, not judged; servers without our tag are other people's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from domain.acquisition import ServerStatus, SlotState
from domain.audit.facts import EndFact, Facts, LicenceFact, PlanFact, ServerFact, SlotFact
from domain.audit.findings import MAX_SERVERS_NAMED, Finding, FindingKind, finding, of_server, of_slot
from domain.model import Frozen
from domain.reconcile import FleetPhase
from domain.tags import partition_tag, purchase_model_tag, server_tags, workload_tag

STARTED_BY = frozenset({"launch", "adopt"})
ENDED_BY: Mapping[SlotState, frozenset[str]] = {
    SlotState.GONE: frozenset({"delete", "lose"}),
    SlotState.FAILED: frozenset({"delete", "lose"}),
    SlotState.LOST: frozenset({"lose"}),
}


class AuditTerms(Frozen):
    """What may be under way. A server may take `settle_seconds` to find its slot; the units of a lost
    one are planned again within `replan_seconds`, by the next sweep."""

    settle_seconds: float = 10
    replan_seconds: float = 150


class InFlight(Frozen):
    """What was under way and therefore not judged."""

    servers: int = 0
    workloads: int = 0


def audit(facts: Facts, terms: AuditTerms) -> tuple[tuple[Finding, ...], InFlight]:
    """Every finding, by kind and subject, and how much was under way."""
    look = _Look(facts, terms)
    found = [*look.counts(), *look.slots(), *look.servers(), *look.plans(), *look.log()]
    ordered = sorted(found, key=lambda one: (list(FindingKind).index(one.kind), one.subject))
    return tuple(ordered), InFlight(servers=look.servers_in_flight, workloads=look.workloads_in_flight)


def notes(facts: Facts) -> tuple[str, ...]:
    """What whoever reads the findings should know: gaps, and regions in which nothing may be done."""
    gaps = (
        f"{gap.partition_id} in {gap.region}: nobody looked from {gap.since:%Y-%m-%d %H:%M:%S} to"
        f" {gap.until:%Y-%m-%d %H:%M:%S} UTC ({gap.why})"
        for gap in facts.gaps
    )
    return (*gaps, *(_read_only(one) for one in facts.licences if not _may_act(one, facts)))


def _may_act(licence: LicenceFact, facts: Facts) -> bool:
    return licence.acting_until is not None and licence.acting_until > facts.at


def _read_only(licence: LicenceFact) -> str:
    why = licence.problem or (
        "two complete cycles have to agree first"
        if licence.phase == FleetPhase.READ_ONLY
        else "the last complete cycle is too long ago"
    )
    return f"{licence.partition_id} in {licence.region} is read-only, nothing is repaired there: {why}"


class _Look:
    """One comparison of the records with the servers."""

    def __init__(self, facts: Facts, terms: AuditTerms) -> None:
        self.facts = facts
        self.terms = terms
        self.servers_in_flight = 0
        self.workloads_in_flight = 0
        self._managed = [one for one in facts.servers if one.is_managed]
        self._live = [one for one in facts.slots if one.is_live]
        self._holders: dict[str, list[SlotFact]] = {}
        self._former: dict[str, SlotFact] = {}
        for slot in facts.slots:
            if slot.server_id is not None and slot.is_live:
                self._holders.setdefault(slot.server_id, []).append(slot)
            elif slot.server_id is not None:
                self._former[slot.server_id] = slot

    def counts(self) -> Iterator[Finding]:
        """No double booking: what is booked is there, and is what the slots take."""
        for one in self.facts.counts:
            subject = "/".join(part for part in (one.workload_id, one.pool_id, one.shape_key) if part)
            if one.capacity is not None and one.booked > one.capacity:
                problem = f"{one.booked} instances of pool {subject} are booked of {one.capacity}"
                yield finding(FindingKind.OVERBOOKED, subject, problem, pool_id=one.pool_id)
            if one.booked != one.live:
                problem = f"{one.booked} instances of {subject} are booked, and {one.live} slots live"
                yield finding(
                    FindingKind.MISCOUNTED,
                    subject,
                    problem,
                    pool_id=one.pool_id,
                    workload_id=one.workload_id,
                )

    def slots(self) -> Iterator[Finding]:
        """One server per slot, which exists and was made for it."""
        existing = {one.server_id: one for one in self.facts.servers}
        for server_id, holders in self._holders.items():
            if len(holders) > 1:
                keys = ", ".join(sorted(one.slot_key for one in holders))
                problem = f"server {server_id} is bound by {len(holders)} live slots: {keys}"
                yield of_slot(FindingKind.SHARED, holders[0], problem, subject=server_id)
            for slot in holders:
                yield from _of_holder(slot, existing.get(server_id))

    def servers(self) -> Iterator[Finding]:
        """Every server of ours has exactly one live slot, and says truly whose it is."""
        free = Counter(one.batch_key for one in self._live if self._expects_server(one))
        idle: dict[str | None, list[ServerFact]] = {}
        for server in sorted(self._managed, key=lambda one: one.server_id):
            if server.server_id not in self._holders and not server.is_leaving:
                if server.batch_key is not None and free[server.batch_key] > 0:
                    free[server.batch_key] -= 1
                    self.servers_in_flight += 1
                else:
                    idle.setdefault(server.batch_key, []).append(server)
        made = Counter(one.batch_key for one in self._managed if not one.is_leaving)
        for batch_key, servers in idle.items():
            yield from self._without_slot(batch_key, servers, made[batch_key])

    def _expects_server(self, slot: SlotFact) -> bool:
        asked_lately = slot.was_asked_since(self.facts.ago(self.terms.settle_seconds))
        return slot.state is SlotState.PLANNED and slot.server_id is None and asked_lately

    def _without_slot(self, batch_key: str | None, servers: list[ServerFact], made: int) -> Iterator[Finding]:
        slots = self.facts.batch_slots.get(batch_key or "", 0)
        left = []
        for server in servers:
            former = self._former.get(server.server_id)
            if former is not None:
                problem = f"server {server.server_id} is {server.status}, its slot {former.slot_key} is"
                yield of_server(FindingKind.ENDED, server, f"{problem} {former.state}")
            elif server.workload_id not in self.facts.workloads:
                problem = f"server {server.server_id} is of workload {server.workload_id}, which nobody knows"
                yield of_server(FindingKind.STRANGER, server, problem)
            elif slots == 0:
                problem = f"server {server.server_id} is of batch {batch_key}, which nobody planned"
                yield of_server(FindingKind.UNRECORDED, server, problem)
            else:
                left.append(server)
        if left and made > slots:
            yield _duplicate(left, made, slots)
        else:
            yield from (_orphan(server) for server in left)

    def plans(self) -> Iterator[Finding]:
        """A placement that has ended: every claimed unit is placed or missing, and what is meant runs."""
        replanned = self.facts.ago(self.terms.replan_seconds)
        for plan in self.facts.plans:
            is_running = not plan.is_settled or plan.newer_claim
            self.workloads_in_flight += is_running or plan.was_lost_since(replanned)
            if plan.is_settled and not plan.was_lost_since(replanned):
                problem = "; ".join(_plan_problems(plan))
                if problem:
                    yield finding(
                        FindingKind.PLAN,
                        plan.workload_id,
                        f"workload {plan.workload_id}: {problem}",
                        region=plan.region,
                        workload_id=plan.workload_id,
                    )

    def log(self) -> Iterator[Finding]:
        """Every action at the provider is in the audit log."""
        started: dict[str, list[ServerFact]] = {}
        for server in self._managed:
            batch_key = server.batch_key or ""
            if self.facts.batch_slots.get(batch_key) and batch_key not in self.facts.launched:
                started.setdefault(batch_key, []).append(server)
        for batch_key, servers in started.items():
            problem = f"nothing in the audit log says who launched or adopted batch {batch_key}"
            yield of_server(FindingKind.UNLOGGED, servers[0], problem, subject=batch_key, all_of=servers)
        yield from (_unlogged_end(one) for one in self.facts.ends if not one.actions & ENDED_BY[one.state])


def _of_holder(slot: SlotFact, server: ServerFact | None) -> Iterator[Finding]:
    """What is wrong with the server of a live slot."""
    if server is None:
        problem = f"slot {slot.slot_key} is {slot.state}, its server {slot.server_id} does not exist"
        yield of_slot(FindingKind.LOST, slot, problem)
        return
    if server.is_leaving and slot.state is not SlotState.RELEASING:
        problem = f"slot {slot.slot_key} is {slot.state}, its server {slot.server_id} is being deleted"
        yield of_slot(FindingKind.LOST, slot, problem)
    if slot.state is SlotState.ACTIVE and server.status in (ServerStatus.ERROR, ServerStatus.STOPPED):
        problem = f"slot {slot.slot_key} is active, its server {slot.server_id} is {server.status}"
        yield of_slot(FindingKind.UNSERVING, slot, problem + (f": {server.fault}" if server.fault else ""))
    if (server.batch_key, server.pool_id, server.region) != (slot.batch_key, slot.pool_id, slot.region):
        problem = (
            f"slot {slot.slot_key} holds server {slot.server_id}, which was made for another slot:"
            f" batch {server.batch_key}, pool {server.pool_id}, region {server.region}"
        )
        yield of_slot(FindingKind.MISMATCH, slot, problem)
    wrong = _wrong_labels(slot, server)
    if wrong:
        problem = f"server {slot.server_id} of slot {slot.slot_key} {'; '.join(wrong)}"
        yield of_slot(FindingKind.WRONG_TAGS, slot, problem)


def _wrong_labels(slot: SlotFact, server: ServerFact) -> list[str]:
    """Tags that are missing, tags that name somebody else, and metadata that does."""
    expected = frozenset(server_tags(slot.partition_id, slot.workload_id, slot.purchase_model))
    ours = tuple(tag("") for tag in (partition_tag, purchase_model_tag, workload_tag))
    missing = sorted(expected - server.tags)
    foreign = sorted(tag for tag in server.tags - expected if tag.startswith(ours))
    named = {"sco_workload": server.workload_id, "sco_partition": server.partition_id}
    meant = {"sco_workload": slot.workload_id, "sco_partition": slot.partition_id}
    wrong = [f"{key}={named[key]} and not {meant[key]}" for key in named if named[key] != meant[key]]
    told = (("lacks the tags", missing), ("has the tags of another", foreign), ("has metadata", wrong))
    return [f"{what} {', '.join(which)}" for what, which in told if which]


def _plan_problems(plan: PlanFact) -> Iterator[str]:
    if plan.placed + plan.missing != plan.claimed:
        yield f"{plan.placed} units are placed and {plan.missing} missing of {plan.claimed} claimed"
    if (plan.missing > 0) != (plan.why_missing is not None):
        yield f"{plan.missing} units are missing with reason {plan.why_missing}"
    if (plan.missing > 0) != (plan.phase == "shortfall"):
        yield f"it is {plan.phase} with {plan.missing} units missing"
    if plan.open or plan.active != plan.meant:
        yield (
            f"it is {plan.phase} with {plan.active} active instances of {plan.meant} meant"
            f" and {plan.open} slots open"
        )


def _duplicate(left: list[ServerFact], made: int, slots: int) -> Finding:
    extra = ", ".join(one.server_id for one in left[:MAX_SERVERS_NAMED])
    problem = f"batch {left[0].batch_key} has {made} servers for {slots} slots; without a slot: {extra}"
    return of_server(FindingKind.DUPLICATE, left[0], problem, subject=left[0].batch_key or "", all_of=left)


def _orphan(server: ServerFact) -> Finding:
    problem = f"server {server.server_id} of batch {server.batch_key} is {server.status} and has no live slot"
    return of_server(FindingKind.ORPHAN, server, problem)


def _unlogged_end(end: EndFact) -> Finding:
    wanted = " or ".join(sorted(ENDED_BY[end.state]))
    problem = (
        f"slot {end.slot_key} is {end.state}, and the audit log has no {wanted} of its server {end.server_id}"
    )
    return finding(
        FindingKind.UNLOGGED,
        end.slot_key,
        problem,
        region=end.region,
        workload_id=end.workload_id,
        pool_id=end.pool_id,
        server_ids=(end.server_id,),
    )
