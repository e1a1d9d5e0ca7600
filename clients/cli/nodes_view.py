"""Nodes and their drains on the screen."""

from __future__ import annotations

from collections.abc import Sequence

from clients.cli.node_answers import Drain, DrainLine, DrainStory, LeftOut, Node, Revoked
from clients.cli.screen import Screen, figures, names, spare
from clients.cli.texts import duration, moment

_NODE_COLUMNS = (
    *names("NODE", "STATE", "DRAIN"),
    *figures("BUNDLE", "HELD", "BUNDLE AGE"),
    *names("LAST EVENT", "AT", "WORKLOAD"),
    *spare(*names("HALL", "POOL", "HELD SAID")),
)
_DRAIN_COLUMNS = (
    *names("NODE", "OUTCOME", "CAUSE", "WHEN"),
    *figures("TOLD AFTER s", "TO SPARE s"),
    *names("WORKLOAD"),
    *spare(*names("HALL", "DRAIN")),
)


LEFT_OUT_SHOWN = 10
_WHY = {
    "no_name_yet": "the provider's name of it is not known yet",
    "no_node_name": "its server's name can be no node's",
    "shared_name": "another live server of the partition has its name",
}


def nodes(screen: Screen, listed: Sequence[Node]) -> None:
    if not listed:
        screen.note("no live node found")
        return
    screen.table(_NODE_COLUMNS, [_node(one) for one in listed])


def _node(one: Node) -> tuple[str, ...]:
    told, age = one.last_event, one.bundle_age_seconds
    return (
        one.instance_id,
        one.state if one.revoked_at is None else f"{one.state}, revoked",
        "-" if one.drain is None else one.drain.outcome,
        "at launch" if one.bundle_version is None else f"{one.bundle_version:,}",
        "-" if one.bundle_held is None else f"{one.bundle_held:,}",
        "-" if age is None else duration(age),
        "-" if told is None else told.type,
        "-" if told is None else moment(told.occurred_at),
        one.workload_id,
        one.hall,
        one.pool_id,
        "-" if one.bundle_held_reported_at is None else moment(one.bundle_held_reported_at),
    )


def revoked(screen: Screen, one: Revoked) -> None:
    by = "" if one.revoked_by is None else f" by {one.revoked_by}"
    screen.line(f"node {one.instance_id} revoked at {moment(one.revoked_at)}{by}")
    if one.bus_credentials_end_by is not None:
        screen.note(
            f"what lets it onto the node bus is not renewed; it ends by {moment(one.bus_credentials_end_by)}"
        )


def left_out(screen: Screen, listed: Sequence[LeftOut]) -> None:
    """Instances that are in no forwarder's file, each with the reason."""
    for one in listed[:LEFT_OUT_SHOWN]:
        name = "" if one.server_name is None else f" ({one.server_name})"
        screen.note(f"left out: {one.instance_id}{name}: {_WHY.get(one.reason, one.reason)}")
    if len(listed) > LEFT_OUT_SHOWN:
        screen.note(f"left out: {len(listed) - LEFT_OUT_SHOWN:,} more")


def drains(screen: Screen, listed: Sequence[Drain]) -> None:
    if not listed:
        screen.note("no drain found")
        return
    screen.table(_DRAIN_COLUMNS, [_drain(one) for one in listed])


def _drain(one: Drain) -> tuple[str, ...]:
    after, spare_seconds = one.signalled_after_seconds, one.seconds_to_spare
    return (
        one.instance_id,
        one.outcome,
        one.cause,
        moment(one.at),
        "-" if after is None else f"{after:.2f}",
        "-" if spare_seconds is None else f"{spare_seconds:.1f}",
        one.workload_id,
        one.hall,
        one.drain_id,
    )


def story(screen: Screen, one: DrainStory) -> None:
    """The sentence first, then what happened when, then what is not known."""
    screen.title(f"{one.instance_id}: {one.outcome.replace('_', ' ')}")
    screen.line(one.sentence)
    screen.line()
    times = [_clock(line) for line in one.lines]
    width = max(map(len, times), default=0)
    for time, line in zip(times, one.lines, strict=True):
        screen.line(f"{time:<{width}}  {line.text}")
    if one.gaps:
        screen.line()
        screen.title("not known")
        for gap in one.gaps:
            screen.line(f"  {gap}")
    screen.line()
    ledger = "" if one.counts_in_ledger else ", so nothing counts in the ledger"
    screen.facts(
        [
            ("cause", f"{one.cause}{ledger}"),
            ("deadline", "none" if one.deadline is None else moment(one.deadline)),
            ("drained by", one.path or "not known"),
            ("workload", one.workload_id),
            ("hall", one.hall),
            ("drain", one.drain_id),
        ]
    )


def _clock(line: DrainLine) -> str:
    return moment(line.at) if line.seconds is None else f"T{line.seconds:+.2f}"
