"""From an empty database to the newest schema, whoever asks for it and however often."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from lab.stack import Stack
from store import migrate
from store.engine import async_url
from store.tables import metadata
from tests.database import bare_database

ROOT = Path(__file__).parents[2]
TRIGGERS = {
    "count_ends_empty",
    "count_is_derived",
    "count_starts_empty",
    "slots_are_never_truncated",
    "slot_is_fixed",
    "count_new_slots",
    "count_changed_slots",
    "count_removed_slots",
    "book_capacity",
    "pool_takes_slots",
    "pool_serves",
    "count_model_memory",
    "count_grown_model",
    "hold_model",
    "let_go_of_model",
    "placement_is_fixed",
    "held_placement_stays",
    "pool_is_degraded",
    "append_only",
    "append_only_truncate",
}


def connect(dsn: str) -> sa.Engine:
    return sa.create_engine(async_url(dsn), poolclass=sa.NullPool)


def test_the_schema_is_what_the_tables_say(shared_dsn: str) -> None:
    with connect(shared_dsn).connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "compare_server_default": True}
        )
        assert compare_metadata(context, metadata) == []


def test_every_constraint_is_what_the_tables_say(stack: Stack, shared_dsn: str) -> None:
    """Autogenerate does not compare CHECK constraints, so all are compared with those of the tables."""
    with bare_database(stack) as drawn:
        metadata.create_all(connect(drawn))
        assert constraints(shared_dsn) == constraints(drawn)


def constraints(dsn: str) -> set[tuple[str, str, str]]:
    query = sa.text(
        """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE connamespace = 'public'::regnamespace AND conrelid::regclass::text <> 'alembic_version'
        """
    )
    with connect(dsn).connect() as connection:
        return {tuple(row) for row in connection.execute(query)}


def test_the_counting_triggers_are_there(shared_dsn: str) -> None:
    with connect(shared_dsn).connect() as connection:
        found = connection.execute(sa.text("SELECT tgname FROM pg_trigger WHERE NOT tgisinternal"))
        assert set(found.scalars()) == TRIGGERS


def test_upgrading_again_changes_nothing(shared_dsn: str) -> None:
    query = sa.text("SELECT version_num FROM alembic_version")
    with connect(shared_dsn).connect() as connection:
        before = connection.execute(query).all()
        migrate.upgrade(shared_dsn)
        assert connection.execute(query).all() == before
        assert before == [(ScriptDirectory.from_config(migrate.config(shared_dsn)).get_current_head(),)]


def test_every_table_says_whose_its_rows_are(shared_dsn: str) -> None:
    query = sa.text(
        """
        SELECT t.table_name, c.is_nullable FROM information_schema.tables t
        LEFT JOIN information_schema.columns c
          ON (c.table_schema, c.table_name, c.column_name) = (t.table_schema, t.table_name, 'tenant_id')
        WHERE t.table_schema = 'public' AND t.table_name <> 'alembic_version'
        """
    )
    with connect(shared_dsn).connect() as connection:
        nullable = {name: answer for name, answer in connection.execute(query)}
    assert set(nullable) == set(metadata.tables)
    assert {name for name, answer in nullable.items() if answer != "NO"} == set()


def test_processes_that_migrate_at_once_wait_for_each_other(stack: Stack) -> None:
    """Three processes, let go together by the lock that each of them needs."""
    with bare_database(stack) as dsn:
        with connect(dsn).connect() as gate:
            gate.execute(sa.text("SELECT pg_advisory_lock(7261001)"))
            running = [_migrating(dsn) for _ in range(3)]
        answers = [(one.communicate(timeout=60)[1], one.returncode) for one in running]
        assert answers == [("", 0)] * 3
        with connect(dsn).connect() as connection:
            assert connection.execute(sa.text("SELECT count(*) FROM alembic_version")).scalar() == 1


def _migrating(dsn: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "store.migrate"],
        cwd=ROOT,
        env=os.environ | {"SCO_DATABASE_URL": dsn},
        stderr=subprocess.PIPE,
        text=True,
    )


def test_without_an_address_it_says_what_to_set() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "SCO_DATABASE_URL"}
    done = subprocess.run(
        [sys.executable, "-m", "store.migrate"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == "store.migrate: set SCO_DATABASE_URL to a postgresql:// address\n"
