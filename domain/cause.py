"""Cause: why an instance or its work ended, and whether that may be written into the ledger.

A cause is decided from the notice that stood, the exit code of the work, and what the provider tells of the
server. What none of these says stays unknown; nobody is charged for it.

| notice | the work ended | exit code | the provider tells | cause |
|---|---|---|---|---|
| stood | in time, or no end is known | any | any | that of the notice |
| stood | after the deadline | any | any | that of the notice, and it overran |
| stood | before the notice | an error | any | defect |
| stood | before the notice | none, a signal, unknown | any | unknown |
| none | it ended | an error | any | defect |
| none | any | none, a signal, unknown | that we had it deleted | operator |
| none | any | none, a signal, unknown | deleted, and the pool is reclaimable | reclaim |
| none | any | none, a signal, unknown | deleted, and the pool is not | operator |
| none | any | none, a signal, unknown | an error, a stop, nothing | unknown |
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

# A shell says that a signal ended what it ran by a code above this.
SIGNAL_BASE = 128
HIGHEST_SIGNAL = 64


class Cause(StrEnum):
    RECLAIM = "reclaim"
    DEFECT = "defect"
    OPERATOR = "operator"
    DRILL = "drill"
    UNKNOWN = "unknown"


# What a notice can be given for.
OF_NOTICES = frozenset({Cause.RECLAIM, Cause.DRILL, Cause.OPERATOR})


class Ended(StrEnum):
    """When the work ended, seen from the notice."""

    BEFORE_NOTICE = "before_notice"
    IN_TIME = "in_time"
    AFTER_DEADLINE = "after_deadline"


class Evidence(StrEnum):
    """What the provider tells of a server that is gone. `asked` says that we had it deleted ourselves."""

    NOTHING = "nothing"
    ASKED = "asked"
    DELETED = "deleted"
    ERRORED = "errored"
    STOPPED = "stopped"


class Ending(NamedTuple):
    """What is known of an end. `notice` is the cause of the notice that stood, None without one.

    `ended` is None where no end of the work is known. An exit code below 0 is the signal that ended it.
    """

    notice: Cause | None
    ended: Ended | None = None
    exit_code: int | None = None
    provider: Evidence = Evidence.NOTHING
    is_reclaimable: bool = True


class Verdict(NamedTuple):
    """The cause, and whether the work was still there when the deadline had passed."""

    cause: Cause
    overran: bool = False


def decide(ending: Ending) -> Verdict:
    """The cause of an end, by the table above."""
    if ending.notice is None:
        return Verdict(_without_notice(ending))
    if ending.ended is Ended.BEFORE_NOTICE:
        return Verdict(Cause.DEFECT if is_error(ending.exit_code) else Cause.UNKNOWN)
    cause = ending.notice if ending.notice in OF_NOTICES else Cause.UNKNOWN
    return Verdict(cause, overran=ending.ended is Ended.AFTER_DEADLINE)


def _without_notice(ending: Ending) -> Cause:
    """Only the provider can delete a server that we did not: from guaranteed capacity, a person does."""
    if ending.ended is not None and is_error(ending.exit_code):
        return Cause.DEFECT
    if ending.provider is Evidence.ASKED:
        return Cause.OPERATOR
    if ending.provider is Evidence.DELETED:
        return Cause.RECLAIM if ending.is_reclaimable else Cause.OPERATOR
    return Cause.UNKNOWN


def is_error(exit_code: int | None) -> bool:
    """Whether the work itself said that it failed: a signal comes from somebody else."""
    return exit_code is not None and exit_code > 0 and signal_of(exit_code) is None


def signal_of(exit_code: int | None) -> int | None:
    """The number of the signal that ended the work, as the kernel or a shell tells it."""
    if exit_code is None or exit_code == 0:
        return None
    if exit_code < 0:
        return -exit_code
    return exit_code - SIGNAL_BASE if SIGNAL_BASE < exit_code <= SIGNAL_BASE + HIGHEST_SIGNAL else None


def counts_in_ledger(cause: Cause) -> bool:
    """Whether wasted work of this cause is written into the ledger: not without a cause."""
    return cause is not Cause.UNKNOWN
