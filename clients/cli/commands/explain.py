"""`sco explain`: why these pools, and why not the others."""

from __future__ import annotations

from typing import Annotated

import typer

from clients.cli import explain_view
from clients.cli.answers import Explanation, Replay, read
from clients.cli.api import path
from clients.cli.commands.options import Output, WorkloadName
from clients.cli.failures import Exit, Failure, usage
from clients.cli.screen import Format
from clients.cli.session import Session, checked_name, session_of
from domain.reasons import Reason


def explain(
    context: typer.Context,
    *,
    workload: WorkloadName,
    pool: Annotated[
        str | None,
        typer.Option("--pool", metavar="POOL", help="Answer for this pool alone.", show_default=False),
    ] = None,
    reason: Annotated[
        Reason | None,
        typer.Option(
            "--reason",
            metavar="REASON",
            help=f"List the pools that were left out for one of: {', '.join(Reason)}.",
            show_default=False,
        ),
    ] = None,
    generation: Annotated[
        int | None,
        typer.Option(
            "--generation",
            metavar="N",
            min=1,
            help="Which plan generation; the newest if left out.",
            show_default=False,
        ),
    ] = None,
    replay: Annotated[
        bool, typer.Option("--replay", help="Decide again from the stored inputs and compare.")
    ] = False,
    output: Output = Format.TABLE,
) -> None:
    """Say why a workload runs in these pools and not in others.

    Every pool that was considered has its reason, as it was when the decision was made.

    \b
    Examples:
      sco explain orders-daily
      sco explain orders-daily --pool eu-north-h1-gp-m
      sco explain orders-daily --reason cap
      sco explain orders-daily --generation 3 --replay
    """
    session = session_of(context)
    name = checked_name("workload", workload)
    if sum((pool is not None, reason is not None, replay)) > 1:
        raise usage("--pool, --reason and --replay answer different questions: give one of them")
    if replay:
        _replay(session, name, generation, output)
        return
    query = {
        "generation": generation,
        "poolId": None if pool is None else checked_name("pool", pool),
        "reason": None if reason is None else reason.value,
    }
    document = session.api.get(path("placements", name, "explanation"), query)
    decision = read(Explanation, document, "the decision")
    if output is not Format.TABLE:
        session.screen.document(document, output)
    elif pool is not None:
        _one_pool(session, decision, pool)
    elif reason is not None:
        explain_view.show_reason(session.screen, decision, reason.value)
    else:
        explain_view.show(session.screen, decision)


def _one_pool(session: Session, decision: Explanation, pool: str) -> None:
    found = next((one for one in decision.candidates if one.pool_id == pool), None)
    if found is None:
        raise Failure(
            Exit.REFUSED,
            f"pool {pool} was no candidate in generation {decision.generation} of {decision.workload_id}",
            ("it was not in the ranking then; see sco get pools for the names that exist",),
        )
    explain_view.show_pool(session.screen, decision, found)


def _replay(session: Session, workload: str, generation: int | None, output: Format) -> None:
    where = path("placements", workload, "replay")
    document = session.api.post(where, query={"generation": generation})
    answer = read(Replay, document, "the replay")
    if output is Format.TABLE:
        explain_view.show_replay(session.screen, answer)
    else:
        session.screen.document(document, output)
    if not answer.same:
        raise Failure(
            Exit.REPLAY_DIFFERS,
            f"generation {answer.generation} of {answer.workload_id} does not come out as it was stored",
            ("the stored inputs were changed, or this release decides otherwise than the one of that time",),
        )
