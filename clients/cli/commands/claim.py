"""`sco claim`, `sco place` and `sco scale`: say how much a workload needs, and have it placed."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import typer

from clients.cli import claim_view, workload_view
from clients.cli.answers import Claimed, Placing, Workload, WorkloadSummary, read
from clients.cli.api import Body, json_body, path
from clients.cli.commands.options import (
    CLAIM_FILE,
    DEFAULT_TIMEOUT,
    Output,
    Timeout,
    Units,
    Wait,
    WorkloadName,
)
from clients.cli.failures import Exit, Failure, usage
from clients.cli.files import read_bytes, workload_of
from clients.cli.screen import Format
from clients.cli.session import Session, checked_name, session_of
from clients.cli.waiting import wait_for_placement
from clients.cli.workload_view import shortfall_text


def claim(
    context: typer.Context,
    *,
    file: Annotated[str, CLAIM_FILE],
    workload: Annotated[
        str | None,
        typer.Option(
            "--workload",
            metavar="NAME",
            help="Whose claim it is. Needed for scheduler lists; a claim in our own YAML names its workload.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count only; nothing is stored.")] = False,
    allow_shrink: Annotated[
        bool, typer.Option("--allow-shrink", help="Take a list with fewer units than the claim in force.")
    ] = False,
    wait: Wait = False,
    timeout: Timeout = DEFAULT_TIMEOUT,
    output: Output = Format.TABLE,
) -> None:
    """Submit what a scheduler lists as the demand of a workload.

    Prints what was counted, what was left out and why, and every entry that could not be read. A new
    claim replaces the one before it, and is placed at once. A scheduler lists what waits and not what
    runs: a list with fewer units than the claim in force is refused without --allow-shrink, since it
    would give back capacity that is in use. To run fewer units, use sco scale.

    \b
    Examples:
      kubectl get pods -o json | sco claim -f - --workload orders-daily --dry-run
      squeue --json | sco claim -f - --workload nightly-train --wait
      sco claim -f examples/demand/web-claim.yaml
    """
    session = session_of(context)
    if dry_run and wait:
        raise usage("--dry-run stores no claim, so there is nothing to wait for: leave out one of the two")
    content = read_bytes(file)
    name = checked_name("workload", workload) if workload is not None else workload_of(file, content)
    document = _submit(session, name, content, dry_run=dry_run, allow_shrink=allow_shrink)
    _show_claimed(session, name, document, wait=wait, timeout=timeout, output=output)


def place(
    context: typer.Context,
    *,
    workload: WorkloadName,
    file: Annotated[str | None, CLAIM_FILE] = None,
    wait: Wait = False,
    timeout: Timeout = DEFAULT_TIMEOUT,
    output: Output = Format.TABLE,
) -> None:
    """Place a workload's newest claim, or a new one.

    \b
    Examples:
      sco place orders-daily --wait
      sco place orders-daily -f pods.json --wait --timeout 120
    """
    session = session_of(context)
    name = checked_name("workload", workload)
    if file is not None:
        document = _submit(session, name, read_bytes(file))
        _show_claimed(session, name, document, wait=wait, timeout=timeout, output=output)
        return
    before = read(WorkloadSummary, session.api.get(path("workloads", name)), "the workload")
    document = session.api.post("/placements", json_body({"workloadId": name}))
    placing = read(Placing, document, "the placement")
    if wait:
        _wait(session, name, placing.claim_version, timeout, output, since=before.updated_at)
    elif output is Format.TABLE:
        claim_view.show_launch(session.screen, name, placing.claim_version, placing.placement)
    else:
        session.screen.document(document, output)


def scale(
    context: typer.Context,
    *,
    workload: WorkloadName,
    units: Units,
    wait: Wait = False,
    timeout: Timeout = DEFAULT_TIMEOUT,
    output: Output = Format.TABLE,
) -> None:
    """Change how many units a workload runs.

    Its shapes keep the proportions in which they were last submitted.

    \b
    Example:
      sco scale orders-daily --units 60 --wait
    """
    session = session_of(context)
    name = checked_name("workload", workload)
    document = session.api.post(path("workloads", name, "scale"), json_body({"units": units}))
    _show_claimed(session, name, document, wait=wait, timeout=timeout, output=output)


def _submit(
    session: Session, workload: str, content: bytes, *, dry_run: bool = False, allow_shrink: bool = False
) -> Any:
    """The file's bytes as they are: counting is the server's."""
    is_json = content.lstrip()[:1] in (b"{", b"[")
    body = Body(content, "application/json" if is_json else "application/yaml")
    query = {"dryRun": dry_run or None, "allowShrink": allow_shrink or None}
    return session.api.post(path("workloads", workload, "claims"), body, query)


def _show_claimed(
    session: Session, workload: str, document: Any, *, wait: bool, timeout: float, output: Format
) -> None:
    """What was counted, and how the placement that it started goes on or ends."""
    claimed = read(Claimed, document, "the claim")
    if output is Format.TABLE:
        claim_view.show(session.screen, claimed, workload)
    if wait:
        _wait(session, workload, claimed.claim_version, timeout, output)
    elif output is Format.TABLE:
        claim_view.show_launch(session.screen, workload, claimed.claim_version, claimed.placement)
    else:
        session.screen.document(document, output)


def _wait(
    session: Session,
    workload: str,
    version: int | None,
    timeout: float,
    output: Format,
    *,
    since: datetime | None = None,
) -> None:
    """Wait, print the fleet, and fail when units are missing."""
    ended = wait_for_placement(session, workload, version or 0, since=since, seconds=timeout)
    if output is Format.TABLE:
        workload_view.show(session.screen, ended.workload)
    else:
        session.screen.document(ended.document, output)
    if ended.workload.phase == "shortfall":
        raise _fell_short(ended.workload)


def _fell_short(workload: Workload) -> Failure:
    name, missing = workload.workload_id, workload.shortfall
    what = f"units of {name} are missing" if missing is None else f"{name}: {shortfall_text(missing)}"
    return Failure(Exit.SHORTFALL, what, (f"sco explain {name} says which pools were left out, and why",))
