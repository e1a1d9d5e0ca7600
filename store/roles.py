"""Which database role a process works as. Rows are only kept apart for a role that the policies bind."""

from __future__ import annotations

import sqlalchemy as sa

from store.engine import Engine

TENANT_ROLE = "sco_tenant"
SERVICE_ROLE = "sco_service"
# The login counts as well as the role in force: whoever logs in can return to what the login may do.
WHAT_IT_MAY = sa.text(
    """
    SELECT r.rolname, r.rolsuper, r.rolbypassrls, r.rolcreaterole,
           EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                   WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p')
                     AND pg_has_role(r.oid, c.relowner, 'MEMBER')) AS owner,
           pg_has_role(r.oid, :wanted, 'USAGE') AS wanted,
           pg_has_role(r.oid, :other, 'MEMBER') AS other
    FROM pg_roles r WHERE r.rolname IN (session_user, current_user) ORDER BY r.rolname
    """
)
MIGRATED = sa.text("SELECT count(*) FROM pg_roles WHERE rolname IN (:wanted, :other)")


class WrongRole(Exception):
    """The process may not work with this login: why, and what to do."""


async def require_role(engine: Engine, wanted: str) -> None:
    """Raise `WrongRole` unless this engine's login is a plain member of `wanted` and of nothing stronger."""
    other = SERVICE_ROLE if wanted == TENANT_ROLE else TENANT_ROLE
    named = {"wanted": wanted, "other": other}
    async with engine.connect() as connection:
        if (await connection.execute(MIGRATED, named)).scalar_one() < len(named):
            raise WrongRole("the database has no roles of this service yet: run python -m store.migrate")
        found = (await connection.execute(WHAT_IT_MAY, named)).all()
    for one in found:
        problem = _problem(one, wanted, other)
        if problem is not None:
            raise WrongRole(
                f"the database login {one.rolname!r} {problem}; use a login of its own, made with"
                f" CREATE ROLE name LOGIN PASSWORD '...' IN ROLE {wanted}"
            )


def _problem(found: sa.Row[tuple[object, ...]], wanted: str, other: str) -> str | None:
    """What is wrong with one role, in words that follow its name."""
    checks = (
        (found.rolsuper, "is a superuser, whom row-level security does not bind"),
        (found.rolbypassrls, "has BYPASSRLS, so row-level security does not bind it"),
        (found.rolcreaterole, "may create roles, and so become any of them"),
        (found.owner, "owns tables, and row-level security does not bind their owner"),
        (wanted == TENANT_ROLE and found.other, f"belongs to {other}, which sees the rows of every tenant"),
        (not found.wanted, f"does not belong to {wanted}"),
    )
    return next((said for holds, said in checks if holds), None)
