"""The taint of a drain: owner and expiry, conflicts with others who write to the node, who takes it back."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.drain.kube_answers import NodeMarks
from agent.drain.kube_marks import MAX_TRIES, OWNER, TAINT, UNTIL, is_mark, marked, taint_value, unmarked
from agent.drain.ports import SchedulerUnreachable
from lab.schedulers.kube_faults import Fault
from tests.agent.drain import cluster
from tests.agent.drain.cluster import NODE, NOW, Drain, draining

ME = cluster.OWNER
PATCH = "PATCH /api/v1/nodes/"
GPU = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
OTHER_EFFECT = {"key": TAINT, "value": "kept", "effect": "PreferNoSchedule"}

taints = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(["gpu", "zone", TAINT]),
            "value": st.sampled_from(["", "yes", ME, "sco-notice-2"]),
            "effect": st.sampled_from(["NoSchedule", "NoExecute"]),
        }
    ),
    max_size=5,
    unique_by=lambda taint: (taint["key"], taint["effect"]),
)


def node_with(drain: Drain, taints: list[dict[str, Any]], annotations: dict[str, str]) -> None:
    key = ("", NODE)
    body = drain.cluster.store.find("nodes", key)
    body["spec"]["taints"], body["metadata"]["annotations"] = taints, annotations
    drain.cluster.store.replace("nodes", key, body)


async def test_a_node_is_marked_beside_other_taints_and_unmarked_alone() -> None:
    async with draining() as drain:
        node_with(drain, [GPU, OTHER_EFFECT], {"kept": "yes"})
        await drain.driver.cordon(ME, cluster.UNTIL)
        mark = {"key": TAINT, "value": ME, "effect": "NoSchedule"}
        assert drain.taints() == [GPU, OTHER_EFFECT, mark]
        assert drain.annotations() == {"kept": "yes", OWNER: ME, UNTIL: "2026-11-03T09:05:00+00:00"}
        await drain.driver.cordon(ME, cluster.UNTIL)
        assert drain.taints() == [GPU, OTHER_EFFECT, mark]
        await drain.driver.uncordon(ME)
        assert drain.taints() == [GPU, OTHER_EFFECT]
        assert drain.annotations() == {"kept": "yes"}


async def test_the_last_taint_is_taken_away_too() -> None:
    async with draining() as drain:
        await drain.driver.cordon(ME, cluster.UNTIL)
        await drain.driver.uncordon(ME)
        assert drain.taints() == []


async def test_a_mark_of_another_owner_is_left_to_him_while_it_is_in_force() -> None:
    async with draining() as drain:
        foreign = {"key": TAINT, "value": "other", "effect": "NoSchedule"}
        node_with(drain, [foreign], {OWNER: "other", UNTIL: (NOW + timedelta(seconds=1)).isoformat()})
        await drain.driver.cordon(ME, cluster.UNTIL)
        await drain.driver.uncordon(ME)
        assert drain.taints() == [foreign]
        node_with(drain, [foreign], {OWNER: "other", UNTIL: NOW.isoformat()})
        await drain.driver.cordon(ME, cluster.UNTIL)
        assert [taint["value"] for taint in drain.taints()] == [ME]


async def test_others_who_write_meanwhile_are_not_overwritten() -> None:
    async with draining() as drain:
        drain.cluster.faults.add(Fault(PATCH, code=409, times=MAX_TRIES - 1))
        await drain.driver.cordon(ME, cluster.UNTIL)
        assert [taint["key"] for taint in drain.taints()] == [TAINT]


async def test_a_stale_version_is_refused_and_read_again() -> None:
    async with draining() as drain:
        read = await drain.api.node(NODE)
        node_with(drain, [GPU], {})
        change = marked(read, ME, cluster.UNTIL, NOW)
        assert change is not None
        with pytest.raises(Exception, match="modified"):
            await drain.api.patch_node(NODE, read, change.taints, change.annotations)
        assert drain.taints() == [GPU]


@pytest.mark.parametrize("code", [409, 429])
async def test_conflicts_without_end_are_given_up(code: int) -> None:
    async with draining() as drain:
        drain.cluster.faults.add(Fault(PATCH, code=code))
        with pytest.raises(SchedulerUnreachable, match="could not be marked"):
            await drain.driver.cordon(ME, cluster.UNTIL)
        drain.cluster.faults.clear()
        await drain.driver.cordon(ME, cluster.UNTIL)
        drain.cluster.faults.add(Fault(PATCH, code=code))
        with pytest.raises(SchedulerUnreachable, match="the mark stays"):
            await drain.driver.uncordon(ME)


async def test_a_node_that_the_cluster_does_not_know_cannot_be_marked_and_need_not_be_unmarked() -> None:
    async with draining() as drain:
        drain.cluster.store.remove("nodes", ("", NODE))
        with pytest.raises(SchedulerUnreachable, match="no node 'n1'"):
            await drain.driver.cordon(ME, cluster.UNTIL)
        await drain.driver.uncordon(ME)


@given(taints, st.sampled_from([None, ME, "sco-notice-2"]), st.integers(-600, 600) | st.none())
def test_marking_and_unmarking_never_touch_another_taint(
    carried: list[dict[str, str]], named: str | None, seconds: int | None
) -> None:
    annotations = {} if named is None else {OWNER: named}
    if seconds is not None:
        annotations[UNTIL] = (NOW + timedelta(seconds=seconds)).isoformat()
    read = NodeMarks("1", tuple(carried), annotations)
    others = [taint for taint in carried if not is_mark(taint)]
    change = marked(read, ME, cluster.UNTIL, NOW)
    if change is not None:
        assert [taint for taint in change.taints if not is_mark(taint)] == others
        assert [taint["value"] for taint in change.taints if is_mark(taint)] == [ME]
        written = NodeMarks("2", tuple(change.taints), {k: v for k, v in change.annotations.items() if v})
        back = unmarked(written, ME)
        assert back is not None
        assert list(back.taints) == others
        assert unmarked(written, "sco-notice-2") is None
    else:
        assert unmarked(read, ME) is None


@given(st.text(max_size=100))
def test_any_owner_makes_a_value_that_a_taint_may_have(owner: str) -> None:
    value = taint_value(owner)
    assert len(value) <= 63
    assert not value or (value[0].isalnum() and value[-1].isalnum())
    assert value.isascii()


@pytest.mark.parametrize("until", ["", "soon", "2026-11-03T08:00:00"])
def test_a_mark_without_a_readable_end_is_not_taken_over(until: str) -> None:
    foreign = {"key": TAINT, "value": "other", "effect": "NoSchedule"}
    read = NodeMarks("1", (foreign,), {OWNER: "other", UNTIL: until})
    assert marked(read, ME, datetime.max.replace(tzinfo=NOW.tzinfo), NOW) is None
