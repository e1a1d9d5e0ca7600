"""A claim on the screen: what was counted, and every entry that was not."""

from __future__ import annotations

from clients.cli.answers import Claimed, Launch
from clients.cli.screen import Screen
from clients.cli.texts import count, totals
from domain.intake.words import some


def show(screen: Screen, claimed: Claimed, workload: str) -> None:
    stored = claimed.claim_version is not None
    heading = f"claim {claimed.claim_version}" if stored else "counted, nothing stored"
    screen.title(f"workload {workload}: {heading}")
    screen.line(totals(claimed))
    _left_out(screen, claimed)
    _unreadable(screen, claimed)
    for note in claimed.notes:
        screen.line(f"note: {note}")


def show_launch(screen: Screen, workload: str, version: int | None, launch: Launch | None) -> None:
    """What becomes of the claim now; nothing after a dry run."""
    if version is None:
        return
    if launch is not None and launch.started is not True:
        screen.line(f"claim {version} is queued: it is placed as soon as placements can run")
    else:
        screen.line(f"claim {version} is being placed: sco describe workload {workload} says how far it is")


def _left_out(screen: Screen, claimed: Claimed) -> None:
    """By reason, with the first few names; the server counts more than it names."""
    by_reason = claimed.left_out_by_reason
    if not by_reason:
        return
    screen.line(f"left out: {count(sum(by_reason.values()), 'entry', 'entries')}")
    for reason, total in sorted(by_reason.items(), key=lambda pair: (-pair[1], pair[0])):
        names = [one.name for one in claimed.left_out if one.reason == reason]
        screen.line(f"  {total:,} {reason}: {some(names, total) if names else 'not named'}")


def _unreadable(screen: Screen, claimed: Claimed) -> None:
    if not claimed.unreadable:
        return
    total = max(claimed.unreadable_total, len(claimed.unreadable))
    screen.line(f"could not be read: {count(total, 'entry', 'entries')}")
    for one in claimed.unreadable:
        screen.line(f"  {one.name}: {one.problem}")
    if total > len(claimed.unreadable):
        screen.line(f"  and {total - len(claimed.unreadable):,} more")
