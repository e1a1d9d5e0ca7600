"""`sco audit`: whether what is recorded and what exists at the provider are one world."""

from __future__ import annotations

from typing import Annotated

import typer

from clients.cli import audit_view
from clients.cli.answers import read
from clients.cli.api import json_body
from clients.cli.audit_answers import Audit
from clients.cli.commands.options import DEFAULT_TIMEOUT, Output
from clients.cli.failures import Exit, Failure
from clients.cli.screen import Format
from clients.cli.session import Session, checked_name, session_of
from clients.cli.texts import count
from clients.cli.waiting import wait_for_audit


def audit(
    context: typer.Context,
    *,
    partition: Annotated[
        str | None,
        typer.Option(
            "--partition",
            metavar="NAME",
            help="Audit this partition; everything if left out.",
            show_default=False,
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=1, help="How long to wait at most.")
    ] = DEFAULT_TIMEOUT,
    as_json: Annotated[bool, typer.Option("--json", help="The same as -o json.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """Check that records, reservations and servers agree.

    It reads the records and lists the servers, changes nothing, and says for each finding what to do.
    Ends with 0 when nothing is wrong, with 1 when it found something, and with 7 when a region could
    not be looked at.

    \b
    Examples:
      sco audit
      sco audit --partition k8s-eu-north --json
    """
    session = session_of(context)
    name = None if partition is None else checked_name("partition", partition)
    started = _start(session, name)
    ended = wait_for_audit(session, started.audit_id, seconds=timeout)
    form = Format.JSON if as_json else output
    if form is Format.TABLE:
        audit_view.show(session.screen, ended.audit)
    else:
        session.screen.document(ended.document, form)
    _fail_unless_clean(ended.audit)


def _start(session: Session, partition: str | None) -> Audit:
    """A refusal is wrong usage: 1 says that something was found."""
    body = {} if partition is None else {"partitionId": partition}
    try:
        document = session.api.post("/factory/audits", json_body(body))
    except Failure as failure:
        code = Exit.USAGE if failure.code is Exit.REFUSED else failure.code
        raise Failure(code, failure.problem, failure.hints) from None
    return read(Audit, document, "the audit")


def _fail_unless_clean(one: Audit) -> None:
    if one.status == "failed":
        seen = f"; {count(one.findings_total, 'finding')} in what was seen" if one.findings_total else ""
        why = ", ".join(f"{failure.region}: {failure.reason}" for failure in one.failures)
        raise Failure(
            Exit.AUDIT_FAILED,
            f"not everything could be looked at ({why or 'the server gave no reason'}){seen}",
            ("whether the rest is in order is not known: put the reason right and audit again",),
        )
    if one.findings_total:
        raise Failure(
            Exit.FINDINGS,
            count(one.findings_total, "finding"),
            ("each kind has its paragraph in docs/runbooks/audit-findings.md",),
        )
