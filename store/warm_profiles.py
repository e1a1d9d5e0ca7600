"""Warm profiles: which models a tenant keeps loaded on its pools. Each write is a version of its own."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from domain.serving.warm_keep import WarmProfile
from store.engine import Connection
from store.tables import warm_profiles


class StoredProfile(NamedTuple):
    """A profile as its row holds it."""

    profile: WarmProfile
    version: int
    created_at: datetime
    updated_at: datetime


class UnknownProfile(LookupError):
    """No profile of this id belongs to the tenant."""


async def add(connection: Connection, tenant_id: str, profile: WarmProfile, *, at: datetime) -> bool:
    """Create a profile; False where one of its id is there."""
    made = _values(profile) | {"tenant_id": tenant_id, "created_at": at, "updated_at": at}
    added = insert(warm_profiles).values(made).on_conflict_do_nothing().returning(warm_profiles.c.version)
    return (await connection.execute(added)).first() is not None


async def replace(connection: Connection, tenant_id: str, profile: WarmProfile, *, at: datetime) -> None:
    """Write a profile that is there as a new version."""
    changed = _values(profile) | {"version": warm_profiles.c.version + 1, "updated_at": at}
    await connection.execute(
        sa.update(warm_profiles).where(*_row(tenant_id, profile.profile_id)).values(changed)
    )


async def remove(connection: Connection, tenant_id: str, profile_id: str) -> None:
    await connection.execute(sa.delete(warm_profiles).where(*_row(tenant_id, profile_id)))


async def locked(connection: Connection, tenant_id: str, profile_id: str) -> StoredProfile | None:
    """One profile, which nobody else changes until the transaction ends; None where there is none."""
    query = sa.select(warm_profiles).where(*_row(tenant_id, profile_id)).with_for_update()
    row = (await connection.execute(query)).first()
    return None if row is None else _stored(row)


async def find(connection: Connection, tenant_id: str, profile_id: str) -> StoredProfile:
    """One profile, or `UnknownProfile`."""
    row = (await connection.execute(sa.select(warm_profiles).where(*_row(tenant_id, profile_id)))).first()
    if row is None:
        raise UnknownProfile(
            f"no warm profile {profile_id!r}: see `sco get warm-profiles` for those that exist"
        )
    return _stored(row)


async def list_profiles(
    connection: Connection, tenant_id: str, *, after: str = "", limit: int = 1000
) -> list[StoredProfile]:
    """Profiles in the order of their ids, the first of them after the id `after`."""
    query = (
        sa.select(warm_profiles)
        .where(warm_profiles.c.tenant_id == tenant_id, warm_profiles.c.profile_id > after)
        .order_by(warm_profiles.c.profile_id)
        .limit(limit)
    )
    return [_stored(row) for row in await connection.execute(query)]


async def enabled(connection: Connection, tenant_id: str) -> list[WarmProfile]:
    """The profiles of a tenant that are on."""
    query = sa.select(warm_profiles).where(
        warm_profiles.c.tenant_id == tenant_id, warm_profiles.c.enabled.is_(True)
    )
    return [_stored(row).profile for row in await connection.execute(query)]


def _values(profile: WarmProfile) -> dict[str, Any]:
    return profile.model_dump(mode="json")


def _row(tenant_id: str, profile_id: str) -> tuple[sa.ColumnElement[bool], ...]:
    return (warm_profiles.c.tenant_id == tenant_id, warm_profiles.c.profile_id == profile_id)


def _stored(row: Any) -> StoredProfile:
    profile = WarmProfile.model_validate({name: getattr(row, name) for name in WarmProfile.model_fields})
    return StoredProfile(profile, row.version, row.created_at, row.updated_at)
