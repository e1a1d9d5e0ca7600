"""Launch user-data: what a node can read from it, its size, and what it never holds."""

from __future__ import annotations

import base64
import json
from decimal import Decimal

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from domain.contract import Contract, Tier
from domain.user_data import (
    BUNDLE_PATH,
    CONTRACT_PATH,
    ENVIRONMENT_PATH,
    MAX_ENCODED_BYTES,
    BootCopy,
    NodeContract,
    check_size,
    encoded_bytes,
    node_contract,
    user_data,
)

CONTRACT = Contract(
    contract_id="render-nightly", tier=Tier.T2, floor_share=Decimal("0.25"), drain_budget_seconds=90
)
names = st.from_regex(r"\A[a-z0-9][a-z0-9-]{0,62}\Z")


def test_cloud_init_puts_the_contract_subset_on_the_node() -> None:
    text = user_data(node_contract(CONTRACT, "render"))
    assert text.startswith("#cloud-config\n")
    [file] = yaml.safe_load(text)["write_files"]
    assert (file["path"], file["owner"], file["permissions"]) == (CONTRACT_PATH, "root:root", "0644")
    assert json.loads(file["content"]) == {
        "version": 1,
        "contract_id": "render-nightly",
        "workload_id": "render",
        "drain_budget_seconds": 90,
    }


def test_nothing_of_the_contract_but_the_subset_is_in_it() -> None:
    text = user_data(node_contract(CONTRACT, "render"))
    left_out = set(Contract.model_fields) - set(NodeContract.model_fields)
    assert {"floor_share", "pool_cap_share", "repo_commit", "tier"} <= left_out
    assert not [field for field in left_out if field in text]
    assert "0.25" not in text


@given(names, names, st.integers(1, 115))
def test_it_is_the_same_for_the_same_subset_and_always_fits(
    contract_id: str, workload_id: str, drain_budget_seconds: int
) -> None:
    contract = CONTRACT.model_copy(
        update={"contract_id": contract_id, "drain_budget_seconds": drain_budget_seconds}
    )
    text = user_data(node_contract(contract, workload_id))
    assert text == user_data(node_contract(contract, workload_id))
    assert len(base64.b64encode(text.encode())) <= MAX_ENCODED_BYTES


@given(st.text(max_size=200))
def test_encoded_size_is_that_of_base64(text: str) -> None:
    assert encoded_bytes(text) == len(base64.b64encode(text.encode()))


def test_the_largest_that_fits_passes_and_one_byte_more_does_not() -> None:
    largest = MAX_ENCODED_BYTES // 4 * 3
    check_size("x" * largest)
    with pytest.raises(ValueError, match=f"{MAX_ENCODED_BYTES + 1} bytes as base64, the limit is"):
        check_size("x" * (largest + 1))


def test_a_bundle_for_the_batch_goes_with_it() -> None:
    boot = BootCopy(bundle='{"kind":"bundle.v1"}', api_url="https://sco.example.net")
    plain, text = (user_data(node_contract(CONTRACT, "render"), one) for one in (None, boot))
    assert [file["path"] for file in yaml.safe_load(plain)["write_files"]] == [CONTRACT_PATH]
    files = {file["path"]: file["content"] for file in yaml.safe_load(text)["write_files"]}
    assert files[BUNDLE_PATH] == '{"kind":"bundle.v1"}'
    assert files[ENVIRONMENT_PATH] == "SCO_AGENT_API_URL=https://sco.example.net\n"


@pytest.mark.parametrize(
    "url",
    ["", "sco.example.net", "https://a\nSCO_AGENT_X=1", "https://a b", "file:///x", "https://" + "a" * 300],
)
def test_an_address_is_one_line_of_an_environment(url: str) -> None:
    with pytest.raises(ValueError, match="api_url"):
        BootCopy(bundle="{}", api_url=url)
