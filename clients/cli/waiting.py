"""Wait until a claim is placed or an audit has ended, and show how far it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from clients.cli.answers import Workload, read
from clients.cli.api import path
from clients.cli.audit_answers import Audit
from clients.cli.failures import Exit, Failure
from clients.cli.screen import Screen
from clients.cli.session import Session
from clients.cli.texts import count, duration

POLL_SECONDS = 1.0
MAX_LOST_IN_A_ROW = 5
DEFAULT_SECONDS = 600.0
ENDED = ("placed", "shortfall")
RUNNING = "running"

Report = Callable[[float, Workload], None]
T = TypeVar("T")


class Ended(NamedTuple):
    """A workload whose placement ended, and the server's document of it."""

    workload: Workload
    document: Any


class Audited(NamedTuple):
    """An audit that ended, and the server's document of it."""

    audit: Audit
    document: Any


def wait_for_placement(
    session: Session, workload_id: str, claim_version: int, *, since: datetime | None, seconds: float
) -> Ended:
    """The workload once this claim or a newer one is placed or fell short; `Failure` when it takes longer.

    An outcome that was recorded at `since` is the one before, not the one that is waited for.
    """

    def ask() -> Ended:
        document = session.api.get(path("workloads", workload_id))
        return Ended(read(Workload, document, "the workload"), document)

    with _progress(session.screen) as report:
        return poll(
            session,
            ask,
            lambda one: _has_ended(one.workload, claim_version, since),
            seconds=seconds,
            report=lambda elapsed, one: report(elapsed, one.workload),
            too_long=lambda one: _too_long(one.workload, seconds),
        )


def wait_for_audit(session: Session, audit_id: str, *, seconds: float) -> Audited:
    """The audit once it has ended; `Failure` when it takes longer."""

    def ask() -> Audited:
        document = session.api.get(path("factory", "audits", audit_id))
        return Audited(read(Audit, document, "the audit"), document)

    with running(session.screen, f"audit {audit_id} is running") as report:
        return poll(
            session,
            ask,
            lambda one: one.audit.status != RUNNING,
            seconds=seconds,
            report=report,
            too_long=lambda one: _audit_too_long(session, one.audit, seconds),
        )


def poll(
    session: Session,
    ask: Callable[[], T],
    has_ended: Callable[[T], bool],
    *,
    seconds: float,
    report: Callable[[float, T], None],
    too_long: Callable[[T], Failure],
) -> T:
    """Ask again and again. A server that does not answer now and then is asked again too."""
    clock, started, lost = session.clock, session.clock.monotonic(), 0
    while True:
        try:
            answer = ask()
        except Failure as failure:
            lost += 1
            if failure.code is not Exit.UNREACHABLE or lost > MAX_LOST_IN_A_ROW:
                raise
        else:
            lost = 0
            report(clock.monotonic() - started, answer)
            if has_ended(answer):
                return answer
            if clock.monotonic() - started >= seconds:
                raise too_long(answer)
        clock.sleep(POLL_SECONDS)


def _has_ended(workload: Workload, claim_version: int, since: datetime | None) -> bool:
    is_planned = workload.planned_version >= claim_version
    return is_planned and workload.phase in ENDED and workload.updated_at != since


def _too_long(workload: Workload, seconds: float) -> Failure:
    return Failure(
        Exit.WAITED_TOO_LONG,
        f"workload {workload.workload_id} is {workload.phase} after {seconds:g} seconds: {_state(workload)}",
        (
            "the placement goes on without sco; look at it again with"
            f" sco describe workload {workload.workload_id}, or wait longer with --timeout",
        ),
    )


def _audit_too_long(session: Session, audit: Audit, seconds: float) -> Failure:
    return Failure(
        Exit.WAITED_TOO_LONG,
        f"audit {audit.audit_id} is {audit.status} after {seconds:g} seconds",
        (
            f"it goes on without sco: its report will be at {session.api.server}/ui/audits/{audit.audit_id}",
            "or wait longer with --timeout",
        ),
    )


def _state(workload: Workload) -> str:
    active, meant = _instances(workload)
    if not meant:
        return "no instance is planned yet"
    return f"{active:,} of {count(meant, 'instance')} active"


def _instances(workload: Workload) -> tuple[int, int]:
    states = workload.instances_by_state
    live = sum(states.get(state, 0) for state in ("planned", "building", "active"))
    return states.get("active", 0), live


@contextmanager
def _progress(screen: Screen) -> Iterator[Report]:
    """A bar on a terminal, a line per change elsewhere."""
    if not screen.err.is_terminal:
        yield _lines(screen)
        return
    columns = (_column("description"), BarColumn(), _column("fields[state]"))
    with Progress(*columns, TimeElapsedColumn(), console=screen.err, transient=True) as progress:
        task = progress.add_task("waiting", total=None, state="")

        def report(_: float, workload: Workload) -> None:
            active, meant = _instances(workload)
            progress.update(
                task,
                description=f"{workload.workload_id} {workload.phase}",
                completed=active,
                total=meant or None,
                state=_state(workload),
            )

        yield report


def _column(field: str) -> TextColumn:
    return TextColumn(f"{{task.{field}}}", markup=False)


def _lines(screen: Screen) -> Report:
    shown = ""

    def report(elapsed: float, workload: Workload) -> None:
        nonlocal shown
        text = f"{workload.phase}: {_state(workload)}"
        if text != shown:
            shown = text
            screen.note(f"{duration(elapsed):>6}  {text}")

    return report


@contextmanager
def running(screen: Screen, text: str) -> Iterator[Callable[[float, object], None]]:
    """A clock on a terminal, one line elsewhere."""
    if not screen.err.is_terminal:
        screen.note(f"{duration(0):>6}  {text}")
        yield lambda elapsed, answer: None
        return
    columns = (SpinnerColumn(), _column("description"), TimeElapsedColumn())
    with Progress(*columns, console=screen.err, transient=True) as progress:
        progress.add_task(text, total=None)
        yield lambda elapsed, answer: None
