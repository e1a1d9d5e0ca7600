"""The rows and columns of the matrix, and the cells that cannot exist, each with its reason."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from lab.cloud.wire import Act

CREATE, LIST, DELETE, TOKEN = Act.CREATE, Act.LIST, Act.DELETE, Act.TOKEN
FIND, DELETED_SINCE, TAG = Act.FIND, Act.DELETED_SINCE, Act.TAG
STEPS = (CREATE, LIST, DELETE, TOKEN, FIND, DELETED_SINCE, TAG)
READS = (LIST, FIND, DELETED_SINCE)
WITHOUT_BODY = (DELETE,)


class Fault(StrEnum):
    """What goes wrong, in the words of the table."""

    THROTTLED = "429 with Retry-After"
    ERROR_500 = "500 before the work"
    ERROR_502 = "502 before the work"
    ERROR_503 = "503 before the work"
    DONE_503 = "503 after the work"
    DONE_504 = "504 after the work"
    SILENT_BEFORE = "silence before the work"
    SILENT_AFTER = "silence after the work"
    DROPPED_BEFORE = "connection dropped before the work"
    DROPPED_AFTER = "connection dropped after the work"
    DROPPED_MID_BODY = "connection dropped in mid-body"
    MALFORMED = "answer is not JSON"
    TRUNCATED = "answer is cut short"
    EMPTY_LIST = "empty 200 list"
    FAILED_PAGE = "a later page fails"
    PARTIAL_LIST = "pages are missing"
    UNFILTERED = "the filter is ignored"
    QUOTA = "403 quota"
    CONFLICT = "409"
    NOT_FOUND = "404 of a gateway"
    UNAUTHORIZED = "401"
    NO_VALID_HOST = "no valid host"
    BUILD_ERROR = "build ends in ERROR"
    STUCK_BUILD = "build never ends"
    NEVER_SHOWN = "accepted and not created"
    LATE = "accepted and done late"
    VERY_LATE = "accepted and done after the settle time"
    FEWER = "fewer servers than asked"
    GONE_404 = "404 after deleting"
    GONE_409 = "409 after deleting"
    GONE_500 = "500 after deleting"
    TAKEN_AWAY = "a server is taken away"
    TURNS_TO_ERROR = "a server goes to ERROR"
    LOSES_TAGS = "a server loses its tags"


class Cell(NamedTuple):
    """One fault at one step."""

    fault: Fault
    step: Act

    def __str__(self) -> str:
        return f"{self.fault.value} x {self.step.value}"


_ONLY_CREATES = "only a create asks for capacity"
_READ_HAS_NO_EFFECT = "a read has no effect, so before and after are one"
_NO_BODY = "its answer has no body"
_NOT_A_LIST = "its answer is not a list"
_NO_FILTER = "it asks for no filter"
_ONLY_DELETES = "only a delete can have deleted"
_NO_CONFLICT = "a read or a sign-in conflicts with nothing"
_DONE_AT_ONCE = "it is answered with its result, not accepted for later"
_NO_SERVER = "a sign-in is about no server"
_ONLY_LISTS_TELL = "servers are judged by lists only"

_FOR_CREATES = (
    Fault.QUOTA,
    Fault.NO_VALID_HOST,
    Fault.BUILD_ERROR,
    Fault.STUCK_BUILD,
    Fault.NEVER_SHOWN,
    Fault.FEWER,
)
_FOR_DELETES = (Fault.GONE_404, Fault.GONE_409, Fault.GONE_500)
_AFTER = (Fault.DONE_503, Fault.DONE_504, Fault.SILENT_AFTER, Fault.DROPPED_AFTER)
_FOR_LISTS = (Fault.EMPTY_LIST, Fault.FAILED_PAGE, Fault.PARTIAL_LIST)
IN_BODY = (Fault.DROPPED_MID_BODY, Fault.MALFORMED, Fault.TRUNCATED)
_LATER = (Fault.LATE, Fault.VERY_LATE)
_STRIKES = (Fault.TAKEN_AWAY, Fault.TURNS_TO_ERROR, Fault.LOSES_TAGS)


def impossible(cell: Cell) -> str | None:
    """Why a cell cannot exist; None where it can."""
    fault, step = cell
    rules: tuple[tuple[bool, str], ...] = (
        (fault in _FOR_CREATES and step is not CREATE, _ONLY_CREATES),
        (fault in _FOR_DELETES and step is not DELETE, _ONLY_DELETES),
        (fault in _AFTER and step in READS, _READ_HAS_NO_EFFECT),
        (fault in IN_BODY and step in WITHOUT_BODY, _NO_BODY),
        (fault in _FOR_LISTS and step not in (LIST, DELETED_SINCE), _NOT_A_LIST),
        (fault is Fault.UNFILTERED and step not in (LIST, DELETED_SINCE), _NO_FILTER),
        (fault is Fault.CONFLICT and step in (*READS, TOKEN), _NO_CONFLICT),
        (fault in _LATER and step not in (CREATE, DELETE), _DONE_AT_ONCE),
        (fault is Fault.VERY_LATE and step is DELETE, "a delete has no settle time"),
        (fault in _STRIKES and step is TOKEN, _NO_SERVER),
        (fault in _STRIKES and step not in (CREATE, LIST, DELETE), _ONLY_LISTS_TELL),
    )
    return next((why for applies, why in rules if applies), None)


def cells() -> Iterator[Cell]:
    """Every cell that can exist, row by row."""
    for fault in Fault:
        for step in STEPS:
            if impossible(Cell(fault, step)) is None:
                yield Cell(fault, step)


# The client is told of these, and nothing at the provider is other than it seems: they cost time only.
TOLD = frozenset(
    {
        Fault.THROTTLED,
        Fault.ERROR_500,
        Fault.ERROR_502,
        Fault.ERROR_503,
        Fault.SILENT_BEFORE,
        Fault.DROPPED_BEFORE,
        Fault.DROPPED_MID_BODY,
        Fault.MALFORMED,
        Fault.TRUNCATED,
        Fault.FAILED_PAGE,
        Fault.UNFILTERED,
        Fault.UNAUTHORIZED,
    }
)


def costs_time_only(cell: Cell) -> bool:
    """Whether no launch may fail, no instance be lost and no server be made twice under this fault."""
    if cell.step is CREATE:
        return cell.fault in TOLD | set(_AFTER) | {Fault.LATE}
    return cell.fault in TOLD | set(_AFTER) | set(_FOR_DELETES) | {
        Fault.CONFLICT,
        Fault.NOT_FOUND,
        Fault.LATE,
    }


def may_be_made_twice(cell: Cell) -> bool:
    """Whether a batch may have more servers than slots for a while: its servers were hidden too long."""
    return cell.fault in (Fault.VERY_LATE, Fault.EMPTY_LIST, Fault.PARTIAL_LIST) and cell.step in (
        CREATE,
        LIST,
    )
