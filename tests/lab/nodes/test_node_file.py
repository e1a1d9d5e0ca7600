"""A control plane and the laboratory's nodes that are started apart believe each other."""

from __future__ import annotations

import base64
from pathlib import Path

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from activities.node_settings import read_node_settings
from lab.nodes.metadata import MetadataServer, MetadataService, http_target
from lab.nodes.node_file import vendordata_target, write_node_file
from lab.nodes.plans import PROVIDER_FOLDER
from lab.nodes.provider import Provider

API = "http://127.0.0.1:8080"


def test_the_file_names_the_keys_that_the_nodes_process_takes_up(tmp_path: Path) -> None:
    path = write_node_file(tmp_path, API)
    told = read_node_settings(path)
    provider = Provider(tmp_path / PROVIDER_FOLDER)
    assert told.notice_keys == {provider.relay.key.key_id: provider.relay.key.public_text}
    assert told.node_bus["eu-north"] == (provider.bus.url,)
    assert told.bus is not None
    assert told.bus.issuer.account == provider.bus.admission.keys.account.public
    assert path.stat().st_mode & 0o077 == 0
    assert write_node_file(tmp_path, API) == path
    assert read_node_settings(path) == told


def test_the_target_has_the_secret_in_its_address(tmp_path: Path) -> None:
    path = write_node_file(tmp_path, API)
    secret = read_node_settings(path).vendordata_secret.get_secret_value()
    assert vendordata_target(path) == f"http://nova:{secret}@127.0.0.1:8080/nodes/vendordata"


async def test_a_target_over_http_is_asked_as_nova_asks() -> None:
    asked: list[tuple[object, str]] = []

    async def answer(request: Request) -> Response:
        asked.append((orjson.loads(await request.body()), request.headers.get("authorization", "")))
        return Response(orjson.dumps({"token": "once"}), media_type="application/json")

    app = Starlette(routes=[Route("/vendordata", answer, methods=["POST"])])
    door = MetadataServer(MetadataService({}))
    door.server.config.app = app
    async with door.serving():
        url = door.base_url.replace("http://", "http://nova:secret@")
        found = await http_target(f"{url}/vendordata")("i-1")
    assert found == {"token": "once"}
    basic = base64.b64encode(b"nova:secret").decode()
    assert asked == [({"instance-id": "i-1"}, f"Basic {basic}")]
