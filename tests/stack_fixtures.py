"""The real stack for every test that asks for it, and databases of their own on it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from lab.stack import Stack


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """One running stack on free ports for the whole session; tests that break servers start their own."""
    folder = new_folder()
    try:
        running = Stack.start(folder / "lab")
        try:
            yield running
        finally:
            running.stop()
    finally:
        shutil.rmtree(folder)


def new_folder() -> Path:
    """Return a new temporary folder that the account of Postgres can enter, whoever runs the tests."""
    # The space is on purpose: people's folders have them.
    folder = Path(tempfile.mkdtemp(prefix="sco test-"))
    folder.chmod(0o755)
    return folder


def fresh_database(stack: Stack, name: str, template: str | None = None) -> str:
    """Create the database anew, empty or as a copy of `template`, and return its superuser DSN.

    A database of that name is dropped first, with its sessions. A template must have no open sessions.
    """
    with psycopg.connect(stack.dsn("postgres"), autocommit=True) as owner:
        owner.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
        create = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
        owner.execute(create.format(sql.Identifier(name), sql.Identifier(template or "template1")))
    return stack.dsn(name)
