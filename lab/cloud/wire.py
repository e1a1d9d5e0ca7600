"""What may happen to a request on its way: faults of the network, the gateway, and of servers that change
while a request is under way. Those of the services themselves are in `lab.cloud.faults`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from domain.model import Frozen

MAX_LATE_SECONDS = 60.0


class Act(StrEnum):
    """What a request does, as far as faults tell requests apart."""

    CREATE = "create"
    LIST = "list"
    DELETE = "delete"
    TOKEN = "token"  # noqa: S105 - no secret
    FIND = "find"
    DELETED_SINCE = "deleted_since"
    TAG = "tag"


class WireKind(StrEnum):
    """What goes wrong. `before` and `after` say whether the work has been done by then."""

    THROTTLED = "throttled"
    ERROR_BEFORE = "error_before"
    ERROR_AFTER = "error_after"
    SILENT_BEFORE = "silent_before"
    SILENT_AFTER = "silent_after"
    DROPPED_BEFORE = "dropped_before"
    DROPPED_AFTER = "dropped_after"
    DROPPED_MID_BODY = "dropped_mid_body"
    MALFORMED = "malformed"
    TRUNCATED = "truncated"
    EMPTY_LIST = "empty_list"
    FAILED_PAGE = "failed_page"
    PARTIAL_LIST = "partial_list"
    UNFILTERED = "unfiltered"
    CARRIED_OUT_LATE = "carried_out_late"
    TAKEN_AWAY = "taken_away"
    TURNS_TO_ERROR = "turns_to_error"
    LOSES_TAGS = "loses_tags"


class WireFault(Frozen):
    """Which requests to hit, and how.

    It skips `after` requests that it could hit, then hits `times` (None: every one). `status` is the
    answer of the error kinds; before the work a 404 is a gateway's own page. `page` is how many servers a
    page shows where pages matter. What is carried out late is accepted at once and done after
    `delay_seconds` of real time. Servers are changed among those that have all of `victims` as metadata,
    and are not `spared`.
    """

    act: Act
    kind: WireKind
    region: str | None = None
    times: Annotated[int, Field(ge=1)] | None = 1
    after: Annotated[int, Field(ge=0)] = 0
    status: Annotated[int, Field(ge=400, le=599)] = 503
    retry_after_seconds: Annotated[int, Field(ge=0)] = 1
    delay_seconds: Annotated[float, Field(ge=0, le=MAX_LATE_SECONDS)] = 1.0
    page: Annotated[int, Field(ge=1)] = 2
    victims: tuple[tuple[str, str], ...] = ()
    spared: frozenset[str] = frozenset()


@dataclass(slots=True)
class ArmedFault:
    """A fault in force: how often it was met, how often it came true, and which servers it changed."""

    fault: WireFault
    met: int = 0
    fired: int = 0
    struck: list[str] = field(default_factory=list)

    @property
    def spent(self) -> bool:
        return self.fault.times is not None and self.fired >= self.fault.times

    def is_due(self) -> bool:
        """Count a request that could be hit; whether it is."""
        self.met += 1
        if self.met <= self.fault.after:
            return False
        self.fired += 1
        return True


_PATHS: tuple[tuple[str, re.Pattern[str], Act], ...] = (
    ("POST", re.compile(r"/compute/.*/servers$"), Act.CREATE),
    ("DELETE", re.compile(r"/servers/[0-9a-f-]{36}$"), Act.DELETE),
    ("GET", re.compile(r"/servers/[0-9a-f-]{36}$"), Act.FIND),
    ("PUT", re.compile(r"/servers/[0-9a-f-]{36}/tags$"), Act.TAG),
    ("POST", re.compile(r"^/identity/v3/auth/tokens$"), Act.TOKEN),
)


def act_of(method: str, path: str, query: str) -> Act | None:
    """What a request does, None when no fault cares."""
    if method == "GET" and path.endswith("/servers/detail"):
        return Act.DELETED_SINCE if "changes-since=" in query else Act.LIST
    return next((act for verb, pattern, act in _PATHS if verb == method and pattern.search(path)), None)


@dataclass(slots=True)
class WirePlan:
    """The faults in force, in the order in which they were armed; the first that can hit a request does."""

    armed: list[ArmedFault] = field(default_factory=list)

    def arm(self, fault: WireFault) -> ArmedFault:
        armed = ArmedFault(fault)
        self.armed.append(armed)
        return armed

    def disarm(self) -> None:
        self.armed.clear()

    def meets(self, act: Act | None, region: str | None) -> ArmedFault | None:
        for armed in self.armed:
            fault = armed.fault
            at_home = act is Act.TOKEN or fault.region in (None, region)
            if not armed.spent and fault.act is act and at_home:
                return armed
        return None
