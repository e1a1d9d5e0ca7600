"""The steps in the life of a pool (`sco activate`, `drain`, `resume`, `retire`), and `sco change`."""

from __future__ import annotations

from typing import Annotated

import typer

from clients.cli.answers import read
from clients.cli.api import json_body, path
from clients.cli.commands.options import PoolName
from clients.cli.facts_view import held_text
from clients.cli.failures import usage
from clients.cli.pool_answers import Pool
from clients.cli.session import Session, checked_name, session_of


def _group(text: str) -> typer.Typer:
    return typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=text)


change = _group("Change prices, endpoint or cold start of a pool.")
activate = _group("Let a pool take work.")
drain = _group("Let a pool take no new work, and move away what it holds.")
resume = _group("Let a pool that drains take work again.")
retire = _group("End the life of a pool that is drained.")

Version = Annotated[
    int | None,
    typer.Option(
        "--version",
        metavar="N",
        min=1,
        help="Refuse it unless the pool is at this version. Otherwise any version will do.",
        show_default=False,
    ),
]


@change.command("pool")
def change_pool(
    context: typer.Context,
    pool: PoolName,
    *,
    price: Annotated[
        str | None,
        typer.Option("--price", metavar="USD", help="Per instance and hour.", show_default=False),
    ] = None,
    guaranteed_price: Annotated[
        str | None,
        typer.Option(
            "--guaranteed-price",
            metavar="USD",
            help="What the same capacity costs where it cannot be taken back, per instance and hour.",
            show_default=False,
        ),
    ] = None,
    endpoint: Annotated[
        str | None,
        typer.Option("--endpoint", metavar="URL", help="Where its models are served.", show_default=False),
    ] = None,
    no_endpoint: Annotated[bool, typer.Option("--no-endpoint", help="It serves no models any more.")] = False,
    cold_start: Annotated[
        int | None,
        typer.Option(
            "--cold-start",
            metavar="SECONDS",
            help="How long it loads a model, until that is learned; 0 says nothing.",
            show_default=False,
        ),
    ] = None,
    version: Version = None,
) -> None:
    """Change a pool: what is not named stays as it is. Facts, such as its memory, never change.

    \b
    Examples:
      sco change pool workstation-7 --price 1.25
      sco change pool workstation-7 --endpoint http://10.0.0.7:11434 --cold-start 90
    """
    if no_endpoint and endpoint is not None:
        raise usage("--endpoint and --no-endpoint contradict each other", "give one of them")
    said = {
        "pricePerHourUsd": price,
        "guaranteedPricePerHourUsd": guaranteed_price,
        "endpointRef": endpoint,
        "coldStartSeconds": cold_start,
    }
    wanted: dict[str, object] = {name: value for name, value in said.items() if value is not None}
    if no_endpoint:
        wanted["endpointRef"] = None
    if not wanted:
        raise usage("nothing is named that is to change", "see sco change pool --help for what may")
    session = session_of(context)
    where = path("factory", "compute-pools", checked_name("pool", pool))
    session.api.patch(where, json_body(wanted), if_match=_tag(version))
    session.screen.line(f"pool {pool} changed")


@activate.command("pool")
def activate_pool(context: typer.Context, pool: PoolName, version: Version = None) -> None:
    """Activate a draft pool, so that it can take work.

    \b
    Example:
      sco activate pool eu-north-h1-gp-m
    """
    session = session_of(context)
    _step(session, pool, "activate", version)
    session.screen.line(f"pool {pool} activated")


@drain.command("pool")
def drain_pool(context: typer.Context, pool: PoolName, version: Version = None) -> None:
    """Drain a pool: it takes no new units.

    What it holds is planned elsewhere, and nothing is taken away before it runs there. It returns at once;
    `sco describe pool` shows what the pool still holds. Loaded models may finish first.

    \b
    Example:
      sco drain pool eu-north-h1-gp-m
    """
    session = session_of(context)
    answer = read(Pool, _step(session, pool, "drain", version), "the pool")
    session.screen.line(f"pool {pool} drains; it holds {held_text(answer)}")


@resume.command("pool")
def resume_pool(context: typer.Context, pool: PoolName, version: Version = None) -> None:
    """Resume a pool that drains, so that it can take work again.

    \b
    Example:
      sco resume pool eu-north-h1-gp-m
    """
    session = session_of(context)
    _step(session, pool, "resume", version)
    session.screen.line(f"pool {pool} resumed")


@retire.command("pool")
def retire_pool(context: typer.Context, pool: PoolName, version: Version = None) -> None:
    """Retire a pool that drains and holds nothing any more. There is no way back.

    \b
    Example:
      sco retire pool eu-north-h1-gp-m
    """
    session = session_of(context)
    _step(session, pool, "retire", version)
    session.screen.line(f"pool {pool} retired")


def _step(session: Session, pool: str, action: str, version: int | None) -> object:
    where = path("factory", "compute-pools", checked_name("pool", pool), action)
    return session.api.post(where, if_match=_tag(version))


def _tag(version: int | None) -> str:
    """What `If-Match` says for a version, or for any."""
    return "*" if version is None else f'"{version}"'
