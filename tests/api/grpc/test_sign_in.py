"""Nobody gets in without a good token, and a good token does no more than its scopes and roles allow."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from grpc import StatusCode

from api.grpc.service import NEEDS
from api.grpc.sign_in import UNAUTHENTICATED
from api.sign_in.keys import KeysUnavailable
from api.sign_in.principal import Principal
from tests.activities.model_placing import ACME
from tests.api.grpc.door import GrpcDoor, Metadata, asked, iter_messages, report
from tests.api.grpc.test_place import refused
from tests.api.sign_in.minting import claims, header, mint, signing_keys
from wire.proto import control_pb2 as pb

REQUESTS: dict[str, Callable[[], Any]] = {
    "Place": asked,
    "Renew": lambda: pb.RenewRequest(placement_id=str(uuid4())),
    "Release": lambda: pb.ReleaseRequest(placement_id=str(uuid4())),
    "ReportEndpoint": lambda: pb.ReportEndpointRequest(pool=pb.Pool(pool_id="gpu-1"), problem="refused"),
    "ReportUtilization": lambda: iter_messages([report()]),
}


def call(door: GrpcDoor, method: str, metadata: Metadata) -> Any:
    return getattr(door.calls, method)(REQUESTS[method](), metadata=metadata, timeout=20)


def test_every_method_of_the_service_says_what_it_needs() -> None:
    methods = {one.name for one in pb.DESCRIPTOR.services_by_name["ComputePools"].methods}
    assert methods == set(NEEDS) == set(REQUESTS)


def bad_metadata(door: GrpcDoor) -> dict[str, Metadata]:
    now = door.clock()
    good = mint(claims(now))
    expired = mint(claims(now - timedelta(hours=2)))
    none = good.split(".")[1]
    strange = mint(claims(now), header(kid="nobody"), signing_keys()["rsa-2"])
    return {
        "nothing": (),
        "an empty token": (("authorization", "Bearer "),),
        "no scheme": (("authorization", good),),
        "another scheme": (("authorization", f"Basic {good}"),),
        "two tokens": (("authorization", f"Bearer {good}"), ("authorization", f"Bearer {good}")),
        "garbage": (("authorization", "Bearer a.b.c"),),
        "expired": (("authorization", f"Bearer {expired}"),),
        "none": (("authorization", f"Bearer eyJhbGciOiJub25lIn0.{none}."),),
        "tampered": (("authorization", f"Bearer {good[:-4]}AAAA"),),
        "another audience": (("authorization", f"Bearer {mint(claims(now, aud='other'))}"),),
        "no tenant": (("authorization", f"Bearer {mint(claims(now, tenant_id=None))}"),),
        "unknown key": (("authorization", f"Bearer {strange}"),),
        "huge": (("authorization", f"Bearer {'a' * 9000}.b.c"),),
    }


@pytest.mark.parametrize("method", REQUESTS)
async def test_bad_tokens_are_all_refused_in_one_way(door: GrpcDoor, method: str) -> None:
    await door.serving.pool()
    bad = bad_metadata(door)
    for name, metadata in bad.items():
        text = await refused(call(door, method, metadata), StatusCode.UNAUTHENTICATED)
        assert text == UNAUTHENTICATED, name
    assert door.counted(method, StatusCode.UNAUTHENTICATED) == len(bad)
    for reason, count in (("missing", 1), ("expired", 1), ("audience", 1), ("unknown_key", 1)):
        counted = door.registry.get_sample_value("sco_sign_in_refused_total", {"reason": reason})
        assert counted == count, reason


@pytest.mark.parametrize("method", REQUESTS)
@pytest.mark.parametrize(
    "changed",
    [
        {"roles": ["Observer"]},
        {"roles": []},
        {"roles": ["platformadmin"]},
        {"scope": "factory.compute"},
    ],
    ids=str,
)
async def test_what_is_lacking_is_told(door: GrpcDoor, method: str, changed: dict[str, Any]) -> None:
    text = await refused(call(door, method, door.signed(**changed)), StatusCode.PERMISSION_DENIED)
    assert "needs the scope factory.compute.read or factory.compute.admin" in text
    assert "the role Operator or PlatformAdmin" in text


@pytest.mark.parametrize(
    "changed",
    [
        {"roles": ["Operator"], "scope": "factory.compute.read"},
        {"roles": ["PlatformAdmin"], "scope": "openid factory.compute.admin"},
    ],
    ids=str,
)
async def test_routers_and_admins_may_place(door: GrpcDoor, changed: dict[str, Any]) -> None:
    await door.serving.pool()
    answer = await door.place(metadata=door.signed(**changed))
    assert answer.outcome == pb.PLACEMENT_OUTCOME_PLACED


async def test_the_scheme_may_be_written_in_any_case(door: GrpcDoor) -> None:
    ((name, value),) = door.signed()
    await door.place(metadata=((name, value.replace("Bearer", "bearer")),))


async def test_without_the_issuers_keys_it_is_not_the_callers_fault(
    door: GrpcDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(token: str) -> Principal:
        raise KeysUnavailable

    monkeypatch.setattr(door.server.verifier, "verify", away)
    placing = door.calls.Place(asked(), metadata=door.signed())
    assert "keys are not at hand" in await refused(placing, StatusCode.UNAVAILABLE)
    assert dict(await placing.trailing_metadata() or ())["retry-after"] == "1"


async def test_the_tenant_is_the_tokens_whatever_else_is_sent(door: GrpcDoor) -> None:
    await door.serving.pool("globex-gpu", "globex")
    metadata = (*door.signed(ACME), ("tenant_id", "globex"), ("x-tenant", "globex"))
    answer = await door.place(metadata=metadata)
    assert len(answer.candidates) == 0
