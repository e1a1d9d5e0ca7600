"""Alembic's entry: one connection, one advisory lock, so that simultaneous starts wait for each other."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import context

from store.tables import metadata

MIGRATION_LOCK = 7_261_001


def run() -> None:
    engine = sa.create_engine(context.config.attributes["url"], poolclass=sa.NullPool)
    with engine.connect() as connection:
        connection.execute(sa.text("SELECT pg_advisory_lock(:key)"), {"key": MIGRATION_LOCK})
        connection.commit()
        context.configure(connection=connection, target_metadata=metadata, compare_server_default=True)
        with context.begin_transaction():
            context.run_migrations()
        connection.commit()
    engine.dispose()


run()
