"""`sco warm`: load a model on a pool before it is needed."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from clients.cli.answers import read
from clients.cli.api import json_body, path
from clients.cli.commands.options import DEFAULT_TIMEOUT, Output, PoolName, Timeout
from clients.cli.failures import Exit, Failure
from clients.cli.screen import Format
from clients.cli.session import Session, checked_name, session_of
from clients.cli.waiting import poll, running
from clients.cli.warm_answers import WarmRequest
from domain.serving.requirements import MAX_VRAM_GB

LOADED, FAILED = "loaded", "failed"


def warm(
    context: typer.Context,
    pool: PoolName,
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="The model as its endpoint names it.", show_default=False),
    ],
    *,
    vram_gb: Annotated[
        int,
        typer.Option(
            "--vram-gb",
            metavar="N",
            min=1,
            max=MAX_VRAM_GB,
            help="How much accelerator memory it takes, in GB.",
            show_default=False,
        ),
    ],
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the model is loaded.")] = False,
    timeout: Timeout = DEFAULT_TIMEOUT,
    output: Output = Format.TABLE,
) -> None:
    """Load a model on a pool before it is needed.

    It stays until nobody used it for the idle window, half an hour unless the policy says otherwise. To
    keep models loaded, apply a warm profile. With --wait it ends with 1 where the model was not loaded.

    \b
    Examples:
      sco warm gpu-7 llama3.3:70b --vram-gb 42
      sco warm gpu-7 llama3.3:70b --vram-gb 42 --wait --timeout 900
    """
    session = session_of(context)
    where = path("factory", "compute-pools", checked_name("pool", pool), "warm")
    document = session.api.post(where, json_body({"model": model, "vramGb": vram_gb}))
    request = read(WarmRequest, document, "the request")
    if wait:
        request, document = _ended(session, request, timeout)
    if output is not Format.TABLE:
        session.screen.document(document, output)
    elif request.status != FAILED:
        session.screen.line(_said(request))
    if request.status == FAILED:
        raise Failure(
            Exit.REFUSED,
            f"{request.model} was not loaded on {request.pool_id}: {request.problem or 'no reason given'}",
            (f"sco describe pool {request.pool_id} shows what its memory holds",),
        )


def _ended(session: Session, request: WarmRequest, seconds: float) -> tuple[WarmRequest, Any]:
    """The request once it is loaded or failed; `Failure` when it takes longer."""
    where = path("factory", "compute-pools", request.pool_id, "warm", str(request.request_id))

    def ask() -> tuple[WarmRequest, Any]:
        document = session.api.get(where)
        return read(WarmRequest, document, "the request"), document

    with running(session.screen, f"{request.model} is loading on {request.pool_id}") as report:
        return poll(
            session,
            ask,
            lambda one: one[0].status in {LOADED, FAILED},
            seconds=seconds,
            report=lambda elapsed, one: report(elapsed, one[0]),
            too_long=lambda one: _too_long(one[0], seconds),
        )


def _too_long(request: WarmRequest, seconds: float) -> Failure:
    return Failure(
        Exit.WAITED_TOO_LONG,
        f"{request.model} is {request.status} on {request.pool_id} after {seconds:g} seconds",
        ("it goes on without sco: see sco describe pool, or wait longer with --timeout",),
    )


def _said(request: WarmRequest) -> str:
    if request.status == LOADED:
        return f"{request.model} is loaded on {request.pool_id}"
    return f"{request.model} is {request.status} on {request.pool_id}: {request.request_id}"
