"""The metadata that an instance is shown: composed as Nova does, cached as Nova does, and with its faults."""

from __future__ import annotations

import email.utils
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from lab.nodes.metadata import MetadataFaults, MetadataServer, MetadataService

PATH = "/openstack/latest/vendor_data2.json"
NOW = 1_800_000_000.0


class Relay:
    """A target that answers how often it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, instance_id: str) -> Mapping[str, Any]:
        self.asked.append(instance_id)
        return {"notices": [f"{instance_id}/{len(self.asked)}"]}


async def broken(instance_id: str) -> Mapping[str, Any]:
    raise ConnectionError(instance_id)


@asynccontextmanager
async def serving(service: MetadataService) -> AsyncIterator[httpx2.AsyncClient]:
    async with (
        MetadataServer(service).serving() as server,
        httpx2.AsyncClient(base_url=server.base_url, trust_env=False, timeout=5) as http,
    ):
        yield http


async def test_each_instance_sees_its_own_and_a_broken_target_leaves_its_key_empty() -> None:
    service = MetadataService({"reclaimer": Relay(), "sco": broken}, cache_seconds=0, clock=lambda: NOW)
    async with serving(service) as http:
        one, two = await http.get(f"/i-1{PATH}"), await http.get(f"/i-2{PATH}")
        assert (await http.get("/i-1/openstack/latest/meta_data.json")).json() == {"uuid": "i-1"}
    assert one.json() == {"static": {}, "reclaimer": {"notices": ["i-1/1"]}, "sco": {}}
    assert two.json()["reclaimer"] == {"notices": ["i-2/2"]}
    assert email.utils.parsedate_to_datetime(one.headers["date"]).timestamp() == NOW
    assert one.headers.get_list("date") == [one.headers["date"]]


@pytest.mark.parametrize(("cache_seconds", "asked"), [(60.0, 1), (0.0, 3)])
async def test_the_cache_shows_what_was_until_it_ends(cache_seconds: float, asked: int) -> None:
    """What the setting of Nova costs: a notice that comes meanwhile is not seen."""
    relay = Relay()
    async with serving(MetadataService({"reclaimer": relay}, cache_seconds=cache_seconds)) as http:
        answers = [(await http.get(f"/i-1{PATH}")).json() for _ in range(3)]
    assert len(relay.asked) == asked
    assert answers[-1]["reclaimer"] == {"notices": [f"i-1/{asked}"]}


async def test_faults_concern_those_that_are_named() -> None:
    service = MetadataService({"reclaimer": Relay()}, clock=lambda: NOW)
    async with serving(service) as http:
        service.faults = MetadataFaults(only=frozenset({"i-1"}), status=500)
        assert (await http.get(f"/i-1{PATH}")).status_code == 500
        assert (await http.get(f"/i-2{PATH}")).status_code == 200
        service.faults = MetadataFaults(garbage=True, date_offset_seconds=-3600)
        wrong = await http.get(f"/i-1{PATH}")
        assert email.utils.parsedate_to_datetime(wrong.headers["date"]).timestamp() == NOW - 3600
        with pytest.raises(ValueError, match="Expecting value"):
            wrong.json()
        service.faults = MetadataFaults(hang=True)
        with pytest.raises(httpx2.TimeoutException):
            await http.get(f"/i-1{PATH}", timeout=0.3)
