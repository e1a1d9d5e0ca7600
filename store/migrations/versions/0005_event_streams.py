"""The stream that events go to, as it was when something was last published to it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from store.migrations.isolation import isolate

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_table(
        "event_streams",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_sequence", sa.BigInteger(), nullable=False),
        sa.Column("resend_after", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "last_sequence >= 0 AND resend_after >= 0",
            name=op.f("event_streams_sequences_not_negative_check"),
        ),
        sa.PrimaryKeyConstraint("tenant_id", "stream", name=op.f("event_streams_pkey")),
    )
    isolate("event_streams", tenant_may="SELECT")
