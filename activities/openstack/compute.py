"""Servers of the orchestrator's project, through Nova."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from openstack.exceptions import raise_from_response

from activities.openstack.flavors import FlavorBook
from activities.openstack.session import Connections, RegionClient
from activities.openstack.settings import CloudSettings
from activities.ports import BatchSpec, ProviderError, ProviderErrorKind, Server
from domain.acquisition import ServerStatus
from domain.tags import MANAGED_TAG, MAX_TAG_LENGTH, workload_tag
from domain.user_data import check_size

BATCH_KEY, POOL_KEY, WORKLOAD_KEY = "sco_batch", "sco_pool", "sco_workload"
MAX_PAGES = 1_000
MAX_TAGS, MAX_METADATA_LENGTH = 50, 255

_GONE = frozenset({"DELETED", "SOFT_DELETED"})
_CELL_DOWN = "UNKNOWN"
_STATUS = {
    "BUILD": ServerStatus.BUILDING,
    "REBUILD": ServerStatus.BUILDING,
    "ACTIVE": ServerStatus.ACTIVE,
    "REBOOT": ServerStatus.ACTIVE,
    "HARD_REBOOT": ServerStatus.ACTIVE,
    "MIGRATING": ServerStatus.ACTIVE,
    "PASSWORD": ServerStatus.ACTIVE,
    "ERROR": ServerStatus.ERROR,
}
_DELETING = frozenset({"deleting", "soft-deleting"})


class NovaCompute:
    """The port `Compute`. Safe to share between threads."""

    def __init__(self, settings: CloudSettings, connections: Connections, flavors: FlavorBook) -> None:
        self._images = settings.images
        self._connections = connections
        self._flavors = flavors

    def create_batch(self, spec: BatchSpec, count: int) -> None:
        """Ask for `count` equal servers in one call, all or none.

        Least and most are both `count`: with a range Nova grants what the quota has left and says
        nothing of the rest, and a batch of unknown size can neither be bound to its slots nor be
        retried. Accepted is not built: when any of them finds no host, Nova puts all in ERROR.
        """
        _check(spec)
        flavor = self._flavors.get(spec.region, spec.flavor)
        image = self._images.get(flavor.arch)
        if image is None:
            raise _bad(spec, f"no image is configured for {flavor.arch}, which flavor {spec.flavor} needs")
        body: dict[str, Any] = {
            "name": spec.name_prefix,
            "flavor_id": flavor.flavor_id,
            "image_id": str(image),
            "availability_zone": spec.hall,
            "networks": "none",
            "min_count": count,
            "max_count": count,
            "metadata": spec.metadata,
            "tags": list(spec.tags),
            "user_data": base64.b64encode(spec.user_data.encode()).decode(),
        }
        if spec.reservation_id is not None:
            body["scheduler_hints"] = {"reservation": spec.reservation_id}
        attempted = f"create {count} servers of {spec.flavor} in {spec.hall} (batch {spec.batch_key})"
        try:
            with self._connections.calling(spec.region, attempted, creates=True) as client:
                client.connection.compute.create_server(**body)
        except ProviderError as error:
            if error.kind is ProviderErrorKind.BAD_REQUEST:
                self._flavors.forget(spec.region)
            raise

    def list_workload(self, region: str, workload_id: str) -> Sequence[Server]:
        """Every server of one workload that is not deleted, in every page or not at all."""
        return self._list(region, workload_tag(workload_id))

    def list_managed(self, region: str) -> Sequence[Server]:
        """Every server that carries our tag and is not deleted, in every page or not at all."""
        return self._list(region, MANAGED_TAG)

    def delete(self, region: str, server_id: str) -> None:
        """Ask for the deletion of one server; a server that is gone already is no error."""
        with self._connections.calling(region, f"delete server {server_id}") as client:
            client.connection.compute.delete_server(server_id, ignore_missing=True)

    def _list(self, region: str, tag: str) -> list[Server]:
        with self._connections.calling(region, f"list the servers tagged {tag}") as client:
            listed = [_listed(region, each, tag) for page in _pages(client, tag) for each in page]
        servers = {each.server_id: each for each in listed if each is not None}
        return sorted(servers.values(), key=lambda server: (server.created_at, server.server_id))


def _pages(client: RegionClient, tag: str) -> Iterator[list[dict[str, Any]]]:
    """Every page of the list. Read as it comes: the SDK's resource takes 3 ms of CPU for each server."""
    query = {"tags": tag}
    for _ in range(MAX_PAGES):
        response = client.connection.compute.get("/servers/detail", params=query)
        raise_from_response(response)
        answer = response.json()
        page = answer["servers"]
        yield page
        if not page or not any(link["rel"] == "next" for link in answer.get("servers_links", ())):
            return
        # The link itself is not followed: its host is what the provider believes to be called.
        query = {"tags": tag, "marker": page[-1]["id"]}
    raise ValueError(f"the list did not end within {MAX_PAGES} pages")


def _check(spec: BatchSpec) -> None:
    """Refuse here what Nova would refuse, and servers that no list of ours would show."""
    workload_id = spec.metadata.get(WORKLOAD_KEY, "")
    for key, value in ((BATCH_KEY, spec.batch_key), (WORKLOAD_KEY, workload_id)):
        if not value or spec.metadata.get(key) != value:
            raise _bad(spec, f"its metadata must hold {key}={value or '…'}, or it cannot be found again")
    missing = {MANAGED_TAG, workload_tag(workload_id)} - set(spec.tags)
    if missing or len(spec.tags) > MAX_TAGS:
        raise _bad(spec, f"it lacks tags {sorted(missing)}, or has more than {MAX_TAGS}: {len(spec.tags)}")
    for tag in spec.tags:
        if not 1 <= len(tag) <= MAX_TAG_LENGTH or "/" in tag or "," in tag:
            raise _bad(spec, f"tag {tag!r} must have 1 to {MAX_TAG_LENGTH} characters without '/' and ','")
    for key, value in spec.metadata.items():
        if not key or max(len(key), len(value)) > MAX_METADATA_LENGTH:
            raise _bad(
                spec, f"metadata {key!r} must have 1 to {MAX_METADATA_LENGTH} characters, as its value"
            )
    try:
        check_size(spec.user_data)
    except ValueError as error:
        raise _bad(spec, str(error)) from error


def _bad(spec: BatchSpec, problem: str) -> ProviderError:
    message = f"{spec.region}: batch {spec.batch_key} was not sent: {problem}"
    return ProviderError(ProviderErrorKind.BAD_REQUEST, message)


def _listed(region: str, listed: dict[str, Any], tag: str) -> Server | None:
    """One server of a list, None when it is deleted.

    An incomplete answer must not pass for a list: what is missing would count as gone. Nor may an
    answer that ignores the filter: servers of others would count as ours.
    """
    if listed["status"] == _CELL_DOWN:
        raise ProviderError(
            ProviderErrorKind.UNAVAILABLE,
            f"{region}: the list of servers tagged {tag} is incomplete: the cell of {listed['id']} is down",
        )
    if tag not in listed["tags"]:
        raise ProviderError(
            ProviderErrorKind.UNKNOWN,
            f"{region}: the provider ignored the filter tags={tag}: it listed {listed['id']} without it",
        )
    return None if listed["status"] in _GONE else _server(listed)


def _server(listed: dict[str, Any]) -> Server:
    metadata = {str(key): str(value) for key, value in listed["metadata"].items()}
    status, fault = _status(listed)
    return Server(
        server_id=listed["id"],
        batch_key=metadata.get(BATCH_KEY),
        pool_id=metadata.get(POOL_KEY),
        workload_id=metadata.get(WORKLOAD_KEY),
        status=status,
        created_at=datetime.fromisoformat(listed["created"]),
        fault=fault,
        metadata=metadata,
    )


def _status(listed: dict[str, Any]) -> tuple[ServerStatus, str | None]:
    """What a server is to us, and its fault. One that is stopped, paused or rescued runs no work."""
    if listed["OS-EXT-STS:task_state"] in _DELETING:
        return ServerStatus.DELETING, None
    known = _STATUS.get(listed["status"])
    if known is None:
        return ServerStatus.ERROR, f"the server is {listed['status']}: it exists and runs no work"
    return known, listed.get("fault", {}).get("message") if known is ServerStatus.ERROR else None
