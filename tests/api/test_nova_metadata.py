"""What the pages tell the cloud team of Nova, asked of Nova's own code."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from lab.openstack.waiting import VENV
from tests.api.door import Door
from tests.api.node_ways import launched, registered
from tests.api.nodes_scene import SECRET, SERVER
from tests.api.serving import served

SCRIPT = Path(__file__).parent / "nova_metadata.py"
DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("howto/give-nodes-an-identity.md", "howto/run-the-notice-relay.md", "runbooks/notices-late.md")
TIMEOUTS = ("vendordata_dynamic_connect_timeout", "vendordata_dynamic_read_timeout")
PATIENCE_SECONDS = 120


async def nova(*arguments: str) -> tuple[int, str, str]:
    asking = await asyncio.create_subprocess_exec(
        VENV / "bin" / "python",
        SCRIPT,
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(PATIENCE_SECONDS):
        told, problems = await asking.communicate()
    assert asking.returncode is not None
    return asking.returncode, told.decode(), problems.decode()


def blocks_of(page: str) -> list[str]:
    """What a page says to put into nova.conf; on one page it stands in a list."""
    found = re.findall(r"```ini\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    blocks = [re.sub(r"^ +", "", block, flags=re.MULTILINE) for block in found]
    return [block for block in blocks if block.startswith("[api]")]


@pytest.mark.parametrize("page", PAGES)
async def test_nova_takes_every_setting_of_a_page_where_the_page_puts_it(page: str, tmp_path: Path) -> None:
    (block,) = blocks_of(page)
    (tmp_path / "nova.conf").write_text(block)
    code, told, problems = await nova("settings", str(tmp_path / "nova.conf"))
    assert code == 0, problems
    read: dict[str, Any] = json.loads(told)["api"]
    assert [read[name] for name in TIMEOUTS] == [3, 1], "one Nova has one value of each"


@pytest.mark.parametrize(
    "wrong",
    [
        "[DEFAULT]\n[api]\nvendordata_dynamic_connect_timeout = 2\n",
        "[api]\nmetadata_cache_seconds = 1\n",
        "[cinder]\nmetadata_cache_expiration = 1\n",
    ],
)
async def test_a_setting_that_nova_does_not_take_would_be_found(wrong: str, tmp_path: Path) -> None:
    (tmp_path / "nova.conf").write_text(wrong)
    code, _, problems = await nova("settings", str(tmp_path / "nova.conf"))
    assert code == 1
    assert "Error" in problems


async def test_nova_asks_at_every_read_although_it_keeps_the_metadata(door: Door) -> None:
    """So a poll finds what is new at once, whatever `metadata_cache_expiration` says."""
    await launched(door)
    async with served(door.app) as address:
        target = f"sco@{address.replace('://', f'://nova:{SECRET}@')}/nodes/vendordata"
        _, told, problems = await nova("reads", target, SERVER, "3")
        assert told, problems
        await registered(door)
        _, known, _ = await nova("reads", target, SERVER, "2")
    answer = json.loads(told)
    assert answer["made"] == 1
    assert len({one["sco"]["token"] for one in answer["shown"]}) == 3
    assert json.loads(known)["shown"] == [{"sco": {}}] * 2
