"""What a contract declares about the end of its work; what it does not say is as its tier declares."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

CHECKS = {
    "checkpoint_mode_known": "checkpoint_mode IN ('none', 'periodic', 'final', 'periodic_and_final')",
    "restart_known": "restart IN ('resume', 'requeue', 'none')",
    "final_write_fits_drain": "final_write_seconds BETWEEN 1 AND drain_budget_seconds",
    "resumes_from_checkpoint": "restart <> 'resume' OR checkpoint_mode <> 'none'",
}


def upgrade() -> None:
    op.add_column(
        "contracts",
        sa.Column("drain_on_advisory", sa.Boolean(), server_default=sa.text("false"), nullable=False),
    )
    op.add_column("contracts", sa.Column("checkpoint_mode", sa.Text(), nullable=True))
    op.add_column("contracts", sa.Column("final_write_seconds", sa.Integer(), nullable=True))
    op.add_column("contracts", sa.Column("restart", sa.Text(), nullable=True))
    for name, holds in CHECKS.items():
        op.create_check_constraint(op.f(f"contracts_{name}_check"), "contracts", holds)
