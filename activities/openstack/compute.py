"""Servers of the orchestrator's project, through Nova."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

import requests
from openstack.exceptions import raise_from_response

from activities.openstack.flavors import Flavor, FlavorBook
from activities.openstack.listed import BATCH_KEY, WORKLOAD_KEY, is_gone, read_server, read_tagged
from activities.openstack.session import Connections, RegionClient
from activities.openstack.settings import CloudSettings
from activities.ports import BatchSpec, ProviderError, ProviderErrorKind, Server
from domain.tags import MANAGED_TAG, MAX_TAG_LENGTH, workload_tag
from domain.user_data import check_size

MAX_PAGES = 1_000
MAX_TAGS, MAX_METADATA_LENGTH = 50, 255


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
            "flavor_id": self._wanted_flavor(spec, flavor),
            "image_id": str(image),
            "availability_zone": spec.hall,
            "networks": "none",
            "min_count": count,
            "max_count": count,
            "metadata": spec.metadata,
            "tags": list(spec.tags),
            "user_data": base64.b64encode(spec.user_data.encode()).decode(),
        }
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

    def deleted_since(self, region: str, since: datetime) -> frozenset[str]:
        """Ids of our project's servers whose deletion since then the provider confirms; every page or none.

        Asked for without tags, which a server loses when it is deleted. A server that was deleted before
        a host was chosen for it never shows here.
        """
        moment = since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        with self._connections.calling(region, f"list what changed since {moment}") as client:
            changed = [each for page in _pages(client, {"changes-since": moment}) for each in page]
        return frozenset(each["id"] for each in changed if is_gone(region, each))

    def find(self, region: str, server_id: str) -> Server | None:
        """One server by its id, whatever its tags; None when the provider says that it is gone."""
        with self._connections.calling(region, f"read server {server_id}") as client:
            response = client.connection.compute.get(f"/servers/{server_id}")
            if _says_absent(response):
                return None
            raise_from_response(response)
            shown = response.json()["server"]
            return None if is_gone(region, shown) else read_server(shown)

    def set_tags(self, region: str, server_id: str, tags: Sequence[str]) -> None:
        """Replace the tags of one server.

        Nova refuses it with CONFLICT unless the server is active or stopped: while it builds, is in
        ERROR or goes, its tags stay as they are.
        """
        attempted = f"tag server {server_id}"
        try:
            _check_tags(tags)
        except ValueError as error:
            raise ProviderError(
                ProviderErrorKind.BAD_REQUEST, f"{region}: could not {attempted}: {error}"
            ) from error
        with self._connections.calling(region, attempted) as client:
            response = client.connection.compute.put(f"/servers/{server_id}/tags", json={"tags": list(tags)})
            raise_from_response(response)

    def delete(self, region: str, server_id: str) -> None:
        """Ask for the deletion of one server; a server that is gone already is no error."""
        with self._connections.calling(region, f"delete server {server_id}") as client:
            response = client.connection.compute.delete(f"/servers/{server_id}")
            if not _says_absent(response):
                raise_from_response(response)

    def _wanted_flavor(self, spec: BatchSpec, flavor: Flavor) -> str:
        """The id to ask for. Only servers of the reservation's own flavor are on it and end with it.

        Nova heeds the hint `reservation` for reservations of whole hosts alone, and only with a filter
        that nobody can see from outside: a server sent with it could run beside the lease.
        """
        if spec.reservation_id is None:
            return flavor.flavor_id
        if not self._flavors.is_reserved(spec.region, spec.reservation_id):
            raise _bad(
                spec,
                f"reservation {spec.reservation_id} has no flavor of its own that this project may use, and"
                f" with flavor {spec.flavor} its servers would not be on the lease: see whether the lease is"
                " active and reserves by flavor:instance or virtual:instance",
            )
        return spec.reservation_id

    def _list(self, region: str, tag: str) -> list[Server]:
        with self._connections.calling(region, f"list the servers tagged {tag}") as client:
            listed = [
                read_tagged(region, each, tag) for page in _pages(client, {"tags": tag}) for each in page
            ]
        servers = {each.server_id: each for each in listed if each is not None}
        return sorted(servers.values(), key=lambda server: (server.created_at, server.server_id))


def _pages(client: RegionClient, asked: dict[str, str]) -> Iterator[list[dict[str, Any]]]:
    """Every page of the list. Read as it comes: the SDK's resource takes 3 ms of CPU for each server."""
    query = asked
    for _ in range(MAX_PAGES):
        response = client.connection.compute.get("/servers/detail", params=query)
        if response.status_code == HTTPStatus.BAD_REQUEST and "marker" in query:
            # The server at the end of the last page was forgotten meanwhile: not a fault of the question.
            raise ProviderError(
                ProviderErrorKind.UNAVAILABLE,
                f"{client.region}: the list of servers ended at {query['marker']}, which is gone: list again",
            )
        raise_from_response(response)
        answer = response.json()
        page = answer["servers"]
        yield page
        if not page or not any(link["rel"] == "next" for link in answer.get("servers_links", ())):
            return
        # The link itself is not followed: its host is what the provider believes to be called.
        query = {**asked, "marker": page[-1]["id"]}
    raise ValueError(f"the list did not end within {MAX_PAGES} pages")


def _says_absent(response: requests.Response) -> bool:
    """Whether Nova itself says that there is no such server: a 404 of something before it proves nothing."""
    if response.status_code != HTTPStatus.NOT_FOUND:
        return False
    try:
        return "itemNotFound" in response.json()
    except ValueError:
        return False


def _check(spec: BatchSpec) -> None:
    """Refuse here what Nova would refuse, and servers that no list of ours would show."""
    workload_id = spec.metadata.get(WORKLOAD_KEY, "")
    for key, value in ((BATCH_KEY, spec.batch_key), (WORKLOAD_KEY, workload_id)):
        if not value or spec.metadata.get(key) != value:
            raise _bad(spec, f"its metadata must hold {key}={value or '…'}, or it cannot be found again")
    missing = {MANAGED_TAG, workload_tag(workload_id)} - set(spec.tags)
    if missing:
        raise _bad(spec, f"it lacks the tags {sorted(missing)}, without which it cannot be found again")
    for key, value in spec.metadata.items():
        if not key or max(len(key), len(value)) > MAX_METADATA_LENGTH:
            raise _bad(
                spec, f"metadata {key!r} must have 1 to {MAX_METADATA_LENGTH} characters, as its value"
            )
    try:
        _check_tags(spec.tags)
        check_size(spec.user_data)
    except ValueError as error:
        raise _bad(spec, str(error)) from error


def _check_tags(tags: Sequence[str]) -> None:
    if len(tags) > MAX_TAGS:
        raise ValueError(f"a server may have at most {MAX_TAGS} tags, not {len(tags)}")
    for tag in tags:
        if not 1 <= len(tag) <= MAX_TAG_LENGTH or "/" in tag or "," in tag:
            raise ValueError(f"tag {tag!r} must have 1 to {MAX_TAG_LENGTH} characters without '/' and ','")


def _bad(spec: BatchSpec, problem: str) -> ProviderError:
    message = f"{spec.region}: batch {spec.batch_key} was not sent: {problem}"
    return ProviderError(ProviderErrorKind.BAD_REQUEST, message)
