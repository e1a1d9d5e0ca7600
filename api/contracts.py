"""Contracts: what workload owners declared of floor, caps and the end of their work."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from fastapi import APIRouter, Query, Response, status
from pydantic import Field

from api import problems
from api.deps import ContractPath, Deps, Tenant, Uses
from api.paging import PageQuery, after_of, cut, listing_key
from api.problems import Problem, require_same_id
from api.shapes import Body, Flag, Line, PlainDecimal, View, Whole
from domain.contract import (
    MAX_FINAL_WRITE_SECONDS,
    CapShare,
    CheckpointMode,
    Contract,
    Restart,
    Share,
    Tier,
    contract_problems,
    contract_warnings,
)
from domain.placement.caps import Terms, pools_and_groups_needed
from domain.pool import Name
from store import overview, workloads
from store.engine import Connection

router = APIRouter(prefix="/contracts", tags=["contracts"])
Rate = Annotated[Decimal, Field(gt=0, le=100, max_digits=9, decimal_places=6), PlainDecimal()]


class ContractBody(Body):
    """A contract; its id stands in the path. Shares are of the whole claim, 0 to 1, as texts or numbers.

    `checkpointMode` and `restart` that are left out are as the tier declares.
    """

    contract_id: Name | None = None
    tier: Tier
    floor_share: Annotated[Share, PlainDecimal()]
    pool_cap_share: Annotated[CapShare, PlainDecimal()] = Decimal("0.15")
    group_cap_share: Annotated[CapShare, PlainDecimal()] = Decimal("0.30")
    tolerated_interruptions_per_hour: Rate = Decimal(1)
    drain_budget_seconds: Annotated[Whole, Field(ge=1, le=115)] = 115
    drain_on_advisory: Flag = False
    checkpoint_mode: CheckpointMode | None = None
    final_write_seconds: Annotated[Whole, Field(ge=1, le=MAX_FINAL_WRITE_SECONDS)] | None = None
    restart: Restart | None = None
    repo_commit: Annotated[Line, Field(max_length=64)] = ""


class ContractView(View):
    """A contract in force, with what its tier declares where it says nothing itself.

    `warnings` say what the registry as it is now cannot keep, and what could not be checked.
    """

    contract_id: str
    tier: Tier
    floor_share: Decimal
    pool_cap_share: Decimal
    group_cap_share: Decimal
    tolerated_interruptions_per_hour: Decimal
    drain_budget_seconds: int
    drain_on_advisory: bool
    checkpoint_mode: CheckpointMode
    final_write_seconds: int | None
    restart: Restart
    repo_commit: str
    warnings: list[str] = Field(default_factory=list)


class ContractPage(View):
    items: list[ContractView]
    next_page_token: str | None


@router.put("/{contractId}", responses={201: {"model": ContractView, "description": "Created"}})
async def put_contract(
    contract_id: ContractPath, body: ContractBody, response: Response, deps: Uses, tenant_id: Tenant
) -> ContractView:
    """Create or replace a contract. It holds for every later decision of its workloads."""
    require_same_id("contractId", body.contract_id, contract_id)
    contract = Contract(contract_id=contract_id, **body.model_dump(exclude={"contract_id"}))
    found = contract_problems(contract)
    if found:
        raise Problem(problems.CONTRACT_REFUSED, "; ".join(found), extra={"problems": list(found)})
    async with deps.engine.begin() as connection:
        response.status_code = await _status_of_put(connection, tenant_id, contract_id)
        await workloads.put_contract(connection, tenant_id, contract)
        stored = await workloads.find_contract(connection, tenant_id, contract_id)
        return await _view(connection, tenant_id, deps, stored)


async def _status_of_put(connection: Connection, tenant_id: str, contract_id: str) -> int:
    try:
        await workloads.find_contract(connection, tenant_id, contract_id)
    except workloads.UnknownContract:
        return status.HTTP_201_CREATED
    return status.HTTP_200_OK


@router.get("")
async def list_contracts(query: Annotated[PageQuery, Query()], deps: Uses, tenant_id: Tenant) -> ContractPage:
    """Contracts in the order of the ids, a page at a time."""
    listing = listing_key("contracts")
    after = after_of(query.page_token, listing)
    async with deps.engine.connect() as connection:
        found = await workloads.list_contracts(connection, tenant_id)
        existing = await overview.count_reclaimable(connection, tenant_id)
    rest = [one for one in found if one.contract_id > after]
    page, token = cut(rest, query, listing, lambda one: one.contract_id)
    return ContractPage(items=[_with_warnings(one, deps, existing) for one in page], next_page_token=token)


@router.get("/{contractId}")
async def get_contract(contract_id: ContractPath, deps: Uses, tenant_id: Tenant) -> ContractView:
    """One contract."""
    async with deps.engine.connect() as connection:
        contract = await workloads.find_contract(connection, tenant_id, contract_id)
        return await _view(connection, tenant_id, deps, contract)


async def _view(connection: Connection, tenant_id: str, deps: Deps, contract: Contract) -> ContractView:
    return _with_warnings(contract, deps, await overview.count_reclaimable(connection, tenant_id))


def _with_warnings(contract: Contract, deps: Deps, existing: tuple[int, int]) -> ContractView:
    caps = cap_warnings(terms_under(contract, deps), *existing)
    return ContractView(**contract.model_dump(), warnings=[*caps, *contract_warnings(contract)])


def terms_under(contract: Contract, deps: Deps) -> Terms:
    """What a contract and the policy mean for placement."""
    policy = deps.policy.placement
    return Terms(
        floor_share=contract.floor_share,
        pool_cap_share=contract.pool_cap_share,
        group_cap_share=contract.group_cap_share,
        probation_cap_share=policy.probation_cap_share,
        floor_min_halls=policy.floor_min_halls,
    )


def cap_warnings(terms: Terms, pools: int, groups: int) -> list[str]:
    """Why claims under these terms will end with a shortfall, if `pools` in `groups` are all there is."""
    needed_pools, needed_groups = pools_and_groups_needed(terms)
    warnings = []
    if pools < needed_pools:
        warnings.append(
            f"poolCapShare {terms.pool_cap_share} needs at least {needed_pools} active reclaimable pools and"
            f" the registry has {pools}: claims will fall short until more are active or the cap is raised"
        )
    if groups < needed_groups:
        warnings.append(
            f"groupCapShare {terms.group_cap_share} needs at least {needed_groups} correlation groups with"
            f" active reclaimable pools and the registry has {groups}: claims will fall short until more"
            " are active or the cap is raised"
        )
    return warnings
