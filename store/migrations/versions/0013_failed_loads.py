"""Every placement asks where its model did not load a short while ago."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.create_index(
        "model_placements_failed_idx",
        "model_placements",
        ["tenant_id", "model", "ended_at"],
        postgresql_where=sa.text("problem IS NOT NULL"),
    )
