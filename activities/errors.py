"""How a provider's failure is told to Temporal."""

from __future__ import annotations

import re
from datetime import timedelta

from temporalio.exceptions import ApplicationError

from activities.ports import ProviderError, ProviderErrorKind

NO_VALID_HOST_TEXT = re.compile(r"no valid host|exhausted all hosts|not enough hosts", re.IGNORECASE)
QUOTA_TEXT = re.compile(r"quota|exceeds? .*limit|limit exceeded", re.IGNORECASE)
# Asking again with the same words cannot succeed; the workflow plans anew instead.
FINAL_KINDS = frozenset(
    {ProviderErrorKind.QUOTA, ProviderErrorKind.BAD_REQUEST, ProviderErrorKind.NO_VALID_HOST}
)


def application_error(error: ProviderError) -> ApplicationError:
    """An ApplicationError whose type is the kind of `error`.

    Its one detail is `{"in_doubt": bool}`. It is retried unless the kind is final, not before the
    time that the provider asked for.
    """
    wait = error.retry_after_seconds
    return ApplicationError(
        str(error),
        {"in_doubt": error.in_doubt},
        type=str(error.kind),
        non_retryable=error.kind in FINAL_KINDS,
        next_retry_delay=timedelta(seconds=wait) if wait is not None else None,
    )


def kind_of_fault(text: str) -> ProviderErrorKind:
    """What the fault of a server in ERROR means. UNKNOWN when the text says nothing we know."""
    if NO_VALID_HOST_TEXT.search(text):
        return ProviderErrorKind.NO_VALID_HOST
    return ProviderErrorKind.QUOTA if QUOTA_TEXT.search(text) else ProviderErrorKind.UNKNOWN
