"""Events may tell that a checkpoint could not be written."""

from __future__ import annotations

from alembic import op

revision = "0012"
down_revision = "0011"

TYPES = (
    "('notice', 'drained', 'overrun', 'no_notice', 'signalled', 'checkpointed', 'checkpoint_failed',"
    " 'work_ended', 'withdrawn', 'refused', 'ready', 'gap')"
)


def upgrade() -> None:
    name = op.f("lifecycle_events_type_known_check")
    op.drop_constraint(name, "lifecycle_events")
    op.create_check_constraint(name, "lifecycle_events", f"type IN {TYPES}")
