"""The database logins of a laboratory: one for the API, one for the worker, neither of them the owner."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from lab.stack.state import create_password, read_password
from store.roles import SERVICE_ROLE, TENANT_ROLE

API_LOGIN = "sco_api"
WORKER_LOGIN = "sco_worker"
LOGINS = {API_LOGIN: TENANT_ROLE, WORKER_LOGIN: SERVICE_ROLE}


def _file(login: str) -> str:
    return f"postgres-{login}-password"


def ensure_logins(owner_dsn: str, data_dir: Path) -> None:
    """Make both logins on a migrated database, each with a password that only the data folder knows."""
    with psycopg.connect(owner_dsn, autocommit=True) as owner:
        for login, role in LOGINS.items():
            password = create_password(data_dir, _file(login))
            found = owner.execute("SELECT FROM pg_roles WHERE rolname = %s", (login,)).fetchone()
            verb = sql.SQL("CREATE" if found is None else "ALTER")
            owner.execute(
                sql.SQL("{} ROLE {} LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEROLE PASSWORD {}").format(
                    verb, sql.Identifier(login), sql.Literal(password)
                )
            )
            owner.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(role), sql.Identifier(login)))


def dsn_of(login: str, owner_dsn: str, data_dir: Path) -> str:
    """The connection string of one login, password included; `ensure_logins` has made it."""
    parts = urlsplit(owner_dsn)
    authority = f"{login}:{read_password(data_dir, _file(login))}@{parts.hostname}:{parts.port}"
    return urlunsplit(parts._replace(netloc=authority))
