"""Identities of nodes, their one-time tokens, the bundles issued to them, and requests already answered."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from alembic import op

from store.migrations.isolation import isolate

revision = "0008"
down_revision = "0007"

SQL = Path(__file__).parents[1] / "sql" / "0008_node_lookup.sql"
EVERYTHING = "SELECT, INSERT, UPDATE, DELETE"
TENANT_MAY = {
    "node_tokens": EVERYTHING,
    "node_identities": "SELECT, INSERT, UPDATE",
    "bundles": "SELECT, INSERT, DELETE",
    "node_nonces": EVERYTHING,
}


def upgrade() -> None:
    op.create_table(
        "node_tokens",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("token_sha256", sa.Text(), nullable=False),
        sa.Column("instance_id", sa.Text(), nullable=False),
        sa.Column("issued_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("used_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("token_sha256 ~ '^[0-9a-f]{64}$'", name=op.f("node_tokens_only_a_digest_check")),
        sa.CheckConstraint("expires_at > issued_at", name=op.f("node_tokens_ends_after_its_issue_check")),
        sa.PrimaryKeyConstraint("tenant_id", "token_sha256", name=op.f("node_tokens_pkey")),
    )
    for column in ("instance_id", "expires_at"):
        name = op.f(f"node_tokens_tenant_id_{column}_idx")
        op.create_index(name, "node_tokens", ["tenant_id", column])
    op.create_table(
        "node_identities",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("instance_id", sa.Text(), nullable=False),
        sa.Column("public_key", sa.Text(), nullable=False),
        sa.Column("registered_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("tenant_id", "instance_id", name=op.f("node_identities_pkey")),
        sa.UniqueConstraint("instance_id", name=op.f("node_identities_instance_id_key")),
        sa.UniqueConstraint("public_key", name=op.f("node_identities_public_key_key")),
    )
    op.create_table(
        "bundles",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("instance_id", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("content_digest", sa.Text(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("letter", sa.LargeBinary(), nullable=False),
        sa.Column("issued_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("version > 1", name=op.f("bundles_after_the_boot_copy_check")),
        sa.PrimaryKeyConstraint("tenant_id", "instance_id", "version", name=op.f("bundles_pkey")),
    )
    op.create_table(
        "node_nonces",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("instance_id", sa.Text(), nullable=False),
        sa.Column("nonce", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "instance_id", "nonce", name=op.f("node_nonces_pkey")),
    )
    op.create_index(op.f("node_nonces_tenant_id_expires_at_idx"), "node_nonces", ["tenant_id", "expires_at"])
    for table, may in TENANT_MAY.items():
        isolate(table, tenant_may=may)
    op.get_bind().exec_driver_sql(SQL.read_text())
