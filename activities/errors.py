"""How a provider's failure is told to Temporal."""

from __future__ import annotations

from datetime import timedelta

from temporalio.exceptions import ApplicationError

from activities.ports import ProviderError, ProviderErrorKind

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
