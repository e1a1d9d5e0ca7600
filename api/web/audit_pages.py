"""The screens of audits: the list, and one report. The same data as the API gives."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import HTMLResponse

from api.audits import AuditPath, audit_view, summaries
from api.deps import Tenant, Uses
from api.web.forms import ROWS, Form, rows_of, sheet
from api.web.render import page
from store import audits

router = APIRouter()


@router.get("/ui/audits")
async def show_audits(request: Request, deps: Uses, tenant_id: Tenant) -> HTMLResponse:
    """The newest audits, and what each found."""
    async with deps.engine.connect() as connection:
        found = await audits.audits_before(connection, tenant_id, None, ROWS)
    return page(request, "audits.html", rows=summaries(found, deps), most=ROWS, now=deps.now())


@router.get("/ui/audits/{auditId}")
async def show_audit(
    request: Request, audit_id: AuditPath, form: Annotated[Form, Query()], deps: Uses, tenant_id: Tenant
) -> HTMLResponse:
    """One report: what was looked at, and each finding with what to do."""
    async with deps.engine.connect() as connection:
        view = audit_view(await audits.find_audit(connection, tenant_id, audit_id), deps)
    return page(
        request,
        "audit.html",
        audit=view,
        form=form,
        rows=rows_of(form.page, list(view.findings)),
        sheet=sheet(form.page, len(view.findings)),
        now=deps.now(),
    )
