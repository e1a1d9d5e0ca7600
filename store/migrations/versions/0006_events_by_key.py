"""Events of one aggregate in their order, for the history of a pool."""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_index(op.f("outbox_tenant_id_key_sequence_idx"), "outbox", ["tenant_id", "key", "sequence"])
