"""Claims: what a scheduler's list says a workload needs, and the placement that follows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response, status
from pydantic import Field

from activities.claiming import Claimed, NothingPending, WouldShrink, claim_from_list, scale_claim
from api import problems
from api.claim_view import (
    ClaimAnswer,
    Launch,
    claim_view,
    left_out_counts,
    left_out_views,
    unreadable_views,
)
from api.deps import Deps, Tenant, Uses, WorkloadPath
from api.gate import CLAIM_LIST
from api.idempotency import IdempotencyKey, keyed, once
from api.launching import launch
from api.problems import FieldProblem, Problem
from api.shapes import Body, View, Whole, json_text
from domain.claim import MAX_UNITS
from domain.ids import placement_workflow_id
from domain.intake import Intake, IntakeRefused, read_claim
from domain.intake.words import clean
from store.engine import Connection
from store.idempotency import Answer
from wire.intake import UnreadableInput, parse_documents

router = APIRouter(prefix="/workloads", tags=["claims"])
SMALL_BYTES = 256 * 1024
# A list of 64 MiB takes several times its size in memory while it is read.
_large_lists = asyncio.Semaphore(2)
_list_schema = {
    "schema": {"description": "What the scheduler prints, or a claim of our own format."},
    "example": {
        "apiVersion": "sco/v1",
        "kind": "Claim",
        "workload": "orders-daily",
        "units": {"count": 42, "vcpu": 4, "memory": "16Gi"},
    },
}
LIST_BODY: dict[str, Any] = {
    "requestBody": {"required": True, "content": dict.fromkeys(CLAIM_LIST.media_types, _list_schema)}
}


class ClaimQuery(Body):
    """`dryRun`: count and answer, but store and start nothing.

    `allowShrink`: take a scheduler's list that has fewer units than the newest claim.
    """

    dry_run: bool = False
    allow_shrink: bool = False


class ScaleBody(Body):
    """How many units the workload is to run in all."""

    units: Annotated[Whole, Field(ge=0, le=MAX_UNITS)]


@router.post(
    "/{workloadId}/claims",
    status_code=status.HTTP_202_ACCEPTED,
    response_model=ClaimAnswer,
    responses={200: {"model": ClaimAnswer, "description": "A dry run: counted, nothing stored"}},
    openapi_extra=LIST_BODY,
)
async def submit_claim(
    *,
    workload_id: WorkloadPath,
    query: Annotated[ClaimQuery, Query()],
    request: Request,
    deps: Uses,
    tenant_id: Tenant,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Make what a list says the newest claim of a workload, and start its placement.

    The body is what a scheduler prints (`kubectl get pods -o json`, `squeue --json`) or a claim of our own
    format. A scheduler lists what waits and not what runs, so a list with fewer units than the newest claim
    is refused, unless `allowShrink` is given. What was left out or could not be read is answered by name.
    """
    body = await request.body()
    intake = await _read(body, workload_id)

    async def do(connection: Connection) -> Claimed:
        try:
            return await claim_from_list(
                connection,
                tenant_id,
                workload_id,
                intake,
                allow_shrink=query.allow_shrink,
                dry_run=query.dry_run,
            )
        except NothingPending as error:
            raise _nothing_pending(error, intake) from None
        except WouldShrink as error:
            raise _would_shrink(error, intake) from None

    claiming = _Claiming(deps, tenant_id, do, intake)
    key = None if query.dry_run else keyed(request, tenant_id, idempotency_key, body)
    return await once(deps, key, claiming.work, claiming.tell_placement)


@router.post("/{workloadId}/scale", status_code=status.HTTP_202_ACCEPTED, response_model=ClaimAnswer)
async def scale(
    *,
    workload_id: WorkloadPath,
    body: ScaleBody,
    request: Request,
    deps: Uses,
    tenant_id: Tenant,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Claim another number of units, in the proportions of the shapes that were last submitted."""

    async def do(connection: Connection) -> Claimed:
        return await scale_claim(connection, tenant_id, workload_id, body.units)

    claiming = _Claiming(deps, tenant_id, do, None)
    key = keyed(request, tenant_id, idempotency_key, await request.body())
    return await once(deps, key, claiming.work, claiming.tell_placement)


class _Claiming:
    """One claim on its way: stored in a transaction, then told to its placement."""

    def __init__(
        self,
        deps: Deps,
        tenant_id: str,
        do: Callable[[Connection], Awaitable[Claimed]],
        intake: Intake | None,
    ) -> None:
        self._deps = deps
        self._tenant_id = tenant_id
        self._do = do
        self._intake = intake
        self._claimed: Claimed | None = None

    async def work(self, connection: Connection) -> Answer:
        """Store the claim. Until its placement is told, the answer says that it is queued."""
        claimed = self._claimed = await self._do(connection)
        workflow_id = placement_workflow_id(self._tenant_id, claimed.partition_id, claimed.workload_id)
        return self._answer(claimed, Launch(workflow_id=workflow_id, started="queued"))

    async def tell_placement(self, answer: Answer) -> Answer:
        """Once the claim is committed; a dry run has none."""
        claimed = self._claimed
        if claimed is None or claimed.version is None:
            return answer
        told = await launch(
            self._deps, self._tenant_id, claimed.partition_id, claimed.workload_id, claimed.version
        )
        return self._answer(claimed, told)

    def _answer(self, claimed: Claimed, placement: Launch) -> Answer:
        stored = claimed.version is not None
        view = _view(claimed, self._intake, placement if stored else None)
        code = status.HTTP_202_ACCEPTED if stored else status.HTTP_200_OK
        return Answer(code, json_text(view), {})


async def _read(body: bytes, workload_id: str) -> Intake:
    """What the list says; a problem when it says nothing that can be used."""
    if len(body) <= SMALL_BYTES:
        return _parsed(body, workload_id)
    async with _large_lists:
        return await asyncio.to_thread(_parsed, body, workload_id)


def _parsed(body: bytes, workload_id: str) -> Intake:
    try:
        intake = read_claim(parse_documents(body), workload=workload_id)
    except UnreadableInput as error:
        place = "" if error.line is None else f"line {error.line}, column {error.column}"
        raise _refused(str(error), place) from None
    if isinstance(intake, IntakeRefused):
        raise _refused(intake.problem)
    return intake


def _refused(problem: str, place: str = "", intake: Intake | None = None) -> Problem:
    error = FieldProblem(
        field=place or "list",
        where="body",
        value=None,
        allowed="a pod list, a Slurm job list, or a claim (apiVersion: sco/v1, kind: Claim)",
        message=clean(problem, 2000),
    )
    extra: dict[str, Any] = {}
    if intake is not None:
        extra = {"leftOut": _plain(left_out_views(intake)), "unreadable": _plain(unreadable_views(intake))}
    return Problem(problems.CLAIM_REFUSED, clean(problem, 2000), errors=[error], extra=extra)


def _plain(views: Sequence[View]) -> list[dict[str, Any]]:
    return [view.model_dump(mode="json", by_alias=True) for view in views]


def _nothing_pending(error: NothingPending, intake: Intake) -> Problem:
    left_out, unreadable = len(intake.left_out), len(intake.unreadable)
    detail = (
        f"the list has no demand for this workload: {error} ({left_out} left out, {unreadable} unreadable)"
    )
    return _refused(detail, intake=intake)


def _would_shrink(error: WouldShrink, intake: Intake) -> Problem:
    extra = {
        "pendingUnits": error.pending_units,
        "claimUnits": error.claim_units,
        "unreadable": _plain(unreadable_views(intake)),
    }
    return Problem(problems.WOULD_SHRINK, str(error), extra=extra)


def _view(claimed: Claimed, intake: Intake | None, placement: Launch | None) -> ClaimAnswer:
    view = ClaimAnswer(
        **claim_view(claimed.demand).model_dump(),
        workload_id=claimed.workload_id,
        claim_version=claimed.version,
        notes=list(claimed.notes),
        placement=placement,
    )
    if intake is not None:
        view.left_out = left_out_views(intake)
        view.left_out_total = len(intake.left_out)
        view.left_out_by_reason = left_out_counts(intake)
        view.unreadable = unreadable_views(intake)
        view.unreadable_total = len(intake.unreadable)
    return view
