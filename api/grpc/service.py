"""What each method does, once its caller is let in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from grpc import StatusCode

from activities.model_placing import Placed, PlaceRefusal
from api.grpc.answers import place_response, release_response, renew_response
from api.grpc.calls import Call, Refused
from api.grpc.ports import Placing, Reporting
from api.grpc.reading import endpoint_problem_of, requirements_of, uuid_of
from api.grpc.reports import Streams
from api.sign_in.principal import PLACE, Need
from wire.proto import control_pb2 as pb

# Each method with what it needs of its caller.
NEEDS: Mapping[str, Need] = dict.fromkeys(
    ("Place", "Renew", "Release", "ReportEndpoint", "ReportUtilization"), PLACE
)
REFUSED_AS = {
    PlaceRefusal.PLACEMENT_DIFFERS: StatusCode.ALREADY_EXISTS,
    PlaceRefusal.SECRETS_UNAVAILABLE: StatusCode.UNAVAILABLE,
}


class ComputePools:
    """The service. The library knows its methods by their names; each gets its message and the `Call`."""

    def __init__(self, placing: Placing, reporting: Reporting, streams: Streams) -> None:
        self._placing = placing
        self._reporting = reporting
        self._streams = streams

    async def Place(self, request: pb.PlaceRequest, call: Call) -> pb.PlaceResponse:
        placement_id = uuid_of(request.request_id, "request_id")
        wanted = requirements_of(request)
        placed = await self._placing.place(call.who.tenant_id, wanted, placement_id=placement_id)
        if not isinstance(placed, Placed):
            code = REFUSED_AS[placed.reason]
            raise Refused(code, placed.text, retry=code is StatusCode.UNAVAILABLE)
        return place_response(placed)

    async def Renew(self, request: pb.RenewRequest, call: Call) -> pb.RenewResponse:
        placement_id = uuid_of(request.placement_id, "placement_id")
        known = await self._placing.renew(call.who.tenant_id, placement_id)
        if known is None:
            raise _no_placement(request.placement_id)
        return renew_response(known)

    async def Release(self, request: pb.ReleaseRequest, call: Call) -> pb.ReleaseResponse:
        placement_id = uuid_of(request.placement_id, "placement_id")
        known = await self._placing.release(call.who.tenant_id, placement_id)
        if known is None:
            raise _no_placement(request.placement_id)
        return release_response(known)

    async def ReportEndpoint(
        self, request: pb.ReportEndpointRequest, call: Call
    ) -> pb.ReportEndpointResponse:
        seen = endpoint_problem_of(request, call.who.tenant_id)
        try:
            done = await self._reporting.endpoint(call.who.tenant_id, seen)
        except LookupError as error:
            raise Refused(StatusCode.NOT_FOUND, f"{error}: report a pool as Place named it") from None
        return pb.ReportEndpointResponse(kept=done.kept, avoided_seconds=done.avoided_seconds)

    async def ReportUtilization(
        self, messages: AsyncIterator[Any], call: Call
    ) -> pb.ReportUtilizationResponse:
        return await self._streams.follow(messages, call)


def _no_placement(placement_id: str) -> Refused:
    return Refused(
        StatusCode.NOT_FOUND, f"no placement {placement_id}: give the placement_id of an answer to Place"
    )
