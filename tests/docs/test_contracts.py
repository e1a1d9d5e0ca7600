"""What the pages say of contracts and tiers is what the rules say."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from api.contracts import ContractBody
from domain.contract import TIER_BOUNDS, TIER_DRAIN, Contract, Tier, contract_problems, contract_warnings
from tests.docs.pages import ROOT, rows

EXAMPLES = sorted((ROOT / "examples" / "contracts").glob("*.yaml"))


def words(listed: tuple[str, ...], every: int) -> str:
    return "any" if len(listed) == every else ", ".join(f"`{one}`" for one in listed)


def test_the_tiers_are_documented_with_what_they_declare_and_allow() -> None:
    expected = {}
    for tier in Tier:
        declared, bounds = TIER_DRAIN[tier], TIER_BOUNDS[tier]
        expected[tier.value] = [
            f"`{declared.checkpoint_mode}`, `{declared.restart}`",
            words(bounds.checkpoint_modes, 4),
            words(bounds.restarts, 3),
        ]
    assert rows("docs/reference/settings.md", "Tiers") == expected


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_contracts_are_taken_without_a_word(path: Path) -> None:
    said = next(one for one in yaml.safe_load_all(path.read_text()) if one["kind"] == "Contract")
    body = ContractBody.model_validate(
        {name: said[name] for name in said if name not in ("apiVersion", "kind")}
    )
    contract = Contract.model_validate(body.model_dump())
    assert contract_problems(contract) == ()
    assert contract_warnings(contract) == ()
