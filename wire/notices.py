"""The provider's notices: an instance will be taken back, may be, or will not be after all.

A notice never carries a command: it names an instance, a moment and why. What is done about it stands in
the bundle that the node already holds.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, NamedTuple, Self
from uuid import UUID

from pydantic import Field, ValidationError, model_validator

from wire.node import Hall, InstanceId, Letter, Moment
from wire.signing import KeyRing, LetterKind, Opened, SigningKey, seal, unseal
from wire.signing import Refusal as LetterRefusal

# The longest span from issue to deadline that is believed; the provider gives 120 s.
MAX_WARNING_SECONDS = 3600
MAX_DETAIL = 200


class NoticeKind(StrEnum):
    HARD = "hard"
    ADVISORY = "advisory"
    WITHDRAWAL = "withdrawal"


class NoticeCause(StrEnum):
    RECLAIM = "reclaim"
    DRILL = "drill"
    OPERATOR = "operator"


class Notice(Letter):
    """One notice. `deadline` is when the instance ends; a withdrawal has none and names what it withdraws."""

    notice_id: UUID
    instance_id: InstanceId
    hall: Hall
    kind: NoticeKind
    cause: NoticeCause
    issued_at: Moment
    deadline: Moment | None = None
    withdraws: UUID | None = None
    reason: Annotated[str, Field(max_length=MAX_DETAIL)] = ""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.kind is NoticeKind.WITHDRAWAL:
            if self.withdraws is None or self.deadline is not None:
                raise ValueError("a withdrawal has withdraws and no deadline")
            return self
        if self.deadline is None or self.withdraws is not None:
            raise ValueError(f"a notice of kind {self.kind} has a deadline and no withdraws")
        if not 0 <= (self.deadline - self.issued_at).total_seconds() <= MAX_WARNING_SECONDS:
            raise ValueError(f"deadline must be 0 to {MAX_WARNING_SECONDS} s after issuedAt")
        return self


class NoticeRefusedAs(StrEnum):
    """Why a notice is not acted upon. The first three come from the letter, the others from its content."""

    FORGED = "forged"
    MALFORMED = "malformed"
    TOO_LARGE = "too_large"
    FOREIGN = "foreign"
    STALE = "stale"
    REPLAYED = "replayed"


class NoticeRefusal(NamedTuple):
    reason: NoticeRefusedAs
    detail: str


def write_notice(notice: Notice, key: SigningKey) -> bytes:
    return seal(LetterKind.NOTICE, notice.model_dump(mode="json", by_alias=True, exclude_none=True), key)


def read_notice(raw: bytes, ring: KeyRing, instance_id: str) -> Notice | NoticeRefusal:
    """A notice for this instance that a known key has signed. Never raises.

    Whether it is stale or a replay depends on what the node knows: that is the rule's to say.
    """
    opened = unseal(LetterKind.NOTICE, raw, ring)
    if not isinstance(opened, Opened):
        return NoticeRefusal(_reason(opened), opened.detail)
    try:
        notice = Notice.model_validate(opened.payload)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        return NoticeRefusal(NoticeRefusedAs.MALFORMED, f"{where}: {first['msg']}"[:MAX_DETAIL])
    if notice.instance_id != instance_id:
        return NoticeRefusal(NoticeRefusedAs.FOREIGN, f"for instance {notice.instance_id}, not {instance_id}")
    return notice


def _reason(refusal: LetterRefusal) -> NoticeRefusedAs:
    known = {"too_large": NoticeRefusedAs.TOO_LARGE, "malformed": NoticeRefusedAs.MALFORMED}
    return known.get(refusal.reason, NoticeRefusedAs.FORGED)
