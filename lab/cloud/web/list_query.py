"""From the query string of a server list to the question for the table, as Nova reads it.

Filters that Nova knows but keeps for administrators are ignored, as it ignores them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from starlette.datastructures import QueryParams

from lab.cloud.errors import CloudError
from lab.cloud.records import Key, Status
from lab.cloud.table import ServerQuery
from lab.cloud.web.microversion import Since

MAX_LIMIT = 1_000

_EXACT = {"reservation_id": "reservation_id", "flavor": "flavor"}
_EXACT_LATER = {"availability_zone": "availability_zone", "user_id": "user"}
"""Filters that members may use since 2.83."""
_TAG_FILTERS = frozenset({"tags", "tags-any", "not-tags", "not-tags-any"})
_JOINED_TABLES = frozenset(
    {
        "block_device_mapping",
        "services",
        "metadata",
        "system_metadata",
        "info_cache",
        "security_groups",
        "pci_devices",
    }
)
_OTHER_KNOWN = frozenset(
    [
        "host",
        "project_id",
        "tenant_id",
        "launch_index",
        "image_ref",
        "image",
        "kernel_id",
        "ramdisk_id",
        "hostname",
        "key_name",
        "power_state",
        "vm_state",
        "task_state",
        "node",
        "launched_at",
        "terminated_at",
        "name",
        "display_name",
        "description",
        "display_description",
        "locked_by",
        "uuid",
        "root_device_name",
        "config_drive",
        "access_ip_v4",
        "access_ip_v6",
        "auto_disk_config",
        "progress",
        "sort_key",
        "sort_dir",
        "all_tenants",
        "soft_deleted",
        "deleted",
        "status",
        "changes-since",
        "changes-before",
        "ip",
        "ip6",
        "created_at",
        "locked",
        "limit",
        "marker",
    ]
)
_KNOWN = frozenset(_EXACT) | frozenset(_EXACT_LATER) | _TAG_FILTERS | _JOINED_TABLES | _OTHER_KNOWN
_NOVA_STATUSES = frozenset(
    [
        "ACTIVE",
        "BUILD",
        "DELETED",
        "ERROR",
        "HARD_REBOOT",
        "MIGRATING",
        "PASSWORD",
        "PAUSED",
        "REBOOT",
        "REBUILD",
        "RESCUE",
        "RESIZE",
        "REVERT_RESIZE",
        "SHELVED",
        "SHELVED_OFFLOADED",
        "SHUTOFF",
        "SOFT_DELETED",
        "SUSPENDED",
        "VERIFY_RESIZE",
    ]
)


@dataclass(frozen=True, slots=True)
class ListQuery:
    """What to list, and the page: `limit` at most 1,000, `marker` a server id or None."""

    query: ServerQuery
    limit: int
    marker: str | None


def read_list_query(params: QueryParams, project_id: str, minor: int) -> ListQuery:
    """Raises CloudError 400 for what Nova refuses; filters it does not know are left out below 2.75."""
    _refuse(params, minor)
    every = {("project", project_id)}
    exact = {**_EXACT, **(_EXACT_LATER if minor >= Since.MEMBER_FILTERS else {})}
    every.update((kind, params[name]) for name, kind in exact.items() if name in params)
    any_of: list[frozenset[Key]] = []
    none_of: frozenset[Key] = frozenset()
    not_every: frozenset[Key] = frozenset()
    if minor >= Since.TAGS:
        every |= _tags(params, "tags")
        none_of, not_every = _tags(params, "not-tags-any"), _tags(params, "not-tags")
        if params.get("tags-any"):
            any_of.append(_tags(params, "tags-any"))
    if "status" in params:
        any_of.append(_statuses(params, minor))
    since, before = _time(params, "changes-since"), _time(params, "changes-before")
    if since is None and before is not None:
        since = datetime.min.replace(tzinfo=UTC)
    query = ServerQuery(
        every=frozenset(every),
        any_of=tuple(any_of),
        none_of=none_of,
        not_every=not_every,
        name=_name(params),
        changed_since=since,
        changed_before=before,
        oldest_first=_oldest_first(params),
    )
    return ListQuery(query, _limit(params), params.get("marker"))


def _refuse(params: QueryParams, minor: int) -> None:
    if minor >= Since.UNKNOWN_REFUSED:
        for name in params:
            if name not in _KNOWN and not name.startswith("_"):
                raise CloudError(400, f"{name!r} does not match any of the regexes: '^_'")
    if "all_tenants" in params:
        raise CloudError(
            403, "Policy doesn't allow os_compute_api:servers:detail:get_all_tenants to be performed."
        )


def _statuses(params: QueryParams, minor: int) -> frozenset[Key]:
    """Statuses that no server here can have find nothing; unknown ones are refused since 2.38."""
    wanted = {status.upper() for status in params.getlist("status")}
    if not wanted & _NOVA_STATUSES and minor >= Since.STATUS_CHECKED:
        raise CloudError(400, "Invalid status value")
    if wanted == {str(Status.DELETED)}:
        raise CloudError(403, "Only administrators may list deleted instances")
    return frozenset(("status", status) for status in wanted)


def _tags(params: QueryParams, name: str) -> frozenset[Key]:
    return frozenset(("tag", tag) for tag in params.get(name, "").split(",") if tag)


def _name(params: QueryParams) -> re.Pattern[str] | None:
    pattern = params.get("name", params.get("display_name"))
    try:
        return re.compile(pattern) if pattern else None
    except re.error as error:
        raise CloudError(400, "Invalid filter field: name.") from error


def _time(params: QueryParams, name: str) -> datetime | None:
    if name not in params:
        return None
    try:
        moment = datetime.fromisoformat(params[name])
    except ValueError as error:
        raise CloudError(
            400,
            f"Invalid input for query parameters {name}. Value: {params[name]}."
            f" {params[name]!r} is not a 'date-time'",
        ) from error
    return moment.astimezone(UTC) if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _oldest_first(params: QueryParams) -> bool:
    if params.get("sort_key", "created_at") != "created_at":
        raise CloudError(400, f"Sort key {params['sort_key']!r} is not offered here: give created_at")
    return params.get("sort_dir", "desc") == "asc"


def _limit(params: QueryParams) -> int:
    text = params.get("limit", str(MAX_LIMIT))
    if not re.fullmatch(r"\d{1,9}", text):
        raise CloudError(
            400,
            f"Invalid input for query parameters limit. Value: {text}. {text!r} does not match '^[0-9]*$'",
        )
    return min(int(text), MAX_LIMIT)
