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


class ProfileChanged(ValueError):
    """The profile is at another version than the caller knows; `version` is the newest."""

    def __init__(self, profile_id: str, version: int, expected: int) -> None:
        super().__init__(f"warm profile {profile_id!r} is at version {version}, not {expected}")
        self.version = version


async def put(
    connection: Connection, tenant_id: str, profile: WarmProfile, expected: int | None, *, at: datetime
) -> tuple[StoredProfile, bool]:
    """Create or replace a profile; True with a new one. One that changes nothing keeps its version.

    `expected` is the version that the caller replaces, None for any. `ProfileChanged` where it is another,
    `UnknownProfile` where a version is expected of none.
    """
    new = insert(warm_profiles).values(_values(profile) | {"tenant_id": tenant_id, "created_at": at})
    if expected is None:
        added = await connection.execute(
            new.values(updated_at=at).on_conflict_do_nothing().returning(warm_profiles.c.version)
        )
        if added.first() is not None:
            return await find(connection, tenant_id, profile.profile_id), True
    known = await _locked(connection, tenant_id, profile.profile_id, expected)
    if known.profile != profile:
        changed = _values(profile) | {"version": known.version + 1, "updated_at": at}
        await connection.execute(
            sa.update(warm_profiles).where(*_row(tenant_id, profile.profile_id)).values(changed)
        )
    return await find(connection, tenant_id, profile.profile_id), False


async def remove(connection: Connection, tenant_id: str, profile_id: str, expected: int | None) -> None:
    """Remove a profile; refused as `put` refuses."""
    await _locked(connection, tenant_id, profile_id, expected)
    await connection.execute(sa.delete(warm_profiles).where(*_row(tenant_id, profile_id)))


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


async def _locked(
    connection: Connection, tenant_id: str, profile_id: str, expected: int | None
) -> StoredProfile:
    query = sa.select(warm_profiles.c.version).where(*_row(tenant_id, profile_id)).with_for_update()
    await connection.execute(query)
    known = await find(connection, tenant_id, profile_id)
    if expected is not None and known.version != expected:
        raise ProfileChanged(profile_id, known.version, expected)
    return known


def _values(profile: WarmProfile) -> dict[str, Any]:
    return profile.model_dump(mode="json")


def _row(tenant_id: str, profile_id: str) -> tuple[sa.ColumnElement[bool], ...]:
    return (warm_profiles.c.tenant_id == tenant_id, warm_profiles.c.profile_id == profile_id)


def _stored(row: Any) -> StoredProfile:
    profile = WarmProfile.model_validate({name: getattr(row, name) for name in WarmProfile.model_fields})
    return StoredProfile(profile, row.version, row.created_at, row.updated_at)
