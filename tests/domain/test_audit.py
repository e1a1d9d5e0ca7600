"""The auditor's rule: each thing that can be wrong is found, and nothing else is."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.acquisition import ServerStatus, SlotState
from domain.audit import (
    ENDED_BY,
    MAX_FINDINGS,
    WHAT_TO_DO,
    AuditReport,
    AuditTerms,
    CountFact,
    EndFact,
    Facts,
    FindingKind,
    GapFact,
    InFlight,
    LicenceFact,
    Verdict,
    audit,
    failed,
    merged,
    notes,
    report_of,
)
from domain.tags import MANAGED_TAG, workload_tag
from tests.domain.audits import MODEL, NOW, PARTITION, POOL, REGION, WORKLOAD, plan, server, slot, world

TERMS = AuditTerms(settle_seconds=10, replan_seconds=150)
K = FindingKind


def found(facts: Facts) -> list[tuple[FindingKind, str]]:
    return [(one.kind, one.subject) for one in audit(facts, TERMS)[0]]


def in_flight(facts: Facts) -> InFlight:
    return audit(facts, TERMS)[1]


def ago(seconds: float) -> Any:
    return NOW - timedelta(seconds=seconds)


def free(number: int, **changes: Any) -> Any:
    return slot(number, state=SlotState.PLANNED, server_id=None, **changes)


def end(state: SlotState, *actions: str) -> EndFact:
    return EndFact("b-1-009", WORKLOAD, POOL, REGION, state, "s-9", frozenset(actions))


EXTRA = server(3)
BUSY = {"batch_slots": {"b-1": 3}}
SPOILT = {
    "overbooked": (
        world(counts=(CountFact(POOL, 11, 11, capacity=10),)),
        [(K.OVERBOOKED, POOL)],
    ),
    "pool miscounted": (world(counts=(CountFact(POOL, 2, 3, capacity=10),)), [(K.MISCOUNTED, POOL)]),
    "reservation miscounted": (
        world(counts=(CountFact(POOL, 1, 2, workload_id=WORKLOAD, shape_key="x"),)),
        [(K.MISCOUNTED, f"{WORKLOAD}/{POOL}/x")],
    ),
    "two slots, one server": (
        world(slots=(slot(1), slot(2, server_id="s-1")), servers=(server(1),)),
        [(K.SHARED, "s-1")],
    ),
    "more servers than slots": (world(servers=(server(1), server(2), EXTRA)), [(K.DUPLICATE, "b-1")]),
    "server gone": (world(servers=(server(1),)), [(K.LOST, "b-1-002")]),
    "server of a building slot gone": (
        world(slots=(slot(1), slot(2, state=SlotState.BUILDING)), servers=(server(1),)),
        [(K.LOST, "b-1-002")],
    ),
    "server of a releasing slot gone": (
        world(slots=(slot(1), slot(2, state=SlotState.RELEASING)), servers=(server(1),)),
        [(K.LOST, "b-1-002")],
    ),
    "server leaves unasked": (
        world(servers=(server(1), server(2, status=ServerStatus.DELETING))),
        [(K.LOST, "b-1-002")],
    ),
    "server in error": (
        world(servers=(server(1), server(2, status=ServerStatus.ERROR, fault="host died"))),
        [(K.UNSERVING, "b-1-002")],
    ),
    "server stopped": (
        world(servers=(server(1), server(2, status=ServerStatus.STOPPED))),
        [(K.UNSERVING, "b-1-002")],
    ),
    "no free slot left": (world(servers=(server(1), server(2), EXTRA), **BUSY), [(K.ORPHAN, "s-3")]),
    "free slot asked for long ago": (
        world(
            slots=(slot(1), slot(2), free(3, asked_at=ago(11))), servers=(server(1), server(2), EXTRA), **BUSY
        ),
        [(K.ORPHAN, "s-3")],
    ),
    "its slot has ended": (
        world(
            slots=(slot(1), slot(2), slot(3, state=SlotState.FAILED)),
            servers=(server(1), server(2), EXTRA),
            **BUSY,
        ),
        [(K.ENDED, "s-3")],
    ),
    "unknown batch": (
        world(servers=(server(1), server(2), server(3, "b-9"))),
        [(K.UNRECORDED, "s-3")],
    ),
    "no batch at all": (
        world(servers=(server(1), server(2), server(3, None))),
        [(K.UNRECORDED, "s-3")],
    ),
    "unknown workload": (
        world(servers=(server(1), server(2), server(3, "b-9", workload_id="nobody"))),
        [(K.STRANGER, "s-3")],
    ),
    "made for another pool": (
        world(servers=(server(1), server(2, pool_id="eu-north-h2-gp-m"))),
        [(K.MISMATCH, "b-1-002")],
    ),
    "a tag is missing": (
        world(servers=(server(1), server(2, tags=server(2).tags - {workload_tag(WORKLOAD)}))),
        [(K.WRONG_TAGS, "b-1-002")],
    ),
    "our tag is missing": (
        world(servers=(server(1), server(2, tags=server(2).tags - {MANAGED_TAG}))),
        [(K.WRONG_TAGS, "b-1-002")],
    ),
    "a tag names another workload": (
        world(servers=(server(1), server(2, tags=server(2).tags | {workload_tag("other")}))),
        [(K.WRONG_TAGS, "b-1-002")],
    ),
    "metadata names another partition": (
        world(servers=(server(1), server(2, partition_id="slurm-eu-west"))),
        [(K.WRONG_TAGS, "b-1-002")],
    ),
    "units do not add up": (world(plans=(plan(placed=2),)), [(K.PLAN, WORKLOAD)]),
    "a slot is open": (world(plans=(plan(open=1),)), [(K.PLAN, WORKLOAD)]),
    "too few run": (world(plans=(plan(active=1),)), [(K.PLAN, WORKLOAD)]),
    "missing without reason": (
        world(plans=(plan(phase="shortfall", placed=2, missing=1),)),
        [(K.PLAN, WORKLOAD)],
    ),
    "missing, and called placed": (
        world(plans=(plan(placed=2, missing=1, why_missing="capacity"),)),
        [(K.PLAN, WORKLOAD)],
    ),
    "lost long ago and not replaced": (
        world(plans=(plan(active=1, lost_at=ago(151)),)),
        [(K.PLAN, WORKLOAD)],
    ),
    "launched by nobody": (world(launched=frozenset()), [(K.UNLOGGED, "b-1")]),
    "gone without a word": (world(ends=(end(SlotState.GONE, "launch"),)), [(K.UNLOGGED, "b-1-009")]),
    "failed without a word": (world(ends=(end(SlotState.FAILED),)), [(K.UNLOGGED, "b-1-009")]),
    "lost without a word": (world(ends=(end(SlotState.LOST, "delete"),)), [(K.UNLOGGED, "b-1-009")]),
}
SOUND = {
    "as it should be": world(),
    "nothing at all": Facts(at=NOW),
    "being given back": world(
        slots=(slot(1), slot(2, state=SlotState.RELEASING)),
        servers=(server(1), server(2, status=ServerStatus.DELETING)),
    ),
    "leaving without a slot": world(
        servers=(server(1), server(2), server(3, status=ServerStatus.DELETING)), **BUSY
    ),
    "not yet asked for": world(slots=(slot(1), slot(2), free(3, asked_at=None)), **BUSY),
    "a further tag of ours": world(servers=(server(1), server(2, tags=server(2).tags | {"sco:drill"}))),
    "short with a reason": world(
        plans=(plan(phase="shortfall", placed=2, missing=1, why_missing="capacity"),)
    ),
    "an end that was logged": world(
        ends=(end(SlotState.GONE, "delete"), end(SlotState.FAILED, "lose"), end(SlotState.LOST, "lose"))
    ),
    "servers of others": world(
        servers=(
            server(1),
            server(2),
            server(3, tags=frozenset()),
            server(4, "b-9", tags=frozenset({"web"}), workload_id="nobody"),
        )
    ),
}


def test_every_kind_is_spoilt_once_at_least() -> None:
    assert {kind for _, expected in SPOILT.values() for kind, _ in expected} == set(K)


@pytest.mark.parametrize(("facts", "expected"), SPOILT.values(), ids=SPOILT)
def test_what_is_wrong_is_found_and_nothing_else(
    facts: Facts, expected: list[tuple[FindingKind, str]]
) -> None:
    assert found(facts) == expected


@pytest.mark.parametrize("facts", SOUND.values(), ids=SOUND)
def test_a_sound_world_has_no_findings(facts: Facts) -> None:
    assert found(facts) == []
    assert in_flight(facts) == InFlight()


def test_a_server_that_is_about_to_find_its_slot_is_in_flight() -> None:
    free_slot = free(3, asked_at=ago(9))
    facts = world(slots=(slot(1), slot(2), free_slot), servers=(server(1), server(2), EXTRA), **BUSY)
    assert found(facts) == []
    assert in_flight(facts).servers == 1


def test_one_free_slot_excuses_one_server() -> None:
    facts = world(slots=(slot(1), slot(2), free(3)), servers=(server(1), server(2), EXTRA, server(4)), **BUSY)
    assert found(facts) == [(K.DUPLICATE, "b-1")]
    assert in_flight(facts).servers == 1


@pytest.mark.parametrize(
    "running",
    [
        plan(phase="planned", open=2, active=0),
        plan(phase="requested", placed=0, active=0, meant=0),
        plan(active=1, lost_at=ago(149)),
    ],
)
def test_a_placement_that_runs_is_in_flight(running: Any) -> None:
    facts = world(plans=(running,))
    assert found(facts) == []
    assert in_flight(facts).workloads == 1


def test_a_newer_claim_is_in_flight_while_the_older_plan_is_still_judged() -> None:
    assert in_flight(world(plans=(plan(newer_claim=True),))).workloads == 1
    assert found(world(plans=(plan(newer_claim=True, active=1),))) == [(K.PLAN, WORKLOAD)]


def test_a_finding_says_what_and_whose_and_what_to_do() -> None:
    (one,), _ = audit(world(servers=(server(1),)), TERMS)
    assert one.problem == "slot b-1-002 is active, its server s-2 does not exist"
    assert one.what_to_do == WHAT_TO_DO[K.LOST]
    assert (one.region, one.workload_id, one.pool_id) == (REGION, WORKLOAD, POOL)
    assert one.server_ids == ("s-2",)


def test_a_duplicate_names_the_servers_that_are_too_many() -> None:
    (one,), _ = audit(world(servers=(server(1), server(2), server(3), server(4))), TERMS)
    assert one.problem == "batch b-1 has 4 servers for 2 slots; without a slot: s-3, s-4"
    assert one.server_ids == ("s-3", "s-4")


def test_wrong_tags_say_which() -> None:
    tags = server(2).tags - {MANAGED_TAG} | {workload_tag("other")}
    changed = server(2, tags=tags, workload_id="other")
    (one,), _ = audit(world(servers=(server(1), changed)), TERMS)
    assert one.problem == (
        "server s-2 of slot b-1-002 lacks the tags sco:managed;"
        " has the tags of another sco:workload=other; has metadata sco_workload=other and not orders"
    )


def test_every_kind_has_its_remedy() -> None:
    assert set(WHAT_TO_DO) == set(K)
    assert all(text.endswith(".") for text in WHAT_TO_DO.values())


def test_every_end_has_what_explains_it() -> None:
    assert set(ENDED_BY) == {SlotState.GONE, SlotState.FAILED, SlotState.LOST}


GAP = GapFact(PARTITION, REGION, ago(600), ago(60), "the worker was away")


@pytest.mark.parametrize(
    ("licence", "told"),
    [
        (LicenceFact(PARTITION, REGION, "normal", NOW + timedelta(seconds=1), None), None),
        (LicenceFact(PARTITION, REGION, "normal", NOW, None), "the last complete cycle is too long ago"),
        (LicenceFact(PARTITION, REGION, "read_only", None, None), "two complete cycles have to agree first"),
        (LicenceFact(PARTITION, REGION, "read_only", None, "HTTP 503"), "HTTP 503"),
    ],
)
def test_a_region_without_licence_is_a_note_and_no_finding(licence: LicenceFact, told: str | None) -> None:
    facts = world(licences=(licence,))
    assert found(facts) == []
    assert [note.rpartition("there: ")[2] for note in notes(facts)] == ([told] if told else [])


def test_a_gap_is_a_note_and_no_finding() -> None:
    facts = world(gaps=(GAP,))
    assert found(facts) == []
    assert notes(facts) == (
        f"{PARTITION} in {REGION}: nobody looked from 2030-01-01 11:50:00 to 2030-01-01 11:59:00 UTC"
        " (the worker was away)",
    )


def report(facts: Facts, region: str = REGION) -> AuditReport:
    return report_of([region], facts, *audit(facts, TERMS))


def test_a_report_counts_what_was_looked_at() -> None:
    servers = (server(1), server(2), EXTRA, server(9, tags=frozenset()))
    told = report(world(slots=(slot(1), slot(2), free(3)), servers=servers, gaps=(GAP,), foreign=7, **BUSY))
    assert told.counts.model_dump() == {
        "servers": 3,
        "slots": 3,
        "workloads": 1,
        "foreign": 7,
        "servers_in_flight": 1,
        "workloads_in_flight": 0,
        "gaps": 1,
    }
    assert (told.verdict, told.findings_total, len(told.notes)) == (Verdict.CLEAN, 0, 1)


def test_findings_are_capped_and_counted() -> None:
    many = tuple(server(number, "b-9") for number in range(10, 10 + MAX_FINDINGS + 5))
    told = report(world(servers=(server(1), server(2), *many)))
    assert len(told.findings) == MAX_FINDINGS
    assert (told.findings_total, told.findings_by_kind) == (
        MAX_FINDINGS + 5,
        {K.UNRECORDED: MAX_FINDINGS + 5},
    )
    assert told.verdict is Verdict.FINDINGS


def test_a_merged_report_is_the_sum() -> None:
    spoilt = report(world(servers=(server(1),), foreign=2), "eu-west")
    told = merged([spoilt, report(world(foreign=3))])
    assert told.regions == (REGION, "eu-west")
    assert (told.counts.servers, told.counts.foreign) == (3, 5)
    assert told.findings == spoilt.findings
    assert told.verdict is Verdict.FINDINGS


def test_a_region_that_was_not_seen_is_never_clean() -> None:
    told = merged([report(world()), failed("eu-west", "HTTP 503")])
    assert told.verdict is Verdict.FAILED
    assert [(one.region, one.reason) for one in told.failures] == [("eu-west", "HTTP 503")]
    assert merged([failed("eu-west", "HTTP 503"), report(world(servers=()))]).verdict is Verdict.FAILED


def test_a_report_survives_being_stored() -> None:
    told = merged([report(world(servers=(server(1),), gaps=(GAP,))), failed("eu-west", "HTTP 503")])
    assert AuditReport.model_validate_json(told.model_dump_json()) == told


STATES = st.sampled_from(SlotState)


@st.composite
def worlds(draw: st.DrawFn) -> Facts:
    """Slots in any state and servers of any number, some of them bound."""
    slots = []
    for number in range(draw(st.integers(0, 6))):
        state = draw(STATES)
        bound = state in (SlotState.BUILDING, SlotState.ACTIVE) or draw(st.booleans())
        slots.append(slot(number, state=state, server_id=f"s-{number}" if bound else None))
    servers = [
        server(number, status=draw(st.sampled_from(ServerStatus)))
        for number in sorted(draw(st.sets(st.integers(0, 9))))
    ]
    asked = draw(st.sampled_from([None, NOW, ago(60)]))
    return world(
        slots=tuple(one._replace(asked_at=asked) for one in slots),
        servers=tuple(servers),
        batch_slots={"b-1": len(slots)} if slots else {},
    )


@given(worlds())
def test_without_findings_slots_and_servers_are_one_to_one(facts: Facts) -> None:
    findings, flying = audit(facts, TERMS)
    if any(one.kind in (K.LOST, K.DUPLICATE, K.ORPHAN, K.ENDED, K.UNRECORDED) for one in findings):
        return
    staying = {one.server_id for one in facts.servers if not one.is_leaving}
    live = {one.server_id for one in facts.slots if one.is_live and one.server_id is not None}
    assert live <= {one.server_id for one in facts.servers}
    assert len(staying - live) == flying.servers


@given(worlds())
def test_every_server_too_many_is_named(facts: Facts) -> None:
    findings, flying = audit(facts, TERMS)
    too_many = {K.DUPLICATE, K.ORPHAN, K.ENDED, K.UNRECORDED}
    named = {server_id for one in findings if one.kind in too_many for server_id in one.server_ids}
    live = {one.server_id for one in facts.slots if one.is_live}
    idle = {one.server_id for one in facts.servers if not one.is_leaving and one.server_id not in live}
    assert named <= idle
    assert len(idle - named) == flying.servers


@given(worlds(), st.randoms(use_true_random=False))
def test_the_order_of_what_is_told_changes_nothing(facts: Facts, random: Any) -> None:
    slots, servers = list(facts.slots), list(facts.servers)
    random.shuffle(slots)
    random.shuffle(servers)
    shuffled = replace(facts, slots=tuple(slots), servers=tuple(servers))
    assert audit(shuffled, TERMS) == audit(facts, TERMS)


def test_the_purchase_model_is_part_of_the_tags() -> None:
    changed = slot(2, purchase_model="committed")
    assert MODEL != "committed"
    assert found(world(slots=(slot(1), changed))) == [(K.WRONG_TAGS, "b-1-002")]
