"""Of each event of a drain, whether its notice was hard or advisory."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.add_column("lifecycle_events", sa.Column("notice_kind", sa.Text(), nullable=True))
    name = op.f("lifecycle_events_notice_kind_known_check")
    op.create_check_constraint(name, "lifecycle_events", "notice_kind IN ('hard', 'advisory')")
