"""The worked examples come out as written, figures are those of the code, and programs on the pages run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from activities.openstack.settings import CloudSettings
from activities.ports import ProviderErrorKind
from domain.acquisition import AcquisitionTerms
from domain.circuit import CircuitState, CircuitTerms
from domain.intake import Intake, read_claim
from domain.placement.caps import Terms, caps_for, pools_and_groups_needed
from domain.placement.filters import FACT_FILTERS, TERM_FILTERS
from domain.placement.scoring import PoolInputs, score_pool
from domain.policy import PlacementPolicy, ScoringPolicy
from lab.cloud.server import CloudHandle
from lab.cloud.settings import CloudSettings as LabSettings
from lab.models.memory import SIZED
from lab.serving import SERVED
from lab.stack.temporal import SEARCH_ATTRIBUTES
from store import quota_holds
from tests.api.door import door_on
from tests.docs.pages import ROOT, fences, read, section
from tests.domain.worlds import facts
from tests.estates import Estate
from wire.intake import parse_documents
from workers.assemble import MAX_BUDGET_WAIT_SECONDS
from workers.schedules import SWEEP_EVERY
from workflows import terms

T1 = Terms(Decimal("0.30"), Decimal("0.15"), Decimal("0.30"), Decimal("0.05"), 3)
REGIONS = "docs/concepts/provider-regions.md"
OPENSTACK = "docs/howto/run-on-your-own-openstack.md"


def table(text: str) -> list[list[str]]:
    """The rows of the tables in a text, without headings."""
    found = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\|.*\|$", text, re.M)
    ]
    return [row for row in found if re.fullmatch(r"[\d A-Z]+", row[0])]


def test_the_example_of_depth_is_what_the_scorer_says() -> None:
    policy = ScoringPolicy()
    lines = table(section("docs/concepts/scoring.md", "Depth"))
    assert len(lines) == 3
    for _, episodes, hours, free, rate, calm, room, depth, band in lines:
        inputs = PoolInputs(
            facts=facts(), episodes=int(episodes), observed_hours=int(hours), free_instances=int(free)
        )
        score = score_pool(inputs, policy)
        assert (score.interruptions_per_hour, score.depth, score.depth_band) == (
            Decimal(rate),
            Decimal(depth),
            int(band),
        )
        assert (1 / (1 + score.interruptions_per_hour)).quantize(Decimal("0.0001")) == Decimal(calm)
        assert min(Decimal(1), Decimal(free) / policy.deep_instances) == Decimal(room)


def test_the_order_of_filters_is_that_of_the_code() -> None:
    text = section("docs/concepts/scoring.md", "From ranking to shortlist")
    named = re.findall(r"`(\w+)`", text[text.index("gives the reason:") : text.index("The limits above")])
    assert named == [reason.value for reason, _ in (*FACT_FILTERS, *TERM_FILTERS)]


def test_the_table_of_floor_and_caps_is_what_the_planner_uses() -> None:
    lines = table(section("docs/concepts/placement.md", "Floor and caps"))
    assert len(lines) == 5
    for units, floor, pool, group, probation in lines:
        caps = caps_for(int(units), T1)
        found = (caps.floor_units, caps.pool_units, caps.group_units, caps.probation_units)
        assert found == (int(floor), int(pool), int(group), int(probation))


def test_the_figures_of_placement_are_those_of_the_code() -> None:
    text = " ".join(read("docs/concepts/placement.md").split())
    assert pools_and_groups_needed(T1) == (5, 3)
    assert "at least five pools in three groups" in text
    assert caps_for(42, T1).floor_hall_units == 5
    assert "of 13 units at most 5" in text
    assert f"at most {terms.MAX_REPLANS} further plans in one run" in text
    assert PlacementPolicy().backoff_seconds == 300
    assert "without that pool for 5 minutes" in text
    assert SWEEP_EVERY.total_seconds() == 60
    assert "The sweep runs every minute" in text


def test_the_figures_of_acquisition_are_those_of_the_code() -> None:
    text = " ".join(read("docs/concepts/acquisition.md").split())
    patience = AcquisitionTerms()
    assert f"**settle time** ({patience.settle_seconds} s)" in text
    assert f"at most {patience.max_attempts} times" in text
    assert f"building {patience.build_patience_seconds / 60:g} minutes after" in text
    assert f"at most {PlacementPolicy().batch_instances} equal servers" in text
    kinds = set(re.findall(r"`(\w+)`", section("docs/concepts/acquisition.md", "Failures")))
    assert {kind.value for kind in ProviderErrorKind} - {"unknown"} <= kinds


def test_the_figures_of_provider_regions_are_those_of_the_code() -> None:
    text = " ".join(read(REGIONS).split())
    circuit = CircuitTerms()
    assert f"after {circuit.open_after_failures} failures in a row: `open`" in text
    assert f"after {circuit.open_seconds:g} s one call may try" in text
    assert f"up to {circuit.most_open_seconds / 60:g} minutes" in text
    assert f"after {circuit.probe_seconds:g} s another may try" in text
    assert f"the pause is {circuit.pause_seconds:g} s" in text
    assert f"in a row, up to {circuit.most_pause_seconds / 3600:g} h. A pause" in text
    assert f"waits if it ends within {MAX_BUDGET_WAIT_SECONDS:g} s" in text
    assert f"At {ScoringPolicy().quota_alarm_share * 100:.0f} % left or less" in text
    assert f"for {quota_holds.BASE_SECONDS / 60:g} minute nobody asks" in text
    assert f"doubles it, up to {quota_holds.MOST_SECONDS / 3600:g} h." in text
    assert [state.value for state in CircuitState] == re.findall(
        r"^\| `(\w+)`", section(REGIONS, "Circuit"), re.M
    )


def test_every_claim_on_a_page_can_be_read() -> None:
    for page in ("docs/howto/submit-a-claim.md", "docs/reference/claim-input.md"):
        (text,) = fences(read(page), "yaml")
        assert isinstance(read_claim(parse_documents(text.encode()), workload=None), Intake)


def test_the_cloud_file_on_the_page_is_valid() -> None:
    (text,) = fences(read(OPENSTACK), "json")
    settings = CloudSettings.model_validate_json(text)
    assert settings.regions == ("eu-north",)


def test_the_search_attributes_on_the_page_are_those_of_the_laboratory() -> None:
    assert set(re.findall(r"`(Sco\w+)`", section(OPENSTACK, "1. Servers"))) == set(SEARCH_ATTRIBUTES)


async def test_the_partition_on_the_page_is_that_of_the_examples_and_can_be_added(estate: Estate) -> None:
    (text,) = fences(read("docs/howto/add-a-partition.md"), "yaml")
    document = yaml.safe_load(text)
    assert document == yaml.safe_load(read("examples/partitions/k8s-eu-west.yaml"))
    assert (document.pop("apiVersion"), document.pop("kind")) == ("sco/v1", "Partition")
    async with door_on(estate) as door:
        assert (await door.put("/partitions/k8s-eu-west", document)).status_code == 201
    rows = await estate.rows("SELECT partition_id, region, scheduler FROM partitions")
    assert rows == [("k8s-eu-west", "eu-west", "kubernetes")]


@pytest.fixture
def cloud_file(tmp_path: Path) -> Iterator[Path]:
    """The settings of a client of a simulated cloud."""
    with CloudHandle.start_in_thread(LabSettings(speed=0)) as cloud:
        known: Any = cloud.credentials
        path = tmp_path / "cloud.json"
        path.write_text(
            json.dumps(
                {
                    "auth_url": known.auth_url,
                    "regions": list(known.regions),
                    "images": {"x86_64": "6f1b1d52-2a3e-4a1c-8f62-0d7d2b0c9a11"},
                    "username": known.username,
                    "password": known.password,
                    "project": known.project_name,
                }
            )
        )
        yield path


def test_the_program_that_registers_pools_runs_and_can_be_repeated(dsn: str, cloud_file: Path) -> None:
    (program,) = fences(read(OPENSTACK), "python")
    environment = os.environ | {"SCO_DATABASE_URL": dsn, "SCO_CLOUD_FILE": str(cloud_file)}
    for added in (180, 0):
        ended = subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        assert f"eu-north: {added} pools added" in ended.stdout


def test_the_contract_of_the_start_page_has_the_shares_it_names() -> None:
    contract, workload = yaml.safe_load_all(read("examples/contracts/orders-daily.yaml"))
    assert workload["workloadId"] == "orders-daily"
    shares = [contract[name] for name in ("floorShare", "poolCapShare", "groupCapShare")]
    text = " ".join(section("docs/start.md", "3. Declare a contract").split())
    assert (
        "(floor {:.0f} %, at most {:.0f} % in one pool and {:.0f} % in one correlation group)".format(
            *(Decimal(share) * 100 for share in shares)
        )
        in text
    )


def test_the_laboratory_can_keep_the_example_of_a_warm_profile() -> None:
    (written,) = fences(read("docs/howto/keep-a-model-warm.md"), "yaml")
    profile = yaml.safe_load((ROOT / "examples" / "warm" / "chat.yaml").read_text())
    assert yaml.safe_load(written) == profile
    (model,) = profile["models"]
    sized = SIZED.fullmatch(model["model"])
    assert sized is not None
    assert int(sized["size"]) == model["vramGb"]
    there = [one for one in SERVED if one.region in profile["pools"]["regions"]]
    assert sum(one.vram_gb >= model["vramGb"] for one in there) >= profile["copies"]
