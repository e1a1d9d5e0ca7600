"""The node file of a process, and the provider's own code asking for tokens."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from lab.openstack.waiting import VENV
from tests.api.door import Door
from tests.api.node_ways import launched
from tests.api.nodes_scene import API_URL, SECRET, SERVER
from tests.api.serving import served
from tests.api.test_process import ROOT, environment

ASK = Path(__file__).parent / "ask_vendordata.py"

SETTINGS = {
    "SCO_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/nothing",
    "SCO_OIDC_ISSUER": "http://127.0.0.1:1",
    "SCO_OIDC_AUDIENCE": "sco-api",
}
PATIENCE_SECONDS = 120


async def test_a_node_file_that_cannot_be_used_ends_the_start(tmp_path: Path) -> None:
    path = tmp_path / "node.json"
    path.write_text('{"api_url": "https://sco.example.net"}')
    starting = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "api.main"),
        env=environment(**SETTINGS, SCO_NODE_FILE=str(path)),
        cwd=ROOT,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(PATIENCE_SECONDS):
        _, told = await starting.communicate()
    assert starting.returncode == 2
    assert told.decode().startswith(f"sco-api: SCO_NODE_FILE: {path} is refused: vendordata_secret: ")
    assert told.decode().count("\n") == 1


async def ask(address: str, server: str, secret: str) -> dict[str, Any]:
    """What Nova's own code puts into `vendor_data2.json` of a server."""
    target = f"sco@{address.replace('://', f'://nova:{secret}@')}/nodes/vendordata"
    asking = await asyncio.create_subprocess_exec(
        VENV / "bin" / "python",
        ASK,
        target,
        server,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(PATIENCE_SECONDS):
        told, problems = await asking.communicate()
    assert asking.returncode == 0, problems.decode()
    return dict(json.loads(told))


async def test_nova_is_given_a_token_for_the_instance_that_reads_its_metadata(door: Door) -> None:
    await launched(door)
    async with served(door.app) as address:
        own, foreign, refused_ = await asyncio.gather(
            ask(address, SERVER, SECRET), ask(address, "unknown", SECRET), ask(address, SERVER, "wrong")
        )
    assert own["sco"].keys() == {"token", "apiUrl"}
    assert own["sco"]["apiUrl"] == API_URL
    assert (foreign, refused_) == ({"sco": {}}, {"sco": {}})
