"""Nodes: whose they are, how they became known, and what they asked already."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from store import outbox
from store.engine import Connection
from store.tables import instances, node_identities, node_tokens, pools
from wire.payloads import NodeRevoked

# The provider asks for every reader of an instance's metadata. A token is taken up within seconds, so the
# newest few are enough, and nobody can fill the table.
TOKENS_PER_INSTANCE = 8
# A node asks twice a minute or so. What comes faster than this is no node of ours.
REQUESTS_PER_WINDOW = 240
SWEPT_AT_ONCE = 20

REMEMBER = sa.text(
    """
    WITH gone AS (
      DELETE FROM node_nonces WHERE (tenant_id, instance_id, nonce) IN (
        SELECT tenant_id, instance_id, nonce FROM node_nonces
        WHERE tenant_id = :tenant AND expires_at < :now
        ORDER BY expires_at LIMIT :swept FOR UPDATE SKIP LOCKED)
    ), known AS (
      SELECT count(*) AS answered FROM node_nonces
      WHERE tenant_id = :tenant AND instance_id = :instance AND expires_at >= :now
    ), added AS (
      INSERT INTO node_nonces (tenant_id, instance_id, nonce, expires_at)
      SELECT :tenant, :instance, :nonce, :until FROM known WHERE answered < :allowed
      ON CONFLICT DO NOTHING RETURNING nonce
    )
    SELECT (SELECT count(*) FROM added) AS added, answered < :allowed AS within FROM known
    """
)


class Node(NamedTuple):
    """Whose an instance is, and the key that its requests are signed with."""

    tenant_id: str
    instance_id: str
    public_key: str


class Seen(StrEnum):
    """Whether a request of a node is to be answered."""

    NEW = "new"
    REPLAYED = "replayed"
    TOO_MANY = "too_many"


class Registration(StrEnum):
    """What became of a one-time token."""

    DONE = "done"
    NOT_ISSUED = "not_issued"
    KNOWN_OTHERWISE = "known_otherwise"
    KEY_TAKEN = "key_taken"


class Revocation(NamedTuple):
    """When an identity was revoked, and by whom; nobody is named where it was done in the database."""

    at: datetime
    by: str | None


class UnknownNode(LookupError):
    """No instance of this id belongs to the tenant."""


class NotRegistered(LookupError):
    """The instance has no identity that could be revoked."""


async def tenant_of_server(connection: Connection, server_id: str) -> str | None:
    """Whose instance a server is; None for one that is not ours. Needs no tenant."""
    query = sa.select(sa.func.sco_tenant_of_server(server_id))
    tenant_id: str | None = (await connection.execute(query)).scalar_one()
    return tenant_id


async def find_node(connection: Connection, instance_id: str) -> Node | None:
    """A node that is known and lives. Needs no tenant."""
    query = sa.text("SELECT tenant_id, public_key FROM sco_node(:instance)")
    row = (await connection.execute(query, {"instance": instance_id})).first()
    return None if row is None else Node(row.tenant_id, instance_id, row.public_key)


async def issue_token(
    connection: Connection,
    *,
    tenant_id: str,
    instance_id: str,
    token_sha256: str,
    now: datetime,
    life: timedelta,
) -> bool:
    """Remember a one-time token of an instance; whether it was: one that is known gets no more."""
    own = {"tenant_id": tenant_id, "instance_id": instance_id}
    known = await connection.execute(sa.select(node_identities.c.instance_id).filter_by(**own))
    if known.first() is not None:
        return False
    await _drop_old_tokens(connection, own, now)
    row = own | {"token_sha256": token_sha256, "issued_at": now, "expires_at": now + life}
    await connection.execute(sa.insert(node_tokens).values(row))
    return True


async def _drop_old_tokens(connection: Connection, own: dict[str, str], now: datetime) -> None:
    """Keep the newest tokens of an instance alone, and leave none behind that ended."""
    token = node_tokens.c.token_sha256
    newest_first = (node_tokens.c.issued_at.desc(), token)
    of_instance = sa.select(token).filter_by(**own).order_by(*newest_first)
    of_tenant = sa.select(token).where(
        node_tokens.c.tenant_id == own["tenant_id"], node_tokens.c.expires_at < now
    )
    for surplus in (of_instance.offset(TOKENS_PER_INSTANCE - 1), of_tenant.limit(SWEPT_AT_ONCE)):
        await connection.execute(
            sa.delete(node_tokens).where(
                node_tokens.c.tenant_id == own["tenant_id"], token.in_(surplus.scalar_subquery())
            )
        )


async def register(
    connection: Connection,
    *,
    tenant_id: str,
    instance_id: str,
    token_sha256: str,
    public_key: str,
    now: datetime,
) -> Registration:
    """Take a one-time token for the identity of its instance.

    Who sends the same again, since the answer was lost, is answered the same.
    """
    own = {"tenant_id": tenant_id, "instance_id": instance_id}
    of_token = own | {"token_sha256": token_sha256}
    held = sa.select(node_tokens.c.used_at).filter_by(**of_token).where(node_tokens.c.expires_at > now)
    found = (await connection.execute(held.with_for_update())).first()
    if found is None:
        return Registration.NOT_ISSUED
    row = own | {"public_key": public_key, "registered_at": now}
    added = await connection.execute(
        insert(node_identities).values(row).on_conflict_do_nothing().returning(node_identities.c.instance_id)
    )
    if added.first() is None:
        return await _registered_before(connection, own, public_key, used=found.used_at is not None)
    await connection.execute(sa.update(node_tokens).filter_by(**of_token).values(used_at=now))
    return Registration.DONE


async def _registered_before(
    connection: Connection, own: dict[str, str], public_key: str, *, used: bool
) -> Registration:
    query = sa.select(node_identities.c.public_key).filter_by(**own, revoked_at=None)
    known = (await connection.execute(query)).scalar_one_or_none()
    if known is None:
        return Registration.KEY_TAKEN
    return Registration.DONE if used and known == public_key else Registration.KNOWN_OTHERWISE


async def revoke(
    connection: Connection, tenant_id: str, instance_id: str, *, by: str, at: datetime
) -> Revocation:
    """Believe an instance nothing any more, with its event. It gets no other identity.

    One that was revoked before stays as it was. Raises `UnknownNode` and `NotRegistered`.
    """
    place = await _place_of(connection, tenant_id, instance_id)
    own = {"tenant_id": tenant_id, "instance_id": instance_id}
    revoked = (
        sa.update(node_identities).filter_by(**own, revoked_at=None).values(revoked_at=at, revoked_by=by)
    )
    if (await connection.execute(revoked)).rowcount == 1:
        said = NodeRevoked(**own, **place, revoked_at=at, revoked_by=by)
        await outbox.add_event(connection, said, once=instance_id)
        return Revocation(at, by)
    query = sa.select(node_identities.c.revoked_at, node_identities.c.revoked_by).filter_by(**own)
    before = (await connection.execute(query)).first()
    if before is None:
        raise NotRegistered(f"instance {instance_id!r} has not registered")
    return Revocation(*before)


async def _place_of(connection: Connection, tenant_id: str, instance_id: str) -> dict[str, Any]:
    """Where an instance of ours is, whatever became of it. Raises `UnknownNode`."""
    of_pool = sa.and_(*(instances.c[key] == pools.c[key] for key in ("tenant_id", "pool_id")))
    query = (
        sa.select(
            instances.c.region,
            pools.c.hall,
            instances.c.pool_id,
            instances.c.partition_id,
            instances.c.workload_id,
        )
        .join(pools, of_pool)
        .where(instances.c.tenant_id == tenant_id, instances.c.server_id == instance_id)
    )
    row = (await connection.execute(query)).mappings().first()
    if row is None:
        raise UnknownNode(f"no instance {instance_id!r}")
    return dict(row)


async def report_held(
    connection: Connection,
    tenant_id: str,
    instance_id: str,
    version: int,
    *,
    at: datetime,
    every: timedelta,
) -> bool:
    """Keep which version of its bundle a node says it holds; whether that was written.

    It is when the version is another one, or what is known of it is older than `every`.
    """
    reported = node_identities.c.held_reported_at
    told = (
        sa.update(node_identities)
        .filter_by(tenant_id=tenant_id, instance_id=instance_id)
        .where(sa.or_(node_identities.c.held_version.is_distinct_from(version), reported <= at - every))
    )
    return (await connection.execute(told.values(held_version=version, held_reported_at=at))).rowcount == 1


async def remember_request(
    connection: Connection, node: Node, *, nonce: str, now: datetime, until: datetime
) -> Seen:
    """Whether a signed request comes for the first time. What is remembered is bounded by time and number."""
    named = {
        "tenant": node.tenant_id,
        "instance": node.instance_id,
        "nonce": nonce,
        "now": now,
        "until": until,
        "allowed": REQUESTS_PER_WINDOW,
        "swept": SWEPT_AT_ONCE,
    }
    row = (await connection.execute(REMEMBER, named)).one()
    if row.added:
        return Seen.NEW
    return Seen.REPLAYED if row.within else Seen.TOO_MANY
