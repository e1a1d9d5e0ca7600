"""Nodes as the control plane knows them: how they became known, what they hold, and what they asked."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Index,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
    UniqueConstraint,
)

from store.tables.base import metadata, moment, tenant, word

node_tokens = Table(
    "node_tokens",
    metadata,
    tenant(),
    word("token_sha256"),
    word("instance_id"),
    moment("issued_at"),
    moment("expires_at"),
    moment("used_at", nullable=True),
    PrimaryKeyConstraint("tenant_id", "token_sha256"),
    CheckConstraint("token_sha256 ~ '^[0-9a-f]{64}$'", name="only_a_digest"),
    CheckConstraint("expires_at > issued_at", name="ends_after_its_issue"),
    Index(None, "tenant_id", "instance_id"),
    Index(None, "tenant_id", "expires_at"),
)

node_identities = Table(
    "node_identities",
    metadata,
    tenant(),
    word("instance_id"),
    word("public_key"),
    moment("registered_at"),
    moment("revoked_at", nullable=True),
    word("revoked_by", nullable=True),
    Column("held_version", BigInteger),
    moment("held_reported_at", nullable=True),
    # An instance belongs to one tenant, and a key to one instance.
    PrimaryKeyConstraint("tenant_id", "instance_id"),
    UniqueConstraint("instance_id"),
    UniqueConstraint("public_key"),
    CheckConstraint("revoked_by IS NULL OR revoked_at IS NOT NULL", name="revoked_by_somebody"),
    CheckConstraint("(held_version IS NULL) = (held_reported_at IS NULL)", name="reports_when_and_what"),
)

bundles = Table(
    "bundles",
    metadata,
    tenant(),
    word("instance_id"),
    Column("version", BigInteger, nullable=False),
    word("content_digest"),
    word("key_id"),
    Column("letter", LargeBinary, nullable=False),
    moment("issued_at"),
    PrimaryKeyConstraint("tenant_id", "instance_id", "version"),
    # The first version is that of the copy in the launch user-data.
    CheckConstraint("version > 1", name="after_the_boot_copy"),
)

node_nonces = Table(
    "node_nonces",
    metadata,
    tenant(),
    word("instance_id"),
    word("nonce"),
    moment("expires_at"),
    PrimaryKeyConstraint("tenant_id", "instance_id", "nonce"),
    Index(None, "tenant_id", "expires_at"),
)
