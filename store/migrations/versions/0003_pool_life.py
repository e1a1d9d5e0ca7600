"""Pool life: since when a pool drains, when it was drained, and no new slots where none are taken."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

POOL_TAKES_SLOTS = Path(__file__).parents[1] / "sql" / "0003_pool_takes_slots.sql"


def upgrade() -> None:
    op.add_column("pools", sa.Column("draining_since", sa.DateTime(timezone=True), nullable=True))
    op.add_column("pools", sa.Column("drained_at", sa.DateTime(timezone=True), nullable=True))
    op.execute("UPDATE pools SET draining_since = updated_at WHERE state = 'draining'")
    op.create_check_constraint(
        op.f("pools_drained_after_draining_check"),
        "pools",
        "drained_at IS NULL OR draining_since IS NOT NULL",
    )
    op.get_bind().exec_driver_sql(POOL_TAKES_SLOTS.read_text().replace("%", "%%"))
