"""Placing models over the wire: what is asked, answered, repeated, renewed and released."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import grpc
import pytest
from grpc import StatusCode

from activities.model_placing import PlaceRefusal
from api.grpc.service import REFUSED_AS
from tests.activities.model_placing import ACME, PLATFORM
from tests.api.grpc.door import GrpcDoor, asked, stamp
from wire.proto import control_pb2 as pb


async def refused(call: Any, code: StatusCode) -> str:
    """The text of a refusal, checked for its status."""
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    assert error.value.code() is code, error.value.details()
    return error.value.details() or ""


async def test_the_70_gb_example(door: GrpcDoor) -> None:
    """70 GB private task; local GPU too small, cloud A fits, cloud B cheaper in a forbidden region -> A."""
    await door.serving.pool("local-gpu", vram_gb=24, price_per_hour_usd=Decimal(0))
    await door.serving.pool("cloud-a", vram_gb=80, price_per_hour_usd=Decimal("3.50"))
    await door.serving.pool("cloud-b", vram_gb=80, price_per_hour_usd=Decimal("1.20"), region="us-east")
    answer = await door.place(asked(vram_gb=70, regions=["eu-north", "eu-west"]))
    assert answer.outcome == pb.PLACEMENT_OUTCOME_PLACED
    assert (answer.pool.tenant_id, answer.pool.pool_id) == (ACME, "cloud-a")
    found = {one.pool.pool_id: (one.chosen, one.reason) for one in answer.candidates}
    assert found == {"cloud-a": (True, ""), "cloud-b": (False, "region"), "local-gpu": (False, "memory")}
    assert all(one.text for one in answer.candidates if not one.chosen)
    assert "goes to pool cloud-a, where loading it takes about" in answer.text
    assert "1 for region, 1 for memory" in answer.text


async def test_an_answer_carries_endpoint_credential_and_expiry(door: GrpcDoor) -> None:
    await door.serving.pool()
    request = asked()
    answer = await door.place(request)
    assert answer.placement_id == request.request_id
    assert answer.state == pb.PLACEMENT_STATE_HELD
    assert answer.endpoint_ref == "https://gpu-1.example.net"
    assert answer.credential.token == "secret-1-of-gpu-1"
    assert answer.credential.expires_at == stamp(door.clock, 300)
    assert answer.expires_at == stamp(door.clock, 600)
    assert (answer.warm, answer.cold_start_seconds) == (False, 40)
    assert Decimal(answer.candidates[0].score) > 0


async def test_a_request_is_answered_once(door: GrpcDoor) -> None:
    await door.serving.pool()
    request = asked()
    first, second = await door.place(request), await door.place(request)
    second.credential.CopyFrom(first.credential)
    assert first == second
    assert await door.serving.committed() == 70
    again = asked(request_id=request.request_id, vram_gb=71)
    assert "other requirements" in await refused(
        door.calls.Place(again, metadata=door.signed()), StatusCode.ALREADY_EXISTS
    )
    # Ids are each tenant's own.
    other = await door.place(request, tenant="globex")
    assert other.outcome == pb.PLACEMENT_OUTCOME_POLICY_DENIED


async def test_that_no_pool_fits_is_an_answer(door: GrpcDoor) -> None:
    denied = await door.place()
    assert denied.outcome == pb.PLACEMENT_OUTCOME_POLICY_DENIED
    await door.serving.pool(reported=False)
    full = await door.place()
    assert full.outcome == pb.PLACEMENT_OUTCOME_NO_CAPACITY
    assert (full.state, full.endpoint_ref) == (pb.PLACEMENT_STATE_NONE, "")
    for field in ("pool", "credential", "expires_at"):
        assert not full.HasField(field), field
    assert "1 for stale" in full.text


async def test_the_price_limit_excludes(door: GrpcDoor) -> None:
    await door.serving.pool(price_per_hour_usd=Decimal("2.50"))
    low = await door.place(asked(max_price_per_hour=pb.Money(amount="2.49", currency="USD")))
    assert [one.reason for one in low.candidates] == ["price"]
    exact = await door.place(asked(max_price_per_hour=pb.Money(amount="2.500000", currency="USD")))
    assert exact.outcome == pb.PLACEMENT_OUTCOME_PLACED


async def test_a_placement_is_renewed_and_released(door: GrpcDoor) -> None:
    await door.serving.pool()
    placed = await door.place()
    door.clock.move(100)
    options: dict[str, Any] = {"metadata": door.signed(), "timeout": 20}
    renewed = await door.calls.Renew(pb.RenewRequest(placement_id=placed.placement_id), **options)
    assert (renewed.state, renewed.expires_at) == (pb.PLACEMENT_STATE_HELD, stamp(door.clock, 600))
    release = pb.ReleaseRequest(placement_id=placed.placement_id)
    released = await door.calls.Release(release, **options)
    assert (released.state, released.ended_at) == (pb.PLACEMENT_STATE_RELEASED, stamp(door.clock))
    assert await door.serving.committed() == 0
    door.clock.move(5)
    assert await door.calls.Release(release, **options) == released
    ended = await door.calls.Renew(pb.RenewRequest(placement_id=placed.placement_id), **options)
    assert ended.state == pb.PLACEMENT_STATE_RELEASED
    await door.serving.memory_is_right()


async def test_why_a_placement_ended_before_its_time_is_said(door: GrpcDoor) -> None:
    await door.serving.pool()
    request = asked()
    placed = await door.place(request)
    problem = "failed: the endpoint answered 500"
    await door.serving.hand.release(ACME, UUID(placed.placement_id), problem)
    options: dict[str, Any] = {"metadata": door.signed(), "timeout": 20}
    ended = await door.calls.Renew(pb.RenewRequest(placement_id=placed.placement_id), **options)
    again = await door.place(request)
    for told in (ended, again):
        assert (told.state, told.problem) == (pb.PLACEMENT_STATE_RELEASED, problem)
    assert placed.problem == ""


async def test_nobody_else_can_renew_or_release_a_placement(door: GrpcDoor) -> None:
    await door.serving.pool("shared", PLATFORM, security_boundary="shared")
    placed = await door.place(asked(boundary=pb.SECURITY_BOUNDARY_SHARED))
    assert placed.outcome == pb.PLACEMENT_OUTCOME_PLACED
    told = set()
    for placement_id in (placed.placement_id, str(uuid4())):
        for tenant in ("globex", PLATFORM):
            signed = door.signed(tenant)
            for call in (
                door.calls.Renew(pb.RenewRequest(placement_id=placement_id), metadata=signed),
                door.calls.Release(pb.ReleaseRequest(placement_id=placement_id), metadata=signed),
            ):
                text = await refused(call, StatusCode.NOT_FOUND)
                told.add(text.replace(placement_id, ""))
    assert len(told) == 1, "a placement of somebody else must look as one that does not exist"
    assert await door.serving.committed("shared", PLATFORM) == 70


async def test_another_tenants_pool_is_no_candidate(door: GrpcDoor) -> None:
    await door.serving.pool("secret-lab", "globex")
    await door.serving.pool("platform-private", PLATFORM, security_boundary="private")
    await door.serving.pool("shared", PLATFORM, security_boundary="shared")
    answer = await door.place(asked(boundary=pb.SECURITY_BOUNDARY_SHARED))
    assert [one.pool.pool_id for one in answer.candidates] == ["shared"]
    assert b"secret" not in answer.SerializeToString().replace(b"secret-1-of-shared", b"")


async def test_without_secrets_nothing_is_placed(door: GrpcDoor) -> None:
    await door.serving.pool()
    door.serving.vault.down = True
    call = door.calls.Place(asked(), metadata=door.signed())
    assert "secrets service" in await refused(call, StatusCode.UNAVAILABLE)
    assert dict(await call.trailing_metadata() or ())["retry-after"] == "1"
    assert await door.serving.committed() == 0


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"request_id": ""}, "request_id is ''; allowed is a UUID"),
        ({"request_id": "{0b5d2f8e-6a1c-4f7e-9d3b-2c8a4e6f1a90}"}, "request_id"),
        ({"request_id": "0b5d2f8e6a1c4f7e9d3b2c8a4e6f1a90"}, "request_id"),
        ({"run_id": "x"}, "run_id is 'x'"),
        ({"deployment_id": ""}, "deployment_id is missing; allowed is text that matches"),
        ({"deployment_id": "a\x00b"}, "deployment_id is a\\u0000b"),
        ({"deployment_id": "é" * 500}, "deployment_id"),
        ({"model": "a b"}, "model is a b"),
        ({"vram_gb": 0}, "vram_gb is 0; allowed is a number of at least 1"),
        ({"vram_gb": -5}, "vram_gb is -5"),
        ({"vram_gb": 2_000_000_000}, "vram_gb is 2000000000"),
        ({"boundary": 0}, "boundary is missing; allowed are SECURITY_BOUNDARY_PRIVATE, "),
        ({"boundary": 99}, "boundary is 99"),
        ({"latency_class": 77}, "latency_class is 77"),
        ({"regions": ["eu-north", "EU"]}, "regions.1 is EU"),
        ({"regions": [f"r{n}" for n in range(65)]}, "regions"),
        ({"max_price_per_hour": pb.Money(amount="1", currency="EUR")}, "currency is 'EUR'; allowed is 'USD'"),
        ({"max_price_per_hour": pb.Money(amount="1")}, "max_price_per_hour.currency is ''"),
        ({"max_price_per_hour": pb.Money(amount="NaN", currency="USD")}, "amount is 'NaN'"),
        ({"max_price_per_hour": pb.Money(amount="-1", currency="USD")}, "amount is '-1'"),
        ({"max_price_per_hour": pb.Money(amount="1e9", currency="USD")}, "amount is '1e9'"),
        ({"max_price_per_hour": pb.Money(amount="٣", currency="USD")}, "amount is '٣'"),
        ({"max_price_per_hour": pb.Money(amount="1.0000001", currency="USD")}, "amount is '1.0000001'"),
    ],
)
async def test_a_wrong_value_is_told_with_its_field(
    door: GrpcDoor, wrong: dict[str, object], told: str
) -> None:
    text = await refused(
        door.calls.Place(asked(**wrong), metadata=door.signed()), StatusCode.INVALID_ARGUMENT
    )
    assert told in text
    assert "allowed" in text


def test_every_refusal_of_the_hand_has_its_status() -> None:
    assert set(REFUSED_AS) == set(PlaceRefusal)
