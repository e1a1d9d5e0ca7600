"""What an error becomes: a status and a text that say no more than the caller may know."""

from __future__ import annotations

from grpc import StatusCode
from psycopg import errors
from sqlalchemy import exc

from api.grpc.calls import Refused
from api.sign_in.keys import KeysUnavailable

AWAY = "the database cannot be reached now; send it again"
LATE = "the deadline was over before the work was done; nothing was kept"
NO_KEYS = "tokens cannot be verified now, the issuer's keys are not at hand; send it again"
BUSY = "the service is busy; send it again"
CONTENDED = "other calls changed the same pools at the same time; send it again"
RACES = (errors.SerializationFailure, errors.DeadlockDetected, errors.LockNotAvailable)
# What Postgres answers while it starts, stops or has no connection left, and what a broken one ends with.
GONE = (errors.OperationalError, errors.InterfaceError, OSError)
# In this order: the first that fits. A time-out of ours is an OSError too.
TOLD_AS: tuple[tuple[tuple[type[Exception], ...], StatusCode, str], ...] = (
    ((exc.TimeoutError,), StatusCode.RESOURCE_EXHAUSTED, BUSY),
    ((TimeoutError, errors.QueryCanceled), StatusCode.DEADLINE_EXCEEDED, LATE),
    (RACES, StatusCode.ABORTED, CONTENDED),
    ((KeysUnavailable,), StatusCode.UNAVAILABLE, NO_KEYS),
    (GONE, StatusCode.UNAVAILABLE, AWAY),
)


def refusal_of(error: Exception) -> Refused | None:
    """How an error is told, or None for one that nobody foresaw."""
    if isinstance(error, Refused):
        return error
    cause = error.orig if isinstance(error, exc.DBAPIError) else error
    for kinds, code, text in TOLD_AS:
        if isinstance(cause, kinds):
            return Refused(code, text, retry=code is not StatusCode.DEADLINE_EXCEEDED)
    return None


def unforeseen(request_id: str) -> Refused:
    text = f"the call failed; the service's log has it as request {request_id}"
    return Refused(StatusCode.INTERNAL, text)
