"""Creating servers, one or many at once, the way Nova decides it."""

from __future__ import annotations

from dataclasses import dataclass, field

from domain.pool import PurchaseModel
from lab.cloud.capacity import HostGroup, spread
from lab.cloud.errors import CloudError
from lab.cloud.estate import Flavor
from lab.cloud.faults import FaultKind, FaultRule
from lab.cloud.leases import Reservation
from lab.cloud.records import Action, Server, Step
from lab.cloud.region import Region
from lab.cloud.reserved import is_offered

BUILD_JITTER = (0.8, 1.2)
_STEP_OF_FAULT: dict[FaultKind, Step | None] = {
    FaultKind.NO_VALID_HOST: Step.NO_HOST,
    FaultKind.NO_QUOTA_LATER: Step.NO_QUOTA,
    FaultKind.BUILD_ERROR: Step.BUILD_ERROR,
    FaultKind.STUCK_BUILD: None,
}
_HOMELESS = (Step.NO_HOST, Step.NO_QUOTA)


@dataclass(frozen=True, slots=True)
class Launch:
    """A create as it was asked for. Between `min_count` and `max_count` servers are wanted."""

    name: str
    flavor: Flavor
    image_id: str
    project_id: str
    user_id: str
    request_id: str
    min_count: int = 1
    max_count: int = 1
    zone: str | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    user_data: str | None = None
    hints: dict[str, object] = field(default_factory=dict)
    description: str | None = None
    hostname: str | None = None
    key_name: str | None = None
    networked: bool = False


def launch(region: Region, order: Launch, fault: FaultRule | None = None) -> tuple[str, list[Server]]:
    """Accept a create: the id of the multi-create and its servers, in BUILD.

    Raises CloudError 400 for an unknown or unavailable zone and 403 beyond the quota. Too little
    capacity is no error here: as in Nova, all servers of the request end in ERROR a little later.
    """
    _check_zone(region, order.zone)
    if fault is not None and fault.kind is FaultKind.QUOTA_EXCEEDED:
        raise region.quota.exceeded(order.project_id, order.flavor, order.min_count, order.max_count)
    count = region.quota.allowed(order.project_id, order.flavor, order.min_count, order.max_count)
    steps = _steps(count, fault)
    homes = _find_homes(region, order, sum(step not in _HOMELESS for step in steps))
    reservation_id = f"r-{region.rng.getrandbits(32):08x}"
    servers: list[Server] = []
    for index, step in enumerate(steps):
        home = homes.pop(0) if homes and step not in _HOMELESS else None
        servers.append(
            _start(
                region,
                order,
                reservation_id=reservation_id,
                position=(index, len(steps)),
                home=home,
                step=step if home is not None or step in _HOMELESS else Step.NO_HOST,
            )
        )
    return reservation_id, servers


def _check_zone(region: Region, zone: str | None) -> None:
    if zone is not None and (zone not in region.halls or zone in region.lost_halls):
        raise CloudError(400, "The requested availability zone is not available")


def _steps(count: int, fault: FaultRule | None) -> list[Step | None]:
    """What comes of each server: a fault hits the last `fault.count` of them, or all."""
    steps: list[Step | None] = [Step.ACTIVE] * count
    if fault is None:
        return steps
    hit = min(count, fault.count or count)
    if fault.kind is FaultKind.NOT_CREATED:
        return steps[: count - hit]
    if fault.kind in _STEP_OF_FAULT:
        steps[count - hit :] = [_STEP_OF_FAULT[fault.kind]] * hit
    return steps


def _find_homes(region: Region, order: Launch, count: int) -> list[HostGroup]:
    """A host group for each server, claimed; none at all when they do not all fit.

    The flavor alone says whether they use a reservation: Nova ignores the hint for those of servers.
    """
    reservation = None
    if order.flavor.reservation_id is not None:
        reservation = _usable_reservation(region, order, order.flavor.reservation_id, count)
        groups = [region.groups[reservation.group]] if reservation is not None else []
    else:
        groups = _candidates(region, order)
    homes = spread(groups, count)
    if homes is None:
        return []
    for home in homes:
        home.claim(1)
    if reservation is not None:
        reservation.used += count
    return homes


def _candidates(region: Region, order: Launch) -> list[HostGroup]:
    return [
        group
        for group in region.groups.values()
        if group.flavor.id == order.flavor.id
        and group.plan.purchase_model is not PurchaseModel.COMMITTED
        and order.zone in (None, group.plan.hall)
        and group.plan.hall not in region.lost_halls
    ]


def _usable_reservation(region: Region, order: Launch, reservation_id: str, count: int) -> Reservation | None:
    found = region.leases.reservation(reservation_id)
    if found is None:
        return None
    _, reservation = found
    group = region.groups[reservation.group]
    fits = (
        is_offered(region.leases, order.flavor, order.project_id)
        and order.zone in (None, group.plan.hall)
        and group.plan.hall not in region.lost_halls
        and reservation.used + count <= reservation.amount
    )
    return reservation if fits else None


def _start(
    region: Region,
    order: Launch,
    *,
    reservation_id: str,
    position: tuple[int, int],
    home: HostGroup | None,
    step: Step | None,
) -> Server:
    now = region.now()
    index, count = position
    name = order.name if count == 1 else f"{order.name}-{index + 1}"
    server = Server(
        sequence=region.servers.next_sequence,
        id=region.new_id(),
        name=name,
        project_id=order.project_id,
        user_id=order.user_id,
        flavor_id=order.flavor.id,
        image_id=order.image_id,
        reservation_id=reservation_id,
        launch_index=index,
        created_at=now,
        updated_at=now,
        availability_zone=home.plan.hall if home is not None else order.zone,
        pinned_zone=order.zone,
        group=home.name if home is not None else None,
        reservation=order.flavor.reservation_id,
        description=order.description,
        hostname=order.hostname or name,
        key_name=order.key_name,
        networked=order.networked,
        user_data=order.user_data,
        metadata=dict(order.metadata),
        tags=order.tags,
        hints=order.hints,
        actions=[Action("create", order.request_id, order.user_id, now)],
        task_state="scheduling" if home is None else "spawning",
    )
    region.quota.take(order.project_id, order.flavor)
    if step is not None:
        region.schedule(server, step, _seconds_until(region, step))
    region.servers.add(server)
    return server


def _seconds_until(region: Region, step: Step) -> float:
    if step in _HOMELESS:
        return region.settings.schedule_seconds
    return region.settings.build_seconds * region.rng.uniform(*BUILD_JITTER)
