"""The provider's regions on the screen: how they are, who may act there, and what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from clients.cli.region_answers import Lease, Licence, QuotaLevel, Region
from clients.cli.screen import Column, Screen, figures, names, prose, spare
from clients.cli.texts import count, moment, percent

LEASES_SHOWN = 3
_REGION_COLUMNS = (
    *names("REGION", "CIRCUIT", "QUOTA LEFT"),
    *figures("TOKENS"),
    *names("PAUSED UNTIL", "HELD UNTIL"),
    *spare(*names("CIRCUIT SINCE")),
)
_QUOTA_COLUMNS = (*names("REGION", "QUOTA"), *figures("LIMIT", "USED", "PENDING", "LEFT"), *names("ALARM"))
_LICENCE_COLUMNS = (
    *names("REGION", "PARTITION", "LICENCE", "DRIFT"),
    *figures("SERVERS", "BACKLOG"),
    *names("UNTIL"),
    *spare(*names("LAST COMPLETE LOOK")),
)
_LEASE_COLUMNS = (
    *names("REGION", "LEASE", "STATUS"),
    *figures("INSTANCES"),
    *names("ENDS", "HALL", "FLAVOR"),
)


def show(screen: Screen, regions: Sequence[Region]) -> None:
    if not regions:
        screen.note("no region has a token budget yet: a worker writes one for each of its regions")
        return
    screen.table(_REGION_COLUMNS, [_region(one) for one in regions])
    _part(screen, _QUOTA_COLUMNS, [(one.region, *_quota(level)) for one in regions for level in one.quotas])
    held = [(one.region, *_licence(licence)) for one in regions for licence in one.licences]
    _part(screen, _LICENCE_COLUMNS, held)
    _leases(screen, regions)
    problems = list(chain.from_iterable(_problems(one) for one in regions))
    _part(screen, (*names("REGION", "OF"), *prose("PROBLEM")), problems)


def _leases(screen: Screen, regions: Sequence[Region]) -> None:
    """The leases that end first; those with a problem are among the problems, however late they end."""
    shown = [
        (one.region, *_lease(each))
        for one in regions
        for each in sorted(one.leases, key=lambda lease: (lease.ends_at, lease.name))[:LEASES_SHOWN]
    ]
    _part(screen, _LEASE_COLUMNS, shown)
    left = sum(len(one.leases) for one in regions) - len(shown)
    if left:
        screen.line(f"and {count(left, 'lease')} that end no sooner: sco regions -o json")


def _part(screen: Screen, columns: Sequence[Column], rows: Sequence[tuple[str, ...]]) -> None:
    if rows:
        screen.line()
        screen.table(columns, rows)


def _region(one: Region) -> tuple[str, ...]:
    return (
        one.region,
        one.circuit.state,
        _least(one.quotas),
        f"{one.budget.tokens:,}/{one.budget.burst:,}",
        "-" if one.paused_until is None else moment(one.paused_until),
        "-" if one.quota_hold is None else moment(one.quota_hold.until),
        moment(one.circuit.since),
    )


def _least(quotas: Sequence[QuotaLevel]) -> str:
    """The smallest share that is left, and of what."""
    limited = [(one.share_left, one.resource) for one in quotas if one.share_left is not None]
    if not limited:
        return "unlimited" if quotas else "unknown"
    share, resource = min(limited)
    return f"{percent(share)} {resource}"


def _quota(one: QuotaLevel) -> tuple[str, ...]:
    return (
        one.resource,
        "unlimited" if one.limit is None else f"{one.limit:,}",
        f"{one.used:,}",
        f"{one.pending:,}",
        "-" if one.share_left is None else percent(one.share_left),
        "low" if one.alarm else "-",
    )


def _licence(one: Licence) -> tuple[str, ...]:
    return (
        one.partition_id,
        one.phase if one.may_act else "read_only",
        ", ".join(f"{total:,} {kind}" for kind, total in one.drifts.items()) or "none",
        f"{one.fleet:,}",
        f"{one.backlog:,}",
        "-" if one.acting_until is None else moment(one.acting_until),
        moment(one.last_complete_at),
    )


def _lease(one: Lease) -> tuple[str, ...]:
    ends = moment(one.ends_at)
    return one.name, one.status, f"{one.instances:,}", ends, one.hall or "-", one.flavor or "-"


def _problems(one: Region) -> Iterator[tuple[str, ...]]:
    circuit, hold = one.circuit, one.quota_hold
    if circuit.failures:
        tries = f"; the next call goes at {moment(circuit.until)}" if circuit.state == "open" else ""
        told = f"{count(circuit.failures, 'call')} failed in a row, the last because {circuit.problem}{tries}"
        yield one.region, "circuit", told
    if hold is not None:
        yield one.region, "quota hold", f"{count(hold.refusals, 'refusal')} in a row: {hold.problem}"
    for licence in one.licences:
        if licence.problem:
            yield one.region, f"licence of {licence.partition_id}", licence.problem
    for lease in one.leases:
        if lease.problem:
            yield one.region, f"lease {lease.name}", lease.problem
