"""What a failure of the provider means: every exception of the client libraries, as `ProviderError`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus

import requests
from keystoneauth1.exceptions import ClientException
from openstack.exceptions import SDKException
from urllib3.exceptions import ConnectTimeoutError, MaxRetryError, NewConnectionError

from activities.errors import QUOTA_TEXT
from activities.ports import ProviderError, ProviderErrorKind

# The libraries' own, and what they raise on an answer that is no JSON or lacks what it must have.
PROVIDER_EXCEPTIONS = (
    SDKException,
    ClientException,
    requests.RequestException,
    LookupError,
    TypeError,
    ValueError,
)

MAX_SAID_LENGTH = 400
MAX_RETRY_AFTER_SECONDS = 3_600.0
_KINDS: dict[int, ProviderErrorKind] = {
    HTTPStatus.BAD_REQUEST: ProviderErrorKind.BAD_REQUEST,
    # Credentials that are not accepted stop a whole region until they are replaced.
    HTTPStatus.UNAUTHORIZED: ProviderErrorKind.UNAVAILABLE,
    HTTPStatus.NOT_FOUND: ProviderErrorKind.NOT_FOUND,
    HTTPStatus.REQUEST_TIMEOUT: ProviderErrorKind.UNAVAILABLE,
    HTTPStatus.CONFLICT: ProviderErrorKind.CONFLICT,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: ProviderErrorKind.THROTTLED,
    HTTPStatus.TOO_MANY_REQUESTS: ProviderErrorKind.THROTTLED,
}
_THROTTLED = frozenset(status for status, kind in _KINDS.items() if kind is ProviderErrorKind.THROTTLED)
_SAID_KEYS = ("message", "error_message", "detail", "faultstring")


def provider_error(
    error: BaseException, *, region: str, attempted: str, creates: bool, now: datetime
) -> ProviderError:
    """The ProviderError for a failure of `attempted`, an act in words such as "create 3 servers".

    `creates` says that the act is a create, whose effect may stay unknown. The message names the
    region, the act, what the provider said and its request id; never a credential or a token.
    """
    prefix = f"{region}: could not {attempted}"
    for each in _chain(error):
        response = getattr(each, "response", None)
        if isinstance(response, requests.Response):
            return _refused(response, prefix, creates, now)
        if isinstance(each, requests.RequestException):
            return _unreachable(each, prefix, creates)
    known = isinstance(error, SDKException | ClientException)
    kind = ProviderErrorKind.UNAVAILABLE if known else ProviderErrorKind.UNKNOWN
    return ProviderError(kind, f"{prefix}: {type(error).__name__}: {_short(str(error))}", in_doubt=creates)


def _refused(response: requests.Response, prefix: str, creates: bool, now: datetime) -> ProviderError:
    status, said = response.status_code, _said(response)
    in_doubt = creates and status >= HTTPStatus.INTERNAL_SERVER_ERROR and _may_create(response.request)
    request_id = response.headers.get("x-openstack-request-id") or response.headers.get(
        "x-compute-request-id"
    )
    message = (
        f"{prefix}: HTTP {status}, {said or 'nothing more was said'} (request {request_id or 'without id'})"
    )
    return ProviderError(
        _kind_of_login(status) if _is_login(response.request) else _kind_of_status(status, said),
        message,
        in_doubt=in_doubt,
        retry_after_seconds=retry_after_seconds(response, now),
    )


def _unreachable(failure: requests.RequestException, prefix: str, creates: bool) -> ProviderError:
    in_doubt = creates and not _never_sent(failure) and _may_create(failure.request)
    what = "timed out" if isinstance(failure, requests.Timeout) else "failed"
    message = f"{prefix}: the call {what} ({type(failure).__name__}: {_short(str(failure))})"
    return ProviderError(ProviderErrorKind.UNAVAILABLE, message, in_doubt=in_doubt)


def _kind_of_login(status: int) -> ProviderErrorKind:
    """A refused login is no answer to what was attempted: it stops a whole region until it is mended."""
    return ProviderErrorKind.THROTTLED if status in _THROTTLED else ProviderErrorKind.UNAVAILABLE


def _kind_of_status(status: int, said: str) -> ProviderErrorKind:
    if status == HTTPStatus.FORBIDDEN:
        return ProviderErrorKind.QUOTA if QUOTA_TEXT.search(said) else ProviderErrorKind.BAD_REQUEST
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return ProviderErrorKind.UNAVAILABLE
    return _KINDS.get(status, ProviderErrorKind.UNKNOWN)


def _is_login(request: object) -> bool:
    """Whether the request that failed is a login on the way to the act."""
    return str(getattr(request, "url", "")).endswith("/auth/tokens")


def _may_create(request: object) -> bool:
    """Whether the request that failed is the create itself, not a login or a discovery before it.

    A failure that does not tell its request counts as the create: in doubt is the safe side.
    """
    method = getattr(request, "method", None)
    return method is None or (method == "POST" and not _is_login(request))


def _never_sent(failure: requests.RequestException) -> bool:
    """Whether no connection came about, so that the provider cannot have received the request."""
    if isinstance(failure, requests.ConnectTimeout):
        return True
    reasons = [each.reason if isinstance(each, MaxRetryError) else each for each in failure.args]
    if any(isinstance(each, NewConnectionError | ConnectTimeoutError) for each in reasons):
        return True
    return isinstance(failure, requests.exceptions.SSLError) and "certificate verify failed" in str(failure)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception and those it was raised from: keystoneauth hides the one that knows most.

    It ends at a ProviderError: that was an earlier failure, which a caller was handling meanwhile.
    """
    current: BaseException | None = error
    while current is not None and not isinstance(current, ProviderError):
        yield current
        current = current.__cause__ or current.__context__


def _said(response: requests.Response) -> str:
    try:
        body = response.json()
    except ValueError:
        body = response.text if response.headers.get("content-type", "").startswith("text/plain") else ""
    return _short(_words(body))


def _words(body: object) -> str:
    """The provider's own words in an error body, whose shape differs by service."""
    if isinstance(body, str):
        return body
    if isinstance(body, list):
        return _words(body[0]) if body else ""
    if not isinstance(body, dict):
        return ""
    direct = next((body[key] for key in _SAID_KEYS if body.get(key)), None)
    return _words(direct if direct is not None else next(iter(body.values()), ""))


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= MAX_SAID_LENGTH else flat[: MAX_SAID_LENGTH - 1] + "…"


def retry_after_seconds(response: requests.Response, now: datetime) -> float | None:
    """Seconds the provider asks to wait, given as seconds or as a date; None when it does not ask.

    At most an hour, so that one absurd answer does not stop a region for good.
    """
    text = response.headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdigit():
        return min(MAX_RETRY_AFTER_SECONDS, float(text))
    until = _http_date(text)
    if until is None:
        return None
    # The provider's clock is compared with itself where it tells the time.
    seconds = (until - (_http_date(response.headers.get("Date", "")) or now)).total_seconds()
    return min(MAX_RETRY_AFTER_SECONDS, max(0.0, seconds))


def _http_date(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
