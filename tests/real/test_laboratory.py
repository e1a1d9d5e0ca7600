"""From a pod list on disk to a placed workload, followed on the screens and in the Temporal UI."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.async_api import expect

from clients.cli.main import main
from lab.bring_up import bring_up
from lab.cloud.admin_client import AdminClient
from lab.control_plane import WORKER, ControlPlane
from lab.stack import Stack
from tests.api.test_screens import WHY
from tests.real.conftest import Visit
from tests.stack_fixtures import new_folder

pytestmark = pytest.mark.real

EXAMPLES = Path(__file__).parents[2] / "examples"
CONTRACT = str(EXAMPLES / "contracts" / "orders-daily.yaml")
PODS = str(EXAMPLES / "demand" / "orders-daily-pods.json")
WORKFLOW = "placement/k8s-eu-north/orders-daily"
# So slow that instances are seen while they are built.
SLOW_CLOUD = 1.0
WAIT_SECONDS = 60.0


@dataclass(frozen=True)
class Laboratory:
    plane: ControlPlane
    cloud: AdminClient

    async def sco(self, *arguments: str) -> None:
        assert await asyncio.to_thread(main, arguments) == 0


@pytest.fixture(scope="module")
def laboratory() -> Iterator[Laboratory]:
    """Cloud, worker and API as processes on a stack of their own, as `sco-lab up` starts them."""
    folder = new_folder()
    stack = Stack.start(folder / "lab")
    plane = ControlPlane(stack)
    try:
        bring_up(plane)
        known = json.loads(plane.cloud_file.read_text())
        cloud = AdminClient(known["base_url"], known["admin"]["token"])
        yield Laboratory(plane, cloud)
        cloud.close()
    finally:
        # Nothing is left to hand over, so its grace need not be waited for.
        plane.kill(WORKER)
        plane.stop_all()
        stack.stop()
        shutil.rmtree(folder)


async def test_a_pod_list_is_followed_until_it_is_placed(
    visit: Visit, laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane = laboratory.plane
    for name, value in plane.cli_environment().items():
        monkeypatch.setenv(name, value)
    visitor = await visit(plane.api_url, also=(plane.stack.web_ui_url, plane.issuer_url), signed_in=False)
    page = visitor.page
    heading = page.get_by_role("heading", level=1)
    instances = page.get_by_role("region", name="Instances")

    laboratory.cloud.set_speed(SLOW_CLOUD)
    await laboratory.sco("apply", "-f", CONTRACT)
    await laboratory.sco("claim", "-f", PODS, "--workload", "orders-daily")
    await visitor.open("/")
    await page.get_by_role("button", name="olivia").click()
    await expect(page.get_by_role("banner")).to_contain_text("olivia of platform")
    await page.get_by_role("link", name="Workloads").click()
    await page.get_by_role("link", name="orders-daily").click()
    await visitor.until(instances.get_by_text("building"), "instances are being built", WAIT_SECONDS)
    await expect(heading).to_have_text("orders-daily planned")
    await expect(page.get_by_text("42 units: 168 vCPU, 672 GiB, 0 GPUs")).to_be_visible()

    await page.get_by_role("link", name=f"Workflow {WORKFLOW}").click()
    await expect(heading).to_contain_text(WORKFLOW)
    await expect(page.get_by_text("Running", exact=True).first).to_be_visible()
    await expect(page.get_by_text("launch in eu-north").first).to_be_visible()

    laboratory.cloud.set_speed(plane.pace.cloud_speed)
    await visitor.open("/ui/workloads/orders-daily")
    placed = page.get_by_role("heading", level=1, name="orders-daily placed")
    await visitor.until(placed, "the workload is placed", WAIT_SECONDS)
    await expect(instances).to_have_text("Instances 21 active", use_inner_text=True)

    await page.get_by_role("link", name=f"Workflow {WORKFLOW}").click()
    for summary in ("launch in eu-north", "record the outcome"):
        await expect(page.get_by_text(summary).first).to_be_visible()
    await page.get_by_role("tab", name="Event History").click()
    await expect(page.get_by_text("decide and commit a plan generation").first).to_be_visible()
    await page.get_by_role("tab", name="User Metadata").click()
    # The UI shows what a workflow says of itself in frames of their own.
    said = [page.locator("iframe").nth(place).content_frame for place in range(3)]
    await expect(said[0].get_by_text("Place orders-daily in k8s-eu-north")).to_be_visible()
    await expect(said[1].get_by_text("asked for through the API")).to_be_visible()
    await expect(said[2].get_by_text("placed: 42 of 42 units on 21 instances")).to_be_visible()

    await visitor.open(WHY)
    await expect(page.get_by_text("42 of 42 units")).to_be_visible()
    await page.get_by_role("button", name="Decide again and compare").click()
    await expect(page.get_by_role("status")).to_contain_text("the same")
    await visitor.open("/")
    await expect(page.get_by_role("region", name="Workloads")).to_contain_text("1 placed")
