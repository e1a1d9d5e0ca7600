"""What nodes and the control plane share: names of nodes, the subjects of the node bus, and its stream."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


def _in_utc(moment: datetime) -> datetime:
    try:
        moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("must be a moment that UTC has a date for") from None
    return moment


# A subject's parts are separated by dots; neither a hall's name nor an instance's id holds one.
InstanceId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$")]
Hall = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]
Name = Annotated[str, Field(min_length=1, max_length=255)]
# Near the years 1 and 9999 an offset leads where no date is.
Moment = Annotated[AwareDatetime, AfterValidator(_in_utc)]
INSTANCE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")

STREAM = "SCO_LIFECYCLE"
# Two parts after the word: what the control plane says of nodes has more, and goes elsewhere.
STREAM_SUBJECTS = ("lifecycle.*.*",)
STREAM_MAX_AGE = timedelta(days=14)


class Letter(BaseModel):
    """The base of what is said on a node. Fields that a newer sender adds are left aside."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True, allow_inf_nan=False
    )


def notice_subject(hall: str, instance_id: str) -> str:
    """Where the provider's relay says what concerns one instance."""
    return f"notices.{hall}.{instance_id}"


def lifecycle_subject(hall: str, instance_id: str) -> str:
    """Where one instance says what happened to it; its permissions let it publish nowhere else."""
    return f"lifecycle.{hall}.{instance_id}"


def receipt_subject(hall: str, instance_id: str) -> str:
    """Where the history tells one instance which of its events it keeps."""
    return f"receipts.{hall}.{instance_id}"


def inbox_prefix(instance_id: str) -> str:
    """Answers to one instance come below this subject, which no other may read."""
    return f"_INBOX_{instance_id}"
