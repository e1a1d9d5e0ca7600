"""Utilization reports of pools over NATS: subjects, and the letter that a pool's agent sends.

Whose report it is stands in the subject, which the permissions of the sender's NATS user bind, and not in
the letter, in which anybody could write anything. Reports are not kept by NATS: the next one comes in
seconds, and an old one says nothing.
"""

from __future__ import annotations

import re
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, NamedTuple

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

PREFIX = "pool-reports"
REPORT_SUBJECTS = f"{PREFIX}.*.*"
MAX_BYTES = 64 * 1024
MAX_DETAIL = 200
# A dot separates the parts of a subject, and names may have dots; no name has an underscore.
_SUBJECT = re.compile(rf"{PREFIX}\.([a-z0-9][a-z0-9_-]{{0,62}})\.([a-z0-9][a-z0-9-]{{1,62}})")


class ReportRefusedAs(StrEnum):
    """Why a message is no report."""

    SUBJECT = "subject"
    TOO_LARGE = "too_large"
    BODY = "body"


class Sender(NamedTuple):
    """Whose report it is, as the subject says."""

    tenant_id: str
    pool_id: str


class ReportRefusal(NamedTuple):
    """A message that cannot be used; `detail` says what was found, cut to a line."""

    reason: ReportRefusedAs
    detail: str


class _Letter(BaseModel):
    """Fields that a newer agent adds are left aside."""

    model_config = ConfigDict(alias_generator=to_camel, extra="ignore", frozen=True)


class ModelLetter(_Letter):
    """A model that the agent lists as loaded; memory in GB."""

    model: str
    vram_gb: int
    last_used_at: AwareDatetime


class ReportLetter(_Letter):
    """What an agent says of its pool. Utilization is a share, 0 to 1."""

    utilization: Annotated[Decimal, Field(ge=0, le=1)]
    queue_depth: Annotated[int, Field(ge=0)]
    models: tuple[ModelLetter, ...] = ()
    reported_at: AwareDatetime


def report_subject(tenant_id: str, pool_id: str) -> str:
    """The subject on which a pool's agent reports."""
    return f"{PREFIX}.{tenant_id.replace('.', '_')}.{pool_id}"


def sender_of(subject: str) -> Sender | None:
    """Whose reports a subject carries; None for one that nobody should send on."""
    found = _SUBJECT.fullmatch(subject)
    return Sender(found[1].replace("_", "."), found[2]) if found else None


def read_report(body: bytes) -> ReportLetter | ReportRefusal:
    """Read one letter. Never raises: what cannot be used comes back as a refusal."""
    if len(body) > MAX_BYTES:
        return ReportRefusal(ReportRefusedAs.TOO_LARGE, f"{len(body)} bytes; at most {MAX_BYTES} are allowed")
    try:
        return ReportLetter.model_validate_json(body)
    except ValidationError as error:
        return ReportRefusal(ReportRefusedAs.BODY, _first_problem(error))


def letter(
    *,
    utilization: Decimal,
    queue_depth: int,
    reported_at: datetime,
    models: tuple[ModelLetter, ...] = (),
) -> bytes:
    """A letter as an agent sends it."""
    said = ReportLetter(
        utilization=utilization, queueDepth=queue_depth, models=models, reportedAt=reported_at
    )
    return said.model_dump_json(by_alias=True).encode()


def _first_problem(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "the body"
    return f"{where}: {first['msg']}"[:MAX_DETAIL]
