"""The lines that workloads and the agent exchange: one JSON object each way, one line each.

A line asks or reports. None is an order: there is no operation that changes what becomes of others' work.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from agent.socket_peer import Peer

# Far more than any line takes.
MAX_LINE = 4096
MAX_REASON = 120
Whole = Annotated[int, Field(ge=0, lt=2**53, strict=True)]


class Refused(StrEnum):
    """Why a line was not taken."""

    TOO_LONG = "too_long"
    MALFORMED = "malformed"
    TOO_OFTEN = "too_often"
    TOO_MANY = "too_many"
    FOREIGN = "foreign"


class _Line(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, extra="ignore", frozen=True)


class AskNotice(_Line):
    """Is the node wanted back?"""

    op: Literal["notice"]


class Watch(_Line):
    """The same, and every change of the answer from now on."""

    op: Literal["watch"]


class Checkpointed(_Line):
    """A generation of a checkpoint is complete in the store."""

    op: Literal["checkpointed"]
    generation: Whole
    bytes: Whole
    final: bool = False


class Released(_Line):
    """The store could not be reached: no generation was written and the lease was let go."""

    op: Literal["released"]
    generation: Whole = 0
    reason: Annotated[str, Field(max_length=MAX_REASON)] = ""


class Ended(_Line):
    """The work of which the sender is a process has ended, or ends with it; below 0, by a signal."""

    op: Literal["ended"]
    exit_code: Annotated[int, Field(ge=-64, le=255, strict=True)]


Request = AskNotice | Watch | Checkpointed | Released | Ended
_REQUEST: TypeAdapter[Request] = TypeAdapter(Annotated[Request, Field(discriminator="op")])


class EndReport(NamedTuple):
    """What a process says of the end of its own work, and which one it is."""

    said: Ended
    peer: Peer


class CheckpointReport(NamedTuple):
    """What a workload says about its checkpoints, and who it is. Nothing in it has been verified."""

    said: Checkpointed | Released
    peer: Peer

    @property
    def is_written(self) -> bool:
        """Whether there is a generation to resume from; otherwise the store could not be reached."""
        return isinstance(self.said, Checkpointed)

    @property
    def is_last(self) -> bool:
        """Whether the work says that it will not write again on this node."""
        return isinstance(self.said, Checkpointed) and self.said.final

    def detail(self) -> str:
        """One line for the record."""
        who = f"uid {self.peer.uid}" + (f", pid {self.peer.pid}" if self.peer.pid else "")
        if isinstance(self.said, Released):
            reason = "".join(c if c.isprintable() else "?" for c in self.said.reason)
            return f"lease released ({who}): {reason or 'no reason given'}"
        last = "final, " if self.said.final else ""
        return f"generation {self.said.generation}, {last}{self.said.bytes} bytes ({who})"


def read_request(line: bytes) -> Request | str:
    """What a line asks or reports, or what is wrong with it. Never raises."""
    try:
        return _REQUEST.validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        return f"{where}: {first['msg']}"[:200] if where else first["msg"][:200]
    except RecursionError:
        return "nested too deeply"


def answer(**fields: Any) -> bytes:
    return json.dumps({"ok": True, **fields}, separators=(",", ":")).encode() + b"\n"


def refusal(reason: Refused, message: str) -> bytes:
    fields = {"ok": False, "error": str(reason), "message": message}
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"
