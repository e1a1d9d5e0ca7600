"""A hall is taken back at once, with the control plane away: real agents, honest and dishonest workloads."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from lab.nodes.at_once import Size, reclaim_at_once
from lab.nodes.workloads import Kind
from wire.lifecycle import EventType

SEPARATE = (
    Kind.HONEST,
    Kind.CHECKPOINTS,
    Kind.FORKS,
    Kind.EXITS_WRONGLY,
    Kind.IGNORES,
    Kind.HANGS,
)
IN_PROCESS = tuple(Kind.IGNORES if number % 20 == 0 else Kind.HONEST for number in range(60))
WARNING_SECONDS = 8.0
OUTCOMES = {EventType.DRAINED, EventType.OVERRUN}


async def test_every_node_is_signalled_and_only_those_that_ignore_it_overrun(tmp_path: Path) -> None:
    """Whoever ends when told has drained; the others are said to have overrun; nobody stays silent."""
    size = Size(SEPARATE, IN_PROCESS, processes=1, warning_seconds=WARNING_SECONDS, linger_seconds=0.2)
    came_of_it = await reclaim_at_once(tmp_path, size)
    assert len(came_of_it.nodes) == len(SEPARATE) + len(IN_PROCESS)
    for node in came_of_it.nodes:
        assert node.signalled_after_seconds is not None, node
        assert 0 < node.signalled_after_seconds < WARNING_SECONDS - 2, node
        expected = EventType.DRAINED if node.ends_by_itself else EventType.OVERRUN
        assert set(node.told) & OUTCOMES == {expected}, node
        assert {EventType.NOTICE, EventType.SIGNALLED} <= set(node.told), node


async def test_each_outcome_is_told_once_and_in_the_words_of_the_bundle(tmp_path: Path) -> None:
    size = Size((Kind.HONEST,), (Kind.HONEST, Kind.IGNORES), processes=1, warning_seconds=5.0)
    came_of_it = await reclaim_at_once(tmp_path, size)
    told = Counter((one.instance_id, one.type) for one in came_of_it.events if one.type in OUTCOMES)
    assert told == {
        ("separate-1", EventType.DRAINED): 1,
        ("shared-1", EventType.DRAINED): 1,
        ("shared-2", EventType.OVERRUN): 1,
    }
    for event in came_of_it.events:
        assert (event.tenant_id, event.pool_id, event.workload_id) == ("platform", "pool-0", "nodes")
    spare = {one.instance_id: one.seconds_to_spare for one in came_of_it.events if one.type in OUTCOMES}
    assert all(seconds is not None and 0 < seconds < 5 for seconds in spare.values())
    assert 0 < came_of_it.idle_rss_mb < 200
