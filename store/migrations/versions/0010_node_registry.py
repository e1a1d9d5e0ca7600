"""Of instances the name that the provider gives them; of nodes who revoked them and which bundle they hold."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

# All slots that ever were are kept: who asks for the nodes of a partition reads those that live.
LIVE = "state IN ('building', 'active', 'releasing')"


def upgrade() -> None:
    op.add_column("instances", sa.Column("server_name", sa.Text(), nullable=True))
    op.create_index(
        "instances_live_idx",
        "instances",
        ["tenant_id", "partition_id", "server_id"],
        postgresql_where=sa.text(LIVE),
    )
    for column in (
        sa.Column("revoked_by", sa.Text(), nullable=True),
        sa.Column("held_version", sa.BigInteger(), nullable=True),
        sa.Column("held_reported_at", sa.DateTime(timezone=True), nullable=True),
    ):
        op.add_column("node_identities", column)
    for name, rule in (
        ("revoked_by_somebody", "revoked_by IS NULL OR revoked_at IS NOT NULL"),
        ("reports_when_and_what", "(held_version IS NULL) = (held_reported_at IS NULL)"),
    ):
        op.create_check_constraint(op.f(f"node_identities_{name}_check"), "node_identities", rule)
