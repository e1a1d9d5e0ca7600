"""What the provider decides about its instances, before it is signed."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

from pydantic import ConfigDict, Field

from wire.node import Hall, InstanceId, Letter
from wire.notices import MAX_DETAIL, MAX_WARNING_SECONDS, NoticeCause, NoticeKind

WARNING_SECONDS = 120
# One request takes back a hall; more instances than this are several requests.
MAX_DECISIONS = 10_000


class _Order(Letter):
    """What the provider's own tools send: a field that is not known is a mistake, not a newer sender."""

    model_config = ConfigDict(extra="forbid")


class Decision(_Order):
    """One instance ends, or may end, `seconds` from now. The moment of deciding is the relay's own."""

    instance_id: InstanceId
    hall: Hall
    kind: Literal[NoticeKind.HARD, NoticeKind.ADVISORY] = NoticeKind.HARD
    cause: NoticeCause = NoticeCause.RECLAIM
    seconds: Annotated[float, Field(ge=0, le=MAX_WARNING_SECONDS)] = WARNING_SECONDS
    reason: Annotated[str, Field(max_length=MAX_DETAIL)] = ""


class Decisions(_Order):
    decisions: Annotated[tuple[Decision, ...], Field(min_length=1, max_length=MAX_DECISIONS)]


class Withdrawals(_Order):
    notice_ids: Annotated[tuple[UUID, ...], Field(min_length=1, max_length=MAX_DECISIONS)]
    reason: Annotated[str, Field(max_length=MAX_DETAIL)] = ""
