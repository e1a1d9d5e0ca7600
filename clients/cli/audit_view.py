"""The report of an audit on the screen."""

from __future__ import annotations

from clients.cli.audit_answers import Audit, Finding
from clients.cli.screen import Screen
from clients.cli.texts import count, moment


def show(screen: Screen, one: Audit) -> None:
    """A summary, then each finding below what is to be done about its kind."""
    counts = one.counts
    screen.title(f"audit of {one.partition_id or 'everything'}: {one.status}")
    looked_at = (
        f"{count(counts.servers, 'server')}, {count(counts.slots, 'slot')},"
        f" {count(counts.workloads, 'workload')}"
    )
    in_flight = (
        f"{count(counts.servers_in_flight, 'server')}, {count(counts.workloads_in_flight, 'workload')}"
    )
    foreign = "not counted" if counts.foreign is None else count(counts.foreign, "server")
    screen.facts(
        [
            ("report", one.audit_id),
            ("ended", moment(one.finished_at)),
            ("regions", ", ".join(one.regions) or "none"),
            ("looked at", looked_at),
            ("of others", f"{foreign}, not judged"),
            ("in flight", f"{in_flight}, not judged"),
            ("gaps", f"{counts.gaps:,} in the last 30 days"),
            *((f"{failure.region} failed", failure.reason) for failure in one.failures),
            *(("note", note) for note in one.notes),
        ]
    )
    for kind, total in one.findings_by_kind.items():
        _show_kind(screen, kind, total, [finding for finding in one.findings if finding.kind == kind])


def _show_kind(screen: Screen, kind: str, total: int, findings: list[Finding]) -> None:
    screen.line()
    screen.title(f"{kind.replace('_', ' ')}: {count(total, 'finding')}")
    if findings:
        screen.line(findings[0].what_to_do)
    for finding in findings:
        screen.line(f"  {finding.problem}")
    if total > len(findings):
        screen.line(f"  and {total - len(findings):,} more")
