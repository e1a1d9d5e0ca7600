"""A server as the cloud remembers it, and the keys it can be found by."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

Key = tuple[str, str]


class Status(StrEnum):
    BUILD = "BUILD"
    ACTIVE = "ACTIVE"
    SHUTOFF = "SHUTOFF"
    ERROR = "ERROR"
    DELETED = "DELETED"


class Step(StrEnum):
    """What happens to a server next, when its due time comes."""

    ACTIVE = "active"
    NO_HOST = "no_host"
    NO_QUOTA = "no_quota"
    BUILD_ERROR = "build_error"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class ServerFault:
    """Nova's fault of a server in ERROR."""

    code: int
    message: str
    created_at: datetime


@dataclass(slots=True)
class Action:
    """One entry of os-instance-actions."""

    action: str
    request_id: str
    user_id: str
    started_at: datetime
    finished_at: datetime | None = None
    result: str | None = None


@dataclass(slots=True, eq=False)
class Server:
    """One instance. `group` is the host group that carries it, None when it has no host.

    `sequence` is the order of creation and the paging position. `reservation` is the Blazar
    reservation whose flavor it has, `reservation_id` the id of its multi-create. `unscheduled` says
    that it was deleted before a host was chosen for it.
    """

    sequence: int
    id: str
    name: str
    project_id: str
    user_id: str
    flavor_id: str
    image_id: str
    reservation_id: str
    launch_index: int
    created_at: datetime
    updated_at: datetime
    availability_zone: str | None
    pinned_zone: str | None
    group: str | None
    reservation: str | None
    status: Status = Status.BUILD
    task_state: str | None = "scheduling"
    description: str | None = None
    hostname: str = ""
    key_name: str | None = None
    networked: bool = False
    user_data: str | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    hints: dict[str, object] = field(default_factory=dict)
    launched_at: datetime | None = None
    terminated_at: datetime | None = None
    fault: ServerFault | None = None
    actions: list[Action] = field(default_factory=list)
    due_at: datetime | None = None
    step: Step | None = None
    unscheduled: bool = False
    keys: frozenset[Key] = frozenset()
    rendered: dict[tuple[str, int], bytes] = field(default_factory=dict)

    def wait_for(self, step: Step | None, due_at: datetime | None) -> None:
        self.step, self.due_at = step, due_at


def index_keys(server: Server) -> set[Key]:
    """Every exact value that the list can be asked for. A deleted server has neither tags nor metadata."""
    keys = {
        ("id", server.id),
        ("project", server.project_id),
        ("status", str(server.status)),
        ("reservation_id", server.reservation_id),
        ("availability_zone", server.availability_zone or ""),
        ("flavor", server.flavor_id),
        ("name", server.name),
        ("user", server.user_id),
        ("host", server.group or ""),
        ("reservation", server.reservation or ""),
    }
    return keys if server.status is Status.DELETED else keys | label_keys(server)


def label_keys(server: Server) -> set[Key]:
    """What the owner wrote on a server."""
    tags = {("tag", tag) for tag in server.tags}
    return tags | {("metadata", f"{name}={value}") for name, value in server.metadata.items()}
