"""`sco activate`, `drain`, `resume` and `retire`: the steps in the life of a pool."""

from __future__ import annotations

from typing import Annotated

import typer

from clients.cli.answers import read
from clients.cli.api import path
from clients.cli.commands.options import PoolName
from clients.cli.facts_view import held_text
from clients.cli.pool_answers import Pool
from clients.cli.session import Session, checked_name, session_of


def _group(text: str) -> typer.Typer:
    return typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=text)


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
        help="Refuse the step unless the pool is at this version. Otherwise any version will do.",
        show_default=False,
    ),
]


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
    return session.api.post(where, if_match="*" if version is None else f'"{version}"')
